# SPDX-License-Identifier: Apache-2.0
"""A record of an instance as the agent makes it: real defaults, a real plan."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from launcher.agent.allocate import allocate
from launcher.agent.ledger import Ledger, Limits
from launcher.agent.port import Companions
from launcher.agent.records import InstanceRecord
from launcher.plan.facts import assumed_facts
from launcher.plan.make import make_plan
from launcher.plan.settings import PlanSettings
from launcher.spec.defaults import apply_defaults
from launcher.spec.load import load_vmi

UID = "6ba7b810-9dad-41d1-80b4-00c04fd430c8"
MANIFEST = """
apiVersion: kubevirt.io/v1
kind: VirtualMachineInstance
metadata: {name: web, namespace: lab, uid: 6ba7b810-9dad-41d1-80b4-00c04fd430c8}
spec:
  domain:
    memory: {guest: 128Mi}
    devices:
      disks: [{name: scratch, disk: {bus: virtio}}]
      interfaces: [{name: default, masquerade: {}}]
  networks: [{name: default, pod: {}}]
  volumes: [{name: scratch, emptyDisk: {capacity: 1Gi}}]
"""

MakeRecord = Callable[..., InstanceRecord]


@pytest.fixture
def make_record() -> MakeRecord:
    """Makes a record of ``manifest`` with the given fields changed."""

    def make(manifest: str = MANIFEST, **changes: Any) -> InstanceRecord:
        vmi = load_vmi(manifest)
        facts = assumed_facts()
        defaulted = apply_defaults(vmi)
        allocations = allocate(defaulted, Companions(), uid=UID, facts=facts, ledger=Ledger(facts, Limits()))
        record = InstanceRecord(
            uid=UID,
            namespace="lab",
            name="web",
            manifest=vmi,
            defaulted=defaulted,
            plan=make_plan(defaulted, facts, allocations, PlanSettings()),
            allocations=allocations,
            created="2026-01-01T00:00:00Z",
            boot_id="boot-1",
        )
        return msgspec.structs.replace(record, **changes)

    return make
