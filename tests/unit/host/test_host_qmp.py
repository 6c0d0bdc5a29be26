# SPDX-License-Identifier: Apache-2.0
"""QEMU's out-of-band monitor: asked, refused, silent, gone."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from launcher.errors import CommandFailed, HostUnsupported, TimedOut
from launcher.host.qmp import out_of_band

GREETING = {"QMP": {"version": {}, "capabilities": ["oob"]}}


@asynccontextmanager
async def monitor(path: Path, *answers: dict[str, Any]) -> AsyncIterator[list[dict[str, Any]]]:
    """A monitor that says the greeting and then an answer to each command; events come in between."""
    heard: list[dict[str, Any]] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(json.dumps(GREETING).encode() + b"\r\n")
        for answer in ({"return": {}}, *answers):
            heard.append(json.loads(await reader.readline()))
            writer.write(json.dumps({"event": "MIGRATION"}).encode() + b"\r\n")
            writer.write(json.dumps({**answer, "id": heard[-1]["id"]}).encode() + b"\r\n")
        await reader.read()  # whatever else comes stays without an answer
        writer.close()
        await writer.wait_closed()
        ended.set()

    ended = asyncio.Event()
    server = await asyncio.start_unix_server(serve, path)
    async with server:
        yield heard
        await asyncio.wait_for(ended.wait(), 5)


async def test_a_command_goes_past_the_main_thread(tmp_path: Path) -> None:
    socket = tmp_path / "q"
    async with monitor(socket, {"return": {"status": "fine"}}) as heard:
        answer = await out_of_band(str(socket), "migrate-recover", timeout_s=5, uri="tcp:[::1]:1")
    assert answer == {"status": "fine"}
    assert heard[0]["arguments"] == {"enable": ["oob"]}
    assert (heard[1]["exec-oob"], heard[1]["arguments"]) == ("migrate-recover", {"uri": "tcp:[::1]:1"})


async def test_its_no_is_told_in_its_words(tmp_path: Path) -> None:
    socket = tmp_path / "q"
    refusal = {"error": {"class": "GenericError", "desc": "only when postcopy is paused"}}
    async with monitor(socket, refusal):
        with pytest.raises(CommandFailed, match="only when postcopy is paused"):
            await out_of_band(str(socket), "migrate-recover", timeout_s=5)


async def test_without_a_monitor_it_says_how_to_have_one(tmp_path: Path) -> None:
    with pytest.raises(HostUnsupported, match="monitor beside") as refused:
        await out_of_band(str(tmp_path / "none"), "migrate-recover", timeout_s=5)
    assert "migration.rescue_monitor" in refused.value.hint


async def test_one_that_is_silent_is_not_waited_for(tmp_path: Path) -> None:
    socket = tmp_path / "q"
    async with monitor(socket):
        with pytest.raises(TimedOut):
            await out_of_band(str(socket), "migrate-recover", timeout_s=0.2)
