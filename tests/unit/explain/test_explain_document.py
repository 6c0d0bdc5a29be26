# SPDX-License-Identifier: Apache-2.0
"""Documents are compared part by part; variants of a manifest change one thing."""

from __future__ import annotations

import pytest

from launcher.explain.document import Document
from launcher.explain.manifest import places, plain, written
from launcher.explain.schema import find, spec_of
from launcher.explain.variants import changes, repair
from launcher.spec.defaults import DefaultsSettings
from launcher.spec.load import load_vmi

DOMAIN = """<domain type="kvm"><memory unit="b">1</memory><devices>
<disk type="file"><target dev="vda" bus="virtio"/><alias name="ua-a"/></disk>
<disk type="file"><target dev="vdb" bus="virtio"/><alias name="ua-b"/></disk>
<rng model="virtio"/></devices></domain>"""
SETTINGS = DefaultsSettings()


def changed(old: str, new: str) -> tuple[set[str], set[str]]:
    document = Document(DOMAIN)
    difference = document.against(DOMAIN.replace(old, new))
    return {document.path(n) + (f" {part}" if part else "") for n, part in difference.atoms}, set(
        difference.added
    )


def test_equal_documents_do_not_differ() -> None:
    assert not Document(DOMAIN).against(DOMAIN)
    assert not Document(DOMAIN).against(DOMAIN.replace("\n", ""))


@pytest.mark.parametrize(
    ("old", "new", "atoms", "added"),
    [
        ("kvm", "qemu", {"domain @type"}, set()),
        (">1<", ">2<", {"memory text"}, set()),
        ('<rng model="virtio"/>', "", {"devices/rng", "devices/rng @model"}, set()),
        ("<rng", "<vsock/><rng", set(), {"devices/vsock"}),
        ('"vdb" bus="virtio"', '"vdb" bus="scsi"', {"devices/disk/target @bus"}, set()),
        ('<rng model="virtio"/>', '<rng model="virtio" x="1"/>', set(), {"devices/rng/@x"}),
    ],
)
def test_what_differs_is_named_exactly(old: str, new: str, atoms: set[str], added: set[str]) -> None:
    assert changed(old, new) == (atoms, added)


def test_a_device_that_goes_does_not_change_its_neighbours() -> None:
    first = '<disk type="file"><target dev="vda" bus="virtio"/><alias name="ua-a"/></disk>'
    document = Document(DOMAIN)
    difference = document.against(DOMAIN.replace(first, ""))
    gone = {number for number, _ in difference.atoms}
    assert {document.elements[number].tag for number in gone} == {"disk", "target", "alias"}
    assert len(gone) == 3


MANIFEST = """
apiVersion: kubevirt.io/v1
kind: VirtualMachineInstance
metadata: {name: a}
spec:
  domain:
    memory: {guest: 1Gi}
    resources: {limits: {memory: 2Gi, "example.com/card": 1}}
    cpu: {cores: 4, dedicatedCpuPlacement: true, isolateEmulatorThread: true}
    devices: {disks: [{name: root, disk: {bus: virtio}}]}
  volumes: [{name: root, emptyDisk: {capacity: 1Gi}}]
"""


def variants_of(path: str) -> list[dict[str, object]]:
    data = plain(load_vmi(MANIFEST))
    place = next(place for place in places(data, spec_of()) if place.shown == path)
    return list(changes(data, place, SETTINGS))


def test_places_are_written_as_findings_write_them() -> None:
    shown = {place.shown for place in places(plain(load_vmi(MANIFEST)), spec_of())}
    assert "spec.domain.resources.limits[example.com/card]" in shown
    assert "spec.domain.resources.limits.memory" in shown
    assert "spec.domain.devices.disks[0].disk.bus" in shown
    assert written(("spec", "volumes", 1)) == "spec.volumes[1]"


def test_other_values_are_those_that_the_rules_accept() -> None:
    buses = {
        str(variant["spec"]["domain"]["devices"]["disks"][0]["disk"].get("bus"))  # type: ignore[index]
        for variant in variants_of("spec.domain.devices.disks[0].disk.bus")
    }
    assert {"None", "sata", "scsi", "usb"} <= buses


def test_a_name_changes_together_with_what_refers_to_it() -> None:
    first = variants_of("spec.domain.devices.disks[0].name")[0]
    names = {first["spec"]["volumes"][0]["name"], first["spec"]["domain"]["devices"]["disks"][0]["name"]}  # type: ignore[index]
    assert len(names) == 1
    assert names != {"root"}


def test_what_needs_the_removed_is_removed_with_it() -> None:
    refused = variants_of("spec.domain.cpu.dedicatedCpuPlacement")[0]
    repaired = repair(refused, SETTINGS)
    assert repaired is not None
    assert repaired.spec.domain.cpu is not None
    assert repaired.spec.domain.cpu.isolate_emulator_thread is None
    assert repaired.spec.domain.cpu.cores == 4


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("spec.domain.devices.disks[3].disk.bus", "spec.domain.devices.disks[].disk.bus"),
        ("spec.domain.devices.disks.disk.bus", "spec.domain.devices.disks[].disk.bus"),
        ("spec.domain.devices.disks[].disk.bus", "spec.domain.devices.disks[].disk.bus"),
        ("spec.nodeSelector[example.com/zone]", "spec.nodeSelector"),
        ("spec.domain.resources.limits.cpu", "spec.domain.resources.limits"),
        ("spec", "spec"),
        ("spec.nothing", None),
        ("metadata.name", None),
        ("", None),
    ],
)
def test_paths_are_found_as_people_write_them(path: str, expected: str | None) -> None:
    field = find(spec_of(), path)
    assert (field.path if field else None) == expected
