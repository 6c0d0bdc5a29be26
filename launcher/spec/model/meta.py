# SPDX-License-Identifier: Apache-2.0
"""Kubernetes object metadata and the small reference types that other groups share."""

from __future__ import annotations

from typing import Any

from msgspec import field

from launcher.spec.model.base import Model
from launcher.spec.model.scalars import Int64, Time
from launcher.spec.quantity import Quantity

# Who set which field, in the API server's own notation: handed through, never looked at.
FieldsV1 = dict[str, Any]


class LabelSelectorRequirement(Model, frozen=True, kw_only=True):
    """API type ``LabelSelectorRequirement``.

    One condition.

    key: label
    operator: how it is compared: In, NotIn, Exists, DoesNotExist
    values: values to compare with
    """

    key: str
    operator: str
    values: tuple[str, ...] = ()


class LabelSelector(Model, frozen=True, kw_only=True):
    """API type ``LabelSelector``.

    Objects by their labels; all conditions must hold.

    match_expressions: conditions on labels
    match_labels: labels with their values
    """

    match_expressions: tuple[LabelSelectorRequirement, ...] = ()
    match_labels: dict[str, str] = field(default_factory=dict)


class LocalObjectReference(Model, frozen=True, kw_only=True):
    """API type ``LocalObjectReference``.

    An object of the same namespace.

    name: name of the object
    """

    name: str | None = None


class ManagedFieldsEntry(Model, frozen=True, kw_only=True):
    """API type ``ManagedFieldsEntry``."""

    api_version: str | None = None
    fields_type: str | None = None
    fields_v1: FieldsV1 | None = None
    manager: str | None = None
    operation: str | None = None
    subresource: str | None = None
    time: Time | None = None


class ObjectFieldSelector(Model, frozen=True, kw_only=True):
    """API type ``ObjectFieldSelector``.

    A field.

    field_path: path of the field
    api_version: version of the API that the path is meant in
    """

    field_path: str
    api_version: str | None = None


class OwnerReference(Model, frozen=True, kw_only=True):
    """API type ``OwnerReference``."""

    api_version: str
    kind: str
    name: str
    uid: str
    block_owner_deletion: bool | None = None
    controller: bool | None = None


class ObjectMeta(Model, frozen=True, kw_only=True):
    """API type ``ObjectMeta``.

    Who the object is. On reading, a ``name`` or a ``generate_name`` is required; time stamps are RFC
    3339.
    """

    annotations: dict[str, str] = field(default_factory=dict)
    creation_timestamp: Time | None = None
    deletion_grace_period_seconds: Int64 | None = None
    deletion_timestamp: Time | None = None
    finalizers: tuple[str, ...] = ()
    generate_name: str | None = None
    generation: Int64 | None = None
    labels: dict[str, str] = field(default_factory=dict)
    managed_fields: tuple[ManagedFieldsEntry, ...] = ()
    name: str | None = None
    namespace: str | None = None
    owner_references: tuple[OwnerReference, ...] = ()
    resource_version: str | None = None
    self_link: str | None = None
    uid: str | None = None


class ResourceFieldSelector(Model, frozen=True, kw_only=True):
    """API type ``ResourceFieldSelector``.

    A figure of the resources.

    resource: which, such as limits.cpu
    container_name: container whose resources are meant
    divisor: unit to express it in
    """

    resource: str
    container_name: str | None = None
    divisor: Quantity | None = None
