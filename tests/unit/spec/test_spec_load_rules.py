# SPDX-License-Identifier: Apache-2.0
"""An object that does not fit its schema is judged by the rules as well, as far as it can be read."""

from __future__ import annotations

import pytest

from launcher.errors import InvalidSpec
from launcher.spec.load import load_manifests
from launcher.spec.path import ancestors

MANIFEST = """
apiVersion: kubevirt.io/v1
kind: VirtualMachineInstance
metadata: {name: web}
spec:
  terminationGracePeriodSeconds: -1
  domain:
    memory: {guest: 64Mi}
    devices:
      disks:
      - {name: a, disk: {bus: virtio}, cache: fast}
      - {name: a, disk: {bus: virtio}}
  volumes: [{name: a, emptyDisk: {capacity: 1Gi}}]
"""
RULES = {
    "spec.terminationGracePeriodSeconds",
    "spec.domain.devices.disks[0].cache",
    "spec.domain.devices.disks[1].name",
}


def fields(text: str) -> set[str]:
    with pytest.raises(InvalidSpec) as caught:
        load_manifests(text, judge=True)
    assert all(violation.line for violation in caught.value.violations)
    return {violation.field for violation in caught.value.violations}


def test_a_manifest_that_fits_is_left_to_its_caller() -> None:
    assert len(load_manifests(MANIFEST)) == 1


@pytest.mark.parametrize(
    ("old", "new", "wrong"),
    [
        ("memory: {guest", "memori: {}\n    memory: {guest", "spec.domain.memori"),
        ("guest: 64Mi", "guest: 64Mu", "spec.domain.memory.guest"),
        ("name: web", "name: web, labels: 5", "metadata.labels"),
        ("spec:\n", "spec:\n  dnsPolicy: Never\n", "spec.dnsPolicy"),
    ],
)
def test_one_wrong_field_hides_no_other_mistake(old: str, new: str, wrong: str) -> None:
    assert fields(MANIFEST.replace(old, new, 1)) == {wrong, *RULES}


@pytest.mark.parametrize(
    ("written", "wrong"),
    [
        ("  dnsConfig: {nameservers: [{}]}\n", {"dnsConfig.nameservers[0]"}),
        ("  livenessProbe: {exec: {command: [sleep, []]}}\n", {"livenessProbe.exec.command[1]"}),
        ("  livenessProbe: {exec: {command: [sleep, null]}}\n", {"livenessProbe.exec.command[1]"}),
        ("  livenessProbe: {httpGet: {path: /}}\n", {"livenessProbe.httpGet.port"}),
        (
            "  accessCredentials: [{sshPublicKey: {source: {}}}]\n",
            {
                "accessCredentials[0].sshPublicKey.propagationMethod",
                "accessCredentials[0].sshPublicKey.source.secret",
            },
        ),
        (
            "  networks: [{pod: {}}]\n",
            {"networks[0].name"},
        ),
        (
            "  resourceClaims: [{resourceClaimName: A}]\n",
            {"resourceClaims[0].name", "resourceClaims[0].resourceClaimName"},
        ),
    ],
)
def test_what_is_required_and_missing_hides_no_other_mistake(written: str, wrong: set[str]) -> None:
    found = fields(MANIFEST.replace("spec:\n", f"spec:\n{written}", 1))
    assert found == {*(f"spec.{field}" for field in wrong), *RULES}


def test_a_nameless_object_may_be_the_one_that_others_mean() -> None:
    text = MANIFEST.replace("volumes: [{name: a, emptyDisk", "volumes: [{emptyDisk")
    assert fields(text) == {"spec.volumes[0].name", *RULES}


@pytest.mark.parametrize(
    "written",
    [
        "firmware: {bootloader: {efi: {}}}, features: 5",
        "firmware: {bootloader: {efi: {}}}, features: {smn: {}}",
        "cpu: {cores: 2, isolateEmulatorThread: true, dedicatedCpuPlacement: 2}",
        "cpu: {isolateEmulatorThread: true, dedicatedCpuPlacements: true}",
    ],
)
def test_what_needs_a_field_that_could_not_be_read_is_not_told(written: str) -> None:
    """The field is there after all, and what is wrong with it is told already."""
    found = fields(
        MANIFEST.replace("memory: {guest: 64Mi}\n", f"memory: {{guest: 64Mi}}\n    {_lines(written)}\n")
    )
    assert len(found - RULES) == 1
    assert not found & {
        "spec.domain.firmware.bootloader.efi.secureBoot",
        "spec.domain.cpu.isolateEmulatorThread",
    }


def _lines(flow: str) -> str:
    """Entries of a map in YAML's flow style, as lines of the block style around them."""
    return flow.replace("}, features", "}\n    features")


def test_a_need_that_has_nothing_to_do_with_it_is_told() -> None:
    text = MANIFEST.replace(
        "memory: {guest", "cpu: {isolateEmulatorThread: true, cores: x}\n    memory: {guest"
    )
    assert fields(text) == {"spec.domain.cpu.cores", "spec.domain.cpu.isolateEmulatorThread", *RULES}


def test_what_could_not_be_read_is_not_missed_by_the_rules() -> None:
    """Without its memory the guest has none, but the user did write some."""
    found = fields(MANIFEST.replace("memory: {guest: 64Mi}", "memory: 64Mi"))
    assert found == {"spec.domain.memory", *RULES}
    assert fields(MANIFEST.replace("memory: {guest", "memori: {guest")) == {"spec.domain.memori", *RULES}


def test_places_in_a_list_that_lost_an_item_are_not_judged() -> None:
    assert fields(MANIFEST.replace("disks:\n", "disks:\n      - 5\n")) == {"spec.domain.devices.disks[0]"}


def test_findings_of_a_virtual_machine_stand_in_its_template() -> None:
    text = """
apiVersion: kubevirt.io/v1
kind: VirtualMachine
metadata: {name: web}
spec:
  template:
    spec:
      terminationGracePeriodSeconds: -1
      domain: {memori: {}, memory: {guest: 64Mi}, devices: {}}
"""
    assert fields(text) == {
        "spec.template.spec.terminationGracePeriodSeconds",
        "spec.template.spec.domain.memori",
    }


def test_ancestors() -> None:
    assert ancestors("a.b[c.d].e") == ["a", "a.b", "a.b[c.d]"]
    assert ancestors("a") == []
