# SPDX-License-Identifier: Apache-2.0
"""The files of a downwardAPI volume: fields and figures of the instance itself. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from fractions import Fraction
from math import ceil

from launcher.plan.context import guest_memory, vcpu_topology
from launcher.plan.media.material import Material, MediaFile
from launcher.spec.model import DownwardAPIVolumeFile, DownwardAPIVolumeSource, ResourceFieldSelector
from launcher.spec.quantity import Quantity

DEFAULT_MODE = 0o644
"""As for pods, when neither the file nor the volume gives one."""
_KEYED = re.compile(r"metadata\.(labels|annotations)\['([^']+)'\]")


def downward_files(material: Material, source: DownwardAPIVolumeSource) -> tuple[MediaFile, ...]:
    """One file for each item."""
    return tuple(
        MediaFile(
            path="/".join(part for part in item.path.split("/") if part not in ("", ".")),
            data=_content(material, item).encode(),
            mode=DEFAULT_MODE if item.mode is None else item.mode,
        )
        for item in source.fields
    )


def _content(material: Material, item: DownwardAPIVolumeFile) -> str:
    if item.field_ref is not None:
        return _field(material, item.field_ref.field_path)
    if item.resource_field_ref is not None:
        return str(_figure(material, item.resource_field_ref))
    return ""


def _field(material: Material, path: str) -> str:
    metadata = material.vmi.metadata
    if metadata is None:
        return ""
    keyed = _KEYED.fullmatch(path)
    if keyed is not None:
        return (metadata.labels if keyed[1] == "labels" else metadata.annotations).get(keyed[2], "")
    values = {
        "metadata.name": metadata.name or "",
        "metadata.namespace": material.namespace,
        "metadata.uid": metadata.uid or "",
        "metadata.labels": _lines(metadata.labels),
        "metadata.annotations": _lines(metadata.annotations),
    }
    return values.get(path, "")


def _lines(pairs: Mapping[str, str]) -> str:
    """``key="value"`` in lines, by key, as kubelet writes them."""
    return "\n".join(f"{key}={json.dumps(value, ensure_ascii=False)}" for key, value in sorted(pairs.items()))


def _figure(material: Material, reference: ResourceFieldSelector) -> int:
    """The amount in units of the divisor, rounded up; what is not said is what the guest has."""
    group, _, name = reference.resource.partition(".")
    resources = material.vmi.spec.domain.resources
    amounts: Mapping[str, Quantity] = {}
    if resources is not None:
        amounts = resources.limits if group == "limits" else resources.requests
    amount = amounts[name].value if name in amounts else _own(material, name)
    divisor = reference.divisor.value if reference.divisor is not None else Fraction(0)
    return ceil(amount / (divisor or 1))


def _own(material: Material, name: str) -> Fraction:
    if name == "cpu":
        return Fraction(vcpu_topology(material.vmi).current)
    return Fraction(guest_memory(material.vmi) if name == "memory" else 0)
