# SPDX-License-Identifier: Apache-2.0
"""Places on PCI: root ports with spare ones, or the root complex."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from device_contexts import context
from hypothesis import given
from hypothesis import strategies as st

from launcher.errors import HostUnsupported, InvalidSpec
from launcher.plan.devices.assembly import plan_devices
from launcher.plan.devices.model import ControllerPlan, DevicesPlan, OnPci, PciAddress
from launcher.plan.devices.pci import INTERFACE_SLOTS, LAST_PORT, NO_HOLE64, ON_ROOT_COMPLEX


def spec(*, disks: int = 0, nics: int = 0, memory: str = "1Gi", devices: str = "", more: str = "") -> str:
    names = [f"d{index}" for index in range(disks)]
    listed = ", ".join(f"{{name: {name}, disk: {{bus: virtio}}}}" for name in names)
    volumes = ", ".join(f"{{name: {name}, emptyDisk: {{capacity: 1Gi}}}}" for name in names)
    interfaces = ", ".join(f"{{name: n{index}, bridge: {{}}}}" for index in range(nics))
    return f"""
domain:
  memory: {{guest: {memory}}}
  devices: {{disks: [{listed}], interfaces: [{interfaces}]{devices}}}
volumes: [{volumes}]
{more}
"""


def ports(planned: DevicesPlan) -> list[ControllerPlan]:
    return [controller for controller in planned.controllers if controller.model == "pcie-root-port"]


def seated(planned: DevicesPlan) -> Iterator[OnPci]:
    yield from planned.interfaces
    yield from planned.hostdevs
    yield from planned.controllers
    yield from planned.disks
    yield from planned.inputs
    yield from planned.filesystems
    for device in (planned.watchdog, planned.rng, planned.balloon, planned.vsock):
        if device is not None:
            yield device


def buses(planned: DevicesPlan) -> list[int]:
    return [device.address.bus for device in seated(planned) if device.address is not None]


def spare(planned: DevicesPlan) -> int:
    return len({port.index for port in ports(planned)} - set(buses(planned)))


def test_each_device_has_a_port_interfaces_first() -> None:
    planned = plan_devices(context(spec(disks=1, nics=1, devices=", rng: {}")))
    assert planned.interfaces[0].address == PciAddress(bus=1, slot=0)
    scsi, serial = (c for c in planned.controllers if c.type in ("scsi", "virtio-serial"))
    assert (scsi.address, serial.address) == (PciAddress(bus=2, slot=0), PciAddress(bus=3, slot=0))
    assert planned.disks[0].address == PciAddress(bus=4, slot=0)
    assert planned.rng is not None
    assert planned.rng.address == PciAddress(bus=5, slot=0)
    assert planned.balloon is not None
    assert planned.balloon.address == PciAddress(bus=6, slot=0)


def test_only_ports_of_interfaces_and_free_ones_allow_unplugging() -> None:
    planned = plan_devices(context(spec(disks=1, nics=1)))
    assert [port.hotplug for port in ports(planned)] == [True] + [False] * 4 + [True] * 3


def test_the_root_is_written_with_its_ports() -> None:
    models = [c.model for c in plan_devices(context(spec())).controllers if c.type == "pci"]
    assert models[0] == "pcie-root"
    assert set(models[1:]) == {"pcie-root-port"}


@pytest.mark.parametrize(
    ("disks", "nics", "memory", "free"),
    [
        # Four devices are always there: usb, scsi, virtio-serial and the balloon.
        (0, 0, "1Gi", 4),
        (0, 1, "1Gi", 3),
        (1, 1, "2Gi", 3),
        (1, 1, "2049Mi", 10),
        (1, 1, "3Gi", 10),
        (9, 1, "3Gi", 6),
        (9, 1, "1Gi", 3),
        (9, 5, "1Gi", 3),
    ],
)
def test_spare_ports(disks: int, nics: int, memory: str, free: int) -> None:
    assert spare(plan_devices(context(spec(disks=disks, nics=nics, memory=memory)))) == free


@pytest.mark.parametrize(("slots", "free"), [("0", 3), ("4", 3), ("9", 8), ("1", 3)])
def test_the_number_of_interface_slots_can_be_asked_for(slots: str, free: int) -> None:
    planned = plan_devices(context(spec(disks=1, nics=1), annotations={INTERFACE_SLOTS: slots}))
    assert spare(planned) == free


@pytest.mark.parametrize("text", ["x", "-1", "", "1.5", "٣"])
def test_a_number_of_slots_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(InvalidSpec, match="whole number"):
        plan_devices(context(spec(nics=1), annotations={INTERFACE_SLOTS: text}))


def test_without_hotplug_nothing_is_spare() -> None:
    assert spare(plan_devices(context(spec(disks=1, nics=1, devices=", disableHotplug: true")))) == 0


def test_spare_ports_end_at_the_last_index() -> None:
    planned = plan_devices(context(spec(disks=24, nics=1, memory="3Gi")))
    assert max(port.index for port in ports(planned)) == LAST_PORT
    planned = plan_devices(context(spec(disks=40, nics=1, memory="3Gi")))
    assert max(port.index for port in ports(planned)) == max(buses(planned))


@pytest.mark.parametrize(
    ("devices", "bridges"),
    [
        (", useVirtioTransitional: true", 1),
        (", watchdog: {name: w}", 1),
        (", sound: {name: s, model: ac97}", 1),
        (", sound: {name: s}", 0),
    ],
)
def test_a_port_is_kept_for_libvirts_bridge_to_conventional_pci(devices: str, bridges: int) -> None:
    with_bridge = spare(plan_devices(context(spec(nics=1, devices=devices))))
    used = 2 if "watchdog" in devices else 1
    assert with_bridge == max(8 - 4 - used, 3) + bridges


def test_transitional_devices_are_left_to_libvirt() -> None:
    planned = plan_devices(context(spec(disks=2, nics=2, devices=", useVirtioTransitional: true, rng: {}")))
    assert buses(planned) == []


def test_conventional_interfaces_are_left_to_libvirt() -> None:
    text = "domain: {devices: {interfaces: [{name: a, model: e1000}, {name: b, model: e1000e}]}}"
    first, second = plan_devices(context(text)).interfaces
    assert (first.address, second.address) == (None, PciAddress(bus=1, slot=0))


def test_an_address_of_the_user_is_kept_and_its_port_given_to_nobody_else() -> None:
    text = """
domain:
  devices:
    disks: [{name: d, disk: {bus: virtio, pciAddress: '0000:02:00.0'}}, {name: e, disk: {bus: virtio}}]
    interfaces: [{name: n, bridge: {}, pciAddress: '0000:09:00.0'}]
volumes: [{name: d, emptyDisk: {capacity: 1Gi}}, {name: e, emptyDisk: {capacity: 1Gi}}]
"""
    planned = plan_devices(context(text))
    assert planned.interfaces[0].address == PciAddress(bus=9, slot=0)
    assert planned.disks[0].address == PciAddress(bus=2, slot=0)
    assert sorted(buses(planned)) == [1, 2, 3, 4, 5, 9]
    assert [port.index for port in ports(planned)] == list(range(1, len(ports(planned)) + 1))
    hotplug = {port.index: port.hotplug for port in ports(planned)}
    assert (hotplug[2], hotplug[9]) == (False, True)


@pytest.mark.parametrize(
    "more",
    ["architecture: s390x", "architecture: arm64"],
)
def test_only_boards_with_pci_express_have_ports(more: str) -> None:
    planned = plan_devices(context(spec(disks=1, nics=1, more=more)))
    assert bool(ports(planned)) is (more == "architecture: arm64")
    assert bool(buses(planned)) is (more == "architecture: arm64")


def test_a_board_without_pci_express_is_left_alone() -> None:
    planned = plan_devices(context("domain: {machine: {type: pc-i440fx-7.2}}"))
    assert (ports(planned), buses(planned)) == ([], [])


def test_a_display_on_arm_needs_a_port_of_its_own() -> None:
    shown = spare(plan_devices(context(spec(nics=1, more="architecture: arm64"))))
    hidden = spec(nics=1, more="architecture: arm64", devices=", autoattachGraphicsDevice: false")
    assert shown - spare(plan_devices(context(hidden))) == 1


def test_the_root_complex_is_filled_from_slot_2() -> None:
    text = spec(disks=2, nics=1, devices=", watchdog: {name: w}, rng: {}")
    planned = plan_devices(context(text, annotations={ON_ROOT_COMPLEX: "true"}))
    assert ports(planned) == []
    addresses = [device.address for device in seated(planned) if device.address is not None]
    assert {(address.bus, address.function) for address in addresses} == {(0, 0)}
    assert planned.interfaces[0].address == PciAddress(bus=0, slot=2)
    assert sorted(address.slot for address in addresses) == list(range(2, 2 + len(addresses)))
    assert planned.watchdog is not None
    assert planned.watchdog.address == PciAddress(bus=0, slot=7)


def test_slots_of_the_board_are_passed_over() -> None:
    text = spec(disks=24, nics=1)
    planned = plan_devices(context(text, annotations={ON_ROOT_COMPLEX: "true"}))
    slots = {device.address.slot for device in seated(planned) if device.address is not None}
    assert slots == set(range(2, 0x1F)) - {0x1B}
    with pytest.raises(HostUnsupported, match="PCI slots"):
        plan_devices(context(spec(disks=25, nics=1), annotations={ON_ROOT_COMPLEX: "true"}))


@pytest.mark.parametrize(("text", "size"), [("true", 0), ("TRUE", 0), ("false", None), ("", None)])
def test_the_64_bit_hole_can_be_turned_off(text: str, size: int | None) -> None:
    planned = plan_devices(context(spec(), annotations={NO_HOLE64: text}))
    (root,) = (controller for controller in planned.controllers if controller.model == "pcie-root")
    assert root.pcihole64_kib == size


@given(st.integers(0, 30), st.integers(0, 8), st.sampled_from(["1Gi", "4Gi"]), st.booleans())
def test_no_two_devices_share_a_port(disks: int, nics: int, memory: str, rng: bool) -> None:
    text = spec(disks=disks, nics=nics, memory=memory, devices=", rng: {}" if rng else "")
    planned = plan_devices(context(text))
    assert len(set(buses(planned))) == len(buses(planned))
    assert set(buses(planned)) <= {port.index for port in ports(planned)}
    assert plan_devices(context(text)) == planned
