# SPDX-License-Identifier: Apache-2.0
"""What is said of one field: measured from the translation, the rules, the defaults and the planning."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import pytest

from launcher.cli.main import run
from launcher.explain.page import Page, page
from launcher.explain.rule_reads import readers
from launcher.explain.schema import find, spec_of


@cache
def about(path: str, kind: str = "VirtualMachineInstance") -> Page:
    field = find(spec_of(kind), path)
    assert field is not None
    return page(field, kind)


def test_realtime_is_explained_from_the_code() -> None:
    found = about("spec.domain.cpu.realtime")
    assert "cputune/vcpusched" in found.fate.xml
    assert [child.field.name for child in found.children] == ["mask"]
    assert {"cpu.realtime_mask", "cpu.placement"} <= {rule.name for rule in found.rules}


@pytest.mark.parametrize(
    ("path", "xml"),
    [
        ("spec.domain.devices.rng", "devices/rng"),
        ("spec.domain.devices.interfaces[].acpiIndex", "devices/interface/acpi"),
        ("spec.domain.features.apic.endOfInterrupt", "features/apic/@eoi"),
        ("spec.domain.cpu.maxSockets", "vcpu"),
        ("spec.domain.resources.requests", "cpu/topology/@sockets"),
        ("spec.domain.memory.maxGuest", "maxMemory"),
        ("spec.domain.launchSecurity.sev.policy.encryptedState", "launchSecurity/policy"),
        ("spec.architecture", "os/type/@arch"),
    ],
)
def test_where_fields_go(path: str, xml: str) -> None:
    assert xml in about(path).fate.xml


@pytest.mark.parametrize(
    ("path", "part"),
    [
        ("spec.volumes[].emptyDisk.capacity", "steps.CreateImage.size"),
        ("spec.volumes[].containerDisk.image", "steps.FetchContainerDisk.image"),
    ],
)
def test_what_a_node_prepares_by_a_field(path: str, part: str) -> None:
    assert part in about(path).fate.plan
    assert about(path).fate.disposition == "enforced"


@pytest.mark.parametrize(
    ("path", "phrase"),
    [
        ("spec.domain.devices.disks[].cache", "one of none, writethrough, writeback"),
        ("spec.domain.devices.disks[].name", "the name of a volume in spec.volumes"),
        ("spec.domain.devices.gpus[].claimName", "the name of an entry in spec.resourceClaims"),
        ("spec.domain.cpu.sockets", "must not exceed maxSockets"),
        ("spec.domain.cpu.threads", "at most 1024 vCPUs on amd64"),
        ("spec.domain.memory.guest", "1M and more"),
        ("spec.domain.devices.interfaces[].ports[].port", "1 to 65535"),
        ("spec.dnsPolicy", "one of ClusterFirst, ClusterFirstWithHostNet, Default, None"),
        ("spec.domain.features.smm.enabled", "true or false"),
        ("spec.domain.firmware.uuid", "a UUID such as 5d307ca9-b3ef-428c-8861-06e72d69f223"),
    ],
)
def test_what_fields_accept(path: str, phrase: str) -> None:
    assert phrase in about(path).accepts


@pytest.mark.parametrize(
    ("path", "start"),
    [
        ("spec.domain.machine.type", "q35 or s390-ccw-virtio (machine-type: "),
        ("spec.terminationGracePeriodSeconds", "30 (grace-period: "),
        ("spec.domain.firmware.uuid", "derived (firmware-uuid: "),
        ("spec.domain.memory.maxGuest", "derived (memory-hotplug: "),
    ],
)
def test_what_fills_fields_in(path: str, start: str) -> None:
    assert any(phrase.startswith(start) for phrase in about(path).defaults)


def test_a_field_without_default_has_none() -> None:
    assert about("spec.hostname").defaults == ()


@pytest.mark.parametrize(
    ("path", "phrase"),
    [
        ("spec.domain.firmware.acpi.msdmNameRef", "libvirt 11.2 or newer (an MSDM table)"),
        ("spec.domain.launchSecurity.snp", "libvirt 10.5 or newer (SEV-SNP)"),
        ("spec.domain.devices.tpm", "swtpm"),
        ("spec.domain.features.hyperv.evmcs", "Hyper-V feature evmcs"),
    ],
)
def test_what_a_node_must_have(path: str, phrase: str) -> None:
    assert phrase in about(path).needs


def test_what_only_an_example_asks_for_is_not_a_need() -> None:
    assert about("spec.domain.memory.guest").needs == ()
    assert about("spec.domain.memory.guest").unserved == ()
    assert "free huge pages of 2.0 MiB" in about("spec.domain.memory.hugepages.pageSize").needs


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (
            "spec.domain.cpu.realtime",
            (
                "spec.domain.cpu.cores: 4",
                "spec.domain.cpu.dedicatedCpuPlacement: true",
                "spec.domain.cpu.numa.guestMappingPassthrough: {}",
            ),
        ),
        (
            "spec.domain.cpu.numa.guestMappingPassthrough",
            ("spec.domain.cpu.dedicatedCpuPlacement: true", "spec.domain.memory.hugepages"),
        ),
        ("spec.domain.launchSecurity.sev.attestation", ("spec.startStrategy: Paused",)),
        ("spec.domain.firmware.acpi.slicNameRef", ("spec.volumes[].secret",)),
        ("spec.domain.devices.rng", ()),
        ("spec.hostname", ()),
    ],
)
def test_what_a_manifest_must_say_beside_a_field(path: str, expected: tuple[str, ...]) -> None:
    assert about(path).beside == expected


def test_refused_fields_say_what_to_use_instead() -> None:
    fate = about("spec.domain.devices.interfaces[].slirp").fate
    assert fate.disposition == "refused"
    assert "masquerade" in fate.line


def test_rules_are_known_by_what_they_read() -> None:
    read = readers()
    assert "spec.domain.devices.disks[].disk.bus" in read
    assert "memory.max_guest" in {rule.name for rule in read["spec.domain.memory.guest"]}
    assert "cpu.topology" not in {rule.name for rule in read["spec.hostname"]}


def test_migrations_and_policies_are_explained_too() -> None:
    found = about("spec.vmiName", "VirtualMachineInstanceMigration")
    assert "launcher.agent.migrations" in found.as_text()
    policy = about("spec.allowPostCopy", "MigrationPolicy")
    assert policy.fate.disposition == "enforced"


def test_launcherctl_prints_a_field(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["explain", "spec.domain.devices.rng"]) == 0
    text = capsys.readouterr().out
    assert "FIELD:     spec.domain.devices.rng" in text
    assert "translated: devices/rng" in text


def test_launcherctl_gives_a_field_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["explain", "vmi.spec.domain.devices.rng", "-o", "json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["xml"] == ["devices/rng"]
    assert data["disposition"] == "translated"


def test_an_unknown_field_is_an_error_that_names_its_neighbours(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["explain", "spec.domain.clok"]) == 2
    assert "spec.domain has" in (text := capsys.readouterr().err)
    assert "clock" in text


def test_a_path_or_a_file_is_needed_and_not_both() -> None:
    assert run(["explain"]) == 2
    assert run(["explain", "spec", "-f", "x.yaml"]) == 2


def test_launcherctl_explains_a_manifest(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "vmi.yaml"
    file.write_text(
        "apiVersion: kubevirt.io/v1\nkind: VirtualMachineInstance\nmetadata: {name: a}\n"
        "spec: {domain: {memory: {guest: 1Gi, reservedOverhead: {memLock: Required}}, devices: {}}}\n"
    )
    assert run(["explain", "-f", str(file), "--defaults"]) == 0
    text = capsys.readouterr().out
    assert "<!-- spec.domain.memory.guest -->" in text
    assert "not applicable on a node: libvirt lets QEMU lock" in text
    assert "+ spec.domain.cpu.model: host-model" in text


def test_a_wrong_manifest_is_refused_with_its_place(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "vmi.yaml"
    file.write_text(
        "apiVersion: kubevirt.io/v1\nkind: VirtualMachineInstance\nmetadata: {name: a}\n"
        "spec: {hostname: A, domain: {memory: {guest: 1Gi}, devices: {}}}\n"
    )
    assert run(["explain", "-f", str(file)]) == 2
    assert f"{file}:4:" in capsys.readouterr().err
