# SPDX-License-Identifier: Apache-2.0
"""A domain explained: each part leads to the field, default, setting or fact that decides it."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest
from lxml import etree

from launcher.domain.translate import Assumptions, assume, translate
from launcher.explain.annotated import annotated, labels
from launcher.explain.declared import Disposition
from launcher.explain.provenance import Provenance, provenance
from launcher.explain.report import as_data, as_text
from launcher.explain.translation import node_translator
from launcher.spec.load import load_vmi

GOLDEN = Path(__file__).parents[2] / "golden"

TYPICAL = """
apiVersion: kubevirt.io/v1
kind: VirtualMachineInstance
metadata:
  name: web
  labels: {"a--b": "x--y"}
spec:
  hostname: web
  nodeSelector: {zone: a}
  terminationGracePeriodSeconds: 5
  accessCredentials:
  - userPassword: {source: {secret: {secretName: s}}, propagationMethod: {qemuGuestAgent: {}}}
  domain:
    cpu: {cores: 2}
    memory: {guest: 1Gi}
    features: {hyperv: {synic: {enabled: true}, vpindex: {enabled: true}}}
    devices:
      autoattachGraphicsDevice: false
      disks:
      - {name: root, disk: {bus: virtio}, serial: S1, bootOrder: 1}
      - {name: seed, cdrom: {bus: sata}}
      interfaces: [{name: default, masquerade: {}}]
  networks: [{name: default, pod: {}}]
  volumes:
  - {name: root, containerDisk: {image: "registry.example/os:1"}}
  - {name: seed, cloudInitNoCloud: {userData: "#cloud-config\\npassword: hunter2"}}
"""


def explained(text: str) -> Provenance:
    vmi = load_vmi(text)
    return provenance(vmi, node_translator(vmi, assume(vmi)))


@cache
def typical() -> Provenance:
    return explained(TYPICAL)


def sources(found: Provenance, path: str, part: str = "", index: int = 0) -> tuple[str, ...]:
    """The labels of a part of an element, found by its path and its position among those of that path."""
    numbers = [n for n in range(len(found.document.elements)) if found.document.path(n) == path]
    return labels(found, (numbers[index], part))


@pytest.mark.parametrize(
    ("path", "part", "expected"),
    [
        ("name", "text", ("metadata.name",)),
        ("memory", "text", ("spec.domain.memory.guest",)),
        ("cpu/topology", "@cores", ("spec.domain.cpu.cores",)),
        ("cpu", "@mode", ("default cpu-model",)),
        ("os/type", "@machine", ("default machine-type",)),
        ("os/type", "@arch", ("default architecture",)),
        ("devices/disk/serial", "", ("spec.domain.devices.disks[0].serial",)),
        ("devices/disk/boot", "@order", ("spec.domain.devices.disks[0].bootOrder",)),
        ("devices/disk/target", "@bus", ("spec.domain.devices.disks[0].disk.bus",)),
        ("devices/disk/driver", "@error_policy", ("default disk-fields",)),
        ("features/hyperv/synic", "", ("spec.domain.features.hyperv.synic",)),
        ("features/hyperv/synic", "@state", ("spec.domain.features.hyperv.synic.enabled",)),
        ("devices/memballoon/stats", "@period", ("setting balloon_stats_period_s",)),
        ("devices/serial/source", "@path", ("setting run_dir", "node's choice uid")),
        ("devices/memballoon/address", "@bus", ("placement on PCI",)),
        ("devices/serial", "", ("absent spec.domain.devices.autoattachSerialConsole",)),
        ("devices/memballoon/stats", "", ("absent spec.domain.devices.autoattachMemBalloon",)),
        ("devices/channel", "", ("every amd64 guest",)),
        ("os/smbios", "", ("every amd64 guest",)),
    ],
)
def test_parts_lead_to_what_decides_them(path: str, part: str, expected: tuple[str, ...]) -> None:
    assert set(expected) <= set(sources(typical(), path, part))


def test_every_element_has_a_source() -> None:
    found = typical()
    assert [
        found.document.path(n)
        for n, part in found.document.atoms()
        if not part and not labels(found, (n, part))
    ] == []


def test_what_is_constant_in_an_element_has_no_source() -> None:
    assert sources(typical(), "devices/channel/target", "@name") == ()


def test_each_device_says_where_it_comes_from() -> None:
    lines = annotated(typical()).splitlines()
    devices = [line for line in lines if line.startswith("    <") and not line.startswith("    </")]
    assert [line for line in devices if "<channel" in line and "every amd64 guest" not in line] == []
    assert any("<channel" in line for line in devices)


def test_a_host_without_kvm_shows() -> None:
    assert labels(typical(), (0, "@type")) == ("host KVM",)


def test_elements_that_a_field_keeps_away_are_named() -> None:
    assert ("devices/graphics", "spec.domain.devices.autoattachGraphicsDevice") in typical().left_out


def test_fields_without_effect_are_listed_with_what_becomes_of_them() -> None:
    silent = {item.path: item for item in typical().silent}
    assert silent["spec.nodeSelector.zone"].disposition is Disposition.PASSED_ON
    assert silent["spec.hostname"].acts
    password = "spec.accessCredentials[0].userPassword.source.secret.secretName"
    assert silent[password].disposition is Disposition.ENFORCED
    assert silent["spec.terminationGracePeriodSeconds"].acts
    image = silent["spec.volumes[0].containerDisk.image"]
    assert image.acts
    assert "steps.FetchContainerDisk.image" in image.reason
    # synic turns vpindex on anyway: in this manifest the field says nothing new
    assert silent["spec.domain.features.hyperv.vpindex.enabled"].reason == "the domain is the same without it"
    assert "spec.domain.memory.guest" not in silent


def test_every_leaf_shows_or_is_listed() -> None:
    named = {label for found in typical().sources.values() for label in (s.label for s in found)}
    named |= {item.path for item in typical().silent} | {field for _, field in typical().left_out}
    for path in ("spec.domain.cpu.cores", "spec.domain.devices.disks[1].cdrom.bus", "spec.networks[0].pod"):
        assert path in named


@pytest.mark.parametrize("case", ["devices", "windows", "numa-realtime", "sev-es", "s390x", "arm64"])
def test_the_annotated_text_is_the_domain_with_comments(case: str) -> None:
    text = (GOLDEN / case / "vmi.yaml").read_text()
    found = explained(text)
    parser = etree.XMLParser(remove_blank_text=True, remove_comments=True)
    shown = etree.tostring(etree.fromstring(annotated(found), parser), method="c14n")
    assert shown == etree.tostring(etree.fromstring(translate(load_vmi(text)), parser), method="c14n")
    etree.fromstring(as_text(found, defaults=True))


def test_two_hyphens_of_a_label_do_not_end_a_comment() -> None:
    etree.fromstring(as_text(explained(TYPICAL.replace("hostname: web", "hostname: we--b")), defaults=True))
    named = explained(TYPICAL.replace("zone: a", '"a--b": a'))
    assert "spec.nodeSelector.a- -b" in as_text(named, defaults=False)


def test_a_secret_is_never_shown() -> None:
    assert "hunter2" not in as_text(typical(), defaults=True)
    assert "hunter2" not in str(as_data(typical(), defaults=True))


def test_the_data_tells_the_same_as_the_text() -> None:
    data = as_data(typical(), defaults=True)
    memory = next(item for item in data["elements"] if item["path"] == "memory")
    assert memory["sources"]["text"] == ["spec.domain.memory.guest"]
    assert {"step": "cpu-model", "field": "spec.domain.cpu.model", "value": "host-model"} in data["defaults"]
    assert {"element": "devices/graphics", "by": "spec.domain.devices.autoattachGraphicsDevice"} in data[
        "leftOut"
    ]
    assert "spec.nodeSelector.zone" in {item["field"] for item in data["withoutEffect"]}
    assert "defaults" not in as_data(typical(), defaults=False)


def test_a_default_that_nothing_can_be_planned_without_is_found_by_another_value() -> None:
    requested = TYPICAL.replace("memory: {guest: 1Gi}", "resources: {requests: {memory: 1Gi}}")
    assert "default guest-memory" in sources(explained(requested), "memory", "text") or (
        "spec.domain.resources.requests.memory" in sources(explained(requested), "memory", "text")
    )


def test_a_node_that_knows_its_host_explains_too() -> None:
    vmi = load_vmi(TYPICAL)
    assumed: Assumptions = assume(vmi, emulation=True)
    found = provenance(vmi, node_translator(vmi, assumed))
    assert found.document.root.get("type") == "qemu"
    assert labels(found, (0, "@type")) == ("host KVM",)
