# SPDX-License-Identifier: Apache-2.0
"""Performs steps of ``hotplug``, ``nics`` and ``disks`` on a domain, counts failures. Decides nothing."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from launcher.agent import disks, hotplug, nics
from launcher.agent.disks import (
    ChangeMedia,
    DiskStep,
    DropVolume,
    MakeVolume,
    NotePlugged,
    PlugDisk,
    UnplugDisk,
)
from launcher.agent.functions import PlugFunction
from launcher.agent.growth import GrowDisk
from launcher.agent.hotplug import (
    DISK_AGAIN_MAX_S,
    DISK_TRIES,
    HEALS_AGAIN_MAX_S,
    TRIES,
    Attempts,
    Hardware,
    PlugMemory,
    PlugVCPUs,
)
from launcher.agent.nics import DropNetwork, InterfaceStep, PlugInterface, SetLink, UnplugInterface
from launcher.agent.records import InstanceRecord
from launcher.agent.resources import Resources
from launcher.agent.start_errors import explained
from launcher.domain.devices.disk import disk_element
from launcher.domain.devices.hostdev import hostdev_element
from launcher.domain.devices.interface import interface_element, interface_name
from launcher.domain.devices.memory import memory_device
from launcher.domain.element import to_text
from launcher.domain.media import with_media
from launcher.domain.read import ALIAS_PREFIX, DomainView
from launcher.errors import HypervisorError, HypervisorUnavailable, LauncherError, NotFound, StorageError
from launcher.host.logging import get
from launcher.hypervisor.port import Hypervisor
from launcher.migration.clock import Clock
from launcher.plan.devices.model import DevicesPlan, DiskPlan

log = get(__name__)

Step = PlugVCPUs | PlugMemory | InterfaceStep | PlugFunction | DiskStep | GrowDisk
STEPS = (
    PlugVCPUs,
    PlugMemory,
    PlugInterface,
    UnplugInterface,
    SetLink,
    DropNetwork,
    PlugFunction,
    MakeVolume,
    PlugDisk,
    UnplugDisk,
    ChangeMedia,
    NotePlugged,
    DropVolume,
    GrowDisk,
)
Change = Callable[[InstanceRecord], InstanceRecord]
_FIXED = ("vcpus", "memory", "interfaces", "functions")
_VCPUS, _MEMORY, _INTERFACES, _FUNCTIONS = _FIXED


@dataclass(slots=True)
class _Tries:
    """Failures since the last success or request; ``at`` is monotonic time."""

    failures: int = 0
    at: float | None = None
    error: str = ""
    reason: str = ""
    heals: bool = False
    asked: str = ""
    """What the guest was asked to give back."""


class Plugging:
    """The changes of one domain's hardware. What it remembers, a restart may forget."""

    def __init__(self, hypervisor: Hypervisor, resources: Resources, clock: Clock) -> None:
        self._hypervisor = hypervisor
        self._resources = resources
        self._clock = clock
        self._tries: dict[str, _Tries] = {}

    def reset(self) -> None:
        """Forget failures: something else is asked for, or the same again."""
        self._tries.clear()

    def refused(self, alias: str) -> None:
        """The guest was asked for a device and says no. It is asked again: its use may be over by then."""
        name = alias.removeprefix(ALIAS_PREFIX)
        for tries in self._tries.values():
            if tries.asked and tries.asked == name:
                tries.error = f"the guest refused to give {name} back: it is in use there"

    def seen(self, live: DomainView | None) -> Hardware:
        """``live`` with what is known of attempts to change it."""
        return Hardware(
            live=live,
            vcpus=self._attempts(_VCPUS),
            memory=self._attempts(_MEMORY),
            interfaces=self._attempts(_INTERFACES),
            functions=self._attempts(_FUNCTIONS),
            disks={kind: self._attempts(kind) for kind in self._tries if kind not in _FIXED},
        )

    async def perform(self, record: InstanceRecord, step: Step) -> Change | None:
        """Do ``step``; returns how the record is to be changed then, None: it failed.

        An error is noted, not raised: the guest goes on.

        Raises:
            HypervisorUnavailable, NotFound: there is nothing to do it with or to.
        """
        uuid, kind = record.plan.identity.uuid, _kind(step)
        tries = self._tries.setdefault(kind, _Tries())
        try:
            change = await self._do(record, step)
        except (HypervisorUnavailable, NotFound):
            raise
        except (LauncherError, TimeoutError) as error:
            tries.failures += 1
            tries.at = self._clock.monotonic()
            tries.error = str(error) or type(error).__name__
            tries.heals = isinstance(error, StorageError)
            tries.reason = error.problem if isinstance(error, StorageError) else ""
            log.warning(f"cannot change the guest's hardware: {tries.error}", uuid=uuid, tries=tries.failures)
            if isinstance(step, PlugDisk) or (isinstance(step, ChangeMedia) and not step.empty):
                # What it needs may be gone by now: it is made again first.
                return lambda present: disks.with_state(present, step.name, "wanted")
            return None
        if isinstance(step, MakeVolume):
            return change  # Whether it is of use, plugging it shows.
        self._tries.pop(kind, None)
        if isinstance(step, UnplugInterface | UnplugDisk):
            # The guest was asked. Whether it gave the device back, the next look tells.
            what = f"disk {step.name}" if isinstance(step, UnplugDisk) else "the interface"
            waits = f"the guest has not given {what} back yet"
            asked = tries.failures + 1
            now = self._clock.monotonic()
            self._tries[kind] = _Tries(failures=asked, at=now, error=waits, asked=step.name)
        return change

    async def _do(self, record: InstanceRecord, step: Step) -> Change:
        uuid = record.plan.identity.uuid
        match step:
            case PlugVCPUs(count=count, pins=pins):
                for pin in pins:
                    await self._hypervisor.pin_vcpu(uuid, pin.vcpu, (pin.cpu,))
                await self._hypervisor.set_vcpus(uuid, count)
            case PlugMemory(device=device, attach=True):
                await self._hypervisor.attach_device(uuid, memory_device(device))
            case PlugMemory(device=device):
                await self._hypervisor.update_device(uuid, memory_device(device))
            case PlugInterface(nic=nic, steps=steps):
                await self._resources.extend(record, steps)
                await self._hypervisor.attach_device(uuid, to_text(interface_element(nic)))
            case UnplugInterface(name=name, mac=mac):
                await self._hypervisor.detach_device(uuid, to_text(interface_name(name, mac)))
            case SetLink(nic=nic):
                await self._hypervisor.update_device(uuid, to_text(interface_element(nic)))
            case PlugFunction(device=device):
                await self._hypervisor.attach_device(uuid, to_text(hostdev_element(device)))
            case DropNetwork(steps=steps):
                await self._resources.drop(steps)
                return lambda present: nics.without_steps(present, steps)
            case _:
                return await self._do_disk(record, step)
        return _as_it_is

    async def _do_disk(self, record: InstanceRecord, step: DiskStep | GrowDisk) -> Change:
        uuid = record.plan.identity.uuid
        match step:
            case MakeVolume(disk=disk, steps=steps):
                made = await self._resources.extend(record, steps)
                seen = await self._resources.completed(disk)
                return lambda present: disks.with_made(present, seen, made)
            case PlugDisk(disk=disk):
                xml = to_text(disk_element(disks.placed(step)))
                await self._with_disk(disk, self._hypervisor.attach_device, uuid, xml)
                return lambda present: disks.with_state(present, disk.name, "plugged")
            case UnplugDisk(disk=disk):
                await self._hypervisor.detach_device(uuid, to_text(disk_element(disk)))
            case ChangeMedia(disk=disk, empty=True):
                live = await self._hypervisor.domain_xml(uuid)
                await self._hypervisor.update_device(uuid, with_media(live, disk, empty=True))
            case ChangeMedia(disk=disk):
                drive = with_media(await self._hypervisor.domain_xml(uuid), disk)
                await self._with_disk(disk, self._hypervisor.update_device, uuid, drive)
                return lambda present: disks.with_state(present, disk.name, "plugged")
            case NotePlugged(name=name):
                return lambda present: disks.with_state(present, name, "plugged")
            case DropVolume(leaving=leaving):
                await self._resources.drop_volume(record.uid, leaving.disk.name)
                return lambda present: disks.without_leaving(present, leaving)
            case GrowDisk(disk=disk, size=size):
                if step.preallocate:
                    await self._resources.take_room(disk, size)
                await self._hypervisor.resize_disk(uuid, disk.target, size)
        return _as_it_is

    async def _with_disk(
        self, disk: DiskPlan, call: Callable[[str, str], Awaitable[None]], uuid: str, xml: str
    ) -> None:
        """Hand the disk to the domain; what QEMU says against its file is said of the volume."""
        try:
            await call(uuid, xml)
        except HypervisorError as error:
            raise explained(error, DevicesPlan(disks=(disk,)), disk) from error

    def _attempts(self, kind: str) -> Attempts:
        tries = self._tries.get(kind)
        if tries is None or tries.at is None:
            return Attempts()
        ago_s = self._clock.monotonic() - tries.at
        fixed = kind in _FIXED
        return Attempts(
            failures=tries.failures,
            ago_s=ago_s,
            error=tries.error,
            reason=tries.reason,
            heals=tries.heals,
            most=TRIES if fixed else DISK_TRIES,
            longest_s=DISK_AGAIN_MAX_S if not fixed and not tries.heals else HEALS_AGAIN_MAX_S,
        )


def _as_it_is(record: InstanceRecord) -> InstanceRecord:
    return record


def _kind(step: Step) -> str:
    match step:
        case PlugVCPUs():
            return _VCPUS
        case PlugMemory():
            return _MEMORY
        case PlugInterface() | UnplugInterface() | SetLink() | DropNetwork():
            return _INTERFACES
        case PlugFunction():
            return _FUNCTIONS
        case GrowDisk(disk=disk):
            return hotplug.growth_of(disk.name)
        case _:
            return hotplug.disk_of(step.name)
