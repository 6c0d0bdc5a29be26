# SPDX-License-Identifier: Apache-2.0
"""The steps of interfaces: what must exist on the node for each of them."""

from __future__ import annotations

from typing import Any

import pytest
from device_contexts import UID, context

from launcher.errors import HostUnsupported
from launcher.plan.devices.assembly import plan_devices
from launcher.plan.devices.interface import plan_interfaces, unbound_networks
from launcher.plan.devices.model import Unbound
from launcher.plan.facts import NodeFacts, version
from launcher.plan.networks import network_steps
from launcher.plan.runnable import require_runnable
from launcher.plan.settings import BridgedNetwork, NetworkSettings, PlanSettings
from launcher.plan.steps import (
    AnyStep,
    CreateNetworkNamespace,
    CreateTap,
    CreateVeth,
    ForwardedPorts,
    GuardLink,
    JoinLinks,
    MakeDirectory,
    ServeAddresses,
    SharePool,
    TranslateAddresses,
    decode,
    encode,
)

MAC = "02:00:00:00:00:01"
OUTER = ("100.64.0.9", "fd64::9")
NETWORK = NetworkSettings(pools=("100.64.0.0/16", "fd64::/64"))
FOLDER = f"/run/launcher/n/{UID}"
NAMESPACE = f"{FOLDER}/ns"


def steps(
    interface: str,
    network: str = "pod: {}",
    *,
    spec: str = "",
    network_settings: NetworkSettings = NETWORK,
    pod_bridge: str = "",
    outer: tuple[str, ...] = OUTER,
) -> list[AnyStep]:
    text = f"domain: {{devices: {{interfaces: [{interface}]}}}}\nnetworks: [{{name: n, {network}}}]\n{spec}"
    planning = context(
        text,
        settings=PlanSettings(network=network_settings, pod_bridge=pod_bridge),
        taps={"n": "lt0123456789ab"},
        macs={"n": MAC},
        outer=outer,
    )
    return list(network_steps(planning, plan_devices(planning)))


def of(found: list[AnyStep], kind: type[Any]) -> Any:
    (one,) = [step for step in found if isinstance(step, kind)]
    return one


def test_masquerade_is_planned_to_the_last_step() -> None:
    assert steps("{name: n, masquerade: {}}") == [
        MakeDirectory(owner=UID, path=FOLDER),
        CreateNetworkNamespace(owner=UID, network="n", path=NAMESPACE),
        CreateTap(owner=UID, network="n", name="lt0123456789ab"),
        CreateVeth(
            owner=UID,
            network="n",
            name="lw0123456789ab",
            namespace=NAMESPACE,
            peer="guest",
            peer_mac="02:00:00:00:00:00",
            peer_addresses=("10.0.2.1/24", "fd10:0:2::1/120"),
        ),
        JoinLinks(owner=UID, network="n", first="lt0123456789ab", second="lw0123456789ab"),
        GuardLink(
            owner=UID,
            network="n",
            link="guest",
            mac=MAC,
            addresses=("10.0.2.2", "fd10:0:2::2"),
            namespace=NAMESPACE,
        ),
        SharePool(owner=UID, network="n", pools=("100.64.0.0/16", "fd64::/64")),
        CreateVeth(
            owner=UID,
            network="n",
            name="lu0123456789ab",
            namespace=NAMESPACE,
            peer="uplink",
            addresses=("100.64.0.1/32", "fd64::1/128"),
            peer_addresses=("100.64.0.9/32", "fd64::9/128"),
            routes=("100.64.0.9/32", "fd64::9/128"),
            gateways=("100.64.0.1", "fd64::1"),
        ),
        TranslateAddresses(
            owner=UID,
            network="n",
            namespace=NAMESPACE,
            inside="guest",
            outside="uplink",
            guests=("10.0.2.2", "fd10:0:2::2"),
            outer=OUTER,
        ),
        ServeAddresses(
            owner=UID,
            network="n",
            namespace=NAMESPACE,
            interface="guest",
            directory=FOLDER,
            mac=MAC,
            guests=("10.0.2.2/24", "fd10:0:2::2/120"),
            gateways=("10.0.2.1", "fd10:0:2::1"),
            hostname="guest",
            node_nameservers=True,
            node_search=True,
        ),
    ]


def test_ranges_of_guests_are_the_manifests() -> None:
    found = steps(
        "{name: n, masquerade: {}}", "pod: {vmNetworkCIDR: 192.0.2.16/28, vmIPv6NetworkCIDR: 'fd00:1::/64'}"
    )
    served = of(found, ServeAddresses)
    assert served.gateways == ("192.0.2.17", "fd00:1::1")
    assert served.guests == ("192.0.2.18/28", "fd00:1::2/64")
    assert of(found, TranslateAddresses).guests == ("192.0.2.18", "fd00:1::2")
    assert of(found, GuardLink).addresses == ("192.0.2.18", "fd00:1::2")


def test_a_family_without_a_pool_does_not_exist() -> None:
    found = steps("{name: n, masquerade: {}}", outer=("100.64.0.9",))
    assert of(found, ServeAddresses).guests == ("10.0.2.2/24",)
    assert of(found, SharePool).pools == ("100.64.0.0/16",)
    assert of(found, GuardLink).addresses == ("10.0.2.2",)


def test_ports_and_ranges_of_ports() -> None:
    ranges = "portRanges: [{start: 8000, end: 8010, protocol: TCP}]"
    ports = f"ports: [{{port: 22}}, {{port: 53, protocol: UDP}}], {ranges}"
    assert of(steps(f"{{name: n, masquerade: {{}}, {ports}}}"), TranslateAddresses).ports == (
        ForwardedPorts(protocol="tcp", start=22, end=22),
        ForwardedPorts(protocol="udp", start=53, end=53),
        ForwardedPorts(protocol="tcp", start=8000, end=8010),
    )


def test_what_dhcp_tells_comes_from_the_manifest_and_the_node() -> None:
    options = (
        "dhcpOptions: {bootFileName: pxe.0, tftpServerName: boot, ntpServers: [192.0.2.1],"
        " privateOptions: [{option: 240, value: x}]}"
    )
    spec = "hostname: h\nsubdomain: s\ndnsConfig: {nameservers: [192.0.2.53], searches: [b.example]}"
    settings = NetworkSettings(
        pools=NETWORK.pools, mtu=1400, nameservers=("192.0.2.5",), search=("a.example",)
    )
    served = of(
        steps(f"{{name: n, masquerade: {{}}, {options}}}", spec=spec, network_settings=settings),
        ServeAddresses,
    )
    assert (served.hostname, served.subdomain, served.mtu) == ("h", "s", 1400)
    assert served.nameservers == ("192.0.2.5", "192.0.2.53")
    assert served.search == ("a.example", "b.example")
    assert (served.node_nameservers, served.node_search) == (False, False)
    assert (served.boot_file, served.tftp_server) == ("pxe.0", "boot")
    assert (served.ntp_servers, served.private) == (("192.0.2.1",), ((240, "x"),))


def test_a_manifest_may_want_nothing_of_the_nodes_resolver() -> None:
    spec = "dnsPolicy: None\ndnsConfig: {nameservers: [192.0.2.53]}"
    settings = NetworkSettings(pools=NETWORK.pools, nameservers=("192.0.2.5",))
    served = of(steps("{name: n, masquerade: {}}", spec=spec, network_settings=settings), ServeAddresses)
    assert (served.nameservers, served.search) == (("192.0.2.53",), ())
    assert (served.node_nameservers, served.node_search) == (False, False)


BRIDGED = "domain: {devices: {interfaces: [{name: n, bridge: {}}]}}"
BLUE = NetworkSettings(bridges={"lab/blue": BridgedNetwork(bridge="br1", mtu=9000, vlan=7, guard=True)})


@pytest.mark.parametrize("name", ["blue", "lab/blue"])
def test_a_multus_network_is_a_bridge_of_the_node(name: str) -> None:
    found = steps("{name: n, bridge: {}}", f"multus: {{networkName: {name}}}", network_settings=BLUE)
    assert found == [
        CreateTap(owner=UID, network="n", name="lt0123456789ab", bridge="br1", mtu=9000, vlan=7),
        GuardLink(owner=UID, network="n", link="lt0123456789ab", mac=MAC),
    ]


def test_a_network_of_any_namespace() -> None:
    settings = NetworkSettings(bridges={"blue": BridgedNetwork(bridge="br1")})
    found = steps("{name: n, bridge: {}}", "multus: {networkName: other/blue}", network_settings=settings)
    assert found == [CreateTap(owner=UID, network="n", name="lt0123456789ab", bridge="br1")]


def test_the_pod_network_as_a_bridge() -> None:
    assert steps("{name: n, bridge: {}}", pod_bridge="br0") == [
        CreateTap(owner=UID, network="n", name="lt0123456789ab", bridge="br0")
    ]


@pytest.mark.parametrize(
    ("network", "name"),
    [("pod: {}", "pod"), ("multus: {networkName: red}", "red"), ("multus: {networkName: x/blue}", "x/blue")],
)
def test_a_network_that_the_node_does_not_know_is_named(network: str, name: str) -> None:
    text = f"{BRIDGED}\nnetworks: [{{name: n, {network}}}]"
    planning = context(text, settings=PlanSettings(network=BLUE))
    assert list(unbound_networks(planning)) == [
        Unbound(field="spec.domain.devices.interfaces[0]", kind="network", name=name)
    ]


def test_the_guest_is_told_the_mtu_of_its_network() -> None:
    text = f"{BRIDGED}\nnetworks: [{{name: n, multus: {{networkName: blue}}}}]"
    (nic,) = plan_interfaces(context(text, settings=PlanSettings(network=BLUE)))
    assert nic.mtu == 9000


def test_the_journal_reads_back_every_step() -> None:
    for step in steps("{name: n, masquerade: {}, ports: [{port: 1}]}"):
        assert decode(encode(step)) == step


def test_passt_is_written_down_and_run_only_by_a_libvirt_that_takes_it() -> None:
    devices = plan_devices(context("domain: {devices: {interfaces: [{name: n, passtBinding: {}}]}}"))
    require_runnable(devices, NodeFacts(libvirt_version=version(9, 1)))
    with pytest.raises(HostUnsupported, match="passt"):
        require_runnable(devices, NodeFacts(libvirt_version=version(9, 0)))
