# SPDX-License-Identifier: Apache-2.0
"""What each device of a domain will be: plain records, one for each libvirt element. Nothing is decided here.

An attribute that is None is not written to the domain XML: libvirt chooses. Paths are absolute.
"""

from __future__ import annotations

from typing import Literal

import msgspec

ImageFormat = Literal["raw", "qcow2"]


# gc=False: plans are trees of values, free of cycles, so counting references frees them.
class Plan(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True, gc=False
):
    """Base of all device records."""


class PciAddress(Plan, frozen=True, kw_only=True):
    """A PCI address, of a guest's or of a host's device. ``bus`` is the index of a root port, or 0."""

    bus: int
    slot: int
    function: int = 0
    domain: int = 0


class OnPci(Plan, frozen=True, kw_only=True):
    """Base of what can sit on PCI; without ``address`` libvirt chooses where."""

    address: PciAddress | None = None


class DiskSource(Plan, frozen=True, kw_only=True):
    """The file, or with ``block`` the block device, that holds an image."""

    path: str
    block: bool = False


class Backing(Plan, frozen=True, kw_only=True):
    """The read-only image under an overlay. ``format`` is a guess until storage has seen the image."""

    source: DiskSource
    format: ImageFormat = "raw"


class BlockSizes(Plan, frozen=True, kw_only=True):
    """Block sizes that a guest sees, in bytes."""

    logical: int | None = None
    physical: int | None = None
    discard_granularity: int | None = None


class DiskPlan(OnPci, frozen=True, kw_only=True):
    """A disk, LUN or CD-ROM drive; ``source`` None is an empty drive.

    ``cache`` and ``io`` are set only when the user chose them: the right value depends on the file, which
    exists later (``match_volume`` likewise: ``block_sizes`` is to be taken from the volume then).
    ``unit`` is the unit on SCSI controller 0. ``kind`` is the volume's kind, the JSON name of its source.
    ``tracked``: changed blocks are remembered. In a qcow2 image of ours that needs nothing; a raw image stays
    as it is, and gets the qcow2 file ``tracking`` before it, which holds the bitmaps and no data
    (``data_store``: libvirt knows of such pairs).
    ``iothread`` is one thread, ``iothreads`` a set that shares the queues (libvirt >= 10.0).
    """

    name: str
    device: Literal["disk", "lun", "cdrom"]
    bus: str
    target: str
    kind: str = ""
    source: DiskSource | None = None
    format: ImageFormat = "raw"
    backing: Backing | None = None
    model: str | None = None
    unit: int | None = None
    boot_order: int | None = None
    readonly: bool = False
    shareable: bool = False
    serial: str | None = None
    tray: str | None = None
    cache: str | None = None
    io: str | None = None
    discard: bool = False
    error_policy: str = "stop"
    queues: int | None = None
    iothread: int | None = None
    iothreads: tuple[int, ...] = ()
    iommu: bool = False
    block_sizes: BlockSizes | None = None
    match_volume: bool = False
    tracked: bool = False
    tracking: str | None = None
    data_store: bool = False
    reservation_socket: str | None = None
    reservation_migration: bool = False


class ControllerPlan(OnPci, frozen=True, kw_only=True):
    """A bus controller. ``hotplug`` False: nothing may be plugged into this root port at run time.

    ``pcihole64_kib`` is the size of the 64-bit PCI window (only on ``pcie-root``).
    """

    type: Literal["usb", "scsi", "virtio-serial", "pci"]
    index: int
    model: str
    iommu: bool = False
    iothread: int | None = None
    queues: int | None = None
    hotplug: bool = True
    pcihole64_kib: int | None = None


class PortRange(Plan, frozen=True, kw_only=True):
    """TCP or UDP ports from ``start`` to ``end`` (inclusive; None: only ``start``)."""

    start: int
    end: int | None = None
    exclude: bool = False


class PortForward(Plan, frozen=True, kw_only=True):
    """What passt forwards to the guest; without ``ranges`` every port of the protocol."""

    proto: Literal["tcp", "udp"]
    ranges: tuple[PortRange, ...] = ()


class Passt(Plan, frozen=True, kw_only=True):
    """The passt backend of an interface; ``device`` is the host's interface it copies addresses from.

    ``vhostuser`` False: libvirt before 11.1 runs passt only as a ``user`` interface.
    """

    vhostuser: bool = True
    device: str | None = None
    log_file: str | None = None
    forwards: tuple[PortForward, ...] = ()


class VhostUser(Plan, frozen=True, kw_only=True):
    """The socket of somebody's virtual switch, which QEMU connects to; it reads and writes guest memory."""

    socket: str


class PluginPlan(Plan, frozen=True, kw_only=True):
    """The binding plugin of the interface ``name``; its ``program``, if any, edits the domain's XML."""

    name: str
    binding: str
    program: tuple[str, ...] = ()
    timeout_s: float = 10.0
    migrate: bool = False


class InterfacePlan(OnPci, frozen=True, kw_only=True):
    """A network interface: on a tap that we made (``tap``; it may be a macvtap), on a socket of
    ``vhost_user``, or with ``passt``.

    ``queues`` are the pairs of queues of a multi-queue interface. ``vhost`` names the in-kernel backend.
    ``rom`` False: the guest's firmware gets no boot ROM for it. ``standby``: it stands in for a virtual
    function.
    """

    name: str
    model: str
    mac: str | None = None
    tap: str | None = None
    mtu: int | None = None
    queues: int | None = None
    vhost: bool = False
    iommu: bool = False
    rom: bool = True
    link_down: bool = False
    boot_order: int | None = None
    acpi_index: int | None = None
    passt: Passt | None = None
    vhost_user: VhostUser | None = None
    standby: bool = False


class HostdevPlan(OnPci, frozen=True, kw_only=True):
    """A device of the host: exactly one of ``pci``, ``mdev`` (a UUID) and ``usb`` (bus, device).

    ``address`` is where the guest sees it. ``display`` and ``ramfb``: a vGPU shows the guest's screen.
    ``migratable``: it moves its state to another of its kind. ``standby`` names the interface that stands in
    for a virtual function while the guest is without it.
    """

    name: str
    alias: str
    pci: PciAddress | None = None
    mdev: str | None = None
    usb: tuple[int, int] | None = None
    display: bool = False
    ramfb: bool = False
    boot_order: int | None = None
    migratable: bool = False
    standby: str = ""


class FilesystemPlan(OnPci, frozen=True, kw_only=True):
    """A directory shared by virtiofs; virtiofsd listens on ``socket`` and serves ``directory``."""

    name: str
    socket: str
    kind: str = ""
    directory: str | None = None
    queue: int = 1024


class SerialPlan(Plan, frozen=True, kw_only=True):
    """The first serial port, its console, and where its output is kept."""

    socket: str
    log: str | None = None


class ChannelPlan(Plan, frozen=True, kw_only=True):
    """A virtio-serial channel; without ``socket`` libvirt chooses where the host's end lies."""

    name: str
    socket: str | None = None


class GraphicsPlan(Plan, frozen=True, kw_only=True):
    """VNC on a unix socket."""

    socket: str


class VideoPlan(Plan, frozen=True, kw_only=True):
    """The display adapter; ``vram_kib`` None leaves the size to libvirt."""

    type: str
    heads: int = 1
    vram_kib: int | None = None


class InputPlan(OnPci, frozen=True, kw_only=True):
    """A tablet or keyboard; ``name`` is empty for one that nobody asked for."""

    type: str
    bus: str
    name: str = ""
    model: str | None = None


class RngPlan(OnPci, frozen=True, kw_only=True):
    """A source of randomness, fed from the host's /dev/urandom."""

    model: str
    iommu: bool = False


class TpmPlan(Plan, frozen=True, kw_only=True):
    """An emulated TPM 2.0; ``persistent`` keeps its state when the domain is undefined."""

    model: str
    persistent: bool = False


class WatchdogPlan(OnPci, frozen=True, kw_only=True):
    """A watchdog and what happens when the guest stops feeding it."""

    name: str
    model: str
    action: str


class VsockPlan(OnPci, frozen=True, kw_only=True):
    """A socket address family between guest and host; ``cid`` is unique on the node (None: libvirt picks)."""

    model: str
    cid: int | None = None


class BalloonPlan(OnPci, frozen=True, kw_only=True):
    """The memory balloon; model ``none`` is written out, for libvirt adds one otherwise."""

    model: str
    free_page_reporting: bool | None = None
    stats_period_s: int | None = None
    iommu: bool = False


class PanicPlan(Plan, frozen=True, kw_only=True):
    """A device that reports a guest's crash; without ``model`` libvirt takes the architecture's."""

    model: str | None = None


class SoundPlan(Plan, frozen=True, kw_only=True):
    """A sound card."""

    name: str
    model: str


class RedirdevPlan(Plan, frozen=True, kw_only=True):
    """A slot for a USB device of a remote client."""

    socket: str


class Unbound(Plan, frozen=True, kw_only=True):
    """Something the manifest names and nobody told us where it is; translated, but not to be run."""

    field: str
    kind: Literal["claim", "device", "vf", "binding", "network"]
    name: str


class DevicesPlan(Plan, frozen=True, kw_only=True):
    """All devices, each list in the order of the document.

    ``unbound`` lists what the manifest names and the allocations do not place: such a plan is for reading.
    """

    disks: tuple[DiskPlan, ...] = ()
    controllers: tuple[ControllerPlan, ...] = ()
    filesystems: tuple[FilesystemPlan, ...] = ()
    interfaces: tuple[InterfacePlan, ...] = ()
    serial: SerialPlan | None = None
    channels: tuple[ChannelPlan, ...] = ()
    tpm: TpmPlan | None = None
    inputs: tuple[InputPlan, ...] = ()
    graphics: GraphicsPlan | None = None
    sound: SoundPlan | None = None
    video: VideoPlan | None = None
    hostdevs: tuple[HostdevPlan, ...] = ()
    redirdevs: tuple[RedirdevPlan, ...] = ()
    watchdog: WatchdogPlan | None = None
    balloon: BalloonPlan | None = None
    rng: RngPlan | None = None
    panics: tuple[PanicPlan, ...] = ()
    vsock: VsockPlan | None = None
    plugins: tuple[PluginPlan, ...] = ()
    unbound: tuple[Unbound, ...] = ()
