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

    discard_granularity: smallest piece that a discard frees
    logical: smallest addressable block, a power of two
    physical: block that the device works with, a power of two and no less than the logical one
    """

    discard_granularity: Int32 | None = None
    logical: Int32 | None = None
    physical: Int32 | None = None


class BlockSize(Model, frozen=True, kw_only=True):
    """API type ``BlockSize``.

    Exactly one of the two.

    custom: sizes given in bytes
    match_volume: take the sizes of the volume behind it
    """

    custom: CustomBlockSize | None = None
    match_volume: FeatureState | None = None


class CDRomTarget(Model, frozen=True, kw_only=True):
    """API type ``CDRomTarget``.

    A CD-ROM drive.

    bus: the bus that it sits on
    readonly: must not be false
    tray: whether the tray starts open or closed
    """

    bus: str | None = None
    readonly: bool | None = None
    tray: str | None = None


class DiskTarget(Model, frozen=True, kw_only=True):
    """API type ``DiskTarget``.

    A plain disk.

    bus: the bus that it sits on
    pci_address: fixed PCI address in the guest
    readonly: the guest cannot write
    """

    bus: str | None = None
    pci_address: str | None = None
    readonly: bool | None = None


class LunTarget(Model, frozen=True, kw_only=True):
    """API type ``LunTarget``.

    A SCSI device passed through.

    bus: the bus that it sits on
    readonly: the guest cannot write
    reservation: the guest may use SCSI persistent reservations
    """

    bus: str | None = None
    readonly: bool | None = None
    reservation: bool | None = None


class Disk(Model, frozen=True, kw_only=True):
    """API type ``Disk``.

    How the guest sees one volume: as a disk, a CD-ROM drive or a LUN (at most one of them).

    name: the volume behind it; unique among the disks
    block_size: block sizes that the guest sees
    boot_order: place in the boot order, from 1, counted over disks and interfaces together
    cache: how the host caches it: none, writethrough or writeback; absent, what the image's file system
        allows
    cdrom: a CD-ROM drive; the only one that may be empty
    changed_block_tracking: whether changed blocks are tracked for incremental backups
    dedicated_io_thread: an I/O thread for this disk alone
    disk: a plain disk
    error_policy: what an I/O error does: stop the guest, be reported to it, be ignored, or stop only
        when space ran out
    io: how QEMU does asynchronous I/O: native, threads or io_uring
    lun: a SCSI device of the host, passed through with its commands
    serial: serial number that the guest reads
    shareable: several guests may write to it; turns caching off
    tag: a label for the guest's metadata, not for the hardware
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
    """API type ``Filesystem``.

    A directory shared with the guest.

    name: the volume that is shared; the guest mounts it by this name
    virtiofs: share it by virtiofs
    """

    name: str
    virtiofs: FilesystemVirtiofs
