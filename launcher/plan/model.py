# SPDX-License-Identifier: Apache-2.0
"""What this node will do for one instance, as plain data: the plan that ``domain`` writes down as XML.

Every decision is made already: sizes are bytes, names and paths are final, and what the host's libvirt
cannot express is not in it. ``launcher.plan.make`` makes plans; nothing here decides anything.
"""

from __future__ import annotations

import msgspec

from launcher.plan.devices.model import DevicesPlan
from launcher.plan.facts import Distance
from launcher.plan.iothreads import IOThreadLayout
from launcher.plan.steps import AnyStep


# gc=False: plans are trees of values, free of cycles, so counting references frees them.
class Part(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Base of all parts of a plan."""


class Identity(Part, frozen=True, kw_only=True):
    """Who it is and what runs it. ``arch`` is libvirt's word; ``emulator`` empty: libvirt chooses."""

    uid: str
    uuid: str
    namespace: str
    name: str
    domain_name: str
    virt: str
    arch: str
    emulator: str = ""


class VCPUs(Part, frozen=True, kw_only=True):
    """``current`` of ``maximum`` vCPUs are there at boot. With ``hotplug`` each is listed, and only those
    beyond the first ``fixed`` can be unplugged. ``cpuset`` are the pCPUs of all that has no pin."""

    current: int
    maximum: int
    hotplug: bool = False
    fixed: int = 0
    cpuset: tuple[int, ...] = ()


class CPUFeature(Part, frozen=True, kw_only=True):
    """A CPU flag and libvirt's policy for it."""

    name: str
    policy: str


class GuestCell(Part, frozen=True, kw_only=True):
    """A NUMA cell of the guest; distances name guest cells. ``memory`` in bytes."""

    id: int
    vcpus: tuple[int, ...]
    memory: int
    distances: tuple[Distance, ...] = ()


class CPUPlan(Part, frozen=True, kw_only=True):
    """``<cpu>``; ``model`` is named only with mode ``custom``."""

    mode: str
    sockets: int
    cores: int
    threads: int
    model: str | None = None
    features: tuple[CPUFeature, ...] = ()
    cells: tuple[GuestCell, ...] = ()


class VCPUPin(Part, frozen=True, kw_only=True):
    """vCPU ``vcpu`` runs on the pCPU ``cpu`` only."""

    vcpu: int
    cpu: int


class IOThreadPin(Part, frozen=True, kw_only=True):
    """I/O thread ``iothread`` runs on ``cpus``."""

    iothread: int
    cpus: tuple[int, ...]


class CPUTune(Part, frozen=True, kw_only=True):
    """Pins, and the vCPUs that run under SCHED_FIFO."""

    vcpus: tuple[VCPUPin, ...] = ()
    emulator: tuple[int, ...] = ()
    iothreads: tuple[IOThreadPin, ...] = ()
    realtime_vcpus: tuple[int, ...] = ()


class MemNode(Part, frozen=True, kw_only=True):
    """Guest cell ``cell`` takes its memory from host cell ``node``."""

    cell: int
    node: int


class NumaTune(Part, frozen=True, kw_only=True):
    """Strict placement of memory on host cells."""

    nodes: tuple[int, ...]
    memnodes: tuple[MemNode, ...] = ()


class MemoryPlan(Part, frozen=True, kw_only=True):
    """``size`` at boot and ``maximum`` after hotplug (None: no hotplug), in bytes, with memory ``slots``."""

    size: int
    maximum: int | None = None
    slots: int = 0


class HugePages(Part, frozen=True, kw_only=True):
    """Pages of ``size`` bytes back the guest cell ``cell`` (None: all memory)."""

    size: int
    cell: int | None = None


class MemoryBacking(Part, frozen=True, kw_only=True):
    """``<memoryBacking>``. ``hugepages`` without ``pages``: the host's default size for all memory."""

    hugepages: bool = False
    pages: tuple[HugePages, ...] = ()
    memfd: bool = False
    shared: bool = False
    immediate: bool = False
    nosharepages: bool = False
    locked: bool = False


class Loader(Part, frozen=True, kw_only=True):
    """The firmware's code. ``type`` is ``pflash`` or ``rom``."""

    path: str
    type: str
    secure: bool = False


class Nvram(Part, frozen=True, kw_only=True):
    """The firmware's variables, made from ``template`` when they do not exist yet."""

    path: str
    template: str


class AcpiTable(Part, frozen=True, kw_only=True):
    """A table (``slic`` or ``msdm``) handed to the guest."""

    type: str
    path: str


class BootPlan(Part, frozen=True, kw_only=True):
    """``<os>``. ``menu_timeout_ms`` None: no boot menu."""

    machine: str
    loader: Loader | None = None
    nvram: Nvram | None = None
    kernel: str | None = None
    initrd: str | None = None
    cmdline: str | None = None
    acpi_tables: tuple[AcpiTable, ...] = ()
    menu_timeout_ms: int | None = None
    smbios: bool = False
    bios_serial: bool = False


class Entry(Part, frozen=True, kw_only=True):
    """One SMBIOS string."""

    name: str
    value: str


class FirmwareFile(Part, frozen=True, kw_only=True):
    """A file that the guest's firmware and kernel find in QEMU's fw_cfg."""

    name: str
    path: str


class SysinfoPlan(Part, frozen=True, kw_only=True):
    """SMBIOS strings; an empty block is left out."""

    system: tuple[Entry, ...] = ()
    chassis: tuple[Entry, ...] = ()


class HypervFlag(Part, frozen=True, kw_only=True):
    """A Hyper-V enlightenment by libvirt's name. ``direct`` and ``extended`` are children of it."""

    name: str
    enabled: bool
    retries: int | None = None
    value: str | None = None
    direct: bool | None = None
    extended: bool | None = None


class FeaturesPlan(Part, frozen=True, kw_only=True):
    """``<features>``; None: nothing is written. ``hyperv_mode`` ``passthrough`` comes without flags."""

    acpi: bool = False
    apic: bool = False
    apic_eoi: bool | None = None
    smm: bool = False
    hyperv: tuple[HypervFlag, ...] | None = None
    hyperv_mode: str | None = None
    kvm_hidden: bool | None = None
    kvm_hint_dedicated: bool | None = None
    pvspinlock: bool | None = None
    pmu: bool | None = None
    vmport: bool | None = None


class Timer(Part, frozen=True, kw_only=True):
    """One timer of the clock."""

    name: str
    present: bool | None = None
    tickpolicy: str | None = None
    track: str | None = None
    frequency: int | None = None


class ClockPlan(Part, frozen=True, kw_only=True):
    """``<clock>``. ``adjustment`` is ``reset`` or a number of seconds."""

    offset: str
    adjustment: str | None = None
    timezone: str | None = None
    timers: tuple[Timer, ...] = ()


class LaunchSecurityPlan(Part, frozen=True, kw_only=True):
    """``<launchSecurity>``; ``policy`` as hexadecimal text."""

    type: str
    policy: str | None = None
    dh_cert: str | None = None
    session: str | None = None
    quote_generation: bool = False
    quote_socket: str | None = None


class LifecyclePlan(Part, frozen=True, kw_only=True):
    """What ends or restarts the guest; None: libvirt's default. ``paused``: it starts without running."""

    on_reboot: str | None = None
    paused: bool = False


class VMPlan(Part, frozen=True, kw_only=True):
    """The whole plan. ``steps`` must be done, in order, before the domain starts; ``notes`` say, for people,
    what this node does otherwise than the manifest has it. ``rescue_monitor`` is the socket of a monitor
    beside libvirt's; empty: there is none."""

    identity: Identity
    vcpus: VCPUs
    cpu: CPUPlan
    memory: MemoryPlan
    boot: BootPlan
    features: FeaturesPlan
    sysinfo: SysinfoPlan
    devices: DevicesPlan
    cputune: CPUTune = CPUTune()
    iothreads: IOThreadLayout = IOThreadLayout()
    numatune: NumaTune | None = None
    backing: MemoryBacking | None = None
    clock: ClockPlan | None = None
    launch_security: LaunchSecurityPlan | None = None
    firmware_files: tuple[FirmwareFile, ...] = ()
    rescue_monitor: str = ""
    lifecycle: LifecyclePlan = LifecyclePlan()
    steps: tuple[AnyStep, ...] = ()
    notes: tuple[str, ...] = ()


def encode(plan: VMPlan) -> str:
    """Serialise a plan as JSON."""
    return msgspec.json.encode(plan).decode()


def decode(text: str) -> VMPlan:
    """Read a plan back from JSON."""
    return msgspec.json.decode(text, type=VMPlan)
