# SPDX-License-Identifier: Apache-2.0
"""Where a control plane may place the instance: accepted and handed back, never acted on by a node."""

from __future__ import annotations

from typing import Literal

from launcher.spec.model.base import Model
from launcher.spec.model.meta import LabelSelector
from launcher.spec.model.scalars import Int32, Int64


class NodeSelectorRequirement(Model, frozen=True, kw_only=True):
    """API type ``NodeSelectorRequirement``.

    One condition.

    key: label or field
    operator: how it is compared
    values: values to compare with
    """

    key: str
    operator: Literal["DoesNotExist", "Exists", "Gt", "In", "Lt", "NotIn"]
    values: tuple[str, ...] = ()


class NodeSelectorTerm(Model, frozen=True, kw_only=True):
    """API type ``NodeSelectorTerm``.

    All conditions of a term must hold.

    match_expressions: conditions on labels
    match_fields: conditions on fields of the node object
    """

    match_expressions: tuple[NodeSelectorRequirement, ...] = ()
    match_fields: tuple[NodeSelectorRequirement, ...] = ()


class NodeSelector(Model, frozen=True, kw_only=True):
    """API type ``NodeSelector``.

    Terms, one of which must hold.

    node_selector_terms: the terms
    """

    node_selector_terms: tuple[NodeSelectorTerm, ...]


class PreferredSchedulingTerm(Model, frozen=True, kw_only=True):
    """API type ``PreferredSchedulingTerm``.

    A weighed preference.

    preference: which nodes
    weight: weight among the preferences
    """

    preference: NodeSelectorTerm
    weight: Int32


class NodeAffinity(Model, frozen=True, kw_only=True):
    """API type ``NodeAffinity``.

    Affinity to nodes.

    preferred_during_scheduling_ignored_during_execution: preferences, weighed
    required_during_scheduling_ignored_during_execution: conditions
    """

    preferred_during_scheduling_ignored_during_execution: tuple[PreferredSchedulingTerm, ...] = ()
    required_during_scheduling_ignored_during_execution: NodeSelector | None = None


class PodAffinityTerm(Model, frozen=True, kw_only=True):
    """API type ``PodAffinityTerm``.

    Which pods, and what beside means.

    topology_key: node label whose value says what counts as one place
    label_selector: pods by their labels
    match_label_keys: labels whose values must be those of this instance
    mismatch_label_keys: labels whose values must differ from those of this instance
    namespace_selector: namespaces of the pods by their labels
    namespaces: namespaces of the pods by name
    """

    topology_key: str
    label_selector: LabelSelector | None = None
    match_label_keys: tuple[str, ...] = ()
    mismatch_label_keys: tuple[str, ...] = ()
    namespace_selector: LabelSelector | None = None
    namespaces: tuple[str, ...] = ()


class WeightedPodAffinityTerm(Model, frozen=True, kw_only=True):
    """API type ``WeightedPodAffinityTerm``.

    A weighed preference.

    pod_affinity_term: beside which pods
    weight: weight among the preferences
    """

    pod_affinity_term: PodAffinityTerm
    weight: Int32


class PodAffinity(Model, frozen=True, kw_only=True):
    """API type ``PodAffinity``.

    Affinity to other pods.

    preferred_during_scheduling_ignored_during_execution: preferences, weighed
    required_during_scheduling_ignored_during_execution: conditions
    """

    preferred_during_scheduling_ignored_during_execution: tuple[WeightedPodAffinityTerm, ...] = ()
    required_during_scheduling_ignored_during_execution: tuple[PodAffinityTerm, ...] = ()


class PodAntiAffinity(Model, frozen=True, kw_only=True):
    """API type ``PodAntiAffinity``.

    Avoidance of other pods.

    preferred_during_scheduling_ignored_during_execution: preferences, weighed
    required_during_scheduling_ignored_during_execution: conditions
    """

    preferred_during_scheduling_ignored_during_execution: tuple[WeightedPodAffinityTerm, ...] = ()
    required_during_scheduling_ignored_during_execution: tuple[PodAffinityTerm, ...] = ()


class Affinity(Model, frozen=True, kw_only=True):
    """API type ``Affinity``.

    Attraction to nodes and other pods.

    node_affinity: to nodes, by their labels
    pod_affinity: to what runs beside it
    pod_anti_affinity: away from what runs beside it
    """

    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAntiAffinity | None = None


class ClaimRequest(Model, frozen=True, kw_only=True):
    """API type ``ClaimRequest``.

    One request of a resource claim.

    claim_name: the claim, by its name in the spec
    request_name: the request in that claim
    """

    claim_name: str | None = None
    request_name: str | None = None


class PodDNSConfigOption(Model, frozen=True, kw_only=True):
    """API type ``PodDNSConfigOption``.

    An option of the resolver.

    name: name of the option
    value: value, if it has one
    """

    name: str | None = None
    value: str | None = None


class PodDNSConfig(Model, frozen=True, kw_only=True):
    """API type ``PodDNSConfig``.

    Resolver settings.

    nameservers: addresses of name servers
    options: options of the resolver
    searches: domains that short names are looked up in
    """

    nameservers: tuple[str, ...] = ()
    options: tuple[PodDNSConfigOption, ...] = ()
    searches: tuple[str, ...] = ()


class Toleration(Model, frozen=True, kw_only=True):
    """API type ``Toleration``.

    Taints that are put up with.

    effect: effect of the taint; absent, all effects
    key: key of the taint; absent, all keys
    operator: how the value is compared; absent, Equal
    toleration_seconds: how long a NoExecute taint is tolerated; absent, for ever
    value: value of the taint
    """

    effect: Literal["NoExecute", "NoSchedule", "PreferNoSchedule"] | None = None
    key: str | None = None
    operator: Literal["Equal", "Exists"] | None = None
    toleration_seconds: Int64 | None = None
    value: str | None = None


class TopologySpreadConstraint(Model, frozen=True, kw_only=True):
    """API type ``TopologySpreadConstraint``.

    How evenly a group spreads.

    max_skew: largest difference between two places
    topology_key: node label whose value says what counts as one place
    when_unsatisfiable: whether it is a condition or a preference
    label_selector: the group, by its labels
    match_label_keys: labels whose values must be those of this instance
    min_domains: number of places that must at least exist
    node_affinity_policy: whether nodes that the affinity excludes count
    node_taints_policy: whether nodes with taints count
    """

    max_skew: Int32
    topology_key: str
    when_unsatisfiable: Literal["DoNotSchedule", "ScheduleAnyway"]
    label_selector: LabelSelector | None = None
    match_label_keys: tuple[str, ...] = ()
    min_domains: Int32 | None = None
    node_affinity_policy: Literal["Honor", "Ignore"] | None = None
    node_taints_policy: Literal["Honor", "Ignore"] | None = None


class VirtualMachineInstanceResourceClaim(Model, frozen=True, kw_only=True):
    """API type ``VirtualMachineInstanceResourceClaim``.

    A dynamic resource claim; at most one of the two sources.

    name: name that devices refer to
    resource_claim_name: an existing claim
    resource_claim_template_name: a template that a claim is made of
    """

    name: str
    resource_claim_name: str | None = None
    resource_claim_template_name: str | None = None
