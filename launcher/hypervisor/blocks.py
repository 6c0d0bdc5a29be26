# SPDX-License-Identifier: Apache-2.0
"""Calls about the disks of a running domain: sizes and errors. One libvirt call each, no policy."""

from __future__ import annotations

from typing import Any

import libvirt

from launcher.hypervisor import translate
from launcher.hypervisor.calls import Calls, LaneName


class BlockCalls:
    """The part of port.Hypervisor about disks in use."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    async def disk_size(self, uuid: str, target: str) -> int:
        """Bytes that the guest sees of the disk ``target``.

        Raises:
            WrongPhase, HypervisorError: there is no such disk, or the domain does not run.
        """
        info = await self._calls.on_domain(
            uuid, lambda domain: domain.blockInfo(target), what="read size of disk", lane=LaneName.CHANGE
        )
        return int(info[0])

    async def resize_disk(self, uuid: str, target: str, size: int) -> None:
        """Let the guest see ``size`` bytes of the disk ``target``; the device behind it must have them."""
        flags = libvirt.VIR_DOMAIN_BLOCK_RESIZE_BYTES
        await self._calls.on_domain(
            uuid,
            lambda domain: domain.blockResize(target, size, flags),
            what="resize disk",
            lane=LaneName.CHANGE,
        )

    async def disk_errors(self, uuid: str) -> dict[str, str]:
        """Disks with an I/O error by target: ``no-space`` or ``unspecified``."""
        # The binding returns a dictionary; its type stubs say text.
        found: Any = await self._calls.on_domain(
            uuid, lambda domain: domain.diskErrors(0), what="read disk errors", lane=LaneName.CHANGE
        )
        return {
            target: translate.named(translate.DISK_ERRORS, number)
            for target, number in found.items()
            if number != libvirt.VIR_DOMAIN_DISK_ERROR_NONE
        }
