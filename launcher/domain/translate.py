# SPDX-License-Identifier: Apache-2.0
"""A manifest to domain XML without a node: what ``launcherctl translate`` does. Pure; it touches nothing.

What an agent would allocate is filled in with stand-ins that are always the same; what only exists on a
node (MAC addresses, tap devices) is left out.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from dataclasses import dataclass

from msgspec.structs import replace

from launcher.domain.build import build
from launcher.domain.caps import domain_caps, node_facts
from launcher.errors import InvalidRequest, InvalidSpec, Violation
from launcher.plan.allocations import Allocations
from launcher.plan.arch import ARCHITECTURES
from launcher.plan.context import vcpu_topology
from launcher.plan.facts import NodeFacts, assumed_facts
from launcher.plan.iothreads import supplemental_threads
from launcher.plan.make import make_plan
from launcher.plan.model import VMPlan
from launcher.plan.settings import PlanSettings
from launcher.plan.volumes import block_claims as places_of_blocks
from launcher.spec.defaults import DefaultsSettings, apply_defaults
from launcher.spec.derived import derived_uuid
from launcher.spec.model import VirtualMachineInstance
from launcher.spec.rules import check

# The namespace (RFC 9562, version 5) of the uid that a manifest without one is translated with.
_UID_NAMESPACE = uuid.UUID("b5c0a7f6-5a0e-4d0c-9d52-5f8e0d3c9a41")
# The first CID that a guest can have (vsock(7)).
_VSOCK_CID = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Assumptions:
    """The node that a translation without a node assumes: facts, settings, and what it may hand out."""

    facts: NodeFacts
    settings: PlanSettings
    defaults: DefaultsSettings
    cpuset: tuple[int, ...] = ()
    block_claims: tuple[str, ...] = ()


def translate(
    vmi: VirtualMachineInstance,
    *,
    capabilities_xml: str | None = None,
    domain_capabilities_xml: str | None = None,
    cpuset: tuple[int, ...] = (),
    emulation: bool = False,
    block_claims: Iterable[str] = (),
    settings: PlanSettings | None = None,
    architecture: str = "",
) -> str:
    """The domain XML of ``vmi``, whose defaults may still be missing.

    Without capabilities the host is one that has KVM and can do all that is asked, with the newest libvirt.
    ``cpuset`` are the pCPUs that may be dedicated (none given: all of the host), ``emulation`` says that the
    guest runs without KVM, ``block_claims`` names the claims (or their volumes) that are block devices.
    ``architecture`` is the host's where the manifest names none and there are no capabilities (empty: amd64).

    Raises:
        InvalidSpec: the manifest has errors; all that were found.
        InvalidRequest: a capabilities text cannot be read.
        HostUnsupported: the host described cannot run it.
        Exhausted: the cpuset is too small.
    """
    return build(
        translate_plan(
            vmi,
            capabilities_xml=capabilities_xml,
            domain_capabilities_xml=domain_capabilities_xml,
            cpuset=cpuset,
            emulation=emulation,
            block_claims=block_claims,
            settings=settings,
            architecture=architecture,
        )
    )


def translate_plan(
    vmi: VirtualMachineInstance,
    *,
    capabilities_xml: str | None = None,
    domain_capabilities_xml: str | None = None,
    cpuset: tuple[int, ...] = (),
    emulation: bool = False,
    block_claims: Iterable[str] = (),
    settings: PlanSettings | None = None,
    architecture: str = "",
) -> VMPlan:
    """The plan behind ``translate``; the same arguments, the same errors."""
    assumed = assume(
        vmi,
        capabilities_xml=capabilities_xml,
        domain_capabilities_xml=domain_capabilities_xml,
        cpuset=cpuset,
        emulation=emulation,
        block_claims=block_claims,
        settings=settings,
        architecture=architecture,
    )
    full = apply_defaults(named(vmi), assumed.defaults)
    violations = check(vmi, settings=assumed.defaults, defaulted=full)
    if violations:
        raise InvalidSpec(violations)
    return make_plan(full, assumed.facts, stand_ins(full, assumed), assumed.settings)


def assume(
    vmi: VirtualMachineInstance,
    *,
    capabilities_xml: str | None = None,
    domain_capabilities_xml: str | None = None,
    cpuset: tuple[int, ...] = (),
    emulation: bool = False,
    block_claims: Iterable[str] = (),
    settings: PlanSettings | None = None,
    architecture: str = "",
) -> Assumptions:
    """What ``translate`` assumes with the same arguments.

    Raises:
        InvalidRequest: a capabilities text cannot be read.
    """
    chosen = replace(settings or PlanSettings(), allow_emulation=emulation)
    facts = _facts(vmi.spec.architecture or architecture, capabilities_xml, domain_capabilities_xml)
    if emulation:
        facts = replace(facts, kvm_usable=False)
    return Assumptions(
        facts=facts,
        settings=chosen,
        defaults=_defaults(facts, chosen),
        cpuset=cpuset,
        block_claims=tuple(block_claims),
    )


def named(vmi: VirtualMachineInstance) -> VirtualMachineInstance:
    """``vmi`` with the name that its generateName gives it here, as an agent would give it one."""
    meta = vmi.metadata
    if meta is None or meta.name or not meta.generate_name:
        return vmi
    suffix = derived_uuid(_UID_NAMESPACE, f"{meta.namespace}/{meta.generate_name}")[:5]
    return replace(vmi, metadata=replace(meta, name=f"{meta.generate_name}{suffix}"))


def stand_ins(vmi: VirtualMachineInstance, assumed: Assumptions) -> Allocations:
    """What an agent would allocate for the defaulted ``vmi``, always the same.

    Raises:
        InvalidRequest: the uid cannot be part of a path.
    """
    meta, firmware = vmi.metadata, vmi.spec.domain.firmware
    name = f"{meta.namespace}/{meta.name}" if meta is not None else ""
    uid = (meta.uid if meta is not None else None) or derived_uuid(_UID_NAMESPACE, name)
    return Allocations(
        uid=_file_name(uid),
        uuid=(firmware.uuid if firmware is not None else None) or uid,
        cpuset=assumed.cpuset or _all_cpus(vmi, assumed.facts),
        claims=places_of_blocks(vmi, assumed.block_claims),
        vsock_cid=_VSOCK_CID if vmi.spec.domain.devices.autoattach_vsock else 0,
    )


def _facts(asked: str, capabilities_xml: str | None, domain_capabilities_xml: str | None) -> NodeFacts:
    if capabilities_xml is None:
        facts = assumed_facts(asked)
    else:
        facts = node_facts(capabilities_xml)
        if not facts.guests and asked in ARCHITECTURES:
            # A description of the topology alone says nothing about what runs there.
            facts = replace(facts, arch=asked)
    if domain_capabilities_xml is None:
        return facts
    return replace(facts, domain_caps=(domain_caps(domain_capabilities_xml),))


def _defaults(facts: NodeFacts, settings: PlanSettings) -> DefaultsSettings:
    return DefaultsSettings(
        architecture=facts.arch,
        live_update=settings.live_update,
        max_hotplug_ratio=settings.max_hotplug_ratio,
        max_cpu_sockets=settings.max_cpu_sockets,
    )


def _file_name(uid: str) -> str:
    """A uid becomes part of paths."""
    if "/" in uid or uid in (".", ".."):
        message = "a uid is a name without slashes, such as a UUID"
        raise InvalidRequest(
            [Violation(field="metadata.uid", type="FieldValueInvalid", value=uid, message=message)]
        )
    return uid


def _all_cpus(vmi: VirtualMachineInstance, facts: NodeFacts) -> tuple[int, ...]:
    """All of a host that is known; of one that is not, as many as the guest can use."""
    known = tuple(sorted(cpu.id for cell in facts.cells for cpu in cell.cpus))
    emulator = 2
    return known or tuple(range(vcpu_topology(vmi).current + supplemental_threads(vmi) + emulator))
