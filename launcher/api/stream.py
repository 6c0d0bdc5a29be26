# SPDX-License-Identifier: Apache-2.0
"""Iterating over what the agent streams, so that a caller who leaves ends the agent's side at once."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import TypeVar

Item = TypeVar("Item")


@asynccontextmanager
async def closing(items: AsyncIterator[Item]) -> AsyncIterator[AsyncIterator[Item]]:
    """``items``, closed at the end if they are a generator."""
    try:
        yield items
    finally:
        if isinstance(items, AsyncGenerator):
            await items.aclose()
