import sqlite3
import stat
import tempfile
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pileus.cloud.errors import Misconfigured
from pileus_lab.local.journal import open_journal
from pileus_lab.local.model.account import AddFault, AddKey, PutCluster, SetQuota
from pileus_lab.local.model.machines import CreateMachine
from pileus_lab.local.model.records import FaultKind
from pileus_lab.local.model.state import Moment, Request, State
from tests.unit.providers.local.clouds import local_cloud
from tests.unit.providers.local.histories import OPERATION, aimed, tried

MORE = st.one_of(
    OPERATION,
    st.builds(AddKey, user=st.just("u"), public_key=st.just("ssh-rsa AAAAB3NzaC1yc2EAAAAD")),
    st.builds(PutCluster, name=st.just("c"), master=st.text(max_size=3)),
    st.builds(AddFault, kind=st.sampled_from(FaultKind), times=st.none() | st.integers(1, 3)),
    st.builds(SetQuota, limits=st.just({"keys": 7})),
)


@settings(max_examples=25)
@given(st.lists(MORE, max_size=15))
def test_what_is_read_back_is_what_was_kept(operations: list[Request]):
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "state.db"
        state, chance = State(), Random(1)
        with open_journal(path) as journal:
            for planned in operations:
                before = state
                operation = aimed(planned, state)
                state = tried(operation, state, Moment(0.0, chance))
                journal.keep(before, state)

        with open_journal(path) as journal:
            assert journal.load() == state


async def test_a_cloud_goes_on_where_it_was(tmp_path: Path):
    with open_journal(tmp_path / "state.db") as journal:
        before = local_cloud(journal=journal)
        await before.call(CreateMachine(name="a"))

    with open_journal(tmp_path / "state.db") as journal:
        after = local_cloud(journal=journal)

        assert after.state == before.state
        assert (await after.call(CreateMachine(name="b"))).internal == ("127.77.0.2",)


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"this is not a database, however long it may be" * 100, id="text"),
        pytest.param(b"SQLite format 3\0" + bytes(5000), id="header alone"),
    ],
)
def test_a_file_that_is_no_database_is_refused_and_left_alone(tmp_path: Path, content: bytes):
    path = tmp_path / "state.db"
    path.write_bytes(content)

    with pytest.raises(Misconfigured, match=r"state\.db"), open_journal(path):
        pass

    assert path.read_bytes() == content


def test_a_database_of_another_program_is_refused_and_left_alone(tmp_path: Path):
    path = tmp_path / "theirs.db"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE things (x)")
    connection.commit()
    connection.close()
    content = path.read_bytes()

    with pytest.raises(Misconfigured, match=r"theirs\.db.*another program"), open_journal(path):
        pass

    assert path.read_bytes() == content


async def test_a_damaged_page_is_refused(tmp_path: Path):
    path = tmp_path / "state.db"
    with open_journal(path) as journal:
        cloud = local_cloud(journal=journal)
        for number in range(50):
            await cloud.call(CreateMachine(name=f"m{number}", labels={"a": "b" * 200}))
    content = bytearray(path.read_bytes())
    content[4096 * 2 : 4096 * 3] = b"\xff" * 4096
    path.write_bytes(content)

    with pytest.raises(Misconfigured, match=r"state\.db is damaged"), open_journal(path) as journal:
        journal.load()


def test_a_record_that_makes_no_sense_is_refused(tmp_path: Path):
    path = tmp_path / "state.db"
    with open_journal(path) as journal:
        journal._connection.execute("INSERT INTO records VALUES ('machines', 'i-1', '{}')")
        journal._connection.commit()

        with pytest.raises(Misconfigured, match=r"state\.db is damaged.*missing required field"):
            journal.load()


def test_a_later_format_is_refused(tmp_path: Path):
    path = tmp_path / "state.db"
    with open_journal(path) as journal:
        journal._connection.execute("PRAGMA user_version = 99")
        journal._connection.commit()

    with pytest.raises(Misconfigured, match="format 99, not 1"), open_journal(path):
        pass


def test_a_file_that_another_cloud_uses_is_refused(tmp_path: Path):
    path = tmp_path / "state.db"

    with (
        open_journal(path),
        pytest.raises(Misconfigured, match=r"state\.db is in use"),
        open_journal(path),
    ):
        pass


def test_a_directory_that_does_not_exist_is_named(tmp_path: Path):
    with (
        pytest.raises(Misconfigured, match=r"cannot open .*missing/state\.db"),
        open_journal(tmp_path / "missing" / "state.db"),
    ):
        pass


@pytest.mark.parametrize("before", [None, 0o644])
def test_only_the_owner_can_read_the_state(tmp_path: Path, before: int | None):
    path = tmp_path / "state.db"
    if before is not None:
        with open_journal(path):
            pass
        path.chmod(before)

    with open_journal(path) as journal:
        journal.keep(State(), replace(State(), serial=1))
        modes = {each.name: stat.S_IMODE(each.stat().st_mode) for each in tmp_path.iterdir()}

    assert modes.keys() >= {"state.db", "state.db-wal"}
    assert set(modes.values()) == {0o600}
