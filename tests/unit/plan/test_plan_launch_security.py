# SPDX-License-Identifier: Apache-2.0
"""Encrypted guests, and the hosts that cannot have them."""

from __future__ import annotations

import pytest
from plan_manifest import context

from launcher.errors import HostUnsupported
from launcher.plan.facts import DomainCaps, NodeFacts, version
from launcher.plan.launch_security import QGS_SOCKET, launch_security
from launcher.plan.model import LaunchSecurityPlan

DOMAIN = "{launchSecurity: {%s}, memory: {guest: 1Gi}}"


@pytest.mark.parametrize(
    ("asked", "type_", "policy"),
    [
        ("sev: {}", "sev", "0x1"),
        ("sev: {policy: {encryptedState: true}}", "sev", "0x5"),
        ("snp: {}", "sev-snp", "0x30000"),
        ("tdx: {}", "tdx", None),
    ],
)
def test_policies_are_fixed(asked: str, type_: str, policy: str | None) -> None:
    planned = launch_security(context(DOMAIN % asked))
    assert planned is not None
    assert (planned.type, planned.policy) == (type_, policy)


@pytest.mark.parametrize(
    ("annotations", "socket"),
    [({}, "/var/run/tdx-qgs/qgs.socket"), ({QGS_SOCKET: "/q"}, "/q"), ({QGS_SOCKET: " "}, None)],
)
def test_tdx_knows_its_quote_service(annotations: dict[str, str], socket: str | None) -> None:
    planned = launch_security(context(DOMAIN % "tdx: {}", annotations=annotations))
    assert planned == LaunchSecurityPlan(type="tdx", quote_generation=True, quote_socket=socket)


def test_secure_execution_writes_no_element_and_hides_memory() -> None:
    planned = context(DOMAIN % "", architecture="s390x", facts=NodeFacts(arch="s390x"))
    assert launch_security(planned) is None
    assert planned.iommu


@pytest.mark.parametrize(("asked", "iommu"), [("sev: {}", True), ("snp: {}", True), ("tdx: {}", False)])
def test_devices_use_the_iommu_except_under_tdx(asked: str, iommu: bool) -> None:
    assert context(DOMAIN % asked).iommu is iommu


@pytest.mark.parametrize(
    ("asked", "facts", "word"),
    [
        ("snp: {}", NodeFacts(libvirt_version=version(10, 4)), "older than 10.5"),
        ("tdx: {}", NodeFacts(libvirt_version=version(11, 5)), "older than 11.6"),
        ("sev: {}", NodeFacts(kvm_usable=False), "without KVM"),
        (
            "sev: {}",
            NodeFacts(domain_caps=(DomainCaps(arch="x86_64", virt="kvm", unsupported_features=("sev",)),)),
            "do not offer it",
        ),
        (
            "snp: {}",
            NodeFacts(
                domain_caps=(
                    DomainCaps(arch="x86_64", virt="kvm", enums={"launchSecurity.sectype": ("sev",)}),
                )
            ),
            "do not offer it",
        ),
    ],
)
def test_hosts_without_it_are_told(asked: str, facts: NodeFacts, word: str) -> None:
    with pytest.raises(HostUnsupported, match=word):
        launch_security(context(DOMAIN % asked, facts=facts))
