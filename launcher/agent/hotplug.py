# SPDX-License-Identifier: Apache-2.0
"""vCPUs and memory of a running guest: what was asked for against what the domain has. Pure.

The domain's live XML is the truth about what it has, the record about what was asked for: nothing else is
remembered, so an agent that died in the middle comes back to the same next step.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from msgspec.structs import replace

from launcher.agent.functions import functions_of
from launcher.agent.growth import DiskSize
from launcher.agent.io_errors import Trouble
from launcher.agent.records import InstanceRecord
from launcher.agent.utility_volumes import FolderState
from launcher.domain.devices.memory import NAME
from launcher.domain.read import DomainView, MemoryDeviceView
from launcher.plan.context import guest_memory, vcpu_topology
from launcher.plan.devices.model import PciAddress
from launcher.plan.model import VCPUPin
from launcher.spec.defaults.hotplug import alignment
from launcher.spec.model import CPU, Memory, Quantity, VirtualMachineInstance

TRIES = 5
AGAIN_MIN_S = 2.0
"""After an error it is tried four times more, 2, 4, 8 and 16 s later; then the condition says so."""
DISK_TRIES = 8
DISK_AGAIN_MAX_S = 20.0
"""A guest is asked for a disk eight times, in the end every 20 s, as OpenStack Nova does."""
HEALS_AGAIN_MAX_S = 60.0
"""What somebody else can put right (a file that is missing, a full file system) is tried for ever."""


@dataclass(frozen=True, slots=True)
class PlugVCPUs:
    """Pin the vCPUs that come, if they have pCPUs of their own, then plug up to ``count``."""

    count: int
    pins: tuple[VCPUPin, ...] = ()


@dataclass(frozen=True, slots=True)
class PlugMemory:
    """Let the guest have what ``device`` requests; ``attach``: it has no such device yet."""

    device: MemoryDeviceView
    attach: bool


@dataclass(frozen=True, slots=True)
class Attempts:
    """How often a change failed, how long ago, and why; ``reason`` is that in one word.

    ``heals``: it is tried until somebody has put it right, else ``most`` times; ``longest_s`` between two.
    """

    failures: int = 0
    ago_s: float | None = None
    error: str = ""
    reason: str = ""
    heals: bool = False
    most: int = TRIES
    longest_s: float = HEALS_AGAIN_MAX_S

    @property
    def exhausted(self) -> bool:
        """Whether it was given up."""
        return not self.heals and self.failures >= self.most

    @property
    def wait_s(self) -> float:
        """Seconds until it may be tried again."""
        if not self.failures or self.ago_s is None:
            return 0.0
        pause_s = min(AGAIN_MIN_S * 2.0 ** min(self.failures - 1, 16), self.longest_s)
        return max(0.0, pause_s - self.ago_s)


@dataclass(frozen=True, slots=True)
class Hardware:
    """The domain as libvirt describes it (None: not known, or not looked at), and attempts to change it.

    ``disks`` are attempts by what ``disk_of`` and ``growth_of`` call them, ``sizes`` and ``troubles`` what
    was seen of the volumes, ``folders`` those of utility volumes.
    """

    live: DomainView | None = None
    vcpus: Attempts = Attempts()
    memory: Attempts = Attempts()
    interfaces: Attempts = Attempts()
    functions: Attempts = Attempts()
    disks: Mapping[str, Attempts] = field(default_factory=dict)
    sizes: tuple[DiskSize, ...] = ()
    troubles: tuple[Trouble, ...] = ()
    folders: tuple[FolderState, ...] = ()

    def of_disk(self, kind: str) -> Attempts:
        """Attempts at what ``disk_of`` or ``growth_of`` call ``kind``."""
        return self.disks.get(kind, Attempts())


def disk_of(name: str) -> str:
    """What attempts to plug or unplug the volume ``name`` are called."""
    return f"disk {name}"


def growth_of(name: str) -> str:
    """What attempts to make the volume ``name`` larger are called."""
    return f"size of {name}"


def can_change(record: InstanceRecord) -> bool:
    """Whether what the domain has may come to differ from the plan, so that its live XML is worth a look."""
    plan = record.plan
    volumes = record.plugged or record.leaving
    cards = plan.devices.interfaces or functions_of(record)
    return bool(plan.vcpus.hotplug or plan.memory.maximum is not None or cards or volumes)


def vcpus_step(record: InstanceRecord, live: DomainView) -> PlugVCPUs | None:
    """What brings the vCPUs to the number asked for. None are taken away."""
    wanted = record.plan.vcpus.current
    if not live.vcpu_slots or live.vcpus >= wanted:
        return None
    pins = tuple(pin for pin in record.plan.cputune.vcpus if live.vcpus <= pin.vcpu < wanted)
    return PlugVCPUs(wanted, pins)


def memory_step(record: InstanceRecord, live: DomainView) -> PlugMemory | None:
    """What brings the memory to the size asked for."""
    wanted = guest_memory(record.defaulted) - live.boot_memory
    device = next(iter(live.memory_devices), None)
    if device is not None:
        # It is made of whole blocks; what does not fit was refused, and is cut off if it got here anyhow.
        wanted = min(max(0, wanted // device.block * device.block if device.block else 0), device.size)
        return None if device.requested == wanted else PlugMemory(replace(device, requested=wanted), False)
    maximum = live.max_memory
    if wanted <= 0 or maximum is None:
        return None
    memory = record.defaulted.spec.domain.memory or Memory()
    port = next(iter(live.free_ports), None)
    made = MemoryDeviceView(
        alias=NAME,
        size=maximum - live.boot_memory,
        block=alignment(memory),
        requested=wanted,
        # Named, so that it is the same in the running domain and in its definition.
        address=PciAddress(bus=port, slot=0) if port is not None else None,
    )
    return PlugMemory(made, True)


def current_memory(live: DomainView) -> int:
    """Bytes that the guest has now."""
    return live.boot_memory + sum(device.current for device in live.memory_devices)


def requested_memory(live: DomainView) -> int:
    """Bytes that the guest is offered."""
    return live.boot_memory + sum(device.requested for device in live.memory_devices)


def as_it_runs(vmi: VirtualMachineInstance, live: DomainView) -> VirtualMachineInstance:
    """A defaulted ``vmi`` with the room for hotplug that its domain really has.

    It was started on another node, whose settings made that room.
    """
    domain = vmi.spec.domain
    cpu, memory = domain.cpu or CPU(), domain.memory or Memory()
    sockets = live.max_vcpus // vcpu_topology(vmi).per_socket if live.vcpu_slots else None
    maximum = Quantity(live.max_memory) if live.max_memory is not None else None
    return _with_domain(vmi, cpu=replace(cpu, max_sockets=sockets), memory=replace(memory, max_guest=maximum))


def as_it_booted(vmi: VirtualMachineInstance, live: DomainView) -> VirtualMachineInstance:
    """``vmi`` with the memory that its domain started with: what was plugged since is no part of a plan."""
    memory = vmi.spec.domain.memory or Memory()
    return _with_domain(vmi, memory=replace(memory, guest=Quantity(live.boot_memory)))


def _with_domain(
    vmi: VirtualMachineInstance, *, cpu: CPU | None = None, memory: Memory
) -> VirtualMachineInstance:
    domain = replace(vmi.spec.domain, cpu=vmi.spec.domain.cpu if cpu is None else cpu, memory=memory)
    return replace(vmi, spec=replace(vmi.spec, domain=domain))
