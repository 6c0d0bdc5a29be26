# SPDX-License-Identifier: Apache-2.0
"""Disks of a manifest as they are planned."""

from __future__ import annotations

import pytest
from device_contexts import OLD_LIBVIRT, STATE, context

from launcher.errors import InvalidSpec
from launcher.plan.devices.disk import plan_disks, unbound_claims
from launcher.plan.devices.model import (
    Backing,
    BlockSizes,
    DevicesPlan,
    DiskPlan,
    DiskSource,
    PciAddress,
    Unbound,
)
from launcher.plan.facts import NodeFacts, version
from launcher.plan.notes import notes
from launcher.plan.steps import RequireFile
from launcher.plan.volume_steps import plan_steps

EMPTY = "volumes: [{name: a, emptyDisk: {capacity: 1Gi}}]"


def one(disk: str, volumes: str = EMPTY, **arguments: object) -> DiskPlan:
    spec = f"domain: {{devices: {{disks: [{disk}]}}}}\n{volumes}"
    (planned,) = plan_disks(context(spec, **arguments))  # type: ignore[arg-type]
    return planned


def many(
    count: int, bus: str = "virtio", domain: str = "", arch: str = "amd64", **arguments: object
) -> tuple[DiskPlan, ...]:
    disks = ", ".join(f"{{name: d{index}, disk: {{bus: {bus}}}}}" for index in range(count))
    volumes = ", ".join(f"{{name: d{index}, emptyDisk: {{capacity: 1Gi}}}}" for index in range(count))
    spec = f"domain: {{devices: {{disks: [{disks}]}}{domain}}}\nvolumes: [{volumes}]\narchitecture: {arch}"
    return plan_disks(context(spec, **arguments))  # type: ignore[arg-type]


def test_a_virtio_disk_is_planned_to_the_last_attribute() -> None:
    disk = "{name: a, disk: {bus: virtio, pciAddress: '0000:81:01.2'}, bootOrder: 3, serial: S-1, io: native}"
    assert one(disk) == DiskPlan(
        name="a",
        kind="emptyDisk",
        device="disk",
        bus="virtio",
        target="vda",
        source=DiskSource(path=f"{STATE}/disks/a.qcow2"),
        format="qcow2",
        model="virtio-non-transitional",
        address=PciAddress(bus=0x81, slot=1, function=2),
        boot_order=3,
        serial="S-1",
        io="native",
        discard=True,
        error_policy="stop",
    )


def test_a_lun_is_a_block_device() -> None:
    volumes = "volumes: [{name: a, persistentVolumeClaim: {claimName: c}}]"
    device = one("{name: a, lun: {bus: scsi}}", volumes, claims={"c": {"path": "/dev/sdx", "block": True}})
    assert device.source == DiskSource(path="/dev/sdx", block=True)
    with pytest.raises(InvalidSpec) as caught:
        one("{name: a, lun: {bus: scsi}}", volumes, claims={"c": {"path": "/claims/c"}})
    assert caught.value.violations[0].field == "spec.domain.devices.disks[0].lun"


@pytest.mark.parametrize(
    ("bus", "readonly", "written"), [("virtio", True, False), ("scsi", True, False), ("sata", False, True)]
)
def test_a_claim_that_is_read_only(bus: str, readonly: bool, written: bool) -> None:
    spec = f"""
domain: {{devices: {{disks: [{{name: a, disk: {{bus: {bus}}}}}]}}}}
volumes: [{{name: a, persistentVolumeClaim: {{claimName: c, readOnly: true}}}}]
"""
    made = context(spec, claims={"c": {"path": "/claims/c", "capacity": 1 << 30}})
    (disk,) = plan_disks(made)
    assert disk.readonly is readonly
    assert bool([note for note in notes(made) if "disks[0].disk.bus" in note]) is written
    steps = plan_steps(made, DevicesPlan(disks=(disk,)))
    assert any(isinstance(step, RequireFile) for step in steps), "no image is made in it"


def test_a_container_disk_is_an_overlay_on_what_was_fetched() -> None:
    planned = one("{name: a, disk: {bus: sata}}", "volumes: [{name: a, containerDisk: {image: 'lab/i:1'}}]")
    assert planned.source == DiskSource(path=f"{STATE}/disks/a.qcow2")
    assert planned.backing == Backing(source=DiskSource(path=f"{STATE}/disks/a.base"), format="qcow2")
    assert (planned.format, planned.target, planned.model) == ("qcow2", "sda", None)


@pytest.mark.parametrize(
    ("device", "expected"),
    [
        ("cdrom: {bus: sata}", ("cdrom", True, "closed", None)),
        ("cdrom: {bus: sata, readonly: false, tray: open}", ("cdrom", False, "open", None)),
        ("lun: {bus: scsi, readonly: true}", ("lun", True, None, None)),
        ("lun: {bus: scsi}", ("lun", False, None, None)),
        ("disk: {bus: virtio, readonly: true}", ("disk", True, None, "S")),
        ("disk: {bus: scsi}", ("disk", False, None, "S")),
    ],
)
def test_device_kinds(device: str, expected: tuple[object, ...]) -> None:
    planned = one(f"{{name: a, {device}, serial: S, shareable: false}}")
    assert (planned.device, planned.readonly, planned.tray, planned.serial) == expected


@pytest.mark.parametrize(("arch", "bus"), [("amd64", "sata"), ("arm64", "virtio"), ("s390x", "virtio")])
def test_a_disk_without_a_bus_is_on_the_architectures(arch: str, bus: str) -> None:
    planned = one("{name: a}", f"{EMPTY}\narchitecture: {arch}")
    assert (planned.device, planned.bus) == ("disk", bus)


@pytest.mark.parametrize(
    ("device", "source", "discard"),
    [
        ("disk", "emptyDisk: {capacity: 1Gi}", True),
        ("cdrom", "emptyDisk: {capacity: 1Gi}", True),
        ("disk", "hostDisk: {path: /d, type: Disk}", True),
        ("cdrom", "hostDisk: {path: /d, type: Disk}", False),
        ("lun", "persistentVolumeClaim: {claimName: c}", True),
        ("cdrom", "dataVolume: {name: c}", True),
        ("cdrom", "containerDisk: {image: i}", True),
        ("cdrom", "ephemeral: {persistentVolumeClaim: {claimName: c}}", True),
        ("disk", "configMap: {name: c}", True),
        ("cdrom", "secret: {secretName: c}", False),
        ("cdrom", "cloudInitNoCloud: {userData: x}", False),
        ("disk", "downwardMetrics: {}", False),
    ],
)
def test_discard(device: str, source: str, discard: bool) -> None:
    bus = "scsi" if device == "lun" else "sata"
    planned = one(f"{{name: a, {device}: {{bus: {bus}}}}}", f"volumes: [{{name: a, {source}}}]")
    assert planned.discard is discard


def test_a_preallocated_claim_is_not_discarded() -> None:
    status = "volumeStatus: [{name: a, target: '', persistentVolumeClaimInfo: {preallocated: true}}]"
    volumes = "volumes: [{name: a, persistentVolumeClaim: {claimName: c}}]"
    assert not one("{name: a, disk: {bus: virtio}}", volumes, status=status).discard


def test_downward_metrics_are_read_only() -> None:
    planned = one("{name: a, disk: {bus: virtio}}", "volumes: [{name: a, downwardMetrics: {}}]")
    assert planned.readonly
    assert planned.format == "raw"


def test_a_shared_disk_is_not_cached() -> None:
    shared = one("{name: a, disk: {bus: virtio}, shareable: true}")
    assert (shared.shareable, shared.cache) == (True, "none")
    assert one("{name: a, disk: {bus: virtio}, cache: writeback}").cache == "writeback"
    assert one("{name: a, disk: {bus: virtio}}").cache is None


def test_a_shared_cdrom_is_a_plain_one() -> None:
    planned = one("{name: a, cdrom: {bus: sata}, shareable: true}")
    assert (planned.shareable, planned.cache) == (False, None)


@pytest.mark.parametrize(("given", "policy"), [("", "stop"), (", errorPolicy: report", "report")])
def test_error_policy(given: str, policy: str) -> None:
    assert one(f"{{name: a, disk: {{bus: virtio}}{given}}}").error_policy == policy


def test_an_empty_drive_has_no_source() -> None:
    planned = one("{name: a, cdrom: {bus: sata}}", "volumes: []")
    assert (planned.source, planned.kind, planned.discard) == (None, "", False)


def test_a_disk_without_its_volume_is_refused() -> None:
    with pytest.raises(InvalidSpec) as caught:
        one("{name: a, disk: {bus: virtio}}", "volumes: []")
    assert caught.value.violations[0].field == "spec.domain.devices.disks[0].name"


def test_scsi_units_are_the_letters_so_that_no_two_collide() -> None:
    spec = """
domain:
  devices:
    disks: [{name: a, disk: {bus: sata}}, {name: b, disk: {bus: scsi}}, {name: c, cdrom: {bus: scsi}}]
volumes: [{name: a, emptyDisk: {capacity: 1Gi}}, {name: b, emptyDisk: {capacity: 1Gi}}]
"""
    units = [(disk.target, disk.unit) for disk in plan_disks(context(spec))]
    assert units == [("sda", None), ("sdb", 1), ("sdc", 2)]


def test_targets_come_from_the_status() -> None:
    status = "volumeStatus: [{name: d1, target: vda}, {name: d0, target: vdq}]"
    assert [disk.target for disk in many(3, status=status)] == ["vdq", "vda", "vdb"]


@pytest.mark.parametrize(
    ("phase", "planned"), [("Pending", 0), ("AttachedToNode", 0), ("MountedToPod", 1), ("Ready", 1)]
)
def test_a_hotplugged_volume_is_in_once_its_files_are_there(phase: str, planned: int) -> None:
    status = f"volumeStatus: [{{name: d0, target: '', phase: {phase}, hotplugVolume: {{}}}}]"
    assert len(many(1, status=status)) == planned


def test_queues_follow_the_current_vcpus() -> None:
    spec = """
domain:
  cpu: {sockets: 2, cores: 2, maxSockets: 8}
  devices:
    blockMultiQueue: true
    disks: [{name: a, disk: {bus: virtio}}, {name: b, disk: {bus: sata}}]
volumes: [{name: a, emptyDisk: {capacity: 1Gi}}, {name: b, emptyDisk: {capacity: 1Gi}}]
"""
    assert [disk.queues for disk in plan_disks(context(spec))] == [4, None]


def test_threads_of_a_pool_are_shared_by_all_virtio_disks() -> None:
    pool = ", ioThreadsPolicy: supplementalPool, ioThreads: {supplementalPoolThreadCount: 2}"
    assert [disk.iothreads for disk in many(3, domain=pool)] == [(1, 2)] * 3
    assert [disk.iothread for disk in many(3, domain=pool)] == [None] * 3
    assert [disk.iothreads for disk in many(1, "sata", domain=pool)] == [()]


def test_an_older_libvirt_gets_the_threads_of_a_pool_in_turn() -> None:
    pool = ", ioThreadsPolicy: supplementalPool, ioThreads: {supplementalPoolThreadCount: 2}"
    planned = many(3, domain=pool, facts=OLD_LIBVIRT)
    assert [disk.iothread for disk in planned] == [1, 2, 1]
    assert [disk.iothreads for disk in planned] == [()] * 3


@pytest.mark.parametrize(
    ("arch", "security", "model"),
    [("amd64", "{sev: {}}", "virtio-non-transitional"), ("s390x", "{}", "virtio")],
)
def test_hidden_memory_needs_the_iommu(arch: str, security: str, model: str) -> None:
    domain = f", launchSecurity: {security}"
    (planned,) = many(1, domain=domain, arch=arch)
    assert (planned.model, planned.iommu) == (model, True)
    assert not many(1, "scsi", domain=domain, arch=arch)[0].iommu


def test_block_sizes() -> None:
    custom = "blockSize: {custom: {logical: 512, physical: 4096, discardGranularity: 8192}}"
    assert one(f"{{name: a, disk: {{bus: virtio}}, {custom}}}").block_sizes == BlockSizes(
        logical=512, physical=4096, discard_granularity=8192
    )
    old = one(f"{{name: a, disk: {{bus: virtio}}, {custom}}}", facts=OLD_LIBVIRT)
    assert old.block_sizes == BlockSizes(logical=512, physical=4096)


@pytest.mark.parametrize(
    ("block_size", "matches"),
    [
        ("{matchVolume: {}}", True),
        ("{matchVolume: {enabled: true}}", True),
        ("{matchVolume: {enabled: false}}", False),
    ],
)
def test_sizes_of_the_volume_are_taken_later(block_size: str, matches: bool) -> None:
    planned = one(f"{{name: a, disk: {{bus: virtio}}, blockSize: {block_size}}}")
    assert (planned.match_volume, planned.block_sizes) == (matches, None)


@pytest.mark.parametrize(("release", "migration"), [((11, 9), False), ((11, 10), True)])
def test_persistent_reservations(release: tuple[int, int], migration: bool) -> None:
    facts = NodeFacts(libvirt_version=version(*release))
    volumes = "volumes: [{name: a, persistentVolumeClaim: {claimName: c}}]"
    planned = one("{name: a, lun: {bus: scsi, reservation: true}}", volumes, facts=facts)
    assert planned.reservation_socket == "/run/qemu-pr-helper.sock"
    assert planned.reservation_migration is migration
    assert one("{name: a, lun: {bus: scsi}}", volumes).reservation_socket is None


def test_claims_without_a_place_are_named() -> None:
    volumes = """
volumes:
- {name: a, persistentVolumeClaim: {claimName: here}}
- {name: b, dataVolume: {name: nowhere}}
- {name: c, ephemeral: {persistentVolumeClaim: {claimName: lost}}}
- {name: d, emptyDisk: {capacity: 1Gi}}
"""
    found = unbound_claims(context(volumes, claims={"here": {"path": "/dev/x", "block": True}}))
    assert list(found) == [
        Unbound(field="spec.volumes[1]", kind="claim", name="nowhere"),
        Unbound(field="spec.volumes[2]", kind="claim", name="lost"),
    ]
