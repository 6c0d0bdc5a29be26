# SPDX-License-Identifier: Apache-2.0
"""What keeps a guest on its host for the sake of its clock."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from launcher.agent.migratability import migration_findings
from launcher.agent.records import InstanceRecord

HEAD = """
apiVersion: kubevirt.io/v1
kind: VirtualMachineInstance
metadata: {name: web, namespace: lab, uid: 6ba7b810-9dad-41d1-80b4-00c04fd430c8}
spec: {domain: {memory: {guest: 128Mi}, devices: {}, cpu: {features: [{name: invtsc, policy: %s}]}}}
"""
FIXED = "status: {topologyHints: {tscFrequency: 2400000000}}"


@pytest.mark.parametrize(
    ("policy", "status", "stays"),
    [
        ("require", "", True),
        ("force", "", True),
        ("optional", "", False),
        ("disable", "", False),
        ("require", FIXED, False),
    ],
)
def test_an_invariant_tsc(
    make_record: Callable[..., InstanceRecord], policy: str, status: str, stays: bool
) -> None:
    reasons = [reason for reason, _ in migration_findings(make_record(HEAD % policy + status))]
    assert reasons == (["NoTSCFrequencyNotLiveMigratable"] if stays else [])
