"""`pileus` finds its subcommands and says what it has."""

import io
import os
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest

from pileus import version
from pileus.classic.adapter import Adapted
from pileus.cli import providers
from pileus.cli.main import COMMANDS, LAB_COMMANDS, cloud_controller_manager, dispatch, pileus
from pileus.cli.terminal import Terminal
from pileus.cloud.errors import Unauthorized
from pileus.cloud.interface import Cloud, Connect, ProviderConfig
from pileus.cloud.registry import Registry
from pileus.entry_points import EntryPoint
from tests.unit.classic.fakes import Provider


def call(*arguments: str) -> tuple[int, str, str]:
    terminal = Terminal(io.StringIO(), io.StringIO(), {})
    code = dispatch(arguments, terminal)
    return code, written(terminal.out), written(terminal.err)


def written(stream: object) -> str:
    assert isinstance(stream, io.StringIO)
    return stream.getvalue()


@pytest.mark.parametrize("word", ["-h", "--help", "help"])
def test_help_lists_the_commands(word: str):
    code, out, err = call(word)

    assert (code, err) == (0, "")
    assert all(f"\n  {name} " in out for name in (*COMMANDS, *LAB_COMMANDS))


@pytest.mark.parametrize("word", ["version", "--version"])
def test_the_versions_are_printed(word: str):
    code, out, err = call(word)

    assert (code, err) == (0, "")
    assert out == (
        f"Pileus {version.PILEUS} (commit {version.commit()})\nKubernetes {version.KUBERNETES}\n"
    )


def test_run_is_the_cloud_controller_manager():
    assert call("run", "--version")[1].split()[:2] == ["Kubernetes", "v1.37.1"]
    code, out, _ = call("run", "--help")
    assert code == 0
    assert "\n  pileus run [flags]\n" in out


def test_an_unknown_command_is_answered_with_the_one_meant():
    code, out, err = call("versoin")

    assert (code, out) == (1, "")
    assert err.startswith(
        'Error: unknown command "versoin" for "pileus"\ndid you mean pileus version?\nUsage: pileus'
    )


def test_without_a_command_the_usage_is_shown():
    code, _, err = call()

    assert code == 1
    assert err.startswith("A Kubernetes cloud-controller-manager with plan, explain and orphan")
    assert err.endswith("Error: missing command\n")


@pytest.mark.parametrize("command", ["version", "providers"])
def test_arguments_that_mean_nothing_are_refused(command: str):
    code, _, err = call(command, "extra")

    assert code == 1
    assert err.startswith(f'Error: unknown argument "extra"\nUsage: pileus {command} [flags]\n')


def test_the_drop_in_command_takes_its_own_command_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(sys, "argv", ["cloud-controller-manager", "--version"])

    assert cloud_controller_manager() == 0
    line = f"Kubernetes v1.37.1 (Pileus {version.PILEUS}, commit {version.commit()})\n"
    assert capsys.readouterr().out == line


def test_a_user_who_presses_ctrl_c_is_shown_no_traceback(monkeypatch: pytest.MonkeyPatch):
    class Interrupted(io.StringIO):
        def flush(self) -> None:
            raise KeyboardInterrupt

    monkeypatch.setattr(sys, "argv", ["pileus", "version"])
    monkeypatch.setattr(sys, "stdout", Interrupted())

    assert pileus() == 130


def listed(*entries: EntryPoint) -> tuple[int, str, str]:
    terminal = Terminal(io.StringIO(), io.StringIO(), {})
    code = providers.main("pileus providers", (), terminal, Registry(lambda: entries))
    return code, written(terminal.out), written(terminal.err)


def test_providers_are_listed_and_a_broken_one_says_why():
    code, out, _ = listed(EntryPoint("acme", "no_such_module_at_all:connect"))

    assert code == 1
    assert out.startswith("NAME   INSTALLED BY")
    assert "\nacme   an unnamed distribution" in out
    assert "no_such_module_at_all" in out


def test_the_table_of_providers_fits_a_terminal():
    class Narrow(Terminal):
        def width(self, stream: object) -> int:
            return 80

    terminal = Narrow(io.StringIO(), io.StringIO(), {})
    entries = (EntryPoint("acme-" * 12, f"{'no_such_module_' * 5}:connect"),)
    providers.main("pileus providers", (), terminal, Registry(lambda: entries))

    assert max(map(len, written(terminal.out).splitlines())) <= 80


class Blocking:
    def find(self, nodes: object, *, fresh: bool) -> dict[str, str]:
        return {}


class Asking:
    async def find(self, nodes: object, *, fresh: bool) -> dict[str, str]:
        return {}


def connected(instances: object, *arguments: str) -> tuple[int, str, str]:
    @asynccontextmanager
    async def connect(config: ProviderConfig) -> AsyncGenerator[Cloud]:
        if config.text == "wrong":
            raise Unauthorized("the token is expired")
        yield Cloud(name="acme", instances=cast("Any", instances))

    return connecting(connect, *arguments)


def connecting(connect: Connect, *arguments: str) -> tuple[int, str, str]:
    registry = Registry(tuple)
    registry.register("acme", connect)
    terminal = Terminal(io.StringIO(), io.StringIO(), {})
    code = providers.main("pileus providers", ("--connect=acme", *arguments), terminal, registry)
    return code, written(terminal.out), written(terminal.err)


def test_a_provider_is_connected_to_and_its_methods_are_checked(tmp_path: Path):
    assert connected(Asking()) == (0, "acme: ok (instances)\n", "")

    code, out, err = connected(Blocking())
    assert (code, out) == (1, "")
    assert 'provider "acme" is incomplete: instances (Blocking): find() must be `async def`' in err

    (tmp_path / "acme.conf").write_text("wrong")
    code, _, err = connected(Asking(), f"--cloud-config={tmp_path / 'acme.conf'}")
    assert code == 1
    assert 'cloud provider "acme" could not connect: the token is expired' in err


class OnlyGet:
    def get_load_balancer(self, cluster_name: str, service: object) -> None:
        return None


class Balancing(Provider):
    def load_balancer(self) -> Any:
        return OnlyGet()


def test_the_capabilities_of_a_ported_provider_are_checked_too():
    assert connecting(Adapted(cast("Any", lambda _: Provider()))) == (
        0,
        "acme: ok (instances, balancers, routes)\n",
        "",
    )

    code, out, err = connecting(Adapted(cast("Any", lambda _: Balancing())))
    assert (code, out) == (1, "")
    assert "load_balancer() (OnlyGet) lacks the method update_load_balancer()" in err


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("--connect=acmee",), 'unknown cloud provider "acmee"'),
        (("--connect=external",), '"external" is the name of no provider'),
        (("--cloud-config=x",), "--cloud-config needs --connect=NAME"),
        (("--connect=acme", "--cloud-config=/none"), 'cannot read "/none"'),
    ],
)
def test_what_cannot_be_connected_to_is_refused(arguments: tuple[str, ...], text: str):
    registry = Registry(tuple)
    registry.register("acme", cast("Any", lambda _: None))
    terminal = Terminal(io.StringIO(), io.StringIO(), {})

    assert providers.main("pileus providers", arguments, terminal, registry) == 1
    assert text in written(terminal.err)


def test_no_provider_at_all_is_said_in_words():
    assert listed() == (0, "No cloud provider is installed.\n", "")


def test_a_name_offered_twice_is_an_error():
    entry = EntryPoint("acme", "io:StringIO")

    code, out, err = listed(entry, EntryPoint("acme", "io:BytesIO"))

    assert (code, out) == (1, "")
    assert err.startswith('Error: cloud provider "acme" is offered twice')


@pytest.mark.real_time
def test_help_does_not_import_what_only_a_running_manager_needs():
    program = (
        "import sys\n"
        "from pileus.cli.main import dispatch\n"
        "from pileus.cli.terminal import own_terminal\n"
        "dispatch(['run', '--help'], own_terminal())\n"
        "heavy = {'aiohttp', 'cryptography', 'prometheus_client', 'rich', 'asyncio'}\n"
        "sys.exit(','.join(sorted(heavy & set(sys.modules))) or 0)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )

    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.real_time
def test_a_reader_that_goes_away_causes_no_traceback():
    program = (
        "import sys; from pileus.cli.main import pileus;"
        "sys.argv = ['pileus', 'run', '--help']; sys.exit(pileus())"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout
        assert child.stderr
        child.stdout.close()

        assert child.stderr.read() == ""
        assert child.wait(timeout=60) == 1


@pytest.mark.real_time
@pytest.mark.parametrize("unbuffered", ["", "1"], ids=["buffered", "unbuffered"])
@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param(("--help",), id="help"),
        pytest.param(("doctor", "--master=http://127.0.0.1:1"), id="a command about a cluster"),
    ],
)
def test_output_on_a_full_disk_is_an_error_without_a_traceback(
    arguments: tuple[str, ...], unbuffered: str
):
    """Without a buffer, the command itself meets the error; else the end of the program."""
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "pileus", *arguments],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            timeout=50,
            env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
        )

    assert done.returncode == 1
    assert done.stderr == "Error: the output cannot be written: No space left on device\n"
