# SPDX-License-Identifier: Apache-2.0
"""A deadline around awaited work that ends in the project's own error. Nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from launcher.errors import TimedOut


@asynccontextmanager
async def deadline(what: str, seconds: float) -> AsyncIterator[None]:
    """Let the body run for at most ``seconds``.

    Raises:
        TimedOut: it took longer; the body was cancelled where it waited.
    """
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError as error:
        raise TimedOut(f"{what} took longer than {seconds:g} s") from error
