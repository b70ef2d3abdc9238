"""A register in an SQLite database, for the JobManagers of one host.

The whole backend: a `Backend` declaration, its options, and a register of four verbs. SQLite locks
the database file for the length of a write, so a process that is stopped in the middle of one
delays the others: that is why the backend for one host is ``filesystem``, and this one an example.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import TypeVar

from understudy.config import Configuration, Option
from understudy.config.backends import Backend, Place, Serves
from understudy.config.option import PERIOD, TEXT
from understudy.errors import ConfigurationError, Conflict
from understudy.ha.register import Entry

DIRECTORY = Option(
    "high-availability.sqlite.directory",
    TEXT,
    None,
    "The local directory of the databases, one for each cluster.",
)
POLL_INTERVAL = Option(
    "high-availability.sqlite.poll-interval",
    PERIOD,
    "200 ms",
    "How often a process looks whether a key has changed.",
)

BUSY_S = 5.0
"""How long a verb waits for the writer before it."""

_SCHEMA = """
CREATE TABLE IF NOT EXISTS entries (key TEXT PRIMARY KEY, value BLOB NOT NULL, version INTEGER);
CREATE TABLE IF NOT EXISTS writes (number INTEGER);
INSERT INTO writes SELECT 0 WHERE NOT EXISTS (SELECT * FROM writes);
"""

R = TypeVar("R")


def open_register(cluster_id: str, settings: Mapping[str, str]) -> SqliteRegister:
    """Open the database of one cluster."""
    configuration = Configuration(settings)
    directory = Path(_directory(configuration))
    return SqliteRegister(directory / f"{cluster_id}.db", configuration.get(POLL_INTERVAL))


class SqliteRegister:
    """A register in one database; each verb is one transaction, in a thread."""

    def __init__(self, database: Path, poll_s: float) -> None:
        self._database = database
        self._poll_s = poll_s
        self._threads = ThreadPoolExecutor(1, "understudy-sqlite")
        self._made = False

    async def load(self, key: str) -> Entry | None:
        """Read the key's row."""
        return await self._transaction(lambda database: _load(database, key))

    async def swap(self, key: str, value: bytes | None, expected: str | None) -> str:
        """Replace the key's row; the version is the number of writes to the database so far."""

        def swapped(database: sqlite3.Connection) -> str:
            current = _load(database, key)
            if (current.version if current else None) != expected:
                raise Conflict(f"{key}: expected version {expected}, found {current}")
            database.execute("UPDATE writes SET number = number + 1")
            if value is None:
                database.execute("DELETE FROM entries WHERE key = ?", (key,))
            else:
                database.execute(
                    "REPLACE INTO entries SELECT ?, ?, number FROM writes", (key, value)
                )
            return str(database.execute("SELECT number FROM writes").fetchone()[0])

        return await self._transaction(swapped, write=True)

    async def keys(self, prefix: str) -> list[str]:
        """List the keys of the table."""
        rows = await self._transaction(
            lambda database: database.execute("SELECT key FROM entries").fetchall()
        )
        return sorted(key for (key,) in rows if key.startswith(prefix))

    async def changes(self, key: str) -> AsyncIterator[None]:
        """Wake whenever a poll finds another version."""
        while True:
            seen = await self.load(key)
            yield
            while await self.load(key) == seen:
                await asyncio.sleep(self._poll_s)

    async def _transaction(
        self, work: Callable[[sqlite3.Connection], R], *, write: bool = False
    ) -> R:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, self._transact, work, write)

    def _transact(self, work: Callable[[sqlite3.Connection], R], write: bool) -> R:
        try:
            self._database.parent.mkdir(parents=True, exist_ok=True)
            connection = sqlite3.connect(self._database, timeout=BUSY_S, isolation_level=None)
            with closing(connection), connection:
                if not self._made:
                    connection.executescript(_SCHEMA)
                    self._made = True
                connection.execute("BEGIN IMMEDIATE" if write else "BEGIN")
                return work(connection)
        except sqlite3.Error as error:
            raise OSError(f"{self._database}: {error}") from error


def _load(database: sqlite3.Connection, key: str) -> Entry | None:
    row = database.execute("SELECT value, version FROM entries WHERE key = ?", (key,)).fetchone()
    return Entry(row[0], str(row[1])) if row else None


def _directory(configuration: Configuration) -> str:
    directory = configuration.find(DIRECTORY)
    if not directory:
        raise ConfigurationError(
            f"high-availability.type is sqlite, but {DIRECTORY.key} is not set: name a local "
            "directory that all processes of the cluster see"
        )
    return directory


def _check(configuration: Configuration) -> None:
    _directory(configuration)


BACKEND = Backend(
    register=open_register,
    serves=Serves.HOST,
    options=(DIRECTORY, POLL_INTERVAL),
    check=_check,
    place=lambda configuration: Place(path=_directory(configuration)),
    example={DIRECTORY.key: "/var/lib/understudy"},
)
