# SPDX-License-Identifier: Apache-2.0
"""The annotation that asks for ports of the node: its text -> which ports of the guest, at which of the node.

Pure.
"""

from __future__ import annotations

import re
from typing import Final, Literal

import msgspec

from launcher.spec.model import Interface, VirtualMachineInstance

NODE_PORTS: Final = "launcher/node-ports"
AUTO: Final = "auto"
LAST_PORT: Final = 65535
_ITEM = re.compile(r"(?:([0-9]{1,5}):)?([0-9]{1,5})(?:/(tcp|udp))?")


class WantedPort(msgspec.Struct, frozen=True, kw_only=True):
    """The port ``guest`` of the guest, at the node's port ``node`` (0: any of those that it has to give)."""

    protocol: Literal["tcp", "udp"]
    guest: int
    node: int = 0


def wanted_ports(vmi: VirtualMachineInstance) -> tuple[WantedPort, ...]:
    """What the annotation of ``vmi`` asks for, in its order; nothing without one.

    Raises:
        ValueError: it cannot be read or not be had; the message says what would be accepted.
    """
    text = vmi.metadata.annotations.get(NODE_PORTS) if vmi.metadata is not None else None
    if text is None:
        return ()
    nic = next((nic for nic in vmi.spec.domain.devices.interfaces if nic.masquerade is not None), None)
    if nic is None:
        raise ValueError("ports of the node lead to an interface with masquerade, and there is none")
    declared = tuple(_declared(nic))
    if text.strip() == AUTO:
        if not declared:
            raise ValueError(f"{AUTO} means the ports of the masqueraded interface, and it lists none")
        return declared
    found = tuple(_item(item) for item in text.split(","))
    if len({(port.protocol, port.guest) for port in found}) < len(found):
        raise ValueError("a port of the guest is named twice")
    fixed = [(port.protocol, port.node) for port in found if port.node]
    if len(set(fixed)) < len(fixed):
        raise ValueError("a port of the node is named twice")
    reached = {(port.protocol, port.guest) for port in declared}
    ranges = [(_protocol(span.protocol), span.start, span.end) for span in nic.port_ranges]
    for port in found:
        inside = any(port.protocol == kind and low <= port.guest <= high for kind, low, high in ranges)
        if (reached or ranges) and (port.protocol, port.guest) not in reached and not inside:
            raise ValueError(
                f"{port.guest}/{port.protocol} is not among the ports of the interface {nic.name}"
            )
    return found


def _item(text: str) -> WantedPort:
    found = _ITEM.fullmatch(text.strip())
    numbers = [int(number) for number in found.groups()[:2] if number] if found is not None else [0]
    if found is None or not all(1 <= number <= LAST_PORT for number in numbers):
        raise ValueError(
            f"{text.strip()[:40]!r} is no port; accepted are {AUTO}, or [NODEPORT:]PORT[/tcp|/udp] and more "
            "after commas"
        )
    return WantedPort(
        protocol="udp" if found[3] == "udp" else "tcp", guest=int(found[2]), node=int(found[1] or 0)
    )


def _declared(nic: Interface) -> list[WantedPort]:
    ports = [WantedPort(protocol=_protocol(port.protocol), guest=port.port) for port in nic.ports]
    return list(dict.fromkeys(ports))


def _protocol(asked: str | None) -> Literal["tcp", "udp"]:
    return "udp" if asked == "UDP" else "tcp"
