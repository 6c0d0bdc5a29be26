# SPDX-License-Identifier: Apache-2.0
"""The durable state of the agent: one SQLite file. It stores and reads records; it decides nothing.

WAL with full synchronisation: what a call returned is on disk. All access goes through one thread, so
writes are ordered and the event loop never waits for a disk. The file holds Secrets that came with
instances: it is created with mode 0600.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import msgspec

from launcher.agent.records import InstanceRecord
from launcher.errors import LauncherError, StorageError, Unavailable
from launcher.plan import steps
from launcher.spec.codec import dec_hook, enc_hook

T = TypeVar("T")

RETRY_AFTER_S = 5.0
SCHEMA_VERSION = 1
_SCHEMA = """
CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS instances (uid TEXT PRIMARY KEY, record BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS journal (
  id INTEGER PRIMARY KEY AUTOINCREMENT, owner TEXT NOT NULL, step TEXT NOT NULL, UNIQUE (owner, step)
);
CREATE TABLE IF NOT EXISTS documents (
  kind TEXT NOT NULL, key TEXT NOT NULL, record BLOB NOT NULL, PRIMARY KEY (kind, key)
) WITHOUT ROWID;
"""


class Store:
    """The SQLite file at ``path``. Open it with ``await Store.open(path)``; close it at the end.

    ``documents`` hold the records of migrations by kind (``outgoing``, ``incoming``), as JSON that their
    owner encodes.
    """

    def __init__(self, path: Path, connection: sqlite3.Connection, thread: ThreadPoolExecutor) -> None:
        self._path = path
        self._db = connection
        self._thread = thread

    @classmethod
    async def open(cls, path: Path) -> Store:
        """Open or create the file.

        Raises:
            StorageError: it is no database, is damaged, or was written by a newer version of launcher.
            Unavailable: it is locked by another process, or the disk is full.
        """
        thread = ThreadPoolExecutor(1, thread_name_prefix="store")
        try:
            connection = await asyncio.get_running_loop().run_in_executor(thread, _connect, path)
        except sqlite3.Error as error:
            raise _told(path, error) from error
        except OSError as error:
            raise StorageError("", f"the database {path} cannot be opened: {error.strerror}") from error
        return cls(path, connection, thread)

    async def close(self) -> None:
        """Close the file; later calls fail."""
        await self._run(self._db.close)
        self._thread.shutdown(wait=True)

    async def _run(self, call: Callable[[], T]) -> T:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, call)
        except sqlite3.Error as error:
            raise _told(self._path, error) from error

    # Instances.

    async def save_instance(self, record: InstanceRecord) -> None:
        """Write one instance."""
        blob = msgspec.json.encode(record, enc_hook=enc_hook)

        def write() -> None:
            with self._db:
                self._db.execute("INSERT OR REPLACE INTO instances VALUES (?, ?)", (record.uid, blob))

        await self._run(write)

    async def instances(self) -> tuple[InstanceRecord, ...]:
        """All instances."""
        rows = await self._run(lambda: self._db.execute("SELECT record FROM instances").fetchall())
        return tuple(msgspec.json.decode(row[0], type=InstanceRecord, dec_hook=dec_hook) for row in rows)

    async def forget_instance(self, uid: str) -> None:
        """Remove one instance; its journal must be empty by then."""

        def write() -> None:
            with self._db:
                self._db.execute("DELETE FROM instances WHERE uid = ?", (uid,))

        await self._run(write)

    # The journal of what was made.

    async def journal_add(self, step: steps.AnyStep) -> None:
        """Note that ``step`` is about to be made; noting it twice is the same as once."""

        def write() -> None:
            with self._db:
                self._db.execute(
                    "INSERT OR IGNORE INTO journal (owner, step) VALUES (?, ?)",
                    (step.owner, steps.encode(step)),
                )

        await self._run(write)

    async def journal_of(self, owner: str) -> tuple[steps.AnyStep, ...]:
        """What was noted for ``owner``, in the order it was made."""
        query = "SELECT step FROM journal WHERE owner = ? ORDER BY id"
        rows = await self._run(lambda: self._db.execute(query, (owner,)).fetchall())
        return tuple(steps.decode(row[0]) for row in rows)

    async def journal_remove(self, step: steps.AnyStep) -> None:
        """Note that ``step`` is released."""

        def write() -> None:
            with self._db:
                self._db.execute(
                    "DELETE FROM journal WHERE owner = ? AND step = ?", (step.owner, steps.encode(step))
                )

        await self._run(write)

    async def journal_owners(self) -> frozenset[str]:
        """Everyone who has something in the journal."""
        rows = await self._run(lambda: self._db.execute("SELECT DISTINCT owner FROM journal").fetchall())
        return frozenset(row[0] for row in rows)

    # Documents of migrations.

    async def put(self, kind: str, key: str, record: bytes) -> None:
        """Write one document."""

        def write() -> None:
            with self._db:
                self._db.execute("INSERT OR REPLACE INTO documents VALUES (?, ?, ?)", (kind, key, record))

        await self._run(write)

    async def documents(self, kind: str) -> dict[str, bytes]:
        """All documents of a kind by key."""
        query = "SELECT key, record FROM documents WHERE kind = ? ORDER BY key"
        rows = await self._run(lambda: self._db.execute(query, (kind,)).fetchall())
        return dict(rows)

    async def remove(self, kind: str, key: str) -> None:
        """Remove one document; absent is fine."""

        def write() -> None:
            with self._db:
                self._db.execute("DELETE FROM documents WHERE kind = ? AND key = ?", (kind, key))

        await self._run(write)


def _connect(path: Path) -> sqlite3.Connection:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o711)
    # Created by us first, so that its mode is right before a secret is in it (SQLite's own files copy it).
    os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
    path.chmod(0o600)
    connection = sqlite3.connect(path, check_same_thread=False, timeout=10)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    if version > SCHEMA_VERSION:
        connection.close()
        raise StorageError(
            "",
            f"the database {path} was written by a newer launcher "
            f"(schema {version}; this one knows {SCHEMA_VERSION})",
            hint="install that version again; an older one cannot read its instances",
        )
    connection.executescript(_SCHEMA)
    connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
    connection.commit()
    return connection


def _told(path: Path, error: sqlite3.Error) -> LauncherError:
    """What SQLite says, as an error of ours. What may pass by itself (locked, disk full) is Unavailable."""
    if isinstance(error, sqlite3.OperationalError):
        return Unavailable(f"the database {path} cannot be used now: {error}", retry_after_s=RETRY_AFTER_S)
    hint = "restore it from a backup, or move it away; guests that run go on, but are not known any more"
    return StorageError("", f"the database {path} cannot be read: {error}", hint=hint)
