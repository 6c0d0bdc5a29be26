# SPDX-License-Identifier: Apache-2.0
"""Storage that hangs under some guests delays no other."""

from __future__ import annotations

import asyncio
import threading

from launcher.host.threads import FILE_THREADS, widen


async def test_looks_that_hang_leave_threads_for_others() -> None:
    widen(asyncio.get_running_loop())
    well = threading.Event()
    hanging = [asyncio.create_task(asyncio.to_thread(well.wait, 20.0)) for _ in range(FILE_THREADS - 1)]
    try:
        await asyncio.sleep(0)
        assert await asyncio.wait_for(asyncio.to_thread(lambda: "done"), 10) == "done"
    finally:
        well.set()
        await asyncio.gather(*hanging)
