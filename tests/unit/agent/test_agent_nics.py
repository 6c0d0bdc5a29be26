# SPDX-License-Identifier: Apache-2.0
"""Interfaces of guests that run: which changes are accepted, and the steps that bring them about."""

from __future__ import annotations

import dataclasses

import pytest
from agent_nodes import accepted, live, node, site
from msgspec.structs import replace

from launcher.agent import nics
from launcher.agent import reconcile as do
from launcher.agent.draft import Site
from launcher.agent.hotplug import TRIES, Attempts, Hardware
from launcher.agent.nics import DropNetwork, PlugInterface, SetLink, UnplugInterface, interfaces_step
from launcher.agent.records import InstanceRecord, Moment
from launcher.agent.update import updated
from launcher.domain.read import DomainView
from launcher.errors import HostUnsupported, InvalidSpec
from launcher.hypervisor.port import DomainRecord, DomainState
from launcher.plan.settings import BridgedNetwork, NetworkSettings
from launcher.plan.steps import CreateTap, GuardLink
from launcher.spec.load import load_vmi

RUNNING = DomainRecord(uuid="u", name="n", state=DomainState.RUNNING, reason="booted", persistent=True)
NOW = Moment(boot_id="boot-1", seconds=1000.0)
POD = "{name: default, masquerade: {}}"
LAN = "{name: lan, bridge: {}}"
NETWORKS = "{name: default, pod: {}}"
BLUE = "{name: lan, multus: {networkName: blue}}"


def where() -> Site:
    """A node with a network called blue."""
    network = NetworkSettings(bridges={"blue": BridgedNetwork(bridge="br1", guard=True)})
    there = site(node())
    return dataclasses.replace(there, plan=replace(there.plan, network=network))


def manifest(*interfaces: str, networks: tuple[str, ...] = (NETWORKS,), devices: str = "") -> str:
    return f"""
apiVersion: kubevirt.io/v1
kind: VirtualMachineInstance
metadata: {{name: web, namespace: lab, uid: uid-web}}
spec:
  domain:
    memory: {{guest: 1Gi}}
    devices:
      autoattachGraphicsDevice: false
      interfaces: [{", ".join(interfaces)}]
      {devices}
  networks: [{", ".join(networks)}]
"""


BOTH = (NETWORKS, BLUE)
ONE_TEXT = manifest(POD)
TWO_TEXT = manifest(POD, LAN, networks=BOTH)


def change(record: InstanceRecord, text: str) -> InstanceRecord:
    return updated(record, load_vmi(text), site=where())


def refused(record: InstanceRecord, text: str) -> dict[str, str]:
    with pytest.raises(InvalidSpec) as caught:
        change(record, text)
    return {violation.field: violation.message for violation in caught.value.violations}


def without(view: DomainView, name: str) -> DomainView:
    return replace(view, interfaces=tuple(nic for nic in view.interfaces if nic.alias != name))


def test_a_new_interface_is_planned_and_the_others_stay_as_they_are() -> None:
    record = accepted(ONE_TEXT, where())
    after = change(record, TWO_TEXT)
    first, second = after.plan.devices.interfaces
    assert first == record.plan.devices.interfaces[0]
    assert second.name == "lan"
    assert second.tap == after.allocations.taps["lan"]
    assert second.mac == after.allocations.macs["lan"]
    assert after.plan.steps[: len(record.plan.steps)] == record.plan.steps
    assert [type(step) for step in after.plan.steps[len(record.plan.steps) :]] == [CreateTap, GuardLink]
    assert after.allocations.outer == record.allocations.outer
    assert after.manifest.spec.networks[1].name == "lan"


def test_the_new_interface_is_plugged_with_what_it_needs_on_a_port_of_its_own() -> None:
    record = accepted(ONE_TEXT, where())
    after = change(record, TWO_TEXT)
    seen = live(record)
    step = interfaces_step(after, seen)
    assert isinstance(step, PlugInterface)
    assert step.nic.name == "lan"
    assert step.nic.address is not None
    assert step.nic.address.bus == seen.free_ports[0]
    assert step.steps == after.plan.steps[len(record.plan.steps) :]
    assert interfaces_step(record, seen) is None


def test_links_follow_the_manifest_in_both_directions() -> None:
    record = accepted(ONE_TEXT, where())
    down = change(record, manifest("{name: default, masquerade: {}, state: down}"))
    step = interfaces_step(down, live(record))
    assert isinstance(step, SetLink)
    assert step.nic == replace(record.plan.devices.interfaces[0], link_down=True)
    up = change(down, manifest("{name: default, masquerade: {}, state: up}"))
    back = interfaces_step(up, live(down))
    assert isinstance(back, SetLink)
    assert back.nic.link_down is False


def test_an_absent_interface_is_unplugged_and_then_what_it_needed_goes() -> None:
    record = accepted(TWO_TEXT, where())
    absent = change(record, manifest(POD, "{name: lan, bridge: {}, state: absent}", networks=BOTH))
    seen = live(record)
    mac = record.plan.devices.interfaces[1].mac
    assert interfaces_step(absent, seen) == UnplugInterface("lan", mac or "")
    dropped = interfaces_step(absent, without(seen, "lan"))
    assert isinstance(dropped, DropNetwork)
    assert {type(step) for step in dropped.steps} == {CreateTap, GuardLink}
    settled = nics.without_steps(absent, dropped.steps)
    assert interfaces_step(settled, without(seen, "lan")) is None
    gone = change(settled, ONE_TEXT)
    assert interfaces_step(gone, without(seen, "lan")) is None
    again = change(gone, TWO_TEXT)
    assert isinstance(interfaces_step(again, without(seen, "lan")), PlugInterface)


def test_an_interface_of_somebody_else_is_left_alone() -> None:
    record = accepted(ONE_TEXT, where())
    seen = live(accepted(TWO_TEXT, where()))
    foreign = replace(seen.interfaces[1], target="vnet7")
    assert interfaces_step(record, replace(seen, interfaces=(seen.interfaces[0], foreign))) is None


def test_what_cannot_change_is_named() -> None:
    record = accepted(TWO_TEXT, where())
    mac = "{name: default, masquerade: {}, macAddress: '02:00:00:00:00:77'}"
    assert list(refused(record, manifest(mac, LAN, networks=BOTH))) == [
        "spec.domain.devices.interfaces[0].macAddress"
    ]
    assert "set its state to absent first" in refused(record, ONE_TEXT)["spec.domain.devices.interfaces"]
    other = manifest(POD, LAN, networks=(NETWORKS, "{name: lan, multus: {networkName: red}}"))
    assert list(refused(record, other)) == ["spec.networks"]
    sriov = manifest(
        POD, LAN, "{name: vf, sriov: {}}", networks=(*BOTH, "{name: vf, multus: {networkName: v}}")
    )
    assert list(refused(record, sriov)) == ["spec.domain.devices.interfaces[2]"]


def test_a_network_that_the_node_does_not_know_is_refused() -> None:
    record = accepted(ONE_TEXT, where())
    with pytest.raises(HostUnsupported, match="red"):
        change(record, manifest(POD, LAN, networks=(NETWORKS, "{name: lan, multus: {networkName: red}}")))


def test_nothing_is_plugged_where_hotplug_is_disabled() -> None:
    fixed = "disableHotplug: true"
    record = accepted(manifest(POD, devices=fixed), where())
    text = manifest(POD, LAN, networks=BOTH, devices=fixed)
    assert "disableHotplug" in refused(record, text)["spec.domain.devices.interfaces[1]"]


def test_what_fails_is_tried_again_later_and_then_left() -> None:
    record = accepted(ONE_TEXT, where())
    after, seen = change(record, TWO_TEXT), live(record)

    def decided(attempts: Attempts) -> do.Decision:
        hardware = Hardware(live=seen, interfaces=attempts)
        return do.reconcile(after, RUNNING, now=NOW, efforts=do.Efforts(), hardware=hardware)

    assert isinstance(decided(Attempts()).actions[0], PlugInterface)
    assert decided(Attempts(failures=2, ago_s=1.0)) == do.Decision(look_again_s=3.0)
    assert decided(Attempts(failures=TRIES, ago_s=1.0)) == do.Decision()
