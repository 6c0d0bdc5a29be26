# SPDX-License-Identifier: Apache-2.0
"""Steps of interfaces whose link was handed in: everything that is made there can be taken back."""

from __future__ import annotations

from typing import Any

import pytest
from device_contexts import UID, context

from launcher.plan.allocations import Attachment, Route
from launcher.plan.attached import outer_addresses
from launcher.plan.devices.assembly import plan_devices
from launcher.plan.devices.interface import unbound_networks
from launcher.plan.networks import network_steps
from launcher.plan.steps import (
    AnyStep,
    CreateTap,
    CreateVeth,
    ForwardPackets,
    GuardLink,
    JoinLinks,
    LendFunction,
    MakeDirectory,
    ServeAddresses,
    TranslateAddresses,
    VirtualFunction,
    decode,
    encode,
)

POD = "/run/netns/pod"
FOLDER = f"/run/launcher/n/{UID}"
TAP, WIRE, PEER = "lt0123456789ab", "lw0123456789ab", "lg0123456789ab"
GIVEN = Attachment(
    namespace=POD,
    interface="eth0",
    mac="0a:58:0a:f4:00:05",
    mtu=1400,
    addresses=("10.244.7.5/24", "fe80::1/64", "fd44::5/64"),
    routes=(
        Route(destination="10.250.0.0/16", gateway="10.244.7.2"),
        Route(destination="0.0.0.0/0", gateway="10.244.7.1"),
        Route(destination="::/0", gateway="fd44::1"),
    ),
    forwards=(6,),
)


def steps(binding: str, network: str = "pod: {}", given: Attachment = GIVEN) -> list[AnyStep]:
    planning = context(
        f"domain: {{devices: {{interfaces: [{{name: n, {binding}: {{}}}}]}}}}"
        f"\nnetworks: [{{name: n, {network}}}]",
        taps={"n": TAP},
        macs={"n": "02:00:00:00:00:01"},
        outer=outer_addresses(given),
        attachments={"n": given},
        virtual_functions={"n": given.device} if given.device else {},
    )
    assert list(unbound_networks(planning)) == []
    return list(network_steps(planning, plan_devices(planning)))


def of(found: list[AnyStep], kind: type[Any]) -> Any:
    (one,) = [step for step in found if isinstance(step, kind)]
    return one


def test_a_guest_takes_the_place_of_a_link() -> None:
    found = steps("bridge", "multus: {networkName: nothing-of-the-node}")
    assert found[:4] == [
        CreateTap(owner=UID, network="n", name=TAP, mtu=1400),
        CreateVeth(
            owner=UID,
            network="n",
            name=WIRE,
            namespace=POD,
            peer=PEER,
            mtu=1400,
            peer_addresses=("169.254.75.10/32",),
            lent=True,
        ),
        JoinLinks(owner=UID, network="n", first=TAP, second=WIRE),
        JoinLinks(owner=UID, network="n", first=PEER, second="eth0", namespace=POD, answers_dhcp=True),
    ]
    assert found[4:6] == [
        MakeDirectory(owner=UID, path=FOLDER),
        MakeDirectory(owner=UID, path=f"{FOLDER}/{TAP}"),
    ]
    served = of(found, ServeAddresses)
    assert (served.guests, served.gateways, served.interface) == (("10.244.7.5/24",), (), PEER)
    assert served.routes == (("10.250.0.0/16", "10.244.7.2"), ("0.0.0.0/0", "10.244.7.1"))
    assert [decode(encode(step)) for step in found] == found


def test_a_link_without_an_address_is_a_mere_wire() -> None:
    found = steps("bridge", given=Attachment(namespace=POD, interface="net1"))
    assert [type(step) for step in found] == [CreateTap, CreateVeth, JoinLinks, JoinLinks]
    assert of(found, CreateVeth).peer_addresses == ()
    assert not any(step.answers_dhcp for step in found if isinstance(step, JoinLinks))


def test_a_guest_behind_a_link() -> None:
    found = steps("masquerade")
    assert of(found, CreateVeth).peer_addresses == ("10.0.2.1/24", "fd10:0:2::1/120")
    assert of(found, GuardLink) == GuardLink(
        owner=UID,
        network="n",
        link=PEER,
        mac="02:00:00:00:00:01",
        addresses=("10.0.2.2", "fd10:0:2::2"),
        namespace=POD,
        lent=True,
    )
    assert of(found, ForwardPackets).versions == (4,)
    translated = of(found, TranslateAddresses)
    assert (translated.outside, translated.outer, translated.lent) == (
        "eth0",
        ("10.244.7.5", "fd44::5"),
        True,
    )
    assert of(found, ServeAddresses).guests == ("10.0.2.2/24", "fd10:0:2::2/120")


@pytest.mark.parametrize("forwards", [(4, 6), ()])
def test_only_what_the_namespace_did_not_pass_on_is_switched(forwards: tuple[int, ...]) -> None:
    given = Attachment(namespace=POD, interface="eth0", addresses=("192.0.2.1/24",), forwards=forwards)
    switched = [step for step in steps("masquerade", given=given) if isinstance(step, ForwardPackets)]
    assert [step.versions for step in switched] == ([] if forwards else [(4,)])


def test_a_virtual_function_is_lent_with_the_interfaces_address() -> None:
    was = VirtualFunction(link="ens1f0", number=1, driver="iavf")
    given = Attachment(device="0000:3b:02.1", vlan=7, function=was)
    found = steps("sriov", "multus: {networkName: fast}", given)
    assert found == [
        LendFunction(
            owner=UID,
            network="n",
            device="0000:3b:02.1",
            link="ens1f0",
            number=1,
            mac="02:00:00:00:00:01",
            vlan=7,
            was=was,
        )
    ]
    assert [decode(encode(step)) for step in found] == found
