"""Keys in a file."""

import asyncio
from pathlib import Path

import pytest

from pileus.controllers.ssh_keys.settings import Location
from pileus.controllers.ssh_keys.source import FileSource
from tests.unit.controllers.ssh_keys.keys import PRIVATE, key, public_key

ANN = key("ann")
pytestmark = pytest.mark.real_time


def source(file: Path) -> FileSource:
    return FileSource(Location("File", "", str(file)), period=0.01)


async def test_a_file_names_users_and_their_keys(tmp_path: Path):
    file = tmp_path / "keys.yaml"
    file.write_text(f"ann: |\n  # hers\n  {ANN.public_key} ann@home\nbob: none\n")

    desired = await source(file).desired()

    assert desired.keys == {ANN}
    assert desired.is_complete


@pytest.mark.parametrize(
    ("text", "told"),
    [
        pytest.param("- a\n", "is not a mapping", id="list"),
        pytest.param("ann: [", "is not a mapping", id="no YAML"),
        pytest.param(PRIVATE, "is not a mapping", id="private key"),
        pytest.param("", "is not a mapping", id="empty"),
        pytest.param("x" * (2 << 20), "larger than", id="large"),
        pytest.param("ann: 5\n", "does not start with a public key algorithm", id="number"),
        pytest.param("{}", "has no entries", id="no users"),
        pytest.param(None, "No such file", id="gone"),
    ],
)
async def test_a_file_that_cannot_be_used_is_a_problem_and_not_shown(
    tmp_path: Path, text: str | None, told: str
):
    file = tmp_path / "keys.yaml"
    if text is not None:
        file.write_text(text)

    desired = await source(file).desired()

    assert not desired.is_complete
    assert told in desired.problems[0]
    assert "b3BlbnNzaC1rZXktdjEA" not in repr(desired)


async def test_a_change_of_the_file_is_noticed_and_nothing_else_is(tmp_path: Path):
    file = tmp_path / "keys.yaml"
    file.write_text(f"ann: {ANN.public_key}\n")
    changes: list[object] = []

    async with asyncio.timeout(30), asyncio.TaskGroup() as group:
        following = group.create_task(source(file).follow(lambda: changes.append(None)))
        while not changes:
            await asyncio.sleep(0.01)
        file.write_text(f"# the same\nann: {ANN.public_key}\n")
        await asyncio.sleep(0.1)
        assert len(changes) == 1
        file.write_text(f"bob: {public_key('bob')}\n")
        while len(changes) < 2:
            await asyncio.sleep(0.01)
        following.cancel()
