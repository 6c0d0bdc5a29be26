# SPDX-License-Identifier: Apache-2.0
"""Calls of AMD SEV attestation: the host's certificates, a guest's measurement, its secret. No policy.

The secret of a guest is only handed on: it stands in no error, and libvirt's own words name no value of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, cast

import libvirt

from launcher.hypervisor.calls import Calls, LaneName
from launcher.hypervisor.port import SevMeasurement, SevPlatform

Params = Mapping[str, object]

MAX_ES_GUESTS: Final = getattr(libvirt, "VIR_NODE_SEV_MAX_ES_GUESTS", "max-es-guests")
"""Newer than the oldest libvirt-python that is taken (8.4 has it)."""


class LaunchCalls:
    """The part of port.Hypervisor about launch security."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    async def sev_platform(self) -> SevPlatform:
        """What a guest's owner needs to know of this host. Raises HostUnsupported without SEV."""
        return await self._calls.on_host(
            # The binding's annotations say "str" of what is a dictionary.
            lambda connection: sev_platform(cast("Any", connection.getSEVInfo(0))),
            what="read the SEV platform",
        )

    async def sev_measurement(self, uuid: str) -> SevMeasurement:
        """What the firmware measured of a domain at its start. Raises HostUnsupported: it is no SEV guest."""
        return await self._calls.on_domain(
            uuid,
            lambda domain: sev_measurement(cast("Any", domain.launchSecurityInfo(0))),
            what="read the launch measurement",
            lane=LaneName.CHANGE,
        )

    async def inject_sev_secret(self, uuid: str, *, header: str, secret: str) -> None:
        """Put a secret into the memory of a domain that has not run yet.

        Raises:
            WrongPhase: it runs. HostUnsupported: it is no SEV guest. HypervisorError: the firmware refuses.
        """
        state = {
            libvirt.VIR_DOMAIN_LAUNCH_SECURITY_SEV_SECRET_HEADER: header,
            libvirt.VIR_DOMAIN_LAUNCH_SECURITY_SEV_SECRET: secret,
        }
        await self._calls.on_domain(
            uuid,
            lambda domain: domain.setLaunchSecurityState(state, 0),
            what="inject the launch secret",
            lane=LaneName.CHANGE,
        )


def sev_platform(params: Params) -> SevPlatform:
    """virNodeGetSEVInfo's parameters. Pure."""
    return SevPlatform(
        pdh=_text(params, libvirt.VIR_NODE_SEV_PDH),
        cert_chain=_text(params, libvirt.VIR_NODE_SEV_CERT_CHAIN),
        cpu0_id=_text(params, libvirt.VIR_NODE_SEV_CPU0_ID),
        cbitpos=_number(params, libvirt.VIR_NODE_SEV_CBITPOS),
        reduced_phys_bits=_number(params, libvirt.VIR_NODE_SEV_REDUCED_PHYS_BITS),
        max_guests=_number(params, libvirt.VIR_NODE_SEV_MAX_GUESTS),
        max_es_guests=_number(params, MAX_ES_GUESTS),
    )


def sev_measurement(params: Params) -> SevMeasurement:
    """virDomainGetLaunchSecurityInfo's parameters. Pure."""
    return SevMeasurement(
        measurement=_text(params, libvirt.VIR_DOMAIN_LAUNCH_SECURITY_SEV_MEASUREMENT),
        api_major=_number(params, libvirt.VIR_DOMAIN_LAUNCH_SECURITY_SEV_API_MAJOR),
        api_minor=_number(params, libvirt.VIR_DOMAIN_LAUNCH_SECURITY_SEV_API_MINOR),
        build_id=_number(params, libvirt.VIR_DOMAIN_LAUNCH_SECURITY_SEV_BUILD_ID),
        policy=_number(params, libvirt.VIR_DOMAIN_LAUNCH_SECURITY_SEV_POLICY),
    )


def _text(params: Params, name: str) -> str:
    return str(params.get(name, ""))


def _number(params: Params, name: str) -> int:
    value = params.get(name, 0)
    return value if isinstance(value, int) else 0
