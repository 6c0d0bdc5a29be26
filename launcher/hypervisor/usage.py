# SPDX-License-Identifier: Apache-2.0
"""What a running domain uses, from libvirt's statistics. One call, no policy."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, cast

import libvirt

from launcher.errors import WrongPhase
from launcher.hypervisor.calls import Calls, LaneName
from launcher.hypervisor.port import DomainUsage, LinkUsage
from launcher.units import KIB

_AT_ONCE: Final = (
    libvirt.VIR_CONNECT_GET_ALL_DOMAINS_STATS_ACTIVE | libvirt.VIR_CONNECT_GET_ALL_DOMAINS_STATS_NOWAIT
)
NANOSECONDS: Final = 1_000_000_000
_GROUPS: Final = libvirt.VIR_DOMAIN_STATS_VCPU | libvirt.VIR_DOMAIN_STATS_BALLOON


class UsageCalls:
    """The part of port.Hypervisor about what domains use."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    async def usage(self, uuid: str) -> DomainUsage:
        """What a domain used so far; it asks QEMU, so it may hang with it.

        Raises:
            NotFound: there is no such domain. WrongPhase: it does not run.
        """
        return await self._calls.on_domain(uuid, _usage, what="read statistics", lane=LaneName.CONTROL)

    async def links(self, *, timeout_s: float) -> dict[str, tuple[LinkUsage, ...]]:
        """What went over the interfaces of all running domains, by UUID, in one call.

        A domain that is busy is left out rather than waited for.
        """
        return await self._calls.on_host(_links, what="read statistics of interfaces", timeout_s=timeout_s)


def _links(connection: libvirt.virConnect) -> dict[str, tuple[LinkUsage, ...]]:
    found = connection.getAllDomainStats(libvirt.VIR_DOMAIN_STATS_INTERFACE, _AT_ONCE)
    return {domain.UUIDString(): tuple(link_usages(values)) for domain, values in found}


def link_usages(values: Mapping[str, object]) -> Iterator[LinkUsage]:
    """libvirt's statistics (virConnectGetAllDomainStats: net.N.rx.bytes …). Pure."""
    for number in range(_number(values, "net.count")):
        prefix = f"net.{number}"
        name = values.get(f"{prefix}.name")
        if isinstance(name, str) and name:
            yield LinkUsage(
                link=name,
                rx_bytes=_number(values, f"{prefix}.rx.bytes"),
                rx_packets=_number(values, f"{prefix}.rx.pkts"),
                rx_errors=_number(values, f"{prefix}.rx.errs"),
                rx_dropped=_number(values, f"{prefix}.rx.drop"),
                tx_bytes=_number(values, f"{prefix}.tx.bytes"),
                tx_packets=_number(values, f"{prefix}.tx.pkts"),
                tx_errors=_number(values, f"{prefix}.tx.errs"),
                tx_dropped=_number(values, f"{prefix}.tx.drop"),
            )


def _usage(domain: libvirt.virDomain) -> DomainUsage:
    connection: libvirt.virConnect = cast("Any", domain).connect()
    found = connection.domainListGetStats([domain], _GROUPS)
    return usage(found[0][1] if found else {})


def usage(values: Mapping[str, object]) -> DomainUsage:
    """libvirt's statistics (virConnectGetAllDomainStats: vcpu.* in nanoseconds, balloon.* in KiB). Pure.

    Raises:
        WrongPhase: they are those of a domain that does not run.
    """
    vcpus, memory = _number(values, "vcpu.current"), _number(values, "balloon.current")
    if not vcpus or not memory:
        raise WrongPhase("the domain does not run")
    times = (
        _number(values, name)
        for name in values
        if name.startswith("vcpu.") and name.endswith(".time") and name.count(".") == 2
    )
    return DomainUsage(cpu_time_s=sum(times) / NANOSECONDS, vcpus=vcpus, memory=memory * KIB)


def _number(values: Mapping[str, object], name: str) -> int:
    value = values.get(name, 0)
    return value if isinstance(value, int) else 0
