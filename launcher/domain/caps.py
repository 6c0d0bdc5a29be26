# SPDX-License-Identifier: Apache-2.0
"""libvirt's capabilities and domain capabilities -> facts of the host. Pure: the texts are fetched elsewhere.

They are what ``virsh capabilities`` and ``virsh domcapabilities`` print. What a document does not say stays
unknown (see ``launcher.plan.facts``).
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from launcher.domain.reading import Parsed, parse, words
from launcher.errors import InvalidRequest, Violation
from launcher.plan.arch import AMD64, BY_LIBVIRT_NAME
from launcher.plan.cpuset import parse_cpuset
from launcher.plan.facts import (
    NEWEST_LIBVIRT,
    NEWEST_QEMU,
    Alias,
    Distance,
    DomainCaps,
    Firmware,
    GuestFacts,
    HostCPU,
    NodeFacts,
    NumaCell,
    PagePool,
)

_DAC_LABEL = re.compile(r"\+(?P<uid>\d{1,10}):\+(?P<gid>\d{1,10})")
_SIZES = {"b": 1, "bytes": 1, "": 1024, "KiB": 1024, "MiB": 1024**2, "GiB": 1024**3, "TiB": 1024**4}


def node_facts(
    capabilities: str,
    domain_capabilities: Iterable[str] = (),
    *,
    node: str = "",
    libvirt_version: int = NEWEST_LIBVIRT,
    qemu_version: int = NEWEST_QEMU,
    firmwares: tuple[Firmware, ...] | None = None,
    kvm_usable: bool | None = None,
    kvm_reason: str = "",
    memory_locking: bool = False,
) -> NodeFacts:
    """Facts of a host from libvirt's texts and what else is known of it.

    ``kvm_usable`` None: KVM is what the capabilities offer for the host's own architecture, or assumed where
    they list no guests.

    Raises:
        InvalidRequest: a text is not the XML it should be.
    """
    root = parse(capabilities, what="capabilities", tag="capabilities")
    machine = words(root, "host/cpu/arch")
    arch = BY_LIBVIRT_NAME.get(machine, AMD64)
    guests = tuple(_guest(guest) for guest in root.findall("guest"))
    own = next((guest for guest in guests if guest.arch == arch.libvirt), None)
    offered = own.kvm if own is not None else not guests
    uid, gid = _qemu_user(root)
    return NodeFacts(
        arch=arch.name,
        node=node,
        kvm_usable=offered if kvm_usable is None else kvm_usable,
        kvm_reason=kvm_reason,
        qemu_uid=uid,
        qemu_gid=gid,
        libvirt_version=libvirt_version,
        qemu_version=qemu_version,
        cells=tuple(_cell(cell) for cell in root.findall("host/topology/cells/cell")),
        guests=guests,
        domain_caps=tuple(domain_caps(text) for text in domain_capabilities),
        firmwares=firmwares,
        memory_locking=memory_locking,
    )


def domain_caps(text: str) -> DomainCaps:
    """Facts of one domain capabilities document.

    Raises:
        InvalidRequest: it is none.
    """
    root = parse(text, what="domain capabilities", tag="domainCapabilities")
    features = root.find("features")
    listed = features if features is not None else ()
    modes = root.findall("cpu/mode")
    vcpus = root.find("vcpu")
    return DomainCaps(
        arch=words(root, "arch"),
        virt=words(root, "domain"),
        machine=words(root, "machine"),
        emulator=words(root, "path"),
        max_vcpus=_number(vcpus, "max") if vcpus is not None else None,
        cpu_modes=tuple(mode.get("name", "") for mode in modes if mode.get("supported") == "yes"),
        host_model=words(root, "cpu/mode[@name='host-model']/model"),
        cpu_models=_models(root, usable=True),
        unusable_models=_models(root, usable=False),
        missing_cpu_features=tuple(
            feature.get("name", "")
            for feature in root.findall("cpu/mode[@name='host-model']/feature[@policy='disable']")
        ),
        enums=dict(_enums(root)),
        features=tuple(str(node.tag) for node in listed if node.get("supported") == "yes"),
        unsupported_features=tuple(str(node.tag) for node in listed if node.get("supported") == "no"),
        unsupported_devices=tuple(
            str(device.tag) for device in root.findall("devices/*") if device.get("supported") == "no"
        ),
        hyperv=tuple(
            (value.text or "").strip()
            for value in root.findall("features/hyperv[@supported='yes']/enum[@name='features']/value")
        ),
    )


def _models(root: Parsed, *, usable: bool) -> tuple[str, ...]:
    return tuple(
        (model.text or "").strip()
        for model in root.findall("cpu/mode[@name='custom']/model")
        if (model.get("usable") != "no") is usable
    )


def _qemu_user(root: Parsed) -> tuple[int | None, int | None]:
    """User and group of QEMU processes out of the DAC driver's label ``+UID:+GID``."""
    for model in root.findall("host/secmodel"):
        if words(model, "model") == "dac":
            found = _DAC_LABEL.fullmatch(words(model, "baselabel[@type='kvm']") or words(model, "baselabel"))
            if found is not None:
                return int(found["uid"]), int(found["gid"])
    return None, None


def _guest(guest: Parsed) -> GuestFacts:
    arch = guest.find("arch")
    if arch is None:
        return GuestFacts(arch="", kvm=False)
    machines: dict[str, None] = {}
    aliases: dict[str, str] = {}
    for machine in arch.iterfind(".//machine"):
        alias, canonical = (machine.text or "").strip(), machine.get("canonical", "")
        machines |= dict.fromkeys(name for name in (alias, canonical) if name)
        if canonical:
            aliases[alias] = canonical
    return GuestFacts(
        arch=arch.get("name", ""),
        emulator=words(arch, "emulator"),
        machines=tuple(machines),
        aliases=tuple(Alias(name=name, machine=machine) for name, machine in aliases.items()),
        kvm=arch.find("domain[@type='kvm']") is not None,
    )


def _cell(cell: Parsed) -> NumaCell:
    return NumaCell(
        id=_number(cell, "id"),
        cpus=tuple(
            HostCPU(id=_number(cpu, "id"), siblings=_siblings(cpu)) for cpu in cell.findall("cpus/cpu")
        ),
        memory=_size(cell.find("memory")),
        distances=tuple(
            Distance(cell=_number(sibling, "id"), value=_number(sibling, "value"))
            for sibling in cell.findall("distances/sibling")
        ),
        pools=tuple(
            PagePool(size=_number(pages, "size") * _unit(pages), count=_count(pages))
            for pages in cell.findall("pages")
        ),
    )


def _siblings(cpu: Parsed) -> tuple[int, ...]:
    """Comma lists and ranges: libvirt writes ``0,8`` as well as ``0-1``."""
    try:
        return parse_cpuset(cpu.get("siblings", ""))
    except ValueError as error:
        raise _invalid(f"siblings of CPU {cpu.get('id')}: {error}") from error


def _number(node: Parsed, name: str) -> int:
    value = node.get(name, "")
    if not (value.isascii() and value.isdecimal() and len(value) < 20):
        raise _invalid(f"<{node.tag} {name}={value!r}> is no number")
    return int(value)


def _unit(node: Parsed) -> int:
    unit = node.get("unit", "")
    if unit not in _SIZES:
        raise _invalid(f"<{node.tag} unit={unit!r}>: one of {', '.join(filter(None, _SIZES))} is expected")
    return _SIZES[unit]


def _size(node: Parsed | None) -> int:
    return 0 if node is None else _count(node) * _unit(node)


def _count(node: Parsed) -> int:
    text = (node.text or "").strip()
    if not (text.isascii() and text.isdecimal() and len(text) < 20):
        raise _invalid(f"<{node.tag}>{text[:20]}</{node.tag}> is no number")
    return int(text)


def _enums(root: Parsed) -> Iterable[tuple[str, tuple[str, ...]]]:
    for enum in root.iter("enum"):
        parent = enum.getparent()
        if parent is not None and parent.get("supported") != "no":
            values = tuple((value.text or "").strip() for value in enum.findall("value"))
            yield f"{parent.tag}.{enum.get('name', '')}", values


def _invalid(message: str) -> InvalidRequest:
    return InvalidRequest([Violation(field="capabilities", type="FieldValueInvalid", message=message)])
