"""The cloud's state in a SQLite file: acknowledged writes are on disk.

A file that is damaged, in use or of another program is refused. The cloud never starts empty
because its state could not be read.
"""

import os
import sqlite3
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import cast

import msgspec

from pileus.cloud.errors import Misconfigured, Unavailable
from pileus_lab.local.model.records import (
    Balancer,
    Cluster,
    Fault,
    Key,
    Machine,
    Pools,
    Quota,
    Record,
    Route,
    Snapshot,
    Volume,
)
from pileus_lab.local.model.state import State

PRIVATE = 0o600
APPLICATION_ID = 0x50494C45
VERSION = 1
KINDS: Mapping[str, type[Record]] = {
    "machines": Machine,
    "balancers": Balancer,
    "routes": Route,
    "volumes": Volume,
    "snapshots": Snapshot,
    "keys": Key,
    "clusters": Cluster,
    "faults": Fault,
    "pools": Pools,
}
"""The fields of a state that hold records by key."""
SCHEMA = f"""
BEGIN;
CREATE TABLE records (kind TEXT, key TEXT, body BLOB NOT NULL, UNIQUE (kind, key));
CREATE TABLE account (one INTEGER PRIMARY KEY CHECK (one = 1), serial INTEGER, quota BLOB);
INSERT INTO account VALUES (1, 0, '{{}}');
PRAGMA application_id = {APPLICATION_ID};
PRAGMA user_version = {VERSION};
COMMIT;
"""  # noqa: S608 -- made of the constants above
PUT = (
    "INSERT INTO records VALUES (?, ?, ?) ON CONFLICT (kind, key) DO UPDATE SET body=excluded.body"
)


class Journal:
    """One open file; see `open_journal`."""

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self._path = path
        self._connection = connection

    def load(self) -> State:
        """Raises `Misconfigured` if the file contains something that this version did not write."""
        try:
            with _refusing(self._path):
                serial, quota = self._connection.execute(
                    "SELECT serial, quota FROM account"
                ).fetchone()
                rows = self._connection.execute(
                    "SELECT kind, key, body FROM records ORDER BY rowid"
                ).fetchall()
            found: dict[str, dict[str, Record]] = {kind: {} for kind in KINDS}
            for kind, key, body in cast("list[tuple[str, str, bytes]]", rows):
                found[kind][key] = msgspec.json.decode(body, type=KINDS[kind])
            whole = replace(State(), **found)
            return replace(whole, serial=serial, quota=msgspec.json.decode(quota, type=Quota))
        except (msgspec.MsgspecError, KeyError, TypeError) as error:
            raise Misconfigured(f"{self._path} is damaged: {error}; {REMEDY}") from error

    def keep(self, before: State, after: State) -> None:
        """Writes the differences in one transaction and returns when they are on disk.

        Raises `Unavailable` with the file name, for example if the disk is full; then nothing is
        stored.
        """
        puts, gone = difference(before, after)
        try:
            with self._connection as transaction:
                transaction.executemany(PUT, puts)
                transaction.executemany("DELETE FROM records WHERE kind = ? AND key = ?", gone)
                transaction.execute(
                    "UPDATE account SET serial = ?, quota = ?",
                    (after.serial, msgspec.json.encode(after.quota)),
                )
        except sqlite3.Error as error:
            raise Unavailable(f"cannot write {self._path}: {error}; nothing was changed") from error


REMEDY = "restore it from a backup, or move it away to start with an empty cloud"


def difference(
    before: State, after: State
) -> tuple[list[tuple[str, str, bytes]], list[tuple[str, str]]]:
    """The records to write, and the keys to delete."""
    puts: list[tuple[str, str, bytes]] = []
    gone: list[tuple[str, str]] = []
    for kind in KINDS:
        old: Mapping[str, Record] = getattr(before, kind)
        new: Mapping[str, Record] = getattr(after, kind)
        if old is new:
            continue
        changed = ((key, record) for key, record in new.items() if old.get(key) is not record)
        puts.extend((kind, key, msgspec.json.encode(record)) for key, record in changed)
        gone.extend((kind, key) for key in old if key not in new)
    return puts, gone


@contextmanager
def open_journal(path: Path) -> Generator[Journal]:
    """Opens the file, creates it if it does not exist, and locks it while the block lasts.

    Only its owner can read it (mode 0600); SQLite creates its side files with the same mode. Raises
    `Misconfigured` if the file is damaged, in use, of another program or cannot be opened.
    """
    with _refusing(path):
        _create_private(path)
        connection = sqlite3.connect(path, timeout=0, isolation_level="IMMEDIATE")
    try:
        with _refusing(path):
            _prepare(path, connection)
            _keep_private(path)
        yield Journal(path, connection)
    finally:
        connection.close()


def _create_private(path: Path) -> None:
    # A file that exists is not opened: closing it would give up SQLite's locks on it.
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, PRIVATE))


def _keep_private(path: Path) -> None:
    """Restricts the mode of files of an earlier version, which made them readable to others."""
    for each in (path, *(path.with_name(f"{path.name}{end}") for end in ("-wal", "-shm"))):
        with suppress(FileNotFoundError):
            each.chmod(PRIVATE)


def _prepare(path: Path, connection: sqlite3.Connection) -> None:
    connection.execute("PRAGMA locking_mode = EXCLUSIVE")
    if not connection.execute("SELECT 1 FROM sqlite_master").fetchone():
        connection.execute("PRAGMA journal_mode = WAL")
        connection.executescript(SCHEMA)
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if application != APPLICATION_ID:
        raise Misconfigured(f"{path} is a database of another program; use another file")
    if version != VERSION:
        raise Misconfigured(
            f"{path} was written by another version of Pileus (format {version}, not {VERSION})"
        )
    (verdict,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    if verdict != "ok":
        raise Misconfigured(f"{path} is damaged: {verdict}; {REMEDY}")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("BEGIN EXCLUSIVE")
    connection.commit()


@contextmanager
def _refusing(path: Path) -> Generator[None]:
    try:
        yield
    except sqlite3.OperationalError as error:
        if "locked" in str(error):
            raise Misconfigured(
                f"{path} is in use by another local cloud; stop that one"
            ) from error
        raise Misconfigured(f"cannot open {path}: {error}") from error
    except sqlite3.DatabaseError as error:
        raise Misconfigured(f"{path} is damaged or no database: {error}; {REMEDY}") from error
    except OSError as error:
        raise Misconfigured(f"cannot open {path}: {error.strerror}") from error
