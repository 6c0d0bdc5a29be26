# SPDX-License-Identifier: Apache-2.0
"""Which board a guest gets: a versioned one, by the fleet's baseline or by what QEMU here has."""

from __future__ import annotations

import pytest

from launcher.plan.facts import Alias, GuestFacts, NodeFacts
from launcher.plan.machines import pinned_machine
from launcher.spec.load import load_vmi

KNOWN = NodeFacts(
    guests=(
        GuestFacts(
            arch="x86_64",
            machines=("q35", "pc-q35-7.2", "pc-q35-6.2"),
            aliases=(Alias(name="q35", machine="pc-q35-7.2"),),
        ),
    )
)
BASELINE = {"q35": "pc-q35-6.2"}


@pytest.mark.parametrize(
    ("asked", "facts", "baseline", "got"),
    [
        ("", KNOWN, {}, "pc-q35-7.2"),
        ("q35", KNOWN, {}, "pc-q35-7.2"),
        ("q35", KNOWN, BASELINE, "pc-q35-6.2"),
        ("", KNOWN, BASELINE, "pc-q35-6.2"),
        ("pc-q35-7.2", KNOWN, BASELINE, "pc-q35-7.2"),
        ("q35", NodeFacts(), {}, "q35"),
        ("q35", NodeFacts(), BASELINE, "pc-q35-6.2"),
    ],
)
def test_an_alias_never_stays_one(asked: str, facts: NodeFacts, baseline: dict[str, str], got: str) -> None:
    machine = f"machine: {{type: {asked}}}, " if asked else ""
    vmi = load_vmi(f"""
apiVersion: kubevirt.io/v1
kind: VirtualMachineInstance
metadata: {{name: web}}
spec: {{domain: {{memory: {{guest: 1Gi}}, {machine}devices: {{}}}}}}
""")
    assert pinned_machine(vmi, facts, baseline) == got
