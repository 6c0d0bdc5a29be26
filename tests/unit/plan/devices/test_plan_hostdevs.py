# SPDX-License-Identifier: Apache-2.0
"""Devices of the host as they are planned from the addresses handed in."""

from __future__ import annotations

import pytest
from device_contexts import context

from launcher.errors import InvalidRequest
from launcher.plan.devices.hostdev import plan_hostdevs
from launcher.plan.devices.model import HostdevPlan, PciAddress, Unbound

MDEV1 = "5d307ca9-b3ef-428c-8861-06e72d69f223"
MDEV2 = "5d307ca9-b3ef-428c-8861-06e72d69f224"


def planned(text: str, **allocations: object) -> tuple[tuple[HostdevPlan, ...], tuple[Unbound, ...]]:
    return plan_hostdevs(context(f"domain: {{devices: {text}}}", **allocations))  # type: ignore[arg-type]


def test_host_devices_come_before_gpus_and_virtual_functions() -> None:
    devices = """{
      gpus: [{name: g, deviceName: v/gpu}],
      hostDevices: [{name: h, deviceName: v/nvme}, {name: d, claimName: cl, requestName: rq}],
      interfaces: [
        {name: n, sriov: {}, bootOrder: 1, pciAddress: '0000:05:00.0'},
        {name: x, sriov: {}, state: absent}
      ]
    }"""
    found, unbound = planned(
        devices,
        devices={"v/gpu": ["0000:81:11.1"], "v/nvme": ["0001:82:00.0"], "cl/rq": ["0000:83:00.0"]},
        virtual_functions={"n": "0000:84:02.3"},
    )
    assert unbound == ()
    assert found == (
        HostdevPlan(name="h", alias="hostdevice-h", pci=PciAddress(domain=1, bus=0x82, slot=0)),
        HostdevPlan(name="d", alias="dra-hostdevice-d", pci=PciAddress(bus=0x83, slot=0)),
        HostdevPlan(name="g", alias="gpu-g", pci=PciAddress(bus=0x81, slot=0x11, function=1)),
        HostdevPlan(
            name="n",
            alias="sriov-n",
            pci=PciAddress(bus=0x84, slot=2, function=3),
            boot_order=1,
            address=PciAddress(bus=5, slot=0),
        ),
    )


def test_what_was_not_handed_in_is_named() -> None:
    devices = "{gpus: [{name: g, deviceName: v/gpu}], interfaces: [{name: n, sriov: {}}]}"
    assert planned(devices) == (
        (),
        (
            Unbound(field="spec.domain.devices.gpus[0]", kind="device", name="v/gpu"),
            Unbound(field="spec.domain.devices.interfaces[0]", kind="vf", name="n"),
        ),
    )


def test_a_card_that_two_resources_offer_is_given_once() -> None:
    devices = "{hostDevices: [{name: a, deviceName: one}, {name: b, deviceName: two}]}"
    pools = {"one": ["0000:81:00.0", "0000:82:00.0"], "two": ["0000:81:00.0", "0000:83:00.0"]}
    found, unbound = planned(devices, devices=pools)
    assert [device.pci for device in found] == [PciAddress(bus=0x81, slot=0), PciAddress(bus=0x83, slot=0)]
    assert unbound == ()


def test_too_few_devices_are_noticed() -> None:
    devices = "{gpus: [{name: a, deviceName: r}, {name: b, deviceName: r}]}"
    found, unbound = planned(devices, devices={"r": ["0000:81:00.0"]})
    assert [device.name for device in found] == ["a"]
    assert unbound == (Unbound(field="spec.domain.devices.gpus[1]", kind="device", name="r"),)


def test_all_devices_of_a_usb_bundle_are_given() -> None:
    devices = "{hostDevices: [{name: u, deviceName: usb}]}"
    found, _ = planned(devices, devices={"usb": ["1:4", "1:5"]})
    assert found == (
        HostdevPlan(name="u", alias="usb-host-u", usb=(1, 4)),
        HostdevPlan(name="u", alias="usb-host-u-1", usb=(1, 5)),
    )


def test_bundles_of_one_resource_are_shared_out() -> None:
    devices = "{hostDevices: [{name: a, deviceName: usb}, {name: b, deviceName: usb}]}"
    found, _ = planned(devices, devices={"usb": ["1:4", "1:5"]})
    assert [(device.name, device.usb) for device in found] == [("a", (1, 4)), ("b", (1, 5))]


@pytest.mark.parametrize("address", ["81:00.0", "nonsense", "1:2:3", ""])
def test_an_address_of_no_kind_is_refused(address: str) -> None:
    with pytest.raises(InvalidRequest):
        planned("{gpus: [{name: g, deviceName: r}]}", devices={"r": [address]})


@pytest.mark.parametrize(
    ("first", "second", "displays"),
    [
        ("", "", [(True, True), (False, False)]),
        (", virtualGPUOptions: {}", "", [(True, True), (False, False)]),
        ("", ", virtualGPUOptions: {display: {}}", [(False, False), (True, True)]),
        (", virtualGPUOptions: {display: {enabled: false}}", "", [(False, False), (False, False)]),
        (", virtualGPUOptions: {display: {ramFB: {enabled: false}}}", "", [(True, False), (False, False)]),
    ],
)
def test_displays_of_mediated_gpus(first: str, second: str, displays: list[tuple[bool, bool]]) -> None:
    devices = f"{{gpus: [{{name: a, deviceName: r{first}}}, {{name: b, deviceName: r{second}}}]}}"
    found, _ = planned(devices, devices={"r": [MDEV1, MDEV2]})
    assert [device.mdev for device in found] == [MDEV1, MDEV2]
    assert [(device.display, device.ramfb) for device in found] == displays


@pytest.mark.parametrize(
    ("options", "display"),
    [
        ("", False),
        (", virtualGPUOptions: {display: {}}", False),
        (", virtualGPUOptions: {display: {enabled: true}}", True),
    ],
)
def test_a_whole_gpu_has_a_display_only_when_asked(options: str, display: bool) -> None:
    (gpu,), _ = planned(f"{{gpus: [{{name: a, deviceName: r{options}}}]}}", devices={"r": ["0000:81:00.0"]})
    assert gpu.display is display


def test_a_mediated_host_device_is_never_a_display() -> None:
    devices = "{hostDevices: [{name: same, deviceName: r}], gpus: [{name: same, deviceName: s}]}"
    found, _ = planned(devices, devices={"r": [MDEV1], "s": [MDEV2]})
    assert [device.display for device in found] == [False, True]
