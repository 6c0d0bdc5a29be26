# SPDX-License-Identifier: Apache-2.0
"""What a running domain uses, from libvirt's statistics. One call, no policy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, cast

import libvirt

from launcher.errors import WrongPhase
from launcher.hypervisor.calls import Calls, LaneName
from launcher.hypervisor.port import DomainUsage
from launcher.units import KIB

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
