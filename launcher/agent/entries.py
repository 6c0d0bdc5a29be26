# SPDX-License-Identifier: Apache-2.0
"""Keeps what is remembered of migrations, in memory and in the store. Decides nothing about it."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from launcher.agent.store import Store
from launcher.errors import LauncherError
from launcher.spec.codec import enc_hook

E = TypeVar("E")


async def keep(entries: dict[str, E], key: str, entry: E, *, store: Store, document: tuple[str, str]) -> None:
    """Put ``entry`` in the place of the one at ``key``, which is the ``document`` (kind, key) of the store.

    Raises:
        LauncherError: the store failed; an entry that was none before is none then.
    """
    new = key not in entries
    entries[key] = entry  # First: what is changed while the store writes is changed in this one.
    try:
        await store.put(*document, msgspec.json.encode(entry, enc_hook=enc_hook))
    except LauncherError:
        if new:
            entries.pop(key, None)
        raise
