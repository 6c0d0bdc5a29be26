# SPDX-License-Identifier: Apache-2.0
"""Whether a target's devices can take over the state of those that the guest has on its source."""

from __future__ import annotations

from pathlib import Path

import pytest
from agent_nodes import accepted, node, site
from msgspec.structs import replace

from launcher.agent import moving_devices as devices
from launcher.agent.ledger import Limits
from launcher.agent.moving_devices import address_of, judge_devices, staying_attached
from launcher.agent.records import InstanceRecord
from launcher.host.devices import driver_of, model_of
from launcher.migration.peer import MovingDevice
from launcher.plan.allocations import DevicePool
from launcher.plan.facts import version

MANIFEST = """
apiVersion: kubevirt.io/v1
kind: VirtualMachineInstance
metadata: {name: web, namespace: lab, uid: uid-web}
spec:
  domain:
    memory: {guest: 1Gi}
    devices:
      autoattachPodInterface: false
      hostDevices: [{name: card, deviceName: example.com/nic}]
"""
HERE, MODEL = "0000:81:00.2", "15b3:101e"
NEW = (version(9, 0), version(10, 0))
CAME = (MovingDevice(name="card", model=MODEL),)


def draft(*, migratable: bool = True) -> InstanceRecord:
    pool = DevicePool(addresses=(HERE,), migratable=migratable)
    return accepted(MANIFEST, site(node(), (), Limits(devices={"example.com/nic": pool})))


def objections(
    record: InstanceRecord,
    came: tuple[MovingDevice, ...] = CAME,
    versions: tuple[int, int] = NEW,
    model: str = MODEL,
    driver: str = "mlx5_vfio_pci",
) -> list[str]:
    return list(judge_devices(record, came, versions, lambda _address: model, lambda _address: driver))


def test_the_same_model_takes_over() -> None:
    assert objections(draft()) == []
    assert objections(draft(), (MovingDevice(name="card"),)) == [], "an unknown model is QEMU's to judge"


@pytest.mark.parametrize(
    ("found", "says"),
    [
        (objections(draft(migratable=False)), "stays on its host"),
        (objections(draft(), model=""), f"would be {HERE}, which is not on this node"),
        (objections(draft(), model="8086:1889"), f"is a {MODEL}, {HERE} of this node is a 8086:1889"),
        (objections(draft(), driver="vfio-pci"), "vfio-pci moves no state"),
        (objections(draft(), versions=(version(7, 2), version(9, 0))), "QEMU 8.1"),
        (objections(draft(), versions=(version(9, 0), version(8, 0))), "QEMU 8.1"),
    ],
)
def test_others_are_refused_by_name(found: list[str], says: str) -> None:
    assert len(found) == 1
    assert "'card'" in found[0]
    assert says in found[0]


def test_addresses_are_written_as_the_kernel_does() -> None:
    (device,) = staying_attached(draft())
    assert address_of(device) == HERE
    assert address_of(replace(device, pci=None, mdev="a-uuid")) == "a-uuid"
    assert address_of(replace(device, pci=None, usb=(1, 4))) == "1:4"


def test_models_are_read_from_sysfs(tmp_path: Path) -> None:
    card = tmp_path / "bus/pci/devices" / HERE
    card.mkdir(parents=True)
    (card / "vendor").write_text("0x15b3\n")
    (card / "device").write_text("0x101e\n")
    kind = tmp_path / "devices/parent/mdev_supported_types/nvidia-63"
    kind.mkdir(parents=True)
    (tmp_path / "bus/mdev/devices/a-uuid").mkdir(parents=True)
    (tmp_path / "bus/mdev/devices/a-uuid/mdev_type").symlink_to(kind)
    assert model_of(HERE, sysfs=tmp_path) == MODEL
    assert model_of("a-uuid", sysfs=tmp_path) == "nvidia-63"
    assert model_of("0000:99:00.0", sysfs=tmp_path) == ""
    assert driver_of(HERE, sysfs=tmp_path) == ""
    (tmp_path / "bus/pci/drivers/vfio-pci").mkdir(parents=True)
    (card / "driver").symlink_to(tmp_path / "bus/pci/drivers/vfio-pci")
    assert driver_of(HERE, sysfs=tmp_path) == "vfio-pci"


async def test_the_source_looks_at_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "driver_of", lambda _address: "vfio-pci")
    (why,) = await devices.fixed_devices(draft())
    assert why.startswith(f"the device 'card' is {HERE}")
    monkeypatch.setattr(devices, "driver_of", lambda _address: "mlx5_vfio_pci")
    assert await devices.fixed_devices(draft()) == ()
