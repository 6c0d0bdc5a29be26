# SPDX-License-Identifier: Apache-2.0
"""What all of planning derives from: type of domain, vCPUs, memory."""

from __future__ import annotations

import pytest
from plan_manifest import context, manifest

from launcher.errors import HostUnsupported
from launcher.plan.allocations import Allocations
from launcher.plan.context import guest_memory, plan_context
from launcher.plan.cpu import cpu
from launcher.plan.facts import DomainCaps, GuestFacts, NodeFacts, Programs, version
from launcher.plan.make import make_plan
from launcher.plan.notes import notes
from launcher.plan.settings import PlanSettings
from launcher.units import GIB

GUEST = "{memory: {guest: 1Gi}}"


def test_a_host_with_kvm_uses_it() -> None:
    assert context(GUEST).virt == "kvm"


def test_emulation_must_be_allowed() -> None:
    facts, allocations = NodeFacts(kvm_usable=False), Allocations(uid="u", uuid="u")
    assert plan_context(manifest(GUEST), facts, allocations, PlanSettings(allow_emulation=True)).emulated
    with pytest.raises(HostUnsupported, match=r"no usable /dev/kvm.*allow_emulation"):
        plan_context(manifest(GUEST), facts, allocations, PlanSettings())


def test_a_foreign_guest_is_emulated() -> None:
    facts = NodeFacts(guests=(GuestFacts(arch="x86_64"), GuestFacts(arch="aarch64", kvm=False)))
    planned = context(GUEST, facts=facts, architecture="arm64")
    assert planned.virt == "qemu"
    assert cpu(planned, ()).mode == "maximum"


def test_a_host_without_the_emulator_refuses() -> None:
    with pytest.raises(HostUnsupported, match="install qemu-system-s390x"):
        context(GUEST, facts=NodeFacts(guests=(GuestFacts(arch="x86_64"),)), architecture="s390x")


@pytest.mark.parametrize(
    ("model", "modes", "mode"),
    [
        ("host-model", (), "host-model"),
        ("host-model", ("maximum", "custom"), "maximum"),
        ("host-model", ("maximum", "host-model"), "host-model"),
        ("host-passthrough", (), "maximum"),
        ("Nehalem", ("custom",), "custom"),
    ],
)
def test_models_without_kvm(model: str, modes: tuple[str, ...], mode: str) -> None:
    caps = (DomainCaps(arch="x86_64", virt="qemu", cpu_modes=modes),)
    planned = context(
        f"{{cpu: {{model: {model}}}, memory: {{guest: 1Gi}}}}",
        facts=NodeFacts(kvm_usable=False, domain_caps=caps),
    )
    assert cpu(planned, ()).mode == mode


@pytest.mark.parametrize(
    ("asked", "features"),
    [
        ("model: Nehalem", [("mpx", "disable")]),
        ("model: Nehalem, features: [{name: mpx}]", [("mpx", "require")]),
        ("model: Nehalem, features: [{name: x, policy: force}]", [("x", "force"), ("mpx", "disable")]),
        ("model: host-model, features: [{name: x}]", [("x", "require")]),
    ],
)
def test_named_models_lose_mpx(asked: str, features: list[tuple[str, str]]) -> None:
    planned = cpu(context(f"{{cpu: {{{asked}}}, memory: {{guest: 1Gi}}}}"), ())
    assert [(feature.name, feature.policy) for feature in planned.features] == features


def test_slots_for_sockets_shrink_to_what_the_host_allows() -> None:
    domain = "{cpu: {sockets: 20, cores: 4, maxSockets: 80}, memory: {guest: 1Gi}}"
    new, old = context(domain), context(domain, facts=NodeFacts(libvirt_version=version(9, 0)))
    assert new.topology.maximum == 320
    assert old.topology.maximum == 252
    assert notes(new) == ()
    assert notes(old) == ("spec.domain.cpu.maxSockets: 63 instead of 80: more vCPUs than this host allows",)


def test_more_vcpus_at_start_than_the_host_allows_are_refused_with_all_else() -> None:
    caps = (DomainCaps(arch="x86_64", virt="kvm", max_vcpus=8),)
    domain = "{cpu: {sockets: 9}, memory: {guest: 1Gi}, devices: {tpm: {}}}"
    with pytest.raises(HostUnsupported) as caught:
        make_plan(
            manifest(domain),
            NodeFacts(domain_caps=caps, programs=Programs(swtpm="")),
            Allocations(uid="u", uuid="6ba7b810-9dad-41d1-80b4-00c04fd430c8"),
            PlanSettings(allow_emulation=True),
        )
    assert dict(caught.value.findings) == {
        "9 vCPUs": "spec.domain.cpu: libvirt and QEMU here allow 8",
        "swtpm": "spec.domain.devices.tpm: it is not installed",
    }


def test_arm64_cannot_plug_sockets() -> None:
    planned = context(
        "{cpu: {sockets: 2, maxSockets: 8}, memory: {guest: 1Gi}}",
        facts=NodeFacts(arch="arm64"),
        architecture="arm64",
    )
    assert (planned.topology.current, planned.topology.maximum) == (2, 2)
    assert notes(planned) == ("spec.domain.cpu.maxSockets: 0 instead of 8: no CPU hotplug on arm64",)


@pytest.mark.parametrize(
    ("domain", "size"),
    [
        ("{memory: {guest: 1Gi}, resources: {requests: {memory: 2Gi}}}", GIB),
        ("{resources: {requests: {memory: 1Gi}, limits: {memory: 2Gi}}}", GIB),
        ("{resources: {limits: {memory: 1Gi}}}", GIB),
        ("{memory: {guest: 1000000.9}}".replace("1000000.9", "'1000000.9'"), 1000000),
    ],
)
def test_memory_is_guest_then_requests_then_limits(domain: str, size: int) -> None:
    assert guest_memory(manifest(domain)) == size
