# SPDX-License-Identifier: Apache-2.0
"""Interfaces of a manifest as they are planned."""

from __future__ import annotations

import pytest
from device_contexts import OLD_LIBVIRT, RUN, context

from launcher.domain.devices.interface import interface_element
from launcher.domain.element import to_text
from launcher.plan.devices.interface import plan_interfaces, unbound_bindings
from launcher.plan.devices.model import InterfacePlan, Passt, PciAddress, PortForward, PortRange, Unbound
from launcher.plan.facts import HostDevices, NodeFacts


def planned(
    interface: str, *, devices: str = "", domain: str = "", arch: str = "amd64", **arguments: object
) -> tuple[InterfacePlan, ...]:
    spec = f"domain: {{devices: {{interfaces: [{interface}]{devices}}}{domain}}}\narchitecture: {arch}"
    return plan_interfaces(context(spec, **arguments))  # type: ignore[arg-type]


def test_an_interface_is_planned_to_the_last_attribute() -> None:
    interface = (
        "{name: n, masquerade: {}, bootOrder: 2, acpiIndex: 7, pciAddress: '0000:01:00.0',"
        " state: down, macAddress: 'AA-BB-CC-00-11-22'}"
    )
    assert planned(interface, taps={"n": "tap7"}, macs={"n": "02:00:00:00:00:01"}) == (
        InterfacePlan(
            name="n",
            model="virtio-non-transitional",
            mac="aa:bb:cc:00:11:22",
            tap="tap7",
            link_down=True,
            boot_order=2,
            acpi_index=7,
            address=PciAddress(bus=1, slot=0),
        ),
    )


def test_a_mac_address_that_was_allocated() -> None:
    assert planned("{name: n, masquerade: {}}", macs={"n": "02:00:00:00:00:01"})[0].mac == "02:00:00:00:00:01"


@pytest.mark.parametrize(
    ("arch", "boot", "security", "rom"),
    [
        ("amd64", "", "", False),
        ("amd64", ", bootOrder: 1", "", True),
        ("amd64", ", bootOrder: 1", ", launchSecurity: {snp: {}}", False),
        ("amd64", ", bootOrder: 1", ", launchSecurity: {tdx: {}}", True),
        ("arm64", "", "", False),
        ("s390x", "", "", True),
        ("s390x", "", ", launchSecurity: {}", True),
    ],
)
def test_boot_roms(arch: str, boot: str, security: str, rom: bool) -> None:
    (nic,) = planned(f"{{name: n, bridge: {{}}{boot}}}", domain=security, arch=arch)
    assert nic.rom is rom


@pytest.mark.parametrize(
    ("model", "multiqueue", "security", "expected"),
    [
        ("virtio", False, "", (None, False, False)),
        ("virtio", True, "", (4, True, False)),
        ("virtio", False, ", launchSecurity: {sev: {}}", (None, True, True)),
        ("virtio", True, ", launchSecurity: {sev: {}}", (4, True, True)),
        ("e1000e", True, ", launchSecurity: {sev: {}}", (None, False, False)),
    ],
)
def test_the_kernels_backend_is_named_only_where_something_asks_for_it(
    model: str, multiqueue: bool, security: str, expected: tuple[int | None, bool, bool]
) -> None:
    (nic,) = planned(
        f"{{name: n, bridge: {{}}, model: {model}}}",
        devices=f", networkInterfaceMultiqueue: {str(multiqueue).lower()}",
        domain=f", cpu: {{sockets: 2, cores: 2}}{security}",
    )
    assert (nic.queues, nic.vhost, nic.iommu) == expected


def test_queues_end_where_the_kernels_do() -> None:
    (nic,) = planned(
        "{name: n, bridge: {}}", devices=", networkInterfaceMultiqueue: true", domain=", cpu: {cores: 300}"
    )
    assert nic.queues == 256


def test_more_vcpus_do_not_change_the_queues_of_a_plugged_nic() -> None:
    (nic,) = planned(
        "{name: n, bridge: {}}",
        devices=", networkInterfaceMultiqueue: true",
        domain=", cpu: {cores: 8}",
        status="interfaces: [{name: n, queueCount: 2}]",
    )
    assert nic.queues == 2


@pytest.mark.parametrize(
    ("model", "transitional", "expected"),
    [
        ("", False, "virtio-non-transitional"),
        (", model: virtio", True, "virtio-transitional"),
        (", model: rtl8139", True, "rtl8139"),
    ],
)
def test_models(model: str, transitional: bool, expected: str) -> None:
    devices = f", useVirtioTransitional: {str(transitional).lower()}"
    assert planned(f"{{name: n, bridge: {{}}{model}}}", devices=devices)[0].model == expected


def test_absent_sriov_and_foreign_interfaces_are_not_on_a_tap() -> None:
    interfaces = (
        "{name: a, bridge: {}, state: absent}, {name: b, sriov: {}}, {name: c, binding: {name: plug}},"
        " {name: d, binding: {name: plug}, state: absent}, {name: e, bridge: {}, state: up}"
    )
    assert [nic.name for nic in planned(interfaces)] == ["e"]
    found = unbound_bindings(context(f"domain: {{devices: {{interfaces: [{interfaces}]}}}}"))
    assert list(found) == [Unbound(field="spec.domain.devices.interfaces[2]", kind="binding", name="plug")]


def test_passt() -> None:
    (nic,) = planned(
        "{name: n, passtBinding: {}, bootOrder: 1, ports: [{port: 80}, {port: 53, protocol: UDP}]}",
        devices=", networkInterfaceMultiqueue: true",
        status="interfaces: [{name: n, podInterfaceName: eth0}]",
        taps={"n": "tap0"},
    )
    assert nic == InterfacePlan(
        name="n",
        model="virtio-non-transitional",
        passt=Passt(
            device="eth0",
            log_file=f"{RUN}/passt-n.log",
            forwards=(
                PortForward(proto="tcp", ranges=(PortRange(start=80),)),
                PortForward(proto="udp", ranges=(PortRange(start=53),)),
            ),
        ),
    )


def test_passt_forwards_everything_unless_ports_are_named() -> None:
    (nic,) = planned("{name: n, passtBinding: {}}")
    assert nic.passt is not None
    assert nic.passt.forwards == (PortForward(proto="tcp"), PortForward(proto="udp"))


def test_an_older_libvirt_runs_passt_as_a_user_interface() -> None:
    (nic,) = planned("{name: n, passtBinding: {}}", facts=OLD_LIBVIRT)
    assert nic.passt is not None
    assert not nic.passt.vhostuser


def test_a_node_without_the_kernels_backend_has_qemu_serve_the_queues() -> None:
    facts = NodeFacts(devices=HostDevices(vhost_net=False))
    (nic,) = planned(
        "{name: n, masquerade: {}}",
        devices=", networkInterfaceMultiqueue: true",
        domain=", cpu: {cores: 2}",
        facts=facts,
    )
    assert (nic.queues, nic.vhost) == (2, False)
    assert '<driver name="qemu" queues="2"/>' in to_text(interface_element(nic)).replace("'", '"')
