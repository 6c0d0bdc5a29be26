# SPDX-License-Identifier: Apache-2.0
"""VolumeService over the real API server, and ``launcherctl addvolume`` and ``removevolume``."""

from __future__ import annotations

import pytest
from component_parts import VMI_YAML
from msgspec.structs import replace
from standin_agent import StandInAgent

from launcher.cli.client import Client
from launcher.cli.main import run
from launcher.errors import InvalidRequest, NotFound
from launcher.spec.model import (
    CDRomTarget,
    Disk,
    VirtualMachineInstanceCondition,
    VirtualMachineInstanceStatus,
)

SOURCE = {"persistentVolumeClaim": {"claimName": "c"}}


@pytest.fixture
def ctl(address: str, monkeypatch: pytest.MonkeyPatch) -> Client:
    monkeypatch.setenv("LAUNCHER_SERVER", address)
    client = Client(address)
    client.instances.create(VMI_YAML)
    return client


def disk_named(agent: StandInAgent, name: str) -> Disk | None:
    disks = agent.instances["default", "demo"].spec.domain.devices.disks
    return next((disk for disk in disks if disk.name == name), None)


def test_options_are_those_of_kubevirt(ctl: Client, agent: StandInAgent) -> None:
    disk = {"disk": {"bus": "virtio"}, "blockSize": {"custom": {"logical": 4096}}}
    options = {"name": "data", "volumeSource": SOURCE, "disk": disk}
    ctl.volumes.add("demo", options, dry_run=True)
    assert disk_named(agent, "data") is None
    added = ctl.volumes.add("demo", options)
    assert added["spec"]["volumes"][1] == {"name": "data", **SOURCE}
    found = disk_named(agent, "data")
    assert found is not None
    assert found.block_size is not None
    assert found.block_size.custom is not None
    assert found.block_size.custom.logical == 4096
    ctl.volumes.remove("demo", "data")
    with pytest.raises(NotFound, match="volume 'data'"):
        ctl.volumes.remove("demo", "data")


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"volumeSource": SOURCE}, "options.name"),
        ({"name": "v"}, "options.volumeSource"),
        ({"name": "v", "volumeSource": {"claim": {}}}, "options.volumeSource"),
        ({"name": "v", "volumeSource": SOURCE, "disk": "fast"}, "options.disk"),
        ({"name": "v", "volumeSource": SOURCE, "disk": {"disk": {"bus": 1}}}, "options.disk"),
        ({"name": "v", "volumeSource": SOURCE, "speed": 1}, "options.speed"),
    ],
)
def test_options_that_cannot_be_read_are_named(ctl: Client, options: dict[str, object], field: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        ctl.volumes.add("demo", options)
    assert [violation.field for violation in caught.value.violations] == [field]


def test_addvolume_makes_a_disk_of_what_is_asked_for(ctl: Client, agent: StandInAgent) -> None:
    claim = "c=/srv/c,capacity=1Gi"
    assert run(["addvolume", "vmi/demo", "--volume-name", "v", "--claim", claim, "--cache", "none"]) == 0
    found = disk_named(agent, "v")
    assert found is not None
    assert (found.serial, found.cache) == ("v", "none")
    assert found.disk is not None
    assert found.disk.bus == "scsi"
    (bound,) = agent.companions["default", "demo"].claims
    assert (bound.claim, bound.path, bound.capacity) == ("c", "/srv/c", 1 << 30)
    assert run(["removevolume", "vmi/demo", "--volume-name", "v", "--persist"]) == 0
    assert run(["addvolume", "demo", "--volume-name", "l", "--disk-type", "lun"]) == 0
    lun = disk_named(agent, "l")
    assert lun is not None
    assert lun.lun is not None
    assert run(["addvolume", "demo", "--volume-name", "e", "--empty-disk", "1Gi", "--disk", "/x"]) != 0


def test_addvolume_into_a_drive_brings_no_disk(ctl: Client, agent: StandInAgent) -> None:
    vmi = agent.instances["default", "demo"]
    drive = Disk(name="cd", cdrom=CDRomTarget(bus="sata"))
    devices = replace(vmi.spec.domain.devices, disks=(*vmi.spec.domain.devices.disks, drive))
    agent.put(replace(vmi, spec=replace(vmi.spec, domain=replace(vmi.spec.domain, devices=devices))))
    assert run(["addvolume", "demo", "--volume-name", "cd", "--disk", "/srv/x.iso"]) == 0
    disks = agent.instances["default", "demo"].spec.domain.devices.disks
    assert [disk.name for disk in disks] == ["root", "cd"]


def test_wait_ends_with_the_change_or_with_what_is_wrong(
    ctl: Client, agent: StandInAgent, capsys: pytest.CaptureFixture[str]
) -> None:
    wait = ["addvolume", "demo", "--empty-disk", "1Mi", "--wait", "--volume-name"]
    assert run([*wait, "a"]) == 0
    vmi = agent.instances["default", "demo"]
    given_up = VirtualMachineInstanceCondition(type="HotVolumeChange", status="False", message="no port")
    agent.put(replace(vmi, status=VirtualMachineInstanceStatus(phase="Running", conditions=(given_up,))))
    assert run([*wait, "b"]) != 0
    assert "no port" in capsys.readouterr().err
