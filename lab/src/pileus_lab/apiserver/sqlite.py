"""Stores objects in a SQLite file, so that no acknowledged write is lost.

Changes are collected while the disk is busy and written together: one transaction, one sync.
`Store.settled` follows; if the disk fails, the store undoes the changes.
"""

import asyncio
import sqlite3
from collections.abc import AsyncGenerator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, asynccontextmanager, closing
from pathlib import Path

from pileus.telemetry.log import Log
from pileus_lab.apiserver.store import Change, Key, Store

log = Log(__name__)
FILE = "apiserver.db"
FORMAT = 1
_TABLES = """
CREATE TABLE IF NOT EXISTS objects (
  resource TEXT NOT NULL, namespace TEXT NOT NULL, name TEXT NOT NULL,
  version INTEGER NOT NULL, body BLOB NOT NULL,
  PRIMARY KEY (resource, namespace, name)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS state (name TEXT PRIMARY KEY, value) WITHOUT ROWID;
"""


class Unusable(Exception):
    """The file cannot be used; the message has its name and what to do."""


class NotKept(Exception):
    """A change could not be stored and was undone."""


class SqliteJournal:
    """Writes the changes of a store to a file; see `open_store`."""

    def __init__(self, path: Path, store: Store) -> None:
        self.path = path
        self._store = store
        self._database = _connect(path)
        self._loop = asyncio.get_running_loop()
        self._thread = ThreadPoolExecutor(1, "sqlite")
        self._pending: list[tuple[str, Change]] = []
        self._writing = False
        self._waiters: list[tuple[int, asyncio.Future[None]]] = []

    def append(self, resource: str, change: Change) -> None:
        self._pending.append((resource, change))
        if not self._writing:
            self._begin()

    async def kept(self) -> None:
        """Returns once all changes so far are on disk. Raises `NotKept`."""
        if self._store.settled >= self._store.version:
            return
        waiter = self._loop.create_future()
        self._waiters.append((self._store.version, waiter))
        await waiter

    def load(self) -> None:
        """Restores the stored objects. Raises `Unusable`."""
        store = self._store
        rows = "SELECT resource, namespace, name, version, body FROM objects"
        try:
            for resource, namespace, name, version, body in self._database.execute(rows):
                store.restore(resource, Key(namespace, name), version, body)
            (version,) = self._database.execute(
                "SELECT value FROM state WHERE name = 'version'"
            ).fetchone()
        except (sqlite3.Error, TypeError) as error:
            raise _damaged(self.path, error) from error
        store.resume(version)

    def close(self) -> None:
        """Writes what is left and closes the file."""
        self._thread.shutdown(wait=True)
        try:
            if self._pending:
                self._commit(self._pending)
        except sqlite3.Error as error:
            self._take_back(error)
        finally:
            self._database.close()

    def _begin(self) -> None:
        """Writes the collected changes in the thread; later ones are written next."""
        batch, self._pending = self._pending, []
        self._writing = True
        written = self._thread.submit(self._commit, batch)
        version = batch[-1][1].version
        written.add_done_callback(
            lambda done: self._loop.call_soon_threadsafe(self._end, version, done.exception())
        )

    def _end(self, version: int, error: BaseException | None) -> None:
        self._writing = False
        if isinstance(error, sqlite3.Error):
            self._take_back(error)
        elif error is not None:
            raise error
        else:
            self._settle(version)
        if self._pending:
            self._begin()

    def _settle(self, version: int) -> None:
        self._store.settle(version)
        done = [waiter for wanted, waiter in self._waiters if wanted <= version]
        self._waiters = [(wanted, w) for wanted, w in self._waiters if wanted > version]
        for waiter in done:
            if not waiter.done():
                waiter.set_result(None)

    def _take_back(self, error: sqlite3.Error) -> None:
        """Undoes unacknowledged changes after the disk failed."""
        log.error("Could not write to the database", error=error, file=str(self.path))
        self._pending.clear()
        self._store.undo()
        waiters, self._waiters = self._waiters, []
        for _, waiter in waiters:
            if not waiter.done():
                waiter.set_exception(NotKept(f"cannot write to {self.path}: {error}"))

    def _commit(self, batch: list[tuple[str, Change]]) -> None:
        with self._database as database:
            database.execute("BEGIN IMMEDIATE")
            for resource, change in batch:
                key = (resource, *change.after.key)
                if change.gone:
                    database.execute(_DELETE, key)
                else:
                    database.execute(_PUT, (*key, change.version, change.after.raw))
            database.execute(_VERSION, (batch[-1][1].version,))


_PUT = "INSERT OR REPLACE INTO objects VALUES (?, ?, ?, ?, ?)"
_DELETE = "DELETE FROM objects WHERE resource = ? AND namespace = ? AND name = ?"
_VERSION = "UPDATE state SET value = ? WHERE name = 'version'"


@asynccontextmanager
async def open_store(folder: Path, *, history: int) -> AsyncGenerator[tuple[Store, SqliteJournal]]:
    """Opens the store in this folder, or creates it. Raises `Unusable` with the file name."""
    path = folder / FILE
    if not path.exists():
        _create(path)
    store = Store(history=history)
    journal = SqliteJournal(path, store)
    try:
        journal.load()
        store.journal = journal
        yield store, journal
    finally:
        journal.close()


def _create(path: Path) -> None:
    """Creates a new database atomically: a crash leaves none or a whole one."""
    fresh = path.with_suffix(".new")
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        fresh.unlink(missing_ok=True)
        with closing(sqlite3.connect(fresh)) as database:
            database.executescript(_TABLES)
            values = [("format", FORMAT), ("version", 1)]
            database.executemany("INSERT INTO state VALUES (?, ?)", values)
            database.commit()
        fresh.chmod(0o600)
        fresh.replace(path)
    except (OSError, sqlite3.Error) as error:
        raise Unusable(f"cannot create the database {path}: {error}") from error


def _connect(path: Path) -> sqlite3.Connection:
    """Opens the database; it is closed again if it cannot be used. Raises `Unusable`."""
    with ExitStack() as opened:
        try:
            database = opened.enter_context(
                closing(
                    sqlite3.connect(
                        path, timeout=0.5, isolation_level=None, check_same_thread=False
                    )
                )
            )
            health, found = _examined(database)
        except sqlite3.OperationalError as error:
            if "locked" in str(error):
                used = f"{path} is in use by another server: stop that one first"
                raise Unusable(used) from error
            raise _damaged(path, error) from error
        except (sqlite3.Error, TypeError) as error:
            raise _damaged(path, error) from error
        if health != "ok" or found != FORMAT:
            raise _damaged(path, f"format {found}, check: {health}")
        opened.pop_all()
        return database


def _examined(database: sqlite3.Connection) -> tuple[str, object]:
    """Locks the database. Returns its health and its format."""
    database.execute("PRAGMA locking_mode = EXCLUSIVE")
    database.execute("PRAGMA journal_mode = WAL")
    database.execute("PRAGMA synchronous = FULL")
    (health,) = database.execute("PRAGMA quick_check(1)").fetchone()
    database.execute("BEGIN IMMEDIATE")
    database.execute("COMMIT")
    (found,) = database.execute("SELECT value FROM state WHERE name = 'format'").fetchone()
    return health, found


def _damaged(path: Path, why: object) -> Unusable:
    return Unusable(
        f"the database {path} is damaged or not ours ({why}): restore it from a copy, "
        "or move it away to start empty"
    )
