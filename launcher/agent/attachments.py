# SPDX-License-Identifier: Apache-2.0
"""Links that a caller hands in with an instance: whether what is said of them can be, and what they have."""

from __future__ import annotations

import asyncio
import ipaddress
import re
from collections.abc import Iterable, Iterator, Mapping

from msgspec.structs import replace

from launcher.agent.network_settings import LAST_VLAN
from launcher.agent.port import Attachment, Companions
from launcher.agent.records import InstanceRecord
from launcher.errors import Conflict, InvalidRequest, TimedOut, Violation
from launcher.spec.model import VirtualMachineInstance

TIMEOUT_S = 15.0
"""Bound of looking at all links of an instance."""
_LINK = re.compile(r"[^\s/:]{1,15}")
_PCI = re.compile(r"[0-9a-f]{4}:[0-9a-f]{2}:[01][0-9a-f]\.[0-7]")
_MAC = re.compile(r"[0-9a-fA-F]{2}(:[0-9a-fA-F]{2}){5}")


async def looked_at(manifest: VirtualMachineInstance, companions: Companions) -> Companions:
    """``companions`` whose attachments say all that their links have.

    Raises:
        InvalidRequest: one cannot be; all mistakes are named.
        NetworkError: its namespace or link does not exist.
        TimedOut: the kernel does not answer.
    """
    given = companions.attachments
    if not given:
        return companions
    wrong = [*_strangers(manifest, given), *(w for name, one in given.items() for w in _mistakes(name, one))]
    if wrong:
        raise InvalidRequest(wrong)
    from launcher.network.attached import look_at

    try:
        async with asyncio.timeout(TIMEOUT_S):
            found = {name: await asyncio.to_thread(look_at, name, one) for name, one in given.items()}
    except TimeoutError as error:
        raise TimedOut(f"links were not looked at within {TIMEOUT_S:g} s") from error
    behind = {nic.name for nic in manifest.spec.domain.devices.interfaces if nic.masquerade is not None}
    homeless = [
        _wrong(name, "addresses", "", "a guest behind the link needs an address of it, and it has none")
        for name, one in found.items()
        if name in behind and not any(_global(text) for text in one.addresses)
    ]
    if homeless:
        raise InvalidRequest(homeless)
    return replace(companions, attachments=found)


def require_unused(companions: Companions, others: Iterable[InstanceRecord]) -> None:
    """Refuse links and functions that another instance has; raises Conflict."""
    for record in others:
        for name, one in companions.attachments.items():
            if _place(one) in map(_place, record.allocations.attachments.values()):
                what = one.device or f"{one.interface} in {one.namespace}"
                raise Conflict(f"network {name!r}: {record.key} is on {what}", hint="delete it first")


def _place(given: Attachment) -> tuple[str, str, str]:
    return given.device, given.namespace, given.interface


def _strangers(manifest: VirtualMachineInstance, given: Mapping[str, Attachment]) -> Iterator[Violation]:
    interfaces = {nic.name: nic for nic in manifest.spec.domain.devices.interfaces}
    for name in given:
        if name not in interfaces:
            yield _wrong(name, "", name, "the instance has no interface on a network of that name")
        elif given[name].device and interfaces[name].sriov is None:
            yield _wrong(name, "device", given[name].device, "a virtual function is handed in for sriov")
        elif not given[name].device and interfaces[name].sriov is not None:
            yield _wrong(name, "device", "", "sriov needs the PCI address of a virtual function")


def _mistakes(name: str, given: Attachment) -> Iterator[Violation]:
    if given.device:
        if _PCI.fullmatch(given.device) is None:
            yield _wrong(name, "device", given.device, "accepted is a PCI address such as 0000:3b:02.1")
        if not 0 <= given.vlan <= LAST_VLAN:
            yield _wrong(name, "vlan", str(given.vlan), f"accepted are 1 to {LAST_VLAN}, or 0 for none")
    else:
        if not given.namespace.startswith("/"):
            yield _wrong(name, "namespace", given.namespace, "accepted is the path of a network namespace")
        if _LINK.fullmatch(given.interface) is None:
            yield _wrong(name, "interface", given.interface, "accepted is the name of a link")
    if given.mac and _MAC.fullmatch(given.mac) is None:
        yield _wrong(name, "mac", given.mac, "accepted are addresses such as 0a:58:0a:f4:00:05")
    for text in given.addresses:
        if _interface(text) is None:
            yield _wrong(name, "addresses", text, "accepted are addresses such as 192.0.2.5/24")
    for route in given.routes:
        if _interface(route.destination) is None or (route.gateway and _interface(route.gateway) is None):
            text = f"{route.destination} by {route.gateway}"
            yield _wrong(name, "routes", text, "accepted are a range such as 0.0.0.0/0, and an address")


def _interface(text: str) -> ipaddress.IPv4Interface | ipaddress.IPv6Interface | None:
    try:
        return ipaddress.ip_interface(text)
    except ValueError:
        return None


def _global(text: str) -> bool:
    found = _interface(text)
    return found is not None and not found.is_link_local


def _wrong(name: str, key: str, value: str, message: str) -> Violation:
    field = f"companions.attachments[{name}]" + (f".{key}" if key else "")
    return Violation(field=field, type="FieldValueInvalid", value=value[:80], message=message)
