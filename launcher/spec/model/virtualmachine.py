# SPDX-License-Identifier: Apache-2.0
"""A VirtualMachine, as far as a node looks at it: to take the instance out of its template."""

from __future__ import annotations

from typing import Any

from msgspec import field

from launcher.spec.model.base import Model
from launcher.spec.model.meta import ObjectMeta
from launcher.spec.model.vmi import VirtualMachineInstanceSpec


class InstancetypeMatcher(Model, frozen=True, kw_only=True):
    """API type ``InstancetypeMatcher``."""

    infer_from_volume: str | None = None
    infer_from_volume_failure_policy: str | None = None
    kind: str | None = None
    name: str | None = None
    revision_name: str | None = None


class PreferenceMatcher(Model, frozen=True, kw_only=True):
    """API type ``PreferenceMatcher``."""

    infer_from_volume: str | None = None
    infer_from_volume_failure_policy: str | None = None
    kind: str | None = None
    name: str | None = None
    revision_name: str | None = None


class VirtualMachineInstanceTemplateSpec(Model, frozen=True, kw_only=True):
    """API type ``VirtualMachineInstanceTemplateSpec``."""

    spec: VirtualMachineInstanceSpec
    metadata: ObjectMeta | None = None


class VirtualMachineSpec(Model, frozen=True, kw_only=True):
    """API type ``VirtualMachineSpec``. Only ``template`` matters to a node, and, when it is changed,
    ``update_volumes_strategy``: with ``Migration`` volumes may have other claims.

    ``data_volume_templates`` are objects of another API group, kept as they are.
    """

    template: VirtualMachineInstanceTemplateSpec
    data_volume_templates: tuple[dict[str, Any], ...] = ()
    instancetype: InstancetypeMatcher | None = None
    preference: PreferenceMatcher | None = None
    run_strategy: str | None = None
    running: bool | None = None
    update_volumes_strategy: str | None = None


class VirtualMachine(Model, frozen=True, kw_only=True):
    """API type ``VirtualMachine``. Its status belongs to the control plane and is kept as it is."""

    spec: VirtualMachineSpec
    api_version: str | None = None
    kind: str | None = None
    metadata: ObjectMeta | None = None
    status: dict[str, Any] = field(default_factory=dict)
