# SPDX-License-Identifier: Apache-2.0
"""``<launchSecurity>``. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from launcher.domain.element import E, Element
from launcher.plan.model import LaunchSecurityPlan, VMPlan


def launch_security(plan: VMPlan) -> Iterator[Element]:
    """Encryption of the guest's memory. cbitpos and reducedPhysBits are libvirt's to fill in."""
    asked = plan.launch_security
    if asked is not None:
        yield E(
            "launchSecurity",
            E("policy", asked.policy) if asked.policy is not None else None,
            E("dhCert", asked.dh_cert) if asked.dh_cert is not None else None,
            E("session", asked.session) if asked.session is not None else None,
            _quote_generation(asked),
            type=asked.type,
        )


def _quote_generation(asked: LaunchSecurityPlan) -> Element | None:
    return E("quoteGenerationService", path=asked.quote_socket) if asked.quote_generation else None
