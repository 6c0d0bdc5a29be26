# SPDX-License-Identifier: Apache-2.0
"""The agent's database when it is not as it should be: said in words, and the file is left as it is."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from launcher.agent.store import SCHEMA_VERSION, Store
from launcher.errors import StorageError, Unavailable


async def test_a_file_that_is_no_database_is_refused_and_kept(tmp_path: Path) -> None:
    path = tmp_path / "launcher.db"
    path.write_bytes(b"garbage " * 1000)
    with pytest.raises(StorageError, match=r"launcher\.db cannot be read: file is not a database") as caught:
        await Store.open(path)
    assert caught.value.hint
    assert path.read_bytes() == b"garbage " * 1000


async def test_a_database_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "launcher.db"
    await (await Store.open(path)).close()
    with sqlite3.connect(path) as changed:
        changed.execute(f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
    changed.close()
    with pytest.raises(StorageError, match=f"newer launcher .schema {SCHEMA_VERSION + 1}"):
        await Store.open(path)


async def test_a_path_that_cannot_be_opened_is_named(tmp_path: Path) -> None:
    (tmp_path / "launcher.db").mkdir()
    with pytest.raises(StorageError, match=r"launcher\.db cannot be opened: Is a directory"):
        await Store.open(tmp_path / "launcher.db")


async def test_what_passes_by_itself_is_unavailable(tmp_path: Path) -> None:
    path = tmp_path / "launcher.db"
    store = await Store.open(path)
    await store._run(lambda: store._db.execute("PRAGMA busy_timeout = 0"))
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("BEGIN EXCLUSIVE")
    with pytest.raises(Unavailable, match="database is locked"):
        await store.put("outgoing", "a", b"{}")
    holder.execute("ROLLBACK")
    holder.close()
    await store.put("outgoing", "a", b"{}")
    assert await store.documents("outgoing") == {"a": b"{}"}
    await store._run(lambda: store._db.execute("PRAGMA max_page_count = 1"))
    with pytest.raises(Unavailable, match="full"):
        await store.put("outgoing", "b", b"x" * 100_000)
    await store.close()
