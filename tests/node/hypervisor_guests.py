# SPDX-License-Identifier: Apache-2.0
"""What the hypervisor tests share: tiny guests, a connected hypervisor, and a recorder of its events."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar
from uuid import uuid4

from launcher.hypervisor.driver import LibvirtHypervisor
from launcher.hypervisor.port import ConnectionEvent, Event, LifecycleEvent

E = TypeVar("E")

WAIT_S = 60.0

# 16-bit code that for ever fills the memory from 1 to 15 MiB with something, by its BIOS, and says "U" on the
# serial port after each round. With little bandwidth it takes a migration 14 s to copy that once:
#   xor ax,ax; mov ds,ax; mov ss,ax; mov sp,0x7c00; cld                  64 KiB at 0x10000 that are not zero
#   mov ax,0x1000; mov es,ax; xor di,di; mov cx,0x8000; mov ax,0x5a5a; rep stosw; xor ax,ax; mov es,ax
#   again: mov byte [dst+4],0x10                                         bits 16-23 of where to copy it
#   next: mov si,gdt; mov cx,0x8000; mov ah,0x87; int 0x15; inc byte [dst+4]; cmp byte [dst+4],0xf0; jne next
#   mov dx,0x3f8; mov al,'U'; out dx,al; jmp again
#   gdt: two empty descriptors, src, dst (65536 bytes, writable), two empty descriptors
DIRTYING = bytes.fromhex(
    "31c08ed88ed0bc007cfcb800108ec031ffb90080b85a5af3ab31c08ec0c6065b7c10be3f7cb90080b487cd15fe065b7c803e"
    "5b7cf075ebbaf803b055eeebde00000000000000000000000000000000ffff000001930000ffff00001093"
)


def new_uuid() -> str:
    """A fresh domain UUID."""
    return str(uuid4())


def domain_xml(uuid: str, *, name: str = "", disk: Path | None = None, extra: str = "", os: str = "") -> str:
    """A q35 guest of 32 MiB under TCG, without code unless it has a ``disk``."""
    source = (
        f"<disk type='file' device='disk'><driver name='qemu' type='raw'/><source file='{disk}'/>"
        "<target dev='vda' bus='virtio'/><readonly/></disk>"
        if disk
        else ""
    )
    return f"""
      <domain type='qemu'>
        <name>{name or f"hv-{uuid[:8]}"}</name><uuid>{uuid}</uuid>
        <memory unit='MiB'>32</memory><vcpu>1</vcpu>
        <os><type arch='x86_64' machine='q35'>hvm</type>{os}</os>
        <features><acpi/></features>
        <cpu mode='custom' match='exact' check='none'><model fallback='forbid'>qemu64</model></cpu>
        <devices>{source}<controller type='usb' model='none'/><memballoon model='none'/>{extra}</devices>
      </domain>"""


def dirtying_xml(folder: Path) -> str:
    """A guest that keeps dirtying memory once ``dirtying`` has seen it do so; its files are in ``folder``."""
    disk = folder / "dirtying.img"
    disk.write_bytes(DIRTYING.ljust(510, b"\0") + b"\x55\xaa" + bytes(1024 * 1024 - 512))
    serial = f"<serial type='file'><source path='{folder}/serial.log' append='on'/></serial>"
    return domain_xml(new_uuid(), disk=disk, extra=serial)


async def dirtying(folder: Path) -> None:
    """Wait until the guest of ``dirtying_xml`` is past its BIOS and writes memory."""
    log = folder / "serial.log"
    async with asyncio.timeout(WAIT_S):
        while not (log.exists() and "U" in log.read_text(errors="replace")):
            await asyncio.sleep(0.05)


class Recorder:
    """Every event of a hypervisor, in order, and waiting for one."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._changed = asyncio.Event()

    def __call__(self, event: Event) -> None:
        self.events.append(event)
        self._changed.set()

    async def wait(self, kind: type[E], test: Callable[[E], bool] = lambda _: True, *, after: int = 0) -> E:
        """The first event of ``kind`` that passes ``test``, not counting the first ``after`` ones."""
        async with asyncio.timeout(WAIT_S):
            while True:
                self._changed.clear()
                for event in self.events[after:]:
                    if isinstance(event, kind) and test(event):
                        return event
                await self._changed.wait()

    async def lifecycle(self, uuid: str, event: str, detail: str, *, after: int = 0) -> LifecycleEvent:
        """The lifecycle event of a domain."""
        return await self.wait(
            LifecycleEvent,
            lambda found: (found.uuid, found.event, found.detail) == (uuid, event, detail),
            after=after,
        )


@asynccontextmanager
async def connected(
    uri: str, *, call_timeout_s: float = 30.0
) -> AsyncIterator[tuple[LibvirtHypervisor, Recorder]]:
    """A hypervisor that is connected, and its recorder."""
    hypervisor, recorder = LibvirtHypervisor(uri, call_timeout_s=call_timeout_s), Recorder()
    hypervisor.subscribe(recorder)
    await hypervisor.start()
    try:
        await recorder.wait(ConnectionEvent, lambda event: event.up)
        yield hypervisor, recorder
    finally:
        await hypervisor.close()


@asynccontextmanager
async def guest(hypervisor: LibvirtHypervisor, xml: str, *, paused: bool = True) -> AsyncIterator[str]:
    """A started domain by its UUID, ended and forgotten afterwards."""
    uuid = await hypervisor.define(xml)
    try:
        await hypervisor.create(uuid, paused=paused)
        yield uuid
    finally:
        await hypervisor.destroy(uuid, graceful=False)
        await hypervisor.undefine(uuid)
