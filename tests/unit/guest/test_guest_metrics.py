# SPDX-License-Identifier: Apache-2.0
"""The document of downward metrics, and the channel that a guest asks for it on."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from lxml import etree

from launcher.guest import metrics_channel
from launcher.guest.metrics import NOTHING, Host, metrics_xml
from launcher.host.usage import HostUsage
from launcher.hypervisor.port import DomainUsage

GIB = 2**30
HOST = HostUsage(
    sockets=2,
    cpu_time_s=1234.5,
    free_memory=4 * GIB,
    used_memory=3 * GIB,
    free_swap=GIB,
    used_swap=GIB // 2,
    swapped_in=4096,
    swapped_out=8192,
)
GUEST = DomainUsage(cpu_time_s=12.25, vcpus=3, memory=GIB)


def document(name: str = "node-1") -> bytes:
    return metrics_xml(Host(name=name, qemu="QEMU 7.2.0"), HOST, GUEST, unix_time=1_700_000_000)


def test_every_number_under_its_name() -> None:
    found = {
        (metric.get("context"), metric.findtext("name")): (
            metric.findtext("value"),
            metric.get("type"),
            metric.get("unit"),
        )
        for metric in etree.fromstring(document())
    }
    assert found == {
        ("host", "HostName"): ("node-1", "string", None),
        ("host", "HostSystemInfo"): ("linux", "string", None),
        ("host", "VirtualizationVendor"): ("launcher", "string", None),
        ("host", "VirtProductInfo"): ("QEMU 7.2.0", "string", None),
        ("vm", "TotalCPUTime"): ("12.250000", "real64", "s"),
        ("vm", "ResourceProcessorLimit"): ("3", "uint64", None),
        ("vm", "PhysicalMemoryAllocatedToVirtualSystem"): ("1048576", "uint64", "KiB"),
        ("vm", "ResourceMemoryLimit"): ("1048576", "uint64", "KiB"),
        ("host", "NumberOfPhysicalCPUs"): ("2", "uint64", None),
        ("host", "TotalCPUTime"): ("1234.500000", "real64", "s"),
        ("host", "FreePhysicalMemory"): ("4194304", "uint64", "KiB"),
        ("host", "FreeVirtualMemory"): ("5242880", "uint64", "KiB"),
        ("host", "MemoryAllocatedToVirtualServers"): ("3145728", "uint64", "KiB"),
        ("host", "UsedVirtualMemory"): ("3670016", "uint64", "KiB"),
        ("host", "PagedInMemory"): ("4", "uint64", "KiB"),
        ("host", "PagedOutMemory"): ("8", "uint64", "KiB"),
        ("host", "Time"): ("1700000000", "uint64", "s"),
    }


def test_an_answer_ends_where_readers_expect_it() -> None:
    for text in (document(), NOTHING):
        assert text.endswith(b">\n")
        assert b"\n\n" not in text
        etree.fromstring(text)


def test_names_are_data_and_ascii() -> None:
    text = document("<é&>")
    assert text.isascii()
    assert etree.fromstring(text).findtext("metric/value") == "<é&>"


@pytest.fixture
def short() -> Iterator[Path]:
    """A short path: a unix socket's has at most 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="dm") as directory:
        yield Path(directory) / "s"


@asynccontextmanager
async def qemu(path: Path) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """QEMU's end of the channel, to which the guest's port is connected."""
    arrived: asyncio.Queue[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = asyncio.Queue()
    server = await asyncio.start_unix_server(lambda r, w: arrived.put_nowait((r, w)), path)

    async def report() -> bytes:
        return document()

    serving = asyncio.create_task(metrics_channel.serve(str(path), report))
    async with asyncio.timeout(20):
        reader, writer = await arrived.get()
        try:
            yield reader, writer
        finally:
            writer.close()
            await writer.wait_closed()
            await serving
            server.close()


async def test_a_guest_asks_and_is_answered(short: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics_channel, "PAUSE_S", 0.0)
    async with qemu(short) as (reader, writer):
        for request in (b"GET /metrics/XML\n\n", b"GET /metrics/XML\r\n\r\n"):
            writer.write(request)
            assert await reader.readuntil(b"\n\n") == document() + b"\n"


@pytest.mark.parametrize(
    "request_",
    [
        b"GET /etc/passwd\n\n",
        b"PUT /metrics/XML\n\n",
        b"GET /metrics/XML\nanything\n",
        b"\xff\xfe\n\n",
        b"A" * 100_000 + b"\n",
    ],
)
async def test_all_else_is_an_invalid_request(
    short: Path, request_: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics_channel, "PAUSE_S", 0.0)
    async with qemu(short) as (reader, writer):
        writer.write(request_)
        assert await reader.readuntil(b"\n\n") == b"INVALID REQUEST\n\n"


async def test_nobody_listens(short: Path) -> None:
    async def report() -> bytes:
        return b""

    with pytest.raises(OSError, match="No such file"):
        await metrics_channel.serve(str(short), report)
