# SPDX-License-Identifier: Apache-2.0
"""Interfaces whose binding is a plugin that the node's configuration names."""

from __future__ import annotations

import pytest
from device_contexts import UID, context

from launcher.domain.devices.interface import interface_element
from launcher.domain.element import to_text
from launcher.plan.allocations import Attachment
from launcher.plan.context import PlanContext
from launcher.plan.devices.assembly import plan_devices
from launcher.plan.devices.model import PluginPlan, Unbound, VhostUser
from launcher.plan.memory import backing
from launcher.plan.networks import network_steps
from launcher.plan.settings import Binding, BridgedNetwork, NetworkSettings, PlanSettings
from launcher.plan.steps import AnyStep, CreateMacvtap, CreateTap, JoinLinks, ServeAddresses

MAC, TAP = "02:00:00:00:00:01", "lt0123456789ab"


def planning(binding: Binding | None, *, given: Attachment | None = None, extra: str = "") -> PlanContext:
    network = NetworkSettings(
        bindings={"mine": binding} if binding is not None else {},
        bridges={"blue": BridgedNetwork(bridge="br1")},
    )
    text = (
        f"domain: {{devices: {{interfaces: [{{name: n, binding: {{name: mine}}{extra}}}]}}}}\n"
        "networks: [{name: n, multus: {networkName: blue}}]"
    )
    return context(
        text,
        settings=PlanSettings(network=network),
        taps={"n": TAP},
        macs={"n": MAC},
        attachments={"n": given} if given is not None else {},
    )


def steps(planned: PlanContext) -> list[AnyStep]:
    return list(network_steps(planned, plan_devices(planned)))


def test_a_plugin_that_the_node_does_not_know_is_missing() -> None:
    found = plan_devices(planning(None))
    assert found.interfaces == ()
    assert found.unbound == (Unbound(field="spec.domain.devices.interfaces[0]", kind="binding", name="mine"),)


def test_a_tap_that_somebody_else_takes_up() -> None:
    assert steps(planning(Binding(attachment="tap"))) == [CreateTap(owner=UID, network="n", name=TAP)]


def test_a_managed_tap_is_on_its_network_and_hands_no_addresses_over() -> None:
    assert steps(planning(Binding(attachment="managed-tap"))) == [
        CreateTap(owner=UID, network="n", name=TAP, bridge="br1")
    ]
    given = Attachment(namespace="/run/netns/x", interface="eth0", addresses=("192.0.2.1/24",))
    found = steps(planning(Binding(attachment="managed-tap"), given=given))
    assert not any(isinstance(step, ServeAddresses) for step in found)
    assert [step.answers_dhcp for step in found if isinstance(step, JoinLinks)] == [False, False]


def test_a_macvtap_is_a_tap_for_libvirt() -> None:
    planned = planning(Binding(attachment="macvtap", link="eth0", mode="private"))
    assert steps(planned) == [
        CreateMacvtap(owner=UID, network="n", name=TAP, link="eth0", mode="private", mac=MAC)
    ]
    (nic,) = plan_devices(planned).interfaces
    text = to_text(interface_element(nic))
    assert 'type="ethernet"' in text.replace("'", '"')
    assert f'<target dev="{TAP}" managed="no"/>' in text.replace("'", '"')


def test_vhost_user_is_a_socket_and_shared_memory() -> None:
    planned = planning(Binding(attachment="vhost-user", socket="/run/ovs/{uid}-{interface}.sock"))
    assert steps(planned) == []
    (nic,) = plan_devices(planned).interfaces
    assert nic.vhost_user == VhostUser(socket=f"/run/ovs/{UID}-n.sock")
    text = to_text(interface_element(nic)).replace("'", '"')
    assert f'<source type="unix" path="/run/ovs/{UID}-n.sock" mode="client"/>' in text
    assert 'type="vhostuser"' in text
    assert "<target" not in text
    memory = backing(planned, None)
    assert memory is not None
    assert memory.shared


@pytest.mark.parametrize("attachment", ["", "tap"])
def test_a_program_is_remembered_with_its_deadline(attachment: str) -> None:
    binding = Binding(attachment="tap" if attachment else "", program=("/bin/edit", "-v"), timeout_s=3)
    found = plan_devices(planning(binding))
    assert found.plugins == (PluginPlan(name="n", binding="mine", program=("/bin/edit", "-v"), timeout_s=3),)
    assert len(found.interfaces) == (1 if attachment else 0)
    assert found.unbound == ()
