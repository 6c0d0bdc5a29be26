# SPDX-License-Identifier: Apache-2.0
"""Calls on domains: list, define, start, pause, end, forget. One libvirt call each, no policy."""

from __future__ import annotations

from typing import Final

import libvirt

from launcher.hypervisor import translate
from launcher.hypervisor.calls import Calls, LaneName
from launcher.hypervisor.port import DomainRecord

START_TIMEOUT_S: Final = 300.0
"""Starting may allocate and zero all guest memory (huge pages): 1 TiB at about 4 GiB/s."""

SHUTDOWN_TIMEOUT_S: Final = 90.0
"""libvirt waits 60 s for an agent that takes the request and does not act, then tries ACPI."""

DESTROY_TIMEOUT_S: Final = 90.0
"""libvirt sends SIGTERM, after 10 s SIGKILL, and waits for a process in the kernel's hands up to 40 s."""

_FORGET: Final = (
    libvirt.VIR_DOMAIN_UNDEFINE_MANAGED_SAVE
    | libvirt.VIR_DOMAIN_UNDEFINE_SNAPSHOTS_METADATA
    | libvirt.VIR_DOMAIN_UNDEFINE_CHECKPOINTS_METADATA
)
_FORGET_FIRMWARE: Final = libvirt.VIR_DOMAIN_UNDEFINE_NVRAM | libvirt.VIR_DOMAIN_UNDEFINE_TPM
_KEEP_FIRMWARE: Final = libvirt.VIR_DOMAIN_UNDEFINE_KEEP_NVRAM | libvirt.VIR_DOMAIN_UNDEFINE_KEEP_TPM


class DomainCalls:
    """The part of port.Hypervisor about domains as they are on this host."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    async def list_domains(self) -> tuple[DomainRecord, ...]:
        """All domains, running or not. Does not wait for any QEMU process, so hung ones are listed, too."""
        return await self._calls.on_host(_list_domains, what="list domains")

    async def domain(self, uuid: str) -> DomainRecord:
        """One domain. Raises NotFound."""
        return await self._calls.on_domain(uuid, _record, what="read domain", lane=LaneName.QUERY)

    async def domain_xml(self, uuid: str, *, inactive: bool = False, migratable: bool = False) -> str:
        """The domain's XML: as it runs, as it will start next (``inactive``), or as another host may
        take it (``migratable``; contains secrets such as display passwords, so never log it)."""
        flags = 0
        if inactive:
            flags |= libvirt.VIR_DOMAIN_XML_INACTIVE
        if migratable:
            flags |= libvirt.VIR_DOMAIN_XML_MIGRATABLE | libvirt.VIR_DOMAIN_XML_SECURE
        return await self._calls.on_domain(
            uuid, lambda domain: domain.XMLDesc(flags), what="read domain XML", lane=LaneName.QUERY
        )

    async def define(self, xml: str) -> str:
        """Define a persistent domain, checked against libvirt's schema, and return its UUID."""
        return await self._calls.on_host(
            lambda conn: conn.defineXMLFlags(xml, libvirt.VIR_DOMAIN_DEFINE_VALIDATE).UUIDString(),
            what="define domain",
        )

    async def create(self, uuid: str, *, paused: bool = False) -> None:
        """Start a defined domain. Raises WrongPhase if it runs already."""
        flags = libvirt.VIR_DOMAIN_START_PAUSED if paused else 0
        await self._calls.on_domain(
            uuid,
            lambda domain: domain.createWithFlags(flags),
            what="start domain",
            lane=LaneName.START,
            timeout_s=START_TIMEOUT_S,
        )

    async def suspend(self, uuid: str) -> None:
        """Stop the vCPUs; a domain paused already is a success."""
        await self._calls.on_domain(
            uuid, lambda domain: domain.suspend(), what="pause domain", lane=LaneName.CHANGE
        )

    async def resume(self, uuid: str) -> None:
        """Let the vCPUs run. Raises WrongPhase if they do."""
        await self._calls.on_domain(
            uuid, lambda domain: domain.resume(), what="resume domain", lane=LaneName.CHANGE
        )

    async def shutdown(self, uuid: str) -> None:
        """Ask the guest to power off: by the agent if it is connected, else or if that fails by ACPI."""
        flags = libvirt.VIR_DOMAIN_SHUTDOWN_GUEST_AGENT | libvirt.VIR_DOMAIN_SHUTDOWN_ACPI_POWER_BTN
        await self._calls.on_domain(
            uuid,
            lambda domain: domain.shutdownFlags(flags),
            what="shut down domain",
            lane=LaneName.START,
            timeout_s=SHUTDOWN_TIMEOUT_S,
        )

    async def reset(self, uuid: str) -> None:
        """Press the reset button."""
        await self._calls.on_domain(
            uuid, lambda domain: domain.reset(0), what="reset domain", lane=LaneName.CHANGE
        )

    async def destroy(self, uuid: str, *, graceful: bool = True) -> None:
        """End the QEMU process; a domain that is not running or does not exist is a success.

        ``graceful`` lets QEMU flush its disks and fails if it does not end by itself (15 s); otherwise
        libvirt first asks the same way and kills after 10 s, which also ends a QEMU that hangs.
        """
        flags = libvirt.VIR_DOMAIN_DESTROY_GRACEFUL if graceful else libvirt.VIR_DOMAIN_DESTROY_DEFAULT
        await self._calls.if_exists(
            uuid,
            lambda domain: _destroy(domain, flags),
            what="destroy domain",
            lane=LaneName.KILL,
            timeout_s=DESTROY_TIMEOUT_S,
        )

    async def undefine(self, uuid: str, *, keep_nvram: bool = False) -> None:
        """Forget a domain with its managed save, snapshot and checkpoint metadata; one that does not
        exist is a success. ``keep_nvram`` keeps UEFI variables and TPM state, else they are deleted."""
        flags = _FORGET | (_KEEP_FIRMWARE if keep_nvram else _FORGET_FIRMWARE)
        await self._calls.if_exists(
            uuid, lambda domain: domain.undefineFlags(flags), what="undefine domain", lane=LaneName.CHANGE
        )

    async def set_metadata(self, uuid: str, xml: str, *, prefix: str, namespace: str) -> None:
        """Store an XML element in the domain's metadata, in its definition and, if it runs, live.

        It replaces the element of the same ``namespace``. Raises Conflict or WrongPhase while migrating.
        """
        await self._calls.on_domain(
            uuid,
            lambda domain: _set_metadata(domain, xml, prefix, namespace),
            what="set domain metadata",
            lane=LaneName.CHANGE,
        )


def _list_domains(connection: libvirt.virConnect) -> tuple[DomainRecord, ...]:
    """Two calls for any number of domains; the state group of the statistics asks no QEMU process."""
    stats = connection.getAllDomainStats(libvirt.VIR_DOMAIN_STATS_STATE)
    persistent = {
        domain.UUIDString()
        for domain in connection.listAllDomains(libvirt.VIR_CONNECT_LIST_DOMAINS_PERSISTENT)
    }
    records = []
    for domain, values in stats:
        state, reason = translate.state_and_reason(values["state.state"], values["state.reason"])
        uuid = domain.UUIDString()
        records.append(
            DomainRecord(
                uuid=uuid, name=domain.name(), state=state, reason=reason, persistent=uuid in persistent
            )
        )
    return tuple(sorted(records, key=lambda record: record.name))


def _record(domain: libvirt.virDomain) -> DomainRecord:
    state, reason = translate.state_and_reason(*domain.state())
    return DomainRecord(
        uuid=domain.UUIDString(),
        name=domain.name(),
        state=state,
        reason=reason,
        persistent=bool(domain.isPersistent()),
    )


def _destroy(domain: libvirt.virDomain, flags: int) -> None:
    try:
        domain.destroyFlags(flags)
    except libvirt.libvirtError as error:
        if not translate.is_not_running(error):
            raise


def _set_metadata(domain: libvirt.virDomain, xml: str, prefix: str, namespace: str) -> None:
    flags = 0
    if domain.isActive():
        flags |= libvirt.VIR_DOMAIN_AFFECT_LIVE
    if domain.isPersistent():
        flags |= libvirt.VIR_DOMAIN_AFFECT_CONFIG
    domain.setMetadata(libvirt.VIR_DOMAIN_METADATA_ELEMENT, xml, prefix, namespace, flags)
