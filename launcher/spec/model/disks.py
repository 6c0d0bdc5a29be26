# SPDX-License-Identifier: Apache-2.0
"""Disks and shared filesystems as the guest sees them; what backs them is in ``volumes``."""

from __future__ import annotations

from msgspec import field

from launcher.spec.model.base import Model
from launcher.spec.model.features import FeatureState
from launcher.spec.model.scalars import Int32


class CustomBlockSize(Model, frozen=True, kw_only=True):
    """API type ``CustomBlockSize``.

    Sizes in bytes.
    """

    discard_granularity: Int32 | None = None
    logical: Int32 | None = None
    physical: Int32 | None = None


class BlockSize(Model, frozen=True, kw_only=True):
    """API type ``BlockSize``."""

    custom: CustomBlockSize | None = None
    match_volume: FeatureState | None = None


class CDRomTarget(Model, frozen=True, kw_only=True):
    """API type ``CDRomTarget``."""

    bus: str | None = None
    readonly: bool | None = None
    tray: str | None = None


class DiskTarget(Model, frozen=True, kw_only=True):
    """API type ``DiskTarget``."""

    bus: str | None = None
    pci_address: str | None = None
    readonly: bool | None = None


class LunTarget(Model, frozen=True, kw_only=True):
    """API type ``LunTarget``.

    A SCSI device passed through; ``reservation`` lets the guest use persistent reservations.
    """

    bus: str | None = None
    readonly: bool | None = None
    reservation: bool | None = None


class Disk(Model, frozen=True, kw_only=True):
    """API type ``Disk``.

    ``boot_order`` counts from 1 over disks and interfaces together; ``tag`` is for the guest's metadata
    only. ``changed_block_tracking`` is None or a wish, not the state.
    """

    name: str
    block_size: BlockSize | None = None
    boot_order: Int32 | None = None
    cache: str | None = None
    cdrom: CDRomTarget | None = None
    changed_block_tracking: bool | None = None
    dedicated_io_thread: bool | None = field(name="dedicatedIOThread", default=None)
    disk: DiskTarget | None = None
    error_policy: str | None = None
    io: str | None = None
    lun: LunTarget | None = None
    serial: str | None = None
    shareable: bool | None = None
    tag: str | None = None


class FilesystemVirtiofs(Model, frozen=True, kw_only=True):
    """API type ``FilesystemVirtiofs``."""


class Filesystem(Model, frozen=True, kw_only=True):
    """API type ``Filesystem``."""

    name: str
    virtiofs: FilesystemVirtiofs
