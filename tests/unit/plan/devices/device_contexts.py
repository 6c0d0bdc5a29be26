# SPDX-License-Identifier: Apache-2.0
"""Contexts for tests of planning devices, from the spec of an instance written as YAML."""

from __future__ import annotations

import msgspec

from launcher.plan.allocations import Allocations
from launcher.plan.context import PlanContext, plan_context
from launcher.plan.facts import NodeFacts, version
from launcher.plan.settings import PlanSettings
from launcher.spec.codec import dec_hook
from launcher.spec.model import VirtualMachineInstance

UID = "0c3f4d40-1c62-4d5c-9d3c-1f3f2f0c7a11"
STATE = f"/var/lib/launcher/instances/{UID}"
RUN = f"/run/launcher/i/{UID}"
OLD_LIBVIRT = NodeFacts(libvirt_version=version(9, 0), qemu_version=version(7, 2))


def instance(
    spec: str, *, annotations: dict[str, str] | None = None, status: str = ""
) -> VirtualMachineInstance:
    """An instance ``lab/guest`` with that spec; a domain without memory gets 1Gi."""
    raw = msgspec.yaml.decode(spec) or {}
    domain = raw.setdefault("domain", {})
    domain.setdefault("devices", {})
    domain.setdefault("memory", {"guest": "1Gi"})
    manifest = {
        "metadata": {"name": "guest", "namespace": "lab", "annotations": annotations or {}},
        "spec": raw,
        "status": msgspec.yaml.decode(status) if status else None,
    }
    return msgspec.convert(manifest, VirtualMachineInstance, dec_hook=dec_hook)


def context(
    spec: str = "",
    *,
    facts: NodeFacts | None = None,
    settings: PlanSettings | None = None,
    annotations: dict[str, str] | None = None,
    status: str = "",
    **allocations: object,
) -> PlanContext:
    """The context of planning such an instance; further arguments are parts of the allocations."""
    handed_in = msgspec.convert({"uid": UID, "uuid": UID, **allocations}, Allocations)
    vmi = instance(spec, annotations=annotations, status=status)
    arch = vmi.spec.architecture or "amd64"
    return plan_context(vmi, facts or NodeFacts(arch=arch), handed_in, settings or PlanSettings())


def devices(text: str) -> str:
    """A spec whose ``domain.devices`` are ``text``, a flow mapping of YAML."""
    return f"domain: {{devices: {text}}}"
