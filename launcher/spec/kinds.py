# SPDX-License-Identifier: Apache-2.0
"""The kinds of objects that are accepted, and what every object must say about itself. Reads no text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import msgspec

from launcher.spec.findings import FORBIDDEN, REQUIRED, Findings
from launcher.spec.model import (
    Input,
    MigrationPolicy,
    ObjectMeta,
    VirtualMachine,
    VirtualMachineInstance,
    VirtualMachineInstanceMigration,
    VirtualMachineInstanceSpec,
)
from launcher.spec.nodes import Mapping, Scalar, child
from launcher.spec.path import ROOT

# What a manifest becomes: a VirtualMachine becomes the instance of its template.
AnyObject: TypeAlias = VirtualMachineInstance | VirtualMachineInstanceMigration | MigrationPolicy

AUTOATTACHED_INPUT: Final = "default-0"
"""What KubeVirt calls the input device that it adds."""

VMI: Final = "VirtualMachineInstance"
VM: Final = "VirtualMachine"
VMIM: Final = "VirtualMachineInstanceMigration"
MIGRATION_POLICY: Final = "MigrationPolicy"


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One accepted kind: the class of the model and the API versions, which all mean the same here."""

    model: type[AnyObject | VirtualMachine]
    versions: tuple[str, ...]


_KUBEVIRT: Final = ("kubevirt.io/v1", "kubevirt.io/v1alpha3")

KINDS: Final[dict[str, Kind]] = {
    VMI: Kind(model=VirtualMachineInstance, versions=_KUBEVIRT),
    VM: Kind(model=VirtualMachine, versions=_KUBEVIRT),
    VMIM: Kind(model=VirtualMachineInstanceMigration, versions=_KUBEVIRT),
    MIGRATION_POLICY: Kind(model=MigrationPolicy, versions=("migrations.kubevirt.io/v1alpha1",)),
}


def kind_of(node: Mapping, findings: Findings) -> Kind | None:
    """The kind of the object; None, with a finding, if it is missing or not accepted."""
    written = child(node, "kind")
    if written is None:
        findings.add(ROOT / "kind", REQUIRED, _accepted(tuple(KINDS)), node, show=False)
    elif not isinstance(written, Scalar):
        findings.wrong_type(ROOT / "kind", written, "text")
    elif written.text not in KINDS:
        findings.not_supported(ROOT / "kind", written, KINDS)
    else:
        return KINDS[written.text]
    return None


def check_envelope(kind: Kind, data: dict[str, Any], node: Mapping, findings: Findings) -> None:
    """Find what is wrong with apiVersion and name. ``data`` is what could be read of ``node``."""
    version = child(node, "apiVersion")
    if version is None:
        findings.add(ROOT / "apiVersion", REQUIRED, _accepted(kind.versions), node, show=False)
    elif isinstance(version, Scalar) and version.text not in kind.versions:
        findings.not_supported(ROOT / "apiVersion", version, kind.versions)
    if not any(_is_named(meta) for meta in (data, _template(data))):
        place = child(node, "metadata") or node
        message = "the field is required (or metadata.generateName)"
        findings.add(ROOT / "metadata" / "name", REQUIRED, message, place, show=False)
    if kind.model is VirtualMachine:
        _check_virtual_machine(node, findings)


def instance_of(machine: VirtualMachine) -> VirtualMachineInstance:
    """The instance of a VirtualMachine: its template, named like the machine unless it has a name."""
    own = machine.metadata or ObjectMeta()
    meta = machine.spec.template.metadata or ObjectMeta()
    name = meta.name or own.name
    return VirtualMachineInstance(
        api_version=machine.api_version,
        kind=VMI,
        metadata=msgspec.structs.replace(
            meta,
            name=name,
            generate_name=None if name else meta.generate_name or own.generate_name,
            namespace=meta.namespace or own.namespace,
        ),
        spec=_with_input(machine.spec.template.spec),
    )


def _with_input(spec: VirtualMachineInstanceSpec) -> VirtualMachineInstanceSpec:
    """autoattachInputDevice of a VirtualMachine: a tablet, unless the template lists inputs.

    KubeVirt's VirtualMachine controller adds it when it makes the instance; a bare instance gets none.
    """
    devices = spec.domain.devices
    if not devices.autoattach_input_device or devices.inputs:
        return spec
    replace = msgspec.structs.replace
    added = replace(devices, inputs=(Input(name=AUTOATTACHED_INPUT, type="tablet"),))
    return replace(spec, domain=replace(spec.domain, devices=added))


def _check_virtual_machine(node: Mapping, findings: Findings) -> None:
    spec = child(node, "spec")
    for name in ("instancetype", "preference"):
        reference = child(spec, name) if isinstance(spec, Mapping) else None
        if reference is not None:
            message = "a node does not expand it; accepted is a template that spells everything out"
            findings.add(ROOT / "spec" / name, FORBIDDEN, message, reference)


def _template(data: dict[str, Any]) -> dict[str, Any]:
    spec = data.get("spec")
    template = spec.get("template") if isinstance(spec, dict) else None
    return template if isinstance(template, dict) else {}


def _is_named(data: dict[str, Any]) -> bool:
    metadata = data.get("metadata")
    return isinstance(metadata, dict) and bool(metadata.get("name") or metadata.get("generateName"))


def _accepted(names: tuple[str, ...]) -> str:
    return f"the field is required; accepted: {', '.join(names)}"
