# SPDX-License-Identifier: Apache-2.0
"""Performs the steps of ``hotplug`` on a domain and counts what fails. Decides nothing."""

from __future__ import annotations

from dataclasses import dataclass

from launcher.agent.hotplug import Attempts, Hardware, PlugMemory, PlugVCPUs
from launcher.domain.devices.memory import memory_device
from launcher.domain.read import DomainView
from launcher.errors import HypervisorUnavailable, LauncherError, NotFound
from launcher.host.clock import Clock
from launcher.host.logging import get
from launcher.hypervisor.port import Hypervisor

log = get(__name__)


@dataclass(slots=True)
class _Tries:
    """Failures since the last success or request; ``at`` is monotonic time."""

    failures: int = 0
    at: float | None = None
    error: str = ""


class Plugging:
    """The changes of one domain's hardware. What it remembers, a restart may forget."""

    def __init__(self, hypervisor: Hypervisor, clock: Clock) -> None:
        self._hypervisor = hypervisor
        self._clock = clock
        self._tries: dict[type, _Tries] = {}

    def reset(self) -> None:
        """Forget failures: something else is asked for, or the same again."""
        self._tries.clear()

    def seen(self, live: DomainView | None) -> Hardware:
        """``live`` with what is known of attempts to change it."""
        return Hardware(live=live, vcpus=self._attempts(PlugVCPUs), memory=self._attempts(PlugMemory))

    async def perform(self, uuid: str, step: PlugVCPUs | PlugMemory) -> None:
        """Do ``step``; an error is noted, not raised: the guest goes on as it is.

        Raises:
            HypervisorUnavailable, NotFound: there is nothing to do it with or to.
        """
        tries = self._tries.setdefault(type(step), _Tries())
        try:
            await self._do(uuid, step)
        except (HypervisorUnavailable, NotFound):
            raise
        except (LauncherError, TimeoutError) as error:
            tries.failures += 1
            tries.at = self._clock.monotonic()
            tries.error = str(error) or type(error).__name__
            log.warning(f"cannot change the guest's hardware: {tries.error}", uuid=uuid, tries=tries.failures)
        else:
            self._tries.pop(type(step), None)

    async def _do(self, uuid: str, step: PlugVCPUs | PlugMemory) -> None:
        match step:
            case PlugVCPUs(count=count, pins=pins):
                for pin in pins:
                    await self._hypervisor.pin_vcpu(uuid, pin.vcpu, (pin.cpu,))
                await self._hypervisor.set_vcpus(uuid, count)
            case PlugMemory(device=device, attach=True):
                await self._hypervisor.attach_device(uuid, memory_device(device))
            case PlugMemory(device=device):
                await self._hypervisor.update_device(uuid, memory_device(device))

    def _attempts(self, kind: type) -> Attempts:
        tries = self._tries.get(kind)
        if tries is None or tries.at is None:
            return Attempts()
        ago_s = self._clock.monotonic() - tries.at
        return Attempts(failures=tries.failures, ago_s=ago_s, error=tries.error)
