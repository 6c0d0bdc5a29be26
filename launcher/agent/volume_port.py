# SPDX-License-Identifier: Apache-2.0
"""What ``api`` may ask of the agent about volumes of instances that run: a protocol, no behaviour."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import msgspec

from launcher.spec.model import Disk, VirtualMachineInstance, Volume

if TYPE_CHECKING:
    from launcher.agent.port import Companions


class AddedVolume(msgspec.Struct, frozen=True, kw_only=True):
    """A volume to be plugged, and the disk that it becomes (None: a plain one on the bus scsi)."""

    volume: Volume
    disk: Disk | None = None


class VolumePort(Protocol):
    """Volumes of running instances, one by one. Raises only ``launcher.errors`` classes."""

    async def add_volume(
        self,
        namespace: str,
        name: str,
        options: AddedVolume,
        companions: Companions,
        *,
        dry_run: bool = False,
    ) -> VirtualMachineInstance:
        """Plug a volume into a running instance; returns when that is recorded."""

    async def remove_volume(
        self, namespace: str, name: str, volume: str, *, dry_run: bool = False
    ) -> VirtualMachineInstance:
        """Unplug a volume that was plugged; returns when that is recorded."""
