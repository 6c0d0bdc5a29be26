# SPDX-License-Identifier: Apache-2.0
"""Rules of ``devices.interfaces``: one binding each, on a network that it fits, with valid addresses."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from launcher.errors import Violation
from launcher.spec.model import Interface, Network
from launcher.spec.rules.checks import (
    at_most,
    dns_subdomain,
    in_range,
    one_of,
    pci_address,
    printable,
    unique,
)
from launcher.spec.rules.context import DEVICES, Context, Rule
from launcher.spec.rules.disks import LONGEST_TAG, MOST
from launcher.spec.rules.finding import invalid, not_found, required, unsupported

INTERFACES: Final = f"{DEVICES}.interfaces"
MODELS: Final = ("virtio", "e1000", "e1000e", "igb", "ne2k_pci", "pcnet", "rtl8139")
STATES: Final = ("up", "down", "absent")
# QEMU's ONBOARD_INDEX_MAX: the index is 14 bits wide.
LARGEST_ACPI_INDEX: Final = 16383
LONGEST_NAME: Final = 63
BRIDGE_MAC: Final = "02:00:00:00:00:00"

_BINDINGS: Final = (
    ("bridge", "bridge"),
    ("masquerade", "masquerade"),
    ("sriov", "sriov"),
    ("passt_binding", "passtBinding"),
    ("binding", "binding"),
)
_LEGACY: Final = ("slirp", "macvtap", "passt")
_NAME: Final = re.compile(r"[A-Za-z0-9_-]+")
_MAC: Final = re.compile(r"[0-9a-fA-F]{2}(?::[0-9a-fA-F]{2}){5}|[0-9a-fA-F]{2}(?:-[0-9a-fA-F]{2}){5}")


def names(ctx: Context) -> Iterator[Violation]:
    """Interfaces have unique names, those of networks."""
    yield from at_most(INTERFACES, ctx.devices.interfaces, MOST)
    yield from unique((f"{path}.name", interface.name) for path, interface in ctx.interfaces)
    for path, interface in ctx.interfaces:
        field, name = f"{path}.name", interface.name
        if not name:
            yield required(field, "needs the name of a network in spec.networks")
        elif _NAME.fullmatch(name) is None or len(name) > LONGEST_NAME:
            yield invalid(field, name, f"accepted are letters, digits, '-' and '_', at most {LONGEST_NAME}")
        if name and name not in ctx.network_named:
            yield not_found(field, name, "there is no network of this name in spec.networks")


def bindings(ctx: Context) -> Iterator[Violation]:
    """An interface has one binding, which its network can carry."""
    for path, interface in ctx.interfaces:
        given = [written for name, written in _BINDINGS if getattr(interface, name) is not None]
        legacy = [name for name in _LEGACY if getattr(interface, name) is not None]
        accepted = [written for _, written in _BINDINGS]
        for name in legacy:
            yield unsupported(f"{path}.{name}", None, accepted, " any more")
        if not given and not legacy:
            yield required(path, f"needs a binding: one of {', '.join(accepted)}")
        elif len(given) > 1:
            yield invalid(f"{path}.{given[1]}", None, f"an interface has one binding, not {', '.join(given)}")
        if interface.binding is not None:
            yield from dns_subdomain(f"{path}.binding.name", interface.binding.name, "the name of a binding")
        network = ctx.network_named.get(interface.name)
        if network is not None:
            yield from _carried(ctx, path, interface, network)


def _carried(ctx: Context, path: str, interface: Interface, network: Network) -> Iterator[Violation]:
    pod = network.pod is not None
    if interface.masquerade is not None and not pod:
        yield invalid(f"{path}.masquerade", None, "masquerade needs the pod network")
    if interface.passt_binding is not None and not pod:
        yield invalid(f"{path}.passtBinding", None, "passtBinding needs the pod network")
    if interface.sriov is not None and pod:
        yield invalid(f"{path}.sriov", None, "sriov needs a multus network or a resource claim")
    if interface.bridge is not None and pod and not ctx.settings.bridge_on_pod_network:
        yield invalid(
            f"{path}.bridge", None, "this node allows no bridge on the pod network; accepted: masquerade"
        )
    if network.resource_claim is not None and interface.sriov is None:
        yield required(f"{path}.sriov", "a network from a resource claim needs the binding sriov")


def models(ctx: Context) -> Iterator[Violation]:
    """The model is one that QEMU has; tag, indexes and boot order are in range and unique."""
    for path, interface in ctx.interfaces:
        yield from one_of(f"{path}.model", interface.model, MODELS)
        yield from in_range(f"{path}.bootOrder", interface.boot_order, 1)
        yield from in_range(f"{path}.acpiIndex", interface.acpi_index, 1, LARGEST_ACPI_INDEX)
        yield from pci_address(f"{path}.pciAddress", interface.pci_address)
        yield from printable(f"{path}.tag", interface.tag, LONGEST_TAG)
    yield from unique(
        (f"{path}.acpiIndex", interface.acpi_index)
        for path, interface in ctx.interfaces
        if interface.acpi_index is not None
    )


def mac_addresses(ctx: Context) -> Iterator[Violation]:
    """A MAC address is one of a single card, and no other's in this guest but its virtual function's."""
    good: list[tuple[str, object]] = []
    functions: list[tuple[str, object]] = []
    models = {}
    for path, interface in ctx.interfaces:
        if not interface.mac_address:
            continue
        field, text = f"{path}.macAddress", interface.mac_address
        address = text.lower().replace("-", ":")
        if _MAC.fullmatch(text) is None:
            yield invalid(field, text, "not a MAC address such as 02:00:00:12:34:56")
        elif int(address[:2], 16) & 1:
            yield invalid(field, text, "is a multicast address; the first byte must be even")
        elif address == "00:00:00:00:00:00":
            yield invalid(field, text, "is no address; accepted is one such as 02:00:00:12:34:56")
        elif address == BRIDGE_MAC and interface.masquerade is not None:
            yield invalid(field, text, "is the address of the masquerading bridge; accepted is any other")
        else:
            (good if interface.sriov is None else functions).append((field, address))
            if interface.sriov is None:
                models[address] = interface.model
    yield from unique(good)
    yield from unique(functions)
    for function, mac in functions:
        if models.get(str(mac)) not in (None, "", "virtio"):
            yield invalid(function, str(mac), "what stands in for a virtual function is of the model virtio")


def states(ctx: Context) -> Iterator[Violation]:
    """A link can be down where the node holds the other end, and only extra bridges can be absent."""
    for path, interface in ctx.interfaces:
        field, state = f"{path}.state", interface.state
        yield from one_of(field, state, STATES)
        if state in ("up", "down") and interface.sriov is not None:
            yield invalid(field, state, "the link of an sriov interface is not the node's to set")
        if state != "absent":
            continue
        network = ctx.network_named.get(interface.name)
        if interface.bridge is None:
            yield invalid(field, state, "only interfaces with a bridge can be absent")
        if network is not None and (network.pod is not None or (network.multus and network.multus.default)):
            yield invalid(field, state, "the interface of the default network cannot be absent")


RULES: tuple[Rule, ...] = (names, bindings, models, mac_addresses, states)
