"""What was acknowledged is there after a kill -9; a bad file is refused by name."""

import asyncio
import json
import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from pileus_lab.apiserver.call import Request
from pileus_lab.apiserver.credentials import CREDENTIALS
from pileus_lab.apiserver.server import Front, ServerInfo, Settings, serving_api
from pileus_lab.apiserver.sqlite import FILE, NotKept, SqliteJournal, Unusable, open_store
from pileus_lab.apiserver.store import Key
from tests.unit.apiserver.caller import MAPS, MASTER

pytestmark = pytest.mark.real_time

WRITER = """
import asyncio, sys
from pathlib import Path
from pileus_lab.apiserver.sqlite import open_store
from pileus_lab.apiserver.store import Key

async def main():
    async with open_store(Path(sys.argv[1]), history=10) as (store, journal):
        shelf = store.shelf("things")
        for number in range(1_000_000):
            key = Key("", f"{number:07}")
            store.write(shelf, key, {"metadata": {"name": key.name}})
            await journal.kept()
            print(store.version, flush=True)

asyncio.run(main())
"""


async def test_a_kill_loses_nothing_that_was_acknowledged(tmp_path: Path):
    command = [sys.executable, "-c", WRITER, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        acknowledged = [int(writer.stdout.readline()) for _ in range(50)]
        os.kill(writer.pid, signal.SIGKILL)

    async with open_store(tmp_path, history=10) as (store, _):
        entries = store.shelf("things").entries

        assert len(entries) >= 50
        assert store.version >= acknowledged[-1]
        assert entries[Key("", "0000049")].version == acknowledged[49]


async def test_a_server_starts_where_it_ended(tmp_path: Path):
    settings = Settings(data=tmp_path)
    async with serving_api(settings) as server:
        made = write(server, "POST", MAPS, {"metadata": {"name": "a"}, "data": {"x": "y"}})
        first = server
    async with serving_api(settings) as server:
        seen = write(server, "GET", f"{MAPS}/a")
        later = write(server, "POST", MAPS, {"metadata": {"name": "b"}})
        again = server

    assert seen == made
    assert int(later["metadata"]["resourceVersion"]) > int(made["metadata"]["resourceVersion"])
    assert (again.authority, again.token) == (first.authority, first.token)
    assert (tmp_path / CREDENTIALS).stat().st_mode & 0o077 == 0
    assert first.token not in repr(first)


def write(server: ServerInfo, method: str, path: str, body: object = None):
    raw = b"" if body is None else json.dumps(body).encode()
    request = Request(method=method, path=path, body=raw, peer=MASTER)
    response = server.api.respond(request)
    assert response.status in {200, 201}, response.body
    return json.loads(response.body)


@pytest.mark.parametrize("damage", ["empty", "garbage", "cut", "foreign"])
async def test_a_damaged_file_is_refused_by_name(tmp_path: Path, damage: str):
    async with serving_api(Settings(data=tmp_path)):
        pass
    file = tmp_path / FILE
    content = file.read_bytes()
    for extra in tmp_path.glob(f"{FILE}-*"):
        extra.unlink()
    file.write_bytes({"empty": b"", "garbage": b"x" * 9000, "cut": content[:6000]}.get(damage, b""))
    if damage == "foreign":
        with sqlite3.connect(file) as database:
            database.execute("CREATE TABLE other (x)")
        database.close()

    with pytest.raises(Unusable, match=str(file)) as refused:
        async with serving_api(Settings(data=tmp_path)):
            pass

    assert refused.value.__traceback__, "it keeps the connection from being collected"
    assert not [
        each for each in Path("/proc/self/fd").iterdir() if os.path.realpath(each) == str(file)
    ]


async def test_a_missing_database_of_an_earlier_server_is_told(tmp_path: Path):
    async with serving_api(Settings(data=tmp_path)):
        pass
    (tmp_path / FILE).unlink()

    with pytest.raises(Unusable, match="is missing"):
        async with serving_api(Settings(data=tmp_path)):
            pass


async def test_a_second_server_on_the_same_folder_is_refused(tmp_path: Path):
    async with serving_api(Settings(data=tmp_path)):
        with pytest.raises(Unusable, match="in use by another server"):
            async with serving_api(Settings(data=tmp_path)):
                pass


async def test_a_full_disk_refuses_the_write_and_nothing_else(tmp_path: Path):
    async with open_store(tmp_path, history=10) as (store, journal):
        shelf = store.shelf("things")
        store.write(shelf, Key("", "a"), {"metadata": {}})
        await journal.kept()
        fill(journal)

        store.write(shelf, Key("", "b"), {"metadata": {"x": "y" * 1_000_000}})
        with pytest.raises(NotKept, match=str(tmp_path / FILE)):
            await journal.kept()

        assert list(shelf.entries) == [Key("", "a")]
        empty(journal)
        store.write(shelf, Key("", "c"), {"metadata": {}})
        await journal.kept()
        assert [k.name for k in shelf.keys] == ["a", "c"]


def fill(journal: SqliteJournal) -> None:
    (pages,) = journal._database.execute("PRAGMA page_count").fetchone()
    journal._database.execute(f"PRAGMA max_page_count = {pages}")


def empty(journal: SqliteJournal) -> None:
    journal._database.execute("PRAGMA max_page_count = 1000000")


async def test_writes_that_wait_together_are_answered_together(tmp_path: Path):
    async with serving_api(Settings(data=tmp_path, max_in_flight=10)) as server:
        front: Front = server.front

        async def create(number: int) -> int:
            body = json.dumps({"metadata": {"name": f"m-{number}"}}).encode()
            request = Request(method="POST", path=MAPS, body=body, peer=MASTER)
            return (await front.respond(request)).status

        async with asyncio.TaskGroup() as tasks:
            running = [tasks.create_task(create(n)) for n in range(15)]

        statuses = sorted(task.result() for task in running)
        assert statuses == [201] * 10 + [429] * 5
