# SPDX-License-Identifier: Apache-2.0
"""Calls about the disks of a running domain: sizes, errors, copies. One libvirt call each, no policy."""

from __future__ import annotations

from typing import Any, cast

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

    async def copy_disk(
        self, uuid: str, target: str, xml: str, *, bandwidth_bps: int = 0, in_step: bool = False
    ) -> None:
        """Begin to copy the disk ``target`` to the file or device of ``xml``, which is there.

        The copy is kept the same as the disk until ``end_disk_copy``, also over a restart of libvirtd.
        ``bandwidth_bps`` 0: no limit; ``in_step``: the guest's writes wait for the copy.

        Raises:
            Conflict: another job of the disk is under way. WrongPhase: the domain does not run.
            HypervisorError: it cannot be copied there.
        """
        # Without TRANSIENT_JOB libvirt refuses domains that are defined. A pivot changes the definition, too.
        flags = libvirt.VIR_DOMAIN_BLOCK_COPY_REUSE_EXT | libvirt.VIR_DOMAIN_BLOCK_COPY_TRANSIENT_JOB
        if in_step:
            flags |= libvirt.VIR_DOMAIN_BLOCK_COPY_SYNCHRONOUS_WRITES
        given = {libvirt.VIR_DOMAIN_BLOCK_COPY_BANDWIDTH: bandwidth_bps} if bandwidth_bps else None
        await self._calls.on_domain(
            uuid,
            # The binding's annotation says "str" for what is a dict of typed parameters.
            lambda domain: domain.blockCopy(target, xml, cast("Any", given), flags),
            what="copy disk",
            lane=LaneName.CHANGE,
        )

    async def disk_copy_progress(self, uuid: str, target: str) -> tuple[int, int] | None:
        """Bytes that a copy of the disk is through with, and those that it has to do; None: there is none.

        The second rises while the guest writes.
        """
        found: Any = await self._calls.on_domain(
            uuid,
            lambda domain: domain.blockJobInfo(target, 0),
            what="look at disk copy",
            lane=LaneName.CONTROL,
        )
        return (int(found["cur"]), int(found["end"])) if found else None

    async def end_disk_copy(self, uuid: str, target: str, *, pivot: bool) -> None:
        """End the copy of a disk: with ``pivot`` the guest writes to the copy from now on, else as before.

        Raises:
            WrongPhase, HypervisorError: there is no copy, or it is not whole yet.
        """
        flags = libvirt.VIR_DOMAIN_BLOCK_JOB_ABORT_PIVOT if pivot else 0
        await self._calls.on_domain(
            uuid,
            lambda domain: domain.blockJobAbort(target, flags),
            what="end disk copy",
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
