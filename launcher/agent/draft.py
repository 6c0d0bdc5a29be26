# SPDX-License-Identifier: Apache-2.0
"""A manifest -> the record of an instance that this node would accept. Pure; it accepts nothing."""

from __future__ import annotations

from dataclasses import dataclass

from launcher.agent.allocate import allocate
from launcher.agent.hotplug import as_it_booted, as_it_runs
from launcher.agent.ledger import Holding, Ledger, Limits, pages, reserved_memory, shared_macs
from launcher.agent.material import material_of
from launcher.agent.port import Companions
from launcher.agent.records import InstanceRecord, Transition
from launcher.agent.volume_ledger import Opened, opened, require_free
from launcher.domain.read import DomainView
from launcher.errors import InvalidSpec
from launcher.plan.facts import NodeFacts
from launcher.plan.machines import pinned_machine
from launcher.plan.make import make_plan
from launcher.plan.media.credentials import logins
from launcher.plan.media.volume import require_content
from launcher.plan.runnable import require_runnable
from launcher.plan.settings import PlanSettings
from launcher.spec.defaults import DefaultsSettings, apply_defaults
from launcher.spec.model import VirtualMachineInstance
from launcher.spec.rules import check


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """The node as it is at the moment: what it is, what the operator decided, and who has what of it."""

    facts: NodeFacts
    plan: PlanSettings
    defaults: DefaultsSettings
    limits: Limits
    holdings: tuple[Holding, ...] = ()
    opened: tuple[Opened, ...] = ()

    @property
    def ledger(self) -> Ledger:
        """What is left of it."""
        return Ledger(self.facts, self.limits, self.holdings)


def draft(
    manifest: VirtualMachineInstance,
    companions: Companions,
    *,
    uid: str,
    site: Site,
    now: str,
    boot_id: str,
    live: DomainView | None = None,
) -> InstanceRecord:
    """Validate and plan an instance. ``live`` is its domain when it runs already and comes from another node.

    Raises:
        InvalidSpec: with everything that was found.
        InvalidRequest: a Secret or ConfigMap that a volume needs did not come along.
        HostUnsupported: the node cannot run it.
        Exhausted: it could, but others have what it needs.
        Conflict: another instance writes a volume that this one uses, or the other way round; or it has the
            same MAC address.
    """
    defaulted = apply_defaults(manifest, site.defaults)
    violations = check(manifest, settings=site.defaults, defaulted=defaulted, creating=live is None)
    if violations:
        raise InvalidSpec(violations)
    booted = defaulted
    if live is not None:
        defaulted = as_it_runs(defaulted, live)
        booted = as_it_booted(defaulted, live)
    ledger = site.ledger
    machine = pinned_machine(defaulted, site.facts, site.plan.machines)
    allocations = allocate(
        defaulted,
        companions,
        uid=uid,
        facts=site.facts,
        ledger=ledger,
        network=site.plan.network,
        machine=(live.machine if live is not None else "") or machine,
    )
    ledger.require_own_macs(shared_macs(defaulted, allocations))
    plan = make_plan(booted, site.facts, allocations, site.plan)
    require_runnable(plan.devices, site.facts)
    ledger.require(
        Holding(
            key=f"{plan.identity.namespace}/{plan.identity.name}",
            pages=pages(plan, defaulted),
            memory=reserved_memory(plan, defaulted),
        )
    )
    record = InstanceRecord(
        uid=uid,
        namespace=plan.identity.namespace,
        name=plan.identity.name,
        manifest=manifest,
        defaulted=defaulted,
        plan=plan,
        allocations=allocations,
        companions=companions,
        created=now,
        boot_id=boot_id,
        user_paused=manifest.spec.start_strategy == "Paused",
        transitions=(Transition(phase="Pending", at=now),),
    )
    require_content(material_of(record), plan.steps)
    logins(material_of(record))  # what the guest agent will be told is there
    require_free(opened(plan, record.key), site.opened)
    return record
