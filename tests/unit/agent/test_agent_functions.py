# SPDX-License-Identifier: Apache-2.0
"""Virtual functions and other devices of the host: chosen, given back, plugged again, kept from moving."""

from __future__ import annotations

from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any, cast

import pytest
from agent_nodes import NOW, accepted, live, node, site
from msgspec.structs import replace

from launcher.agent import lending
from launcher.agent import reconcile as do
from launcher.agent.conditions import conditions
from launcher.agent.draft import draft
from launcher.agent.functions import PlugFunction, function_step
from launcher.agent.hotplug import TRIES, Attempts, Hardware, can_change
from launcher.agent.ledger import Holding, Limits, holding
from launcher.agent.lending import with_functions
from launcher.agent.migratability import migration_findings
from launcher.agent.plugging import Plugging
from launcher.agent.port import Attachment, Companions
from launcher.agent.records import InstanceRecord, Moment
from launcher.agent.settings import node_limits
from launcher.agent.sighting import interfaces
from launcher.domain.build import build
from launcher.domain.devices.hostdev import hostdev_element
from launcher.domain.element import to_text
from launcher.domain.read import DomainView, devices_by_alias, read_domain
from launcher.domain.reading import Parsed, parse, printed
from launcher.domain.retarget import Destination, retarget
from launcher.errors import Exhausted, HostUnsupported, InvalidRequest
from launcher.host.clock import SystemClock
from launcher.host.config import Config, NodeDevices
from launcher.hypervisor.port import DomainRecord, DomainState
from launcher.network import function
from launcher.plan.allocations import DevicePool
from launcher.plan.devices.model import PciAddress
from launcher.plan.settings import FunctionNetwork, NetworkSettings
from launcher.plan.steps import VirtualFunction
from launcher.spec.load import load_vmi

RUNNING = DomainRecord(uuid="u", name="n", state=DomainState.RUNNING, reason="booted", persistent=True)
MOMENT = Moment(boot_id="boot-1", seconds=1000.0)
MAC = "02:00:00:00:00:77"
TEXT = """
apiVersion: kubevirt.io/v1
kind: VirtualMachineInstance
metadata: {{name: web, namespace: lab, uid: uid-web, annotations: {annotations}}}
spec:
  domain:
    memory: {{guest: 1Gi}}
    devices:
      autoattachGraphicsDevice: false
      hostDevices: [{devices}]
      interfaces: [{interfaces}]
  networks: [{{name: slow, pod: {{}}}}, {{name: fast, multus: {{networkName: fast}}}}]
"""
BOTH = (
    f"{{name: slow, masquerade: {{}}, macAddress: '{MAC}'}}, {{name: fast, sriov: {{}}, macAddress: '{MAC}'}}"
)


def manifest(interfaces: str = BOTH, devices: str = "", annotations: str = "{}") -> str:
    return TEXT.format(interfaces=interfaces, devices=devices, annotations=annotations)


def lent(device: str = "0000:3b:02.1") -> Companions:
    """What has been looked at of a function that was handed in, or chosen."""
    was = VirtualFunction(link="ens1f0", number=1, driver="iavf")
    return Companions(attachments={"fast": Attachment(device=device, vlan=7, function=was)})


def guest(text: str | None = None, companions: Companions | None = None) -> InstanceRecord:
    """A running guest with a function."""
    vmi = load_vmi(text or manifest())
    record = draft(vmi, companions or lent(), uid="uid-web", site=site(node()), now=NOW, boot_id="boot-1")
    return replace(record, phase="Running", prepared=True)


def tree(xml: str) -> Parsed:
    return parse(xml, what="domain XML", tag="domain")


def attributes(root: Parsed, path: str) -> dict[str, str]:
    node = root.find(path)
    assert node is not None, path
    return {str(name): str(value) for name, value in node.attrib.items()}


def bare(record: InstanceRecord) -> DomainView:
    """Its domain after it gave the function back."""
    root = tree(build(record.plan))
    devices = root.find("devices")
    assert devices is not None
    for device in devices.findall("hostdev"):
        devices.remove(device)
    return read_domain(printed(root))


def decide(
    record: InstanceRecord,
    view: DomainView,
    functions: Attempts = Attempts(),  # noqa: B008 - frozen
) -> do.Decision:
    hardware = Hardware(live=view, functions=functions)
    return do.reconcile(record, RUNNING, now=MOMENT, efforts=do.Efforts(), hardware=hardware)


# What the guest has --------------------------------------------------------------------------------------


def test_a_guest_with_all_its_functions_is_left_alone() -> None:
    record = guest()
    assert decide(record, live(record)) == do.Decision()
    assert can_change(
        replace(record, plan=replace(record.plan, vcpus=replace(record.plan.vcpus, hotplug=False)))
    )


def test_one_that_is_missing_is_plugged_where_it_was() -> None:
    record = guest()
    view = bare(record)
    (device,) = record.plan.devices.hostdevs
    assert device.address is not None
    assert device.address.bus in view.free_ports, "its port can be plugged into"
    assert decide(record, view).actions == (PlugFunction(device),)


def test_the_status_shows_whether_it_is_there() -> None:
    record = guest()
    for view, source in ((live(record), "domain"), (bare(record), None), (None, "domain")):
        shown = {nic.name: nic for nic in interfaces(record, view)}
        assert shown["fast"].info_source == source


def test_one_whose_port_is_taken_comes_to_another() -> None:
    record = guest()
    view = replace(bare(record), free_ports=(9,))
    step = function_step(record, view)
    assert step is not None
    assert step.device.address == PciAddress(bus=9, slot=0)


@pytest.mark.parametrize(
    "change", [{"outgoing": "a"}, {"incoming": "a"}, {"moved_to": "b"}, {"desired": "deleted"}]
)
def test_nothing_is_plugged_while_the_guest_is_somebody_elses(change: dict[str, str]) -> None:
    record = guest()
    actions = decide(replace(record, **change), bare(record)).actions
    assert not any(isinstance(action, PlugFunction) for action in actions)


def test_what_fails_is_tried_again_then_told_and_the_guest_goes_on() -> None:
    record = guest()
    view = bare(record)
    once = Attempts(failures=1, ago_s=0.5, error="no IOMMU")
    assert decide(record, view, functions=once).look_again_s == pytest.approx(1.5)
    spent = Attempts(failures=TRIES, ago_s=0.5, error="no IOMMU")
    assert decide(record, view, functions=spent) == do.Decision()
    hardware = Hardware(live=view, functions=spent)
    found = [c for c in conditions(record, RUNNING, (), hardware=hardware) if c.type == "HotInterfaceChange"]
    assert [(c.status, c.reason) for c in found] == [("False", "InterfaceChangeFailed")]
    assert "virtual function fast is being plugged; no IOMMU" in (found[0].message or "")


async def test_plugging_hands_the_hostdev_to_the_domain() -> None:
    record = guest()
    told: list[str] = []

    async def attach(_uuid: str, xml: str) -> None:
        told.append(xml)

    plugging = Plugging(cast(Any, SimpleNamespace(attach_device=attach)), cast(Any, None), SystemClock())
    (device,) = record.plan.devices.hostdevs
    change = await plugging.perform(record, PlugFunction(device))
    assert change is not None
    assert told == [to_text(hostdev_element(device))]


def test_devices_are_found_by_their_alias() -> None:
    record = guest()
    found = devices_by_alias(build(record.plan))
    assert {"slow", "sriov-fast"} <= found.keys()
    assert found["sriov-fast"].startswith("<hostdev")


# Teams ---------------------------------------------------------------------------------------------------


def test_an_interface_of_the_same_address_stands_in() -> None:
    record = guest()
    (device,) = record.plan.devices.hostdevs
    (nic,) = record.plan.devices.interfaces
    assert (device.standby, nic.standby) == ("slow", True)
    root = tree(build(record.plan))
    assert attributes(root, "devices/interface/teaming") == {"type": "persistent"}
    assert attributes(root, "devices/hostdev/teaming") == {"type": "transient", "persistent": "ua-slow"}


def test_another_address_is_no_team() -> None:
    text = manifest(f"{{name: slow, masquerade: {{}}}}, {{name: fast, sriov: {{}}, macAddress: '{MAC}'}}")
    assert "teaming" not in build(guest(text).plan)


# Choosing ------------------------------------------------------------------------------------------------

NETWORKS = NetworkSettings(cards={"fast": FunctionNetwork(link="ens1f0", vlan=5)})
THERE = ("0000:3b:02.0", "0000:3b:02.1")


@pytest.fixture
def card(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(function, "functions_on", lambda _network, _link: THERE)


async def choose(
    companions: Companions, others: Iterable[InstanceRecord] = (), *, arriving: bool = False
) -> Companions:
    return await with_functions(load_vmi(manifest()), companions, NETWORKS, others, arriving=arriving)


async def test_the_first_free_function_of_the_networks_card_is_taken(card: None) -> None:
    other = guest(companions=lent(THERE[0]))
    found = await choose(Companions(), [other])
    assert found.attachments == {"fast": Attachment(device=THERE[1], vlan=5)}
    with pytest.raises(Exhausted, match="all 2 virtual functions of ens1f0"):
        await choose(Companions(), [other, guest(companions=lent(THERE[1]))])


async def test_one_that_was_handed_in_is_kept(card: None) -> None:
    given = Companions(attachments={"fast": Attachment(device="0000:99:00.1")})
    assert await choose(given) is given


async def test_one_that_arrives_gets_another_with_the_same_address(card: None) -> None:
    given = Companions(attachments={"fast": Attachment(device=THERE[0], vlan=7, mac=MAC)})
    found = await choose(given, [guest(companions=lent(THERE[0]))], arriving=True)
    assert found.attachments == {"fast": Attachment(device=THERE[1], vlan=5, mac=MAC)}


async def test_a_node_without_the_card_refuses_who_arrives(card: None) -> None:
    vmi = load_vmi(manifest())
    found = await lending.with_functions(vmi, lent(), NetworkSettings(), (), arriving=True)
    assert found.attachments == {}
    with pytest.raises(HostUnsupported, match="'fast'") as refused:
        draft(vmi, found, uid="uid-web", site=site(node()), now=NOW, boot_id="boot-1")
    assert "networks" in (refused.value.hint or "")


# Other devices of the host -------------------------------------------------------------------------------

GPU = "{name: brain, deviceName: example.com/gpu}"
PLAIN = "{name: slow, masquerade: {}}"
POOL = ("0000:81:00.0", "0000:82:00.0")


def with_gpu(*, migratable: bool, holdings: Iterable[Holding] = (), devices: str = GPU) -> InstanceRecord:
    limits = Limits(devices={"example.com/gpu": DevicePool(addresses=POOL, migratable=migratable)})
    return accepted(
        manifest(PLAIN, devices).replace(", {name: fast, multus: {networkName: fast}}", ""),
        site(node(), holdings, limits),
    )


def test_a_free_device_of_the_resource_is_taken() -> None:
    record = with_gpu(migratable=False)
    assert record.allocations.devices == {"example.com/gpu": (POOL[0],)}
    second = with_gpu(migratable=False, holdings=[holding(record)])
    assert second.allocations.devices == {"example.com/gpu": (POOL[1],)}
    with pytest.raises(HostUnsupported, match=r"'example\.com/gpu'"):
        with_gpu(migratable=False, holdings=[holding(record), holding(second)])


def test_a_device_that_stays_is_named_with_its_field() -> None:
    ((reason, message),) = migration_findings(with_gpu(migratable=False))
    assert reason == "HostDeviceNotLiveMigratable"
    assert message.startswith("spec.domain.devices.hostDevices[0]: 'brain' stays on its host")


def test_one_that_moves_its_state_may_move() -> None:
    record = with_gpu(migratable=True)
    assert migration_findings(record) == ()
    assert record.plan.devices.hostdevs[0].migratable


def test_bundles_of_usb_devices_are_somebodys_or_nobodys() -> None:
    pool = DevicePool(addresses=("1:2", "1:3"))
    limits = Limits(devices={"example.com/gpu": pool})
    text = manifest(PLAIN, GPU).replace(", {name: fast, multus: {networkName: fast}}", "")
    record = accepted(text, site(node(), (), limits))
    assert record.allocations.devices == {"example.com/gpu": ("1:2", "1:3")}
    half = Holding(key="x/y", devices=frozenset({"1:3"}))
    with pytest.raises(HostUnsupported):
        accepted(text, site(node(), [half], limits))


@pytest.mark.parametrize(
    ("devices", "field"),
    [
        (NodeDevices(addresses=("3b:02.1",)), "devices.r.addresses"),
        (NodeDevices(addresses=("0000:3B:02.1",)), "devices.r.addresses"),
        (NodeDevices(addresses=("1:4",), migratable=True), "devices.r.migratable"),
    ],
)
def test_devices_that_cannot_be_are_refused(devices: NodeDevices, field: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        node_limits(Config(devices={"r": devices}))
    assert [violation.field for violation in refused.value.violations] == [field]


# Moving --------------------------------------------------------------------------------------------------


def test_a_function_does_not_keep_its_guest() -> None:
    assert migration_findings(guest()) == ()


def test_a_function_on_the_root_complex_does() -> None:
    text = manifest(annotations="{kubevirt.io/placePCIDevicesOnRootComplex: 'true'}")
    assert [reason for reason, _ in migration_findings(guest(text))] == ["SRIOVNotLiveMigratable"]


def test_the_destination_begins_without_functions_and_with_its_own_devices() -> None:
    here = guest()
    there = guest(companions=lent("0000:5e:02.3"))
    gpu = with_gpu(migratable=True)
    assert "<hostdev" not in retarget(build(here.plan), Destination(hostdevs=there.plan.devices.hostdevs))
    (device,) = gpu.plan.devices.hostdevs
    other = replace(device, pci=PciAddress(bus=0x82, slot=0))
    moved = tree(retarget(build(gpu.plan), Destination(hostdevs=(other,))))
    before = tree(build(gpu.plan))
    source = "devices/hostdev/source/address"
    assert attributes(moved, source)["bus"] == "0x82"
    assert attributes(before, source)["bus"] == "0x81"
    guests = "devices/hostdev/address"
    assert attributes(moved, guests) == attributes(before, guests), "the guest sees no change"
