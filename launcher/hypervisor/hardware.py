# SPDX-License-Identifier: Apache-2.0
"""Calls that change the hardware of a domain: vCPUs, their pCPUs, devices. One libvirt call each, no policy.

Every change is made where it matters: in the running domain, and in the definition it will start from next.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import libvirt

from launcher.domain.read import devices_by_alias
from launcher.hypervisor import translate
from launcher.hypervisor.calls import Calls, LaneName

PLUG_TIMEOUT_S: Final = 60.0
"""libvirt waits some seconds for a guest that does not give a vCPU or device back; QEMU adds one at once."""


class HardwareCalls:
    """The part of port.Hypervisor about what a domain consists of."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    async def set_vcpus(self, uuid: str, count: int) -> None:
        """Let the domain have ``count`` of its possible vCPUs; as many as it has already is a success.

        Raises:
            TimedOut: the guest does not give a vCPU back.
            WrongPhase, HostUnsupported, HypervisorError: libvirt refuses.
        """
        await self._calls.on_domain(
            uuid,
            lambda domain: domain.setVcpusFlags(count, _scope(domain)),
            what="change the number of vCPUs",
            lane=LaneName.CHANGE,
            timeout_s=PLUG_TIMEOUT_S,
        )

    async def pin_vcpu(self, uuid: str, vcpu: int, cpus: tuple[int, ...]) -> None:
        """Let ``vcpu`` run on ``cpus`` only, from now on or, if it is not plugged yet, from then on."""
        last = max(cpus, default=0)
        # The binding takes a tuple and nothing else; its type stubs say bytes.
        bits: Any = tuple(number in cpus for number in range(last + 1))
        await self._calls.on_domain(
            uuid,
            lambda domain: domain.pinVcpuFlags(vcpu, bits, _scope(domain)),
            what=f"pin vCPU {vcpu}",
            lane=LaneName.CHANGE,
        )

    async def attach_device(self, uuid: str, xml: str) -> None:
        """Add a device.

        Raises:
            WrongPhase, HostUnsupported, HypervisorError: it cannot be added, for example for want of a slot.
        """
        await self._device(uuid, lambda domain, scope: domain.attachDeviceFlags(xml, scope), "attach")

    async def update_device(self, uuid: str, xml: str) -> None:
        """Change what can be changed of a device that ``xml`` describes with its alias and address."""
        await self._device(uuid, lambda domain, scope: domain.updateDeviceFlags(xml, scope), "update")

    async def detach_device(self, uuid: str, xml: str) -> None:
        """Ask the guest to give a device back; it is gone when libvirt no longer lists it.

        One that is gone already is a success.
        """
        await self._device(uuid, lambda domain, _: _detach(domain, xml), "detach")

    async def plugged(self, uuid: str, aliases: tuple[str, ...]) -> tuple[str, ...]:
        """Those of ``aliases`` whose devices the domain has, in their order."""
        there = await self._calls.on_domain(
            uuid, _by_alias, what="look for devices", lane=LaneName.QUERY, timeout_s=PLUG_TIMEOUT_S
        )
        return tuple(alias for alias in aliases if alias in there)

    async def ask_back(self, uuid: str, alias: str) -> None:
        """Ask the guest for the device with that alias; one that is gone already is a success."""
        await self._device(uuid, lambda domain, _: _detach_alias(domain, alias), "detach")

    async def _device(self, uuid: str, call: Callable[[libvirt.virDomain, int], object], verb: str) -> None:
        await self._calls.on_domain(
            uuid,
            lambda domain: call(domain, _scope(domain)),
            what=f"{verb} device",
            lane=LaneName.CHANGE,
            timeout_s=PLUG_TIMEOUT_S,
        )


def _detach(domain: libvirt.virDomain, xml: str) -> None:
    """First from the definition, then from the guest. In one call a device that left the definition the first
    time, while the guest kept it, could not be asked for a second time."""
    for wanted, flag in (
        (domain.isPersistent(), libvirt.VIR_DOMAIN_AFFECT_CONFIG),
        (domain.isActive(), libvirt.VIR_DOMAIN_AFFECT_LIVE),
    ):
        if not wanted:
            continue
        try:
            domain.detachDeviceFlags(xml, flag)
        except libvirt.libvirtError as error:
            if not translate.is_missing_device(error):
                raise


def _by_alias(domain: libvirt.virDomain) -> dict[str, str]:
    return devices_by_alias(domain.XMLDesc(0))


def _detach_alias(domain: libvirt.virDomain, alias: str) -> None:
    device = _by_alias(domain).get(alias)
    if device is not None:
        _detach(domain, device)


def _scope(domain: libvirt.virDomain) -> int:
    """Live if it runs, and in its definition if it has one."""
    scope = 0
    if domain.isActive():
        scope |= libvirt.VIR_DOMAIN_AFFECT_LIVE
    if domain.isPersistent():
        scope |= libvirt.VIR_DOMAIN_AFFECT_CONFIG
    return scope
