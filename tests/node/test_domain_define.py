# SPDX-License-Identifier: Apache-2.0
"""What is planned for a real node is accepted by its libvirtd: every golden manifest is defined there."""

from __future__ import annotations

import subprocess
from pathlib import Path

import msgspec
import pytest

from launcher.domain.build import build
from launcher.domain.caps import node_facts
from launcher.errors import HostUnsupported
from launcher.lab import command
from launcher.lab.node import Node
from launcher.plan import versions
from launcher.plan.allocations import Allocations
from launcher.plan.facts import NodeFacts
from launcher.plan.make import make_plan
from launcher.plan.settings import PlanSettings
from launcher.spec.defaults import DefaultsSettings, apply_defaults
from launcher.spec.load import load_vmi

pytestmark = pytest.mark.node

GOLDEN = Path(__file__).parents[1] / "golden"
CASES = sorted(path.parent.name for path in GOLDEN.glob("*/vmi.yaml"))
# Cases that a node without KVM and foreign emulators cannot have, and a word of the refusal.
REFUSED = {
    "arm64": "qemu-system-aarch64",
    "foreign-architecture": "qemu-system-aarch64",
    "s390x": "qemu-system-s390x",
    "sev-es": "SEV",
    "snp": "SEV",
    "tdx": "TDX",
}
# Cases that only a newer libvirt can have.
NEWER = {"acpi-tables": ("MSDM", versions.ACPI_TABLES)}


@pytest.fixture(scope="module")
def facts(node_a: Node) -> NodeFacts:
    """Facts of the node, from what its own libvirt says."""
    capabilities = node_a.run("virsh", "capabilities")
    domain = node_a.run("virsh", "domcapabilities", "--virttype", "qemu", "--machine", "q35")
    version = command.run(["virsh", "--version"]).decode().strip()
    major, minor, micro = (int(part) for part in version.split("."))
    return node_facts(
        capabilities, [domain], libvirt_version=major * 1_000_000 + minor * 1_000 + micro, kvm_usable=False
    )


def domain_xml(case: str, facts: NodeFacts) -> str:
    """The domain of a golden manifest on that node; only pCPUs are those of the golden host."""
    golden = GOLDEN / case
    if (golden / "facts.json").exists():
        told = msgspec.json.decode((golden / "facts.json").read_bytes(), type=NodeFacts)
        facts = msgspec.structs.replace(facts, cells=told.cells or facts.cells, firmwares=told.firmwares)
    vmi = apply_defaults(load_vmi((golden / "vmi.yaml").read_text()), DefaultsSettings())
    assert vmi.spec.domain.firmware is not None
    raw = {"uid": f"case-{case}", "uuid": vmi.spec.domain.firmware.uuid}
    if (golden / "allocations.json").exists():
        raw |= msgspec.json.decode((golden / "allocations.json").read_bytes())
    plan = make_plan(vmi, facts, msgspec.convert(raw, Allocations), PlanSettings(allow_emulation=True))
    return build(plan)


@pytest.mark.parametrize("case", [case for case in CASES if case not in REFUSED])
def test_libvirtd_accepts_it(case: str, facts: NodeFacts, node_a: Node, tmp_path: Path) -> None:
    word, since = NEWER.get(case, ("", 0))
    if facts.libvirt_version < since:
        with pytest.raises(HostUnsupported, match=word):
            domain_xml(case, facts)
        return
    file = tmp_path / "domain.xml"
    file.write_text(domain_xml(case, facts))
    try:
        command.run(["virsh", "-c", node_a.libvirt_uri, "define", "--validate", str(file)])
    finally:
        name = file.read_text().partition("<name>")[2].partition("</name>")[0]
        subprocess.run(
            ["virsh", "-q", "-c", node_a.libvirt_uri, "undefine", "--nvram", name],
            check=False,
            capture_output=True,
        )


@pytest.mark.parametrize(("case", "word"), sorted(REFUSED.items()))
def test_what_it_cannot_have_is_refused_by_name(case: str, word: str, facts: NodeFacts) -> None:
    with pytest.raises(HostUnsupported, match=word):
        domain_xml(case, facts)
