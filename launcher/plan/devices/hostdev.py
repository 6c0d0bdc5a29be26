# SPDX-License-Identifier: Apache-2.0
"""``hostDevices``, ``gpus`` and SR-IOV interfaces -> HostdevPlan, from the addresses handed in. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from msgspec.structs import replace

from launcher.errors import InvalidRequest, Violation
from launcher.plan.context import PlanContext
from launcher.plan.devices.model import HostdevPlan, Unbound
from launcher.plan.devices.pciaddress import is_pci_address, pci_address
from launcher.spec.model import GPU, HostDevice

_FUNCTION = "sriov-"
_USB = re.compile(r"([0-9]{1,3}):([0-9]{1,3})")
_UUID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")


def plan_hostdevs(context: PlanContext) -> tuple[tuple[HostdevPlan, ...], tuple[Unbound, ...]]:
    """Plan the devices of the host that the guest gets, and say which were asked for and not handed in.

    Raises:
        InvalidRequest: an address is neither PCI, nor a mediated device's UUID, nor ``BUS:DEVICE``.
    """
    pools = _Pools(context.allocations.devices)
    planned: list[HostdevPlan] = []
    unbound: list[Unbound] = []
    for field, prefix, asked in _asked(context):
        resource = resource_name(asked)
        shares = sum(1 for _, _, other in _asked(context) if resource_name(other) == resource)
        addresses = pools.take(resource, shares)
        if not addresses:
            unbound.append(Unbound(field=field, kind="device", name=resource))
        migratable = resource in context.allocations.migratable
        for number, address in enumerate(addresses):
            device = _hostdev(resource, asked, prefix, number, address)
            planned.append(replace(device, migratable=migratable) if migratable else device)
    displayed = _with_displays(planned, context.devices.gpus)
    functions, missing = _virtual_functions(context)
    return (*displayed, *functions), (*unbound, *missing)


def is_function(device: HostdevPlan) -> bool:
    """Whether it is a virtual function of a network card, which a guest can do without for a while."""
    return device.alias.startswith(_FUNCTION)


def resource_name(asked: GPU | HostDevice) -> str:
    """Key of a device's pool in the allocations: its resource, or ``CLAIM/REQUEST`` of a resource claim."""
    if asked.device_name:
        return asked.device_name
    return f"{asked.claim_name or ''}/{asked.request_name or ''}"


class _Pools:
    """Addresses by resource. Two resources may offer one card: a taken address is gone from all of them."""

    def __init__(self, devices: Mapping[str, tuple[str, ...]]) -> None:
        self._sizes = {resource: len(addresses) for resource, addresses in devices.items()}
        self._left = {resource: list(addresses) for resource, addresses in devices.items()}

    def take(self, resource: str, shares: int) -> tuple[str, ...]:
        """One address, or for a resource that bundles USB devices its share of them."""
        left = self._left.get(resource, [])
        if not left:
            return ()
        count = max(1, self._sizes[resource] // shares) if _USB.fullmatch(left[0]) else 1
        taken = tuple(left[:count])
        for pool in self._left.values():
            pool[:] = [address for address in pool if address not in taken]
        return taken


def _asked(context: PlanContext) -> Iterator[tuple[str, str, GPU | HostDevice]]:
    """Field, alias prefix and request, in the order of the document: host devices, then GPUs."""
    for index, device in enumerate(context.devices.host_devices):
        yield f"spec.domain.devices.hostDevices[{index}]", "hostdevice-", device
    for index, gpu in enumerate(context.devices.gpus):
        yield f"spec.domain.devices.gpus[{index}]", "gpu-", gpu


def _hostdev(resource: str, asked: GPU | HostDevice, prefix: str, number: int, address: str) -> HostdevPlan:
    alias = f"{'' if asked.device_name else 'dra-'}{prefix}{asked.name}"
    if is_pci_address(address):
        pci = pci_address(address, field=f"devices.{resource}")
        return HostdevPlan(name=asked.name, alias=alias, pci=pci)
    if _UUID.fullmatch(address):
        return HostdevPlan(name=asked.name, alias=alias, mdev=address.lower())
    usb = _USB.fullmatch(address)
    if usb is None:
        message = "an address is dddd:bb:ss.f (PCI), a UUID (mediated device) or BUS:DEVICE (USB)"
        raise InvalidRequest(
            [
                Violation(
                    field=f"devices.{resource}", type="FieldValueInvalid", value=address[:40], message=message
                )
            ]
        )
    suffix = f"-{number}" if number else ""
    return HostdevPlan(
        name=asked.name,
        alias=f"usb-host-{asked.name}{suffix}",
        usb=(int(usb.group(1)), int(usb.group(2))),
    )


def _with_displays(planned: list[HostdevPlan], gpus: tuple[GPU, ...]) -> list[HostdevPlan]:
    """Give vGPUs their displays: as the user says, or to the first mediated one when nobody says anything."""
    options = {
        gpu.name: gpu.virtual_gpu_options.display for gpu in gpus if gpu.virtual_gpu_options is not None
    }
    chosen = {name: display for name, display in options.items() if display is not None}
    names = {gpu.name for gpu in gpus}
    if not chosen:
        first = next((d for d in planned if d.mdev and d.name in names and "gpu-" in d.alias), None)
        return [replace(d, display=True, ramfb=True) if d is first else d for d in planned]
    result = []
    for device in planned:
        display = chosen.get(device.name) if "gpu-" in device.alias else None
        enabled = display is not None and (
            display.enabled is not False if device.mdev else display.enabled is True
        )
        ramfb = (
            enabled and display is not None and (display.ramfb is None or display.ramfb.enabled is not False)
        )
        result.append(replace(device, display=enabled, ramfb=ramfb))
    return result


def _virtual_functions(context: PlanContext) -> tuple[list[HostdevPlan], list[Unbound]]:
    planned: list[HostdevPlan] = []
    unbound: list[Unbound] = []
    for index, nic in enumerate(context.devices.interfaces):
        if nic.sriov is None or nic.state == "absent":
            continue
        field = f"spec.domain.devices.interfaces[{index}]"
        host = pci_address(
            context.allocations.virtual_functions.get(nic.name), field=f"virtual_functions.{nic.name}"
        )
        if host is None:
            unbound.append(Unbound(field=field, kind="vf", name=nic.name))
            continue
        guest = pci_address(nic.pci_address, field=f"{field}.pciAddress")
        planned.append(
            HostdevPlan(
                name=nic.name,
                alias=f"{_FUNCTION}{nic.name}",
                pci=host,
                boot_order=nic.boot_order or None,
                address=guest,
            )
        )
    return planned, unbound
