# SPDX-License-Identifier: Apache-2.0
"""Where a control plane may place the instance: accepted and handed back, never acted on by a node."""

from __future__ import annotations

from typing import Literal

from launcher.spec.model.base import Model
from launcher.spec.model.meta import LabelSelector
from launcher.spec.model.scalars import Int32, Int64


class NodeSelectorRequirement(Model, frozen=True, kw_only=True):
    """API type ``NodeSelectorRequirement``."""

    key: str
    operator: Literal["DoesNotExist", "Exists", "Gt", "In", "Lt", "NotIn"]
    values: tuple[str, ...] = ()


class NodeSelectorTerm(Model, frozen=True, kw_only=True):
    """API type ``NodeSelectorTerm``."""

    match_expressions: tuple[NodeSelectorRequirement, ...] = ()
    match_fields: tuple[NodeSelectorRequirement, ...] = ()


class NodeSelector(Model, frozen=True, kw_only=True):
    """API type ``NodeSelector``."""

    node_selector_terms: tuple[NodeSelectorTerm, ...]


class PreferredSchedulingTerm(Model, frozen=True, kw_only=True):
    """API type ``PreferredSchedulingTerm``."""

    preference: NodeSelectorTerm
    weight: Int32


class NodeAffinity(Model, frozen=True, kw_only=True):
    """API type ``NodeAffinity``."""

    preferred_during_scheduling_ignored_during_execution: tuple[PreferredSchedulingTerm, ...] = ()
    required_during_scheduling_ignored_during_execution: NodeSelector | None = None


class PodAffinityTerm(Model, frozen=True, kw_only=True):
    """API type ``PodAffinityTerm``."""

    topology_key: str
    label_selector: LabelSelector | None = None
    match_label_keys: tuple[str, ...] = ()
    mismatch_label_keys: tuple[str, ...] = ()
    namespace_selector: LabelSelector | None = None
    namespaces: tuple[str, ...] = ()


class WeightedPodAffinityTerm(Model, frozen=True, kw_only=True):
    """API type ``WeightedPodAffinityTerm``."""

    pod_affinity_term: PodAffinityTerm
    weight: Int32


class PodAffinity(Model, frozen=True, kw_only=True):
    """API type ``PodAffinity``."""

    preferred_during_scheduling_ignored_during_execution: tuple[WeightedPodAffinityTerm, ...] = ()
    required_during_scheduling_ignored_during_execution: tuple[PodAffinityTerm, ...] = ()


class PodAntiAffinity(Model, frozen=True, kw_only=True):
    """API type ``PodAntiAffinity``."""

    preferred_during_scheduling_ignored_during_execution: tuple[WeightedPodAffinityTerm, ...] = ()
    required_during_scheduling_ignored_during_execution: tuple[PodAffinityTerm, ...] = ()


class Affinity(Model, frozen=True, kw_only=True):
    """API type ``Affinity``."""

    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAntiAffinity | None = None


class ClaimRequest(Model, frozen=True, kw_only=True):
    """API type ``ClaimRequest``."""

    claim_name: str | None = None
    request_name: str | None = None


class PodDNSConfigOption(Model, frozen=True, kw_only=True):
    """API type ``PodDNSConfigOption``."""

    name: str | None = None
    value: str | None = None


class PodDNSConfig(Model, frozen=True, kw_only=True):
    """API type ``PodDNSConfig``."""

    nameservers: tuple[str, ...] = ()
    options: tuple[PodDNSConfigOption, ...] = ()
    searches: tuple[str, ...] = ()


class Toleration(Model, frozen=True, kw_only=True):
    """API type ``Toleration``."""

    effect: Literal["NoExecute", "NoSchedule", "PreferNoSchedule"] | None = None
    key: str | None = None
    operator: Literal["Equal", "Exists"] | None = None
    toleration_seconds: Int64 | None = None
    value: str | None = None


class TopologySpreadConstraint(Model, frozen=True, kw_only=True):
    """API type ``TopologySpreadConstraint``."""

    max_skew: Int32
    topology_key: str
    when_unsatisfiable: Literal["DoNotSchedule", "ScheduleAnyway"]
    label_selector: LabelSelector | None = None
    match_label_keys: tuple[str, ...] = ()
    min_domains: Int32 | None = None
    node_affinity_policy: Literal["Honor", "Ignore"] | None = None
    node_taints_policy: Literal["Honor", "Ignore"] | None = None


class VirtualMachineInstanceResourceClaim(Model, frozen=True, kw_only=True):
    """API type ``VirtualMachineInstanceResourceClaim``."""

    name: str
    resource_claim_name: str | None = None
    resource_claim_template_name: str | None = None
