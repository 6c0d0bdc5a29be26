# SPDX-License-Identifier: Apache-2.0
"""Questions about the host: what it is, what QEMU can do here, would it take this guest's CPU."""

from __future__ import annotations

from typing import Any, Final, cast

import libvirt
from lxml import etree

from launcher.errors import InvalidRequest, Violation
from launcher.hypervisor import translate
from launcher.hypervisor.calls import Calls
from launcher.hypervisor.port import HostTexts

VIRT_TYPES: Final = ("kvm", "qemu")

MACHINES: Final = {
    "x86_64": "q35",
    "i686": "q35",
    "aarch64": "virt",
    "s390x": "s390-ccw-virtio",
    "ppc64le": "pseries",
}
"""The machine whose capabilities are asked for. libvirt's default for x86 is pc, which lacks Secure Boot."""

GUEST_ARCHS: Final = ("x86_64", "aarch64", "s390x")
"""The architectures that guests can ask for."""

_PARSER: Final = etree.XMLParser(resolve_entities=False, no_network=True, remove_comments=True)


class HostCalls:
    """The part of port.Hypervisor about the host."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    async def host_texts(self) -> HostTexts:
        """Versions, capabilities, and the domain capabilities of every architecture that runs here.

        KVM or emulation that is missing here is left out. The first call after an installation lets
        libvirt start QEMU to look at it, which takes seconds.
        """
        return await self._calls.on_host(_host_texts, what="read host capabilities")

    async def domain_capabilities(self, arch: str, machine: str) -> tuple[str, ...]:
        """Domain capabilities of one machine (``pc-q35-7.2``), one text for each virtualisation type.

        A machine that libvirt does not know has none.
        """
        found = await self._calls.on_host(
            lambda conn: _domain_capabilities(conn, arch, machine), what="read domain capabilities"
        )
        return tuple(found.values())

    async def migration_compatible(self, xml: str) -> tuple[str, ...]:
        """Compare the guest CPU (and machine type) of domain ``xml`` with this host.

        Returns what would refuse it, as sentences; empty if nothing does. A CPU with ``check='none'``
        is not looked at by libvirt either.

        Raises:
            InvalidRequest: ``xml`` is not domain XML.
        """
        question = _cpu_question(xml)
        if question is None:
            return ()
        return await self._calls.on_host(lambda conn: _compare(conn, question), what="compare CPU")


def _host_texts(connection: libvirt.virConnect) -> HostTexts:
    capabilities = connection.getCapabilities()
    found: dict[str, str] = {}
    for arch in guest_archs(capabilities) or (host_arch(capabilities),):
        texts = _domain_capabilities(connection, arch, MACHINES.get(arch))
        found |= {f"{arch}/{virt_type}": text for virt_type, text in texts.items()}
    return HostTexts(
        libvirt_version=connection.getLibVersion(),
        hypervisor_version=connection.getVersion(),
        hostname=connection.getHostname(),
        capabilities=capabilities,
        domain_capabilities=found,
    )


def _domain_capabilities(connection: libvirt.virConnect, arch: str, machine: str | None) -> dict[str, str]:
    """By virtualisation type; what the host does not offer is left out."""
    found: dict[str, str] = {}
    for virt_type in VIRT_TYPES:
        try:
            found[virt_type] = connection.getDomainCapabilities(None, arch, machine, virt_type)
        except libvirt.libvirtError as error:
            if not translate.is_no_such_virt_type(error):
                raise
    return found


def guest_archs(capabilities: str) -> tuple[str, ...]:
    """Those of ``GUEST_ARCHS`` that capabilities XML offers."""
    root = etree.fromstring(capabilities.encode(), _PARSER)
    named = (arch.get("name", "") for arch in root.iterfind("guest/arch"))
    return tuple(dict.fromkeys(name for name in named if name in GUEST_ARCHS))


def host_arch(capabilities: str) -> str:
    """The host's architecture out of capabilities XML, e.g. ``x86_64``."""
    return etree.fromstring(capabilities.encode(), _PARSER).findtext("host/cpu/arch") or ""


_CpuQuestion = tuple[str, str | None, str | None, str]
"""Architecture, machine, virtualisation type, CPU XML."""


def _cpu_question(xml: str) -> _CpuQuestion | None:
    """What to ask about ``xml``; None if any host will do."""
    try:
        domain = etree.fromstring(xml.encode(), _PARSER)
    except etree.XMLSyntaxError as error:
        finding = Violation(field="domain_xml", type="FieldValueInvalid", message=f"not XML: {error.msg}")
        raise InvalidRequest([finding]) from error
    cpu, kind = domain.find("cpu"), domain.find("os/type")
    if kind is None:
        finding = Violation(field="domain_xml", type="FieldValueInvalid", message="has no os/type element")
        raise InvalidRequest([finding])
    if cpu is None or cpu.get("check") == "none":
        return None
    text = etree.tostring(cpu, encoding="unicode", with_tail=False)
    return kind.get("arch", ""), kind.get("machine"), domain.get("type"), text


def _compare(connection: libvirt.virConnect, question: _CpuQuestion) -> tuple[str, ...]:
    arch, machine, virt_type, cpu = question
    try:
        # None stands for the default emulator here, whatever path the XML names; the annotation says "str"
        call = cast("Any", connection.compareHypervisorCPU)
        call(None, arch or None, machine, virt_type, cpu, libvirt.VIR_CONNECT_COMPARE_CPU_FAIL_INCOMPATIBLE)
    except libvirt.libvirtError as error:
        if translate.is_unsupported(error) or not translate.is_cpu_finding(error):
            raise
        return (translate.text_of(error),)
    return ()
