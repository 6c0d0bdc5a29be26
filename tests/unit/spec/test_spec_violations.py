# SPDX-License-Identifier: Apache-2.0
"""Everything that is wrong is found at once, named by its path, and said without secrets."""

from __future__ import annotations

import json
import textwrap
import time
from typing import Any

import pytest

from launcher.errors import InvalidSpec, Violation
from launcher.spec.findings import MAX_REPORTED
from launcher.spec.load import decode_object, load_manifests
from launcher.spec.path import ROOT

BROKEN = """\
apiVersion: kubevirt.io/v2
kind: VirtualMachineInstance
metadata:
  labels: {app: [x]}
spec:
  dnsPolicy: clusterfirst
  terminationGracePeriodSeconds: 99999999999999999999
  domain:
    cpu: {sockets: two, socketz: 2}
    memory: {guest: 1GB}
    devices:
      disks:
      - disk: {bus: virtio}
      - name: b
        bootOrder: 3000000000
        disk: virtio
      interfaces: {name: default}
  volumes:
  - name: c
    emptyDisk: {}
"""


def refused(text: str) -> tuple[Violation, ...]:
    with pytest.raises(InvalidSpec) as caught:
        load_manifests(text)
    return caught.value.violations


def minimal(**spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachineInstance",
        "metadata": {"name": "vm"},
        "spec": {"domain": {"devices": {}}} | spec,
    }


def test_all_errors_are_reported_together_with_path_type_and_position() -> None:
    found = {(v.field, v.type, v.line, v.column) for v in refused(BROKEN)}
    assert found == {
        ("apiVersion", "FieldValueNotSupported", 1, 13),
        ("metadata.labels[app]", "FieldTypeInvalid", 4, 17),
        ("metadata.name", "FieldValueRequired", 4, 3),
        ("spec.dnsPolicy", "FieldValueNotSupported", 6, 14),
        ("spec.terminationGracePeriodSeconds", "FieldValueInvalid", 7, 34),
        ("spec.domain.cpu.sockets", "FieldTypeInvalid", 9, 20),
        ("spec.domain.cpu.socketz", "FieldUnknown", 9, 25),
        ("spec.domain.memory.guest", "FieldValueInvalid", 10, 21),
        ("spec.domain.devices.disks[0].name", "FieldValueRequired", 13, 9),
        ("spec.domain.devices.disks[1].bootOrder", "FieldValueInvalid", 15, 20),
        ("spec.domain.devices.disks[1].disk", "FieldTypeInvalid", 16, 15),
        ("spec.domain.devices.interfaces", "FieldTypeInvalid", 17, 19),
        ("spec.volumes[0].emptyDisk.capacity", "FieldValueRequired", 20, 16),
    }


def test_messages_say_what_is_accepted_and_what_was_meant() -> None:
    said = {v.field: v.message for v in refused(BROKEN)}
    assert "accepted: kubevirt.io/v1, kubevirt.io/v1alpha3" in said["apiVersion"]
    assert "did you mean 'ClusterFirst'" in said["spec.dnsPolicy"]
    assert "Default" in said["spec.dnsPolicy"]
    assert "did you mean 'sockets'" in said["spec.domain.cpu.socketz"]
    assert "expected a whole number, got 'two'" in said["spec.domain.cpu.sockets"]
    assert "did you mean 'G'" in said["spec.domain.memory.guest"]
    assert "-2147483648 to 2147483647" in said["spec.domain.devices.disks[1].bootOrder"]
    assert "expected a list, got an object" in said["spec.domain.devices.interfaces"]


def test_values_are_shown_shortened_on_one_line() -> None:
    values = {v.field: v.value for v in refused(BROKEN)}
    assert values["spec.domain.cpu.sockets"] == "two"
    assert values["metadata.labels[app]"] == "[...]"
    raw = minimal(domain={"devices": {}, "memory": {"guest": "long\n" * 100}})
    with pytest.raises(InvalidSpec) as caught:
        decode_object(raw)
    value = caught.value.violations[0].value
    assert len(value) <= 120
    assert "\n" not in value


def test_an_unknown_field_lists_the_known_ones_when_none_is_close() -> None:
    raw = minimal(domain={"devices": {}, "machine": {"zzzzz": 1}, "features": {"kvm": {"zzzzz": 1}}})
    with pytest.raises(InvalidSpec) as caught:
        decode_object(raw)
    assert [v.message for v in caught.value.violations] == [
        "unknown field; accepted here: type",
        "unknown field; accepted here: hidden",
    ]


SECRET = "hunter2"


@pytest.mark.parametrize(
    "spec",
    [
        {"volumes": [{"name": "a", "cloudInitNoCloud": {"userData": [SECRET]}}]},
        {"volumes": [{"name": "a", "cloudInitNoCloud": {"userData": {SECRET: SECRET}}}]},
        {"volumes": [{"name": "a", "cloudInitNoCloud": {"userdata": SECRET}}]},
        {"volumes": [{"name": "a", "cloudInitNoCloud": {"userDataBase64": f"{SECRET}\0"}}]},
        {"volumes": [{"name": "a", "cloudInitConfigDrive": {"networkData": f"{SECRET}\0"}}]},
        {"volumes": [{"name": "a", "cloudInitConfigDrive": {"networkDataBase64": f"{SECRET}\0"}}]},
        {"domain": {"devices": {}, "launchSecurity": {"sev": {"session": f"{SECRET}\0"}}}},
        {"domain": {"devices": {}, "launchSecurity": {"sev": {"dhCert": f"{SECRET}\0"}}}},
        {"domain": {"devices": {}, "launchSecurity": {"sev": {"dhcert": f"{SECRET}\0"}}}},
    ],
)
def test_secrets_are_never_shown(spec: dict[str, Any]) -> None:
    for read in (lambda: decode_object(minimal(**spec)), lambda: load_manifests(json.dumps(minimal(**spec)))):
        with pytest.raises(InvalidSpec) as caught:
            read()
        assert caught.value.violations
        assert SECRET not in repr(caught.value.violations)
        assert SECRET not in str(caught.value)


def test_a_secret_number_is_not_shown() -> None:
    with pytest.raises(InvalidSpec) as caught:
        decode_object(minimal(volumes=[{"name": "a", "cloudInitNoCloud": {"userData": 4711}}]))
    assert "4711" not in repr(caught.value.violations)


@pytest.mark.parametrize(
    ("value", "field"),
    [
        ({"hostname": 5}, "spec.hostname"),
        ({"hostname": True}, "spec.hostname"),
        ({"domain": {"devices": {"disableHotplug": "true"}}}, "spec.domain.devices.disableHotplug"),
        ({"domain": {"devices": {"disableHotplug": 1}}}, "spec.domain.devices.disableHotplug"),
        ({"domain": {"devices": {}, "cpu": {"cores": "4"}}}, "spec.domain.cpu.cores"),
        ({"domain": {"devices": {}, "cpu": {"cores": 4.5}}}, "spec.domain.cpu.cores"),
        ({"domain": {"devices": {}, "cpu": {"cores": True}}}, "spec.domain.cpu.cores"),
        ({"domain": {"devices": {}, "cpu": {"cores": 10**400}}}, "spec.domain.cpu.cores"),
        ({"domain": {"devices": {}, "memory": {"guest": True}}}, "spec.domain.memory.guest"),
        ({"domain": {"devices": {}, "memory": {"guest": float("nan")}}}, "spec.domain.memory.guest"),
        ({"livenessProbe": {"tcpSocket": {"port": 1.5}}}, "spec.livenessProbe.tcpSocket.port"),
        ({"livenessProbe": {"tcpSocket": {"port": 2**31}}}, "spec.livenessProbe.tcpSocket.port"),
        ({"livenessProbe": {"tcpSocket": {"port": False}}}, "spec.livenessProbe.tcpSocket.port"),
        ({"networks": [None]}, "spec.networks[0]"),
        ({"networks": {}}, "spec.networks"),
        ({"nodeSelector": []}, "spec.nodeSelector"),
        ({"nodeSelector": {"a": 1}}, "spec.nodeSelector[a]"),
        ({"nodeSelector": {1: "a"}}, "spec.nodeSelector"),
        ({"nodeSelector": {"a\x07": "a"}}, "spec.nodeSelector"),
        ({"hostname": "a\x07"}, "spec.hostname"),
        ({"hostname": "a\ud800"}, "spec.hostname"),
        ({"hostname": "a\x7f"}, "spec.hostname"),
        ({"hostname": "a\uffff"}, "spec.hostname"),
    ],
)
def test_parsed_data_is_held_to_its_own_types(value: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidSpec) as caught:
        decode_object(minimal(**value))
    assert [v.field for v in caught.value.violations] == [field]
    assert caught.value.violations[0].line is None


def test_objects_that_are_no_data_are_refused() -> None:
    for foreign in (object(), b"bytes", {1, 2}):
        with pytest.raises(InvalidSpec, match="is not accepted"):
            decode_object(minimal(hostname=foreign))
    loop: dict[str, Any] = minimal()
    loop["metadata"]["managedFields"] = [{"fieldsV1": loop}]
    with pytest.raises(InvalidSpec, match="nested too deep"):
        decode_object(loop)


@pytest.mark.parametrize("raw", [None, [], "text", 5, {}, {"kind": "Pod"}, {"kind": ["x"]}, {"kind": None}])
def test_what_is_no_known_object_is_refused(raw: object) -> None:
    with pytest.raises(InvalidSpec) as caught:
        decode_object(raw)
    assert caught.value.violations[0].field in ("manifest", "kind")


HEAD = (
    "apiVersion: kubevirt.io/v1\nkind: VirtualMachineInstance\nmetadata: {name: x}\n"
    "spec:\n  domain:\n    devices:\n      disks:\n"
)
DISK = textwrap.indent(
    "- name: disk{0}\n  disc{0}: {{bus: virtio}}\n  bootOrder: x{0}\n  cdrom: 5\n", " " * 6
)


@pytest.mark.parametrize("as_json", [False, True])
def test_a_mebibyte_of_errors_is_answered_in_time_and_bounded(as_json: bool) -> None:
    if as_json:
        disk = {"name": 5, "bootOrder": "x", "dsk": {"bus": "virtio"}}
        text = json.dumps(minimal(domain={"devices": {"disks": [disk] * 19_500}}))
    else:
        text = HEAD + "".join(DISK.format(number) for number in range(11_500))
    assert 1_000_000 < len(text) < 1_200_000
    # CPU time, and far more than the half second it takes: only what grows out of all proportion must fail.
    started = time.process_time()
    violations = refused(text)
    assert time.process_time() - started < 15
    assert len(violations) == MAX_REPORTED + 1
    assert violations[-1].field == "manifest"
    assert violations[-1].message == f"and {(58_500 if as_json else 34_500) - MAX_REPORTED} more errors"


def test_long_keys_are_cut_in_paths_and_cost_nothing() -> None:
    raw = minimal(**{"k" * 200_000: 1})
    with pytest.raises(InvalidSpec) as caught:
        decode_object(raw)
    assert len(caught.value.violations[0].field) < 200


def test_paths_are_written_as_kubernetes_writes_them() -> None:
    disks = ROOT / "spec" / "domain" / "devices" / "disks"
    assert str(disks[0] / "disk" / "bus") == "spec.domain.devices.disks[0].disk.bus"
    assert str((ROOT / "metadata" / "labels")["a.b/c"]) == "metadata.labels[a.b/c]"
    assert str(ROOT) == "manifest"
    assert disks[1] == (ROOT / "spec" / "domain" / "devices" / "disks")[1]
