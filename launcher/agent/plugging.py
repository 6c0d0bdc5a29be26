# SPDX-License-Identifier: Apache-2.0
"""Performs the steps of ``hotplug`` and ``nics`` on a domain and counts what fails. Decides nothing."""

from __future__ import annotations

from dataclasses import dataclass

from launcher.agent.hotplug import Attempts, Hardware, PlugMemory, PlugVCPUs
from launcher.agent.nics import DropNetwork, InterfaceStep, PlugInterface, SetLink, UnplugInterface
from launcher.agent.resources import Resources
from launcher.domain.devices.interface import interface_element, interface_name
from launcher.domain.devices.memory import memory_device
from launcher.domain.element import to_text
from launcher.domain.read import DomainView
from launcher.errors import HypervisorUnavailable, LauncherError, NotFound
from launcher.host.clock import Clock
from launcher.host.logging import get
from launcher.hypervisor.port import Hypervisor

log = get(__name__)


Step = PlugVCPUs | PlugMemory | InterfaceStep
_VCPUS, _MEMORY, _INTERFACES = "vcpus", "memory", "interfaces"


@dataclass(slots=True)
class _Tries:
    """Failures since the last success or request; ``at`` is monotonic time."""

    failures: int = 0
    at: float | None = None
    error: str = ""


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

    def seen(self, live: DomainView | None) -> Hardware:
        """``live`` with what is known of attempts to change it."""
        return Hardware(
            live=live,
            vcpus=self._attempts(_VCPUS),
            memory=self._attempts(_MEMORY),
            interfaces=self._attempts(_INTERFACES),
        )

    async def perform(self, uuid: str, step: Step) -> bool:
        """Do ``step``; returns whether it was done. An error is noted, not raised: the guest goes on.

        Raises:
            HypervisorUnavailable, NotFound: there is nothing to do it with or to.
        """
        kind = _kind(step)
        tries = self._tries.setdefault(kind, _Tries())
        try:
            await self._do(uuid, step)
        except (HypervisorUnavailable, NotFound):
            raise
        except (LauncherError, TimeoutError) as error:
            tries.failures += 1
            tries.at = self._clock.monotonic()
            tries.error = str(error) or type(error).__name__
            log.warning(f"cannot change the guest's hardware: {tries.error}", uuid=uuid, tries=tries.failures)
            return False
        self._tries.pop(kind, None)
        if isinstance(step, UnplugInterface):
            # The guest was asked. Whether it gave the device back, the next look tells.
            waits = "the guest has not given the interface back yet"
            asked = tries.failures + 1
            self._tries[kind] = _Tries(failures=asked, at=self._clock.monotonic(), error=waits)
        return True

    async def _do(self, uuid: str, step: Step) -> None:
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
                await self._resources.extend(steps)
                await self._hypervisor.attach_device(uuid, to_text(interface_element(nic)))
            case UnplugInterface(name=name, mac=mac):
                await self._hypervisor.detach_device(uuid, to_text(interface_name(name, mac)))
            case SetLink(nic=nic):
                await self._hypervisor.update_device(uuid, to_text(interface_element(nic)))
            case DropNetwork(steps=steps):
                await self._resources.drop(steps)

    def _attempts(self, kind: str) -> Attempts:
        tries = self._tries.get(kind)
        if tries is None or tries.at is None:
            return Attempts()
        ago_s = self._clock.monotonic() - tries.at
        return Attempts(failures=tries.failures, ago_s=ago_s, error=tries.error)


def _kind(step: Step) -> str:
    match step:
        case PlugVCPUs():
            return _VCPUS
        case PlugMemory():
            return _MEMORY
        case _:
            return _INTERFACES
