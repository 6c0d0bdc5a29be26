# SPDX-License-Identifier: Apache-2.0
"""How many threads look at files for the loop (``asyncio.to_thread``). It runs nothing itself."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Final

FILE_THREADS: Final = 64
"""asyncio has as few as 6 on a small machine. A look at storage that hangs (NFS) keeps its thread as long,
and what else needs one waits then: other guests' migrations, and ending a copy that must not run."""


def widen(loop: asyncio.AbstractEventLoop) -> None:
    """Give ``loop`` that many; they are started when they are needed."""
    loop.set_default_executor(ThreadPoolExecutor(FILE_THREADS, thread_name_prefix="files"))
