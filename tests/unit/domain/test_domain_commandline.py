# SPDX-License-Identifier: Apache-2.0
"""Ignition's configuration: planned, written as an argument of QEMU, and taken along to another node."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from lxml import etree

from launcher.domain.build import build
from launcher.domain.commandline import NAMESPACE
from launcher.domain.retarget import Destination, retarget
from launcher.errors import HostUnsupported
from launcher.plan.allocations import Allocations
from launcher.plan.facts import NodeFacts, version
from launcher.plan.make import make_plan
from launcher.plan.model import VMPlan
from launcher.plan.settings import PlanSettings
from launcher.plan.steps import WriteIgnition
from launcher.spec.defaults import apply_defaults
from launcher.spec.load import load_vmi
from launcher.spec.model import Firmware

UID = "0c3f4d40-1c62-4d5c-9d3c-1f3f2f0c7a11"
CONFIG = '{"ignition": {"version": "3.4.0", "config": {"secret": "in here"}}}'
FILE = f"/var/lib/launcher/instances/{UID}/config.ign"
SCHEMA = Path("/usr/share/libvirt/schemas/domain.rng")


def planned(data: str, *, architecture: str = "amd64") -> VMPlan:
    text = f"""
apiVersion: kubevirt.io/v1
kind: VirtualMachineInstance
metadata: {{name: guest, namespace: lab}}
spec: {{architecture: {architecture}, domain: {{memory: {{guest: 1Gi}}, devices: {{}}}}}}
"""
    vmi = load_vmi(text)
    assert vmi.metadata is not None
    annotated = msgspec.structs.replace(vmi.metadata, annotations={"kubevirt.io/ignitiondata": data})
    vmi = apply_defaults(msgspec.structs.replace(vmi, metadata=annotated))
    uuid = vmi.spec.domain.firmware.uuid if vmi.spec.domain.firmware else None
    # The oldest libvirt that is taken: every schema takes what is written for it.
    facts = NodeFacts(arch=architecture, libvirt_version=version(9, 0), qemu_version=version(7, 2))
    return make_plan(
        vmi, facts, Allocations(uid=UID, uuid=uuid or UID), PlanSettings(state_dir="/var/lib/launcher")
    )


def arguments(xml: str) -> list[str]:
    found = etree.fromstring(xml).iterfind(f"{{{NAMESPACE}}}commandline/{{{NAMESPACE}}}arg")
    return [argument.get("value", "") for argument in found]


def test_the_guest_finds_the_configuration_in_fw_cfg() -> None:
    plan = planned(CONFIG)
    xml = build(plan)
    assert arguments(xml) == ["-fw_cfg", f"name=opt/com.coreos/config,file={FILE}"]
    (step,) = (step for step in plan.steps if isinstance(step, WriteIgnition))
    assert step.path == FILE


def test_the_configuration_stays_in_its_annotation() -> None:
    plan = planned(CONFIG)
    assert b"in here" not in msgspec.json.encode(plan)
    assert "in here" not in build(plan)


@pytest.mark.skipif(not SCHEMA.exists(), reason="libvirt's schema is not installed")
def test_libvirts_schema_takes_it() -> None:
    schema = etree.RelaxNG(etree.parse(SCHEMA))
    assert schema.validate(etree.fromstring(build(planned(CONFIG)))), schema.error_log


@pytest.mark.parametrize("data", ["", "#cloud-config"])
def test_what_does_not_name_ignition_is_no_configuration(data: str) -> None:
    plan = planned(data)
    assert arguments(build(plan)) == []
    assert not any(isinstance(step, WriteIgnition) for step in plan.steps)


def test_a_board_without_fw_cfg_refuses() -> None:
    with pytest.raises(HostUnsupported, match="fw_cfg for s390x"):
        planned(CONFIG, architecture="s390x")


def test_it_lies_elsewhere_on_another_node() -> None:
    moved = retarget(build(planned(CONFIG)), Destination(paths=(("/var/lib/launcher", "/srv/vm"),)))
    expected = FILE.replace("/var/lib/launcher", "/srv/vm")
    assert arguments(moved) == ["-fw_cfg", f"name=opt/com.coreos/config,file={expected}"]


def test_a_second_monitor_goes_along() -> None:
    vmi = apply_defaults(
        load_vmi("""
apiVersion: kubevirt.io/v1
kind: VirtualMachineInstance
metadata: {name: guest, namespace: lab}
spec: {domain: {memory: {guest: 1Gi}, devices: {}}}
""")
    )
    uuid = (vmi.spec.domain.firmware or Firmware()).uuid or UID
    allocations = Allocations(uid=UID, uuid=uuid)
    assert "rescue" not in build(make_plan(vmi, NodeFacts(), allocations, PlanSettings()))
    xml = build(make_plan(vmi, NodeFacts(), allocations, PlanSettings(rescue_monitor=True)))
    arguments = [node.get("value") for node in etree.fromstring(xml).iterfind(f".//{{{NAMESPACE}}}arg")]
    assert arguments[0::2] == ["-chardev", "-mon"]
    assert arguments[1] == f"socket,id=rescue,server=on,wait=off,path=/run/launcher/i/{UID}/rescue.sock"
    moved = retarget(xml, Destination(paths=((f"/run/launcher/i/{UID}", f"/run/l/i/{UID}"),)))
    assert f"path=/run/l/i/{UID}/rescue.sock" in moved
