"""Foreign commands end: by themselves, or by us."""

import asyncio
import os
from pathlib import Path

import pytest

from pileus.kube.config.exec import ERROR_LIMIT, OUTPUT_LIMIT, Command, run
from pileus.kube.errors import CredentialsError
from tests.unit.kube.config.stage import Stage

pytestmark = pytest.mark.real_time
ENVIRON = {"PATH": "/usr/bin:/bin"}


def command(stage: Stage, text: str) -> Command:
    return Command(str(stage.script(text)), ("first",), ENVIRON)


def is_running(file: Path) -> bool:
    try:
        stat = Path(f"/proc/{int(file.read_text())}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


async def until_written(file: Path) -> None:
    async with asyncio.timeout(20):
        while not file.exists() or not file.read_text().endswith("\n"):
            await asyncio.sleep(0.01)


async def until_gone(file: Path) -> None:
    async with asyncio.timeout(20):
        while is_running(file):
            await asyncio.sleep(0.01)


async def test_output_errors_and_status_are_returned(stage: Stage) -> None:
    finished = await run(command(stage, 'echo "out $1"; echo err >&2; exit 4'), 20)

    assert (finished.status, finished.output, finished.errors) == (4, b"out first\n", "err")


async def test_an_empty_entry_of_path_matters_only_if_the_command_is_found_there(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = stage.script("echo found")
    monkeypatch.chdir("/")

    finished = await run(Command(script.name, (), {"PATH": f":{script.parent}:"}), 20)

    assert finished.output == b"found\n"
    monkeypatch.chdir(script.parent)
    with pytest.raises(CredentialsError, match="in the current folder; remove the entry of PATH"):
        await run(Command(script.name, (), {"PATH": ":/bin"}), 20)


async def test_nothing_can_be_typed_in(stage: Stage) -> None:
    finished = await run(command(stage, "cat; echo end"), 20)

    assert finished.output == b"end\n"


async def test_a_command_that_hangs_is_killed_with_its_children(stage: Stage) -> None:
    child = stage.folder / "child"
    hanging = command(stage, f"sleep 600 & echo $! > {child}; wait")

    with pytest.raises(CredentialsError, match=r"no answer within 0\.5 s"):
        await run(hanging, 0.5)

    if child.exists():
        await until_gone(child)


async def test_who_stops_waiting_kills_it(stage: Stage) -> None:
    child = stage.folder / "child"
    hanging = command(stage, f"sleep 600 & echo $! > {child}; wait")

    async with asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(run(hanging, 60))
        await until_written(child)
        waiting.cancel()

    await until_gone(child)
    assert not is_running(child)


async def test_endless_output_is_refused_without_filling_memory(stage: Stage) -> None:
    much = command(stage, f"head -c {OUTPUT_LIMIT + 1} /dev/zero")

    with pytest.raises(CredentialsError, match="printed more than"):
        await run(much, 20)


async def test_of_many_errors_the_last_are_kept(stage: Stage) -> None:
    much = command(stage, f"head -c {10 * ERROR_LIMIT} /dev/zero >&2; echo the end >&2; exit 1")

    finished = await run(much, 20)

    assert finished.errors.endswith("the end")
    assert len(finished.errors) <= ERROR_LIMIT


async def test_a_file_that_is_no_program_is_told(stage: Stage) -> None:
    path = stage.script("")
    path.write_bytes(b"\x7fELF nonsense")

    with pytest.raises(CredentialsError, match="cannot be started: Exec format error"):
        await run(Command(str(path), (), ENVIRON), 20)


async def test_a_file_that_may_not_be_executed_is_told(stage: Stage) -> None:
    path = stage.script("")
    os.chmod(path, 0o600)

    with pytest.raises(CredentialsError, match="not executable"):
        await run(Command(str(path), (), ENVIRON), 20)
