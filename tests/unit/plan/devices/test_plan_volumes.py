# SPDX-License-Identifier: Apache-2.0
"""Where volumes lie and what must be made for them."""

from __future__ import annotations

import pytest
from device_contexts import RUN, STATE, UID, context, instance

from launcher.errors import HostUnsupported
from launcher.plan.allocations import ClaimPlace
from launcher.plan.devices.assembly import plan_devices
from launcher.plan.devices.model import Backing, DiskSource
from launcher.plan.devices.observed import Observed, with_observations
from launcher.plan.runnable import require_runnable
from launcher.plan.settings import PlanSettings
from launcher.plan.steps import (
    AnyStep,
    CreateImage,
    CreateTap,
    FetchContainerDisk,
    MakeDirectory,
    MakeFiles,
    MakeIso,
    MakeMetricsDisk,
    RequireFile,
    StartVirtiofsd,
)
from launcher.plan.volume_steps import plan_steps
from launcher.plan.volumes import (
    VolumePlace,
    block_claims,
    default_pull_policy,
    volume_kind,
    volume_place,
)

OVERLAY = f"{STATE}/disks/v.qcow2"
MIB = 1024**2
DIRECTORY = {"c": {"path": "/claims/c", "capacity": 10 * MIB + 5}}
BLOCK = {"c": {"path": "/dev/vg/c", "block": True}}
FILE = {"c": {"path": "/claims/c.img", "capacity": 10 * MIB}}

SOURCES = {
    "cloudInitConfigDrive": "{userData: x}",
    "cloudInitNoCloud": "{userData: x}",
    "configMap": "{name: x}",
    "containerDisk": "{image: x}",
    "containerPath": "{path: /x}",
    "dataVolume": "{name: c}",
    "downwardAPI": "{}",
    "downwardMetrics": "{}",
    "emptyDisk": "{capacity: 1Gi}",
    "ephemeral": "{persistentVolumeClaim: {claimName: c}}",
    "hostDisk": "{path: /x, type: Disk}",
    "memoryDump": "{claimName: c}",
    "persistentVolumeClaim": "{claimName: c}",
    "secret": "{secretName: x}",
    "serviceAccount": "{serviceAccountName: x}",
    "sysprep": "{configMap: {name: x}}",
}


def volume_spec(source: str) -> str:
    return f"""
domain: {{devices: {{disks: [{{name: v, disk: {{bus: virtio}}}}]}}}}
volumes: [{{name: v, {source}}}]
"""


def place(source: str, **allocations: object) -> VolumePlace:
    planning = context(volume_spec(source), **allocations)  # type: ignore[arg-type]
    return volume_place(planning, planning.vmi.spec.volumes[0])


def images(source: str, **allocations: object) -> tuple[AnyStep, ...]:
    planning = context(volume_spec(source), **allocations)  # type: ignore[arg-type]
    steps = plan_steps(planning, plan_devices(planning))
    return tuple(step for step in steps if not isinstance(step, MakeDirectory))


@pytest.mark.parametrize("kind", SOURCES)
def test_every_source_has_a_kind_and_a_place(kind: str) -> None:
    (volume,) = instance(volume_spec(f"{kind}: {SOURCES[kind]}")).spec.volumes
    assert volume_kind(volume) == kind
    assert place(f"{kind}: {SOURCES[kind]}").source.path.startswith("/")


@pytest.mark.parametrize(
    ("claims", "expected"),
    [
        (DIRECTORY, VolumePlace(kind="dataVolume", source=DiskSource(path="/claims/c/disk.img"))),
        (BLOCK, VolumePlace(kind="dataVolume", source=DiskSource(path="/dev/vg/c", block=True))),
        (FILE, VolumePlace(kind="dataVolume", source=DiskSource(path="/claims/c.img"))),
        (
            {},
            VolumePlace(kind="dataVolume", source=DiskSource(path=f"{STATE}/disks/v/disk.img"), bound=False),
        ),
    ],
)
def test_places_of_claims(claims: dict[str, object], expected: VolumePlace) -> None:
    assert place("dataVolume: {name: c}", claims=claims) == expected


def test_an_ephemeral_volume_is_an_overlay_on_its_claim() -> None:
    found = place("ephemeral: {persistentVolumeClaim: {claimName: c}}", claims=BLOCK)
    assert found.source == DiskSource(path=OVERLAY)
    assert found.backing == Backing(source=DiskSource(path="/dev/vg/c", block=True), format="raw")
    assert (found.format, found.bound) == ("qcow2", True)


def test_a_host_disk_is_where_the_user_says() -> None:
    assert place("hostDisk: {path: /data/x/d.img, type: Disk}").source.path == "/data/x/d.img"


@pytest.mark.parametrize(
    ("source", "claims", "steps"),
    [
        (
            "emptyDisk: {capacity: 2500k}",
            {},
            [CreateImage(owner=UID, volume="v", path=OVERLAY, format="qcow2", size=2 * MIB)],
        ),
        (
            "containerDisk: {image: 'lab/i:1', path: /disk/x.img}",
            {},
            [
                FetchContainerDisk(
                    owner=UID, volume="v", image="lab/i:1", path=f"{STATE}/disks/v.base", disk="/disk/x.img"
                ),
                CreateImage(
                    owner=UID, volume="v", path=OVERLAY, format="qcow2", backing_path=f"{STATE}/disks/v.base"
                ),
            ],
        ),
        ("hostDisk: {path: /d, type: Disk}", {}, [RequireFile(owner=UID, volume="v", path="/d")]),
        (
            "hostDisk: {path: /d, type: DiskOrCreate, capacity: 1Mi}",
            {},
            [CreateImage(owner=UID, volume="v", path="/d", format="raw", size=MIB, keep=True, fit=True)],
        ),
        (
            "persistentVolumeClaim: {claimName: c}",
            DIRECTORY,
            [
                CreateImage(
                    owner=UID,
                    volume="v",
                    path="/claims/c/disk.img",
                    format="raw",
                    size=10 * MIB,
                    keep=True,
                    grow=True,
                    fit=True,
                )
            ],
        ),
        (
            "persistentVolumeClaim: {claimName: c}",
            {"c": {"path": "/claims/c/"}},
            [RequireFile(owner=UID, volume="v", path="/claims/c/disk.img", link=False)],
        ),
        (
            "dataVolume: {name: c}",
            FILE,
            [
                CreateImage(
                    owner=UID,
                    volume="v",
                    path="/claims/c.img",
                    format="raw",
                    size=10 * MIB,
                    keep=True,
                    grow=True,
                    fit=True,
                )
            ],
        ),
        (
            "dataVolume: {name: c}",
            {"c": {"path": "/claims/c.img"}},
            [RequireFile(owner=UID, volume="v", path="/claims/c.img")],
        ),
        (
            "dataVolume: {name: c}",
            {"c": {"path": "/claims/c.iso", "capacity": 10 * MIB}},
            [RequireFile(owner=UID, volume="v", path="/claims/c.iso")],
        ),
        (
            "dataVolume: {name: c}",
            {"c": {**BLOCK["c"], "capacity": MIB}},
            [RequireFile(owner=UID, volume="v", path="/dev/vg/c", block=True, min_size=MIB)],
        ),
        ("dataVolume: {name: c}", {}, []),
        (
            "ephemeral: {persistentVolumeClaim: {claimName: c}}",
            DIRECTORY,
            [
                RequireFile(owner=UID, volume="v", path="/claims/c/disk.img", link=False),
                CreateImage(
                    owner=UID,
                    volume="v",
                    path=OVERLAY,
                    format="qcow2",
                    backing_path="/claims/c/disk.img",
                    backing_format="raw",
                ),
            ],
        ),
        *(
            (
                f"{kind}: {SOURCES[kind]}",
                {},
                [MakeIso(owner=UID, volume="v", path=f"{STATE}/disks/v.iso", label=label)],
            )
            for kind, label in {
                "cloudInitNoCloud": "cidata",
                "cloudInitConfigDrive": "config-2",
                "configMap": "cfgdata",
                "secret": "cfgdata",
                "serviceAccount": "cfgdata",
                "downwardAPI": "cfgdata",
                "sysprep": "unattendCD",
            }.items()
        ),
        (
            "configMap: {name: x, volumeLabel: mine}",
            {},
            [MakeIso(owner=UID, volume="v", path=f"{STATE}/disks/v.iso", label="mine")],
        ),
    ],
)
def test_steps_of_volumes(source: str, claims: dict[str, object], steps: list[AnyStep]) -> None:
    assert list(images(source, claims=claims)) == steps


def test_directories_come_first_and_taps_last() -> None:
    spec = """
domain:
  devices:
    networkInterfaceMultiqueue: true
    disks: [{name: v, disk: {bus: virtio}}]
    interfaces:
    - {name: pod, masquerade: {}}
    - {name: lan, bridge: {}}
    - {name: gone, bridge: {}, state: absent}
  cpu: {cores: 2}
networks: [{name: pod, pod: {}}, {name: lan, multus: {networkName: x}}]
volumes: [{name: v, emptyDisk: {capacity: 1Gi}}, {name: unused, emptyDisk: {capacity: 1Gi}}]
"""
    taps = {"pod": "tap1", "lan": "tap2", "gone": "tap3"}
    planning = context(spec, settings=PlanSettings(pod_bridge="br0"), taps=taps)
    assert plan_steps(planning, plan_devices(planning)) == (
        MakeDirectory(owner=UID, path=STATE),
        MakeDirectory(owner=UID, path=f"{STATE}/disks"),
        MakeDirectory(owner=UID, path=RUN),
        CreateImage(owner=UID, volume="v", path=OVERLAY, format="qcow2", size=1024**3),
        CreateTap(owner=UID, network="pod", name="tap1", bridge="br0", queues=2),
        CreateTap(owner=UID, network="lan", name="tap2", queues=2),
    )


@pytest.mark.parametrize(
    ("image", "policy"),
    [
        ("disk", "Always"),
        ("lab.example:5000/disk", "Always"),
        ("lab.example:5000/disk:latest", "Always"),
        ("disk:1", "IfNotPresent"),
        ("lab.example:5000/a/disk:1", "IfNotPresent"),
        ("disk@sha256:00", "IfNotPresent"),
        ("disk:latest@sha256:00", "IfNotPresent"),
        ("oci:/images/x", "IfNotPresent"),
        ("oci-archive:/images/x.tar:latest", "IfNotPresent"),
    ],
)
def test_pull_policy(image: str, policy: str) -> None:
    assert default_pull_policy(image) == policy


def test_a_pull_policy_that_was_chosen_stays() -> None:
    (fetch, _) = images("containerDisk: {image: 'disk:1', imagePullPolicy: Never}")
    assert isinstance(fetch, FetchContainerDisk)
    assert fetch.pull_policy == "Never"


def test_block_claims_are_named_by_claim_or_by_volume() -> None:
    spec = """
volumes:
- {name: v1, persistentVolumeClaim: {claimName: c1}}
- {name: v2, dataVolume: {name: c2}}
- {name: v3, ephemeral: {persistentVolumeClaim: {claimName: c3}}}
- {name: c2, emptyDisk: {capacity: 1Gi}}
"""
    vmi = instance(spec)
    assert block_claims(vmi, ["c1", "v3", "unknown"]) == {
        "c1": ClaimPlace(path="/dev/v1", block=True),
        "c3": ClaimPlace(path="/dev/v3", block=True),
    }
    assert block_claims(vmi, []) == {}


def test_a_metrics_disk_is_made_and_left_to_the_hosts_cache() -> None:
    planning = context(volume_spec("downwardMetrics: {}"))
    devices = plan_devices(planning)
    require_runnable(devices)
    (disk,) = devices.disks
    assert (disk.readonly, disk.format) == (True, "raw")
    assert MakeMetricsDisk(owner=UID, volume="v", path=f"{STATE}/disks/v.iso") in plan_steps(
        planning, devices
    )
    (complete,) = with_observations(devices, {"v": Observed(direct=True, preallocated=True)}).disks
    assert (complete.cache, complete.io) == (None, None)


def test_a_claim_without_a_place_is_not_run() -> None:
    planning = context(volume_spec("dataVolume: {name: c}"))
    with pytest.raises(HostUnsupported, match=r"'c'.*spec\.volumes\[0\]"):
        require_runnable(plan_devices(planning))


def test_what_is_made_is_run() -> None:
    require_runnable(plan_devices(context(volume_spec("emptyDisk: {capacity: 1Gi}"))))


def shares(source: str, **allocations: object) -> tuple[AnyStep, ...]:
    spec = f"""
domain: {{devices: {{filesystems: [{{name: v, virtiofs: {{}}}}]}}}}
volumes: [{{name: v, {source}}}]
"""
    planning = context(spec, **allocations)  # type: ignore[arg-type]
    devices = plan_devices(planning)
    require_runnable(devices)
    return tuple(step for step in plan_steps(planning, devices) if not isinstance(step, MakeDirectory))


def virtiofsd(directory: str, *, readonly: bool = False) -> StartVirtiofsd:
    return StartVirtiofsd(
        owner=UID,
        volume="v",
        program="virtiofsd",
        directory=directory,
        socket=f"{RUN}/virtiofs0.sock",
        log=f"{STATE}/virtiofs0.log",
        readonly=readonly,
    )


def test_a_claim_that_is_shared_becomes_no_disk() -> None:
    assert shares("persistentVolumeClaim: {claimName: c}", claims=DIRECTORY) == (virtiofsd("/claims/c"),)


def test_a_read_only_claim_is_shared_read_only() -> None:
    source = "persistentVolumeClaim: {claimName: c, readOnly: true}"
    assert shares(source, claims=DIRECTORY) == (virtiofsd("/claims/c", readonly=True),)


@pytest.mark.parametrize("kind", ["configMap", "secret", "serviceAccount", "downwardAPI"])
def test_generated_files_are_shared_from_a_directory(kind: str) -> None:
    directory = f"{STATE}/shares/v"
    files = MakeFiles(owner=UID, volume="v", path=directory)
    assert shares(f"{kind}: {SOURCES[kind]}") == (files, virtiofsd(directory))


@pytest.mark.parametrize("source", ["emptyDisk: {capacity: 1Gi}", "dataVolume: {name: c}"])
def test_a_filesystem_without_a_directory_is_not_run(source: str) -> None:
    with pytest.raises(HostUnsupported, match="a directory for volumes"):
        shares(source, claims=BLOCK)


def test_a_digest_that_was_found_is_kept() -> None:
    (fetch, _) = images(
        "containerDisk: {image: 'lab/i', imagePullSecret: login}", digests={"lab/i": "sha256:0"}
    )
    assert isinstance(fetch, FetchContainerDisk)
    assert (fetch.digest, fetch.pull_secret) == ("sha256:0", "login")


def test_a_preallocated_claim_is_filled_and_not_trimmed() -> None:
    claims = {"c": {"path": "/claims/c", "capacity": 10 * MIB, "preallocated": True}}
    (create,) = images("dataVolume: {name: c}", claims=claims)
    assert isinstance(create, CreateImage)
    assert create.preallocate
    (disk,) = plan_devices(context(volume_spec("dataVolume: {name: c}"), claims=claims)).disks
    assert not disk.discard
