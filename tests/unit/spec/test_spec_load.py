# SPDX-License-Identifier: Apache-2.0
"""Manifests become objects: kinds, versions, names, VirtualMachines, several documents, and back to text."""

from __future__ import annotations

import json
import textwrap

import pytest

from launcher.errors import InvalidSpec, Violation
from launcher.spec.export import to_builtins, to_json, to_yaml
from launcher.spec.load import (
    decode_object,
    load_manifests,
    load_migration,
    load_migration_policy,
    load_vmi,
    normalise_numbers,
)
from launcher.spec.model import MigrationPolicy, VirtualMachineInstance, VirtualMachineInstanceMigration
from launcher.spec.positions import NOWHERE, with_positions
from launcher.spec.quantity import Quantity

VMI = """\
apiVersion: kubevirt.io/v1
kind: VirtualMachineInstance
metadata:
  name: demo
  labels: {app: demo}
spec:
  domain:
    cpu: {cores: 2}
    devices:
      disks:
      - name: root
        disk: {bus: virtio}
      rng: {}
    memory:
      guest: 1.5Gi
  volumes:
  - name: root
    cloudInitNoCloud:
      userData: |
        #cloud-config
        hostname: demo
"""

VMIM = """\
apiVersion: kubevirt.io/v1alpha3
kind: VirtualMachineInstanceMigration
metadata: {generateName: move-}
spec: {vmiName: demo}
"""

POLICY = """\
apiVersion: migrations.kubevirt.io/v1alpha1
kind: MigrationPolicy
metadata: {name: fast}
spec:
  selectors: {virtualMachineInstanceSelector: {app: demo}}
  bandwidthPerMigration: 64Mi
  completionTimeoutPerGiB: 120
"""

VM = """\
apiVersion: kubevirt.io/v1
kind: VirtualMachine
metadata: {name: web, namespace: shop, uid: u-1, labels: {tier: front}}
spec:
  runStrategy: Always
  dataVolumeTemplates: [{metadata: {name: dv}, spec: {anything: 5}}]
  template:
    metadata:
      labels: {app: web}
      annotations: {note: x}
    spec:
      domain:
        devices: {}
status: {ready: true}
"""


def refused(text: str) -> tuple[Violation, ...]:
    with pytest.raises(InvalidSpec) as caught:
        load_manifests(text)
    return caught.value.violations


def test_an_instance_is_read_into_the_model() -> None:
    vmi = load_vmi(VMI)
    assert vmi.metadata is not None
    assert (vmi.metadata.name, vmi.metadata.labels) == ("demo", {"app": "demo"})
    assert vmi.spec.domain.cpu is not None
    assert vmi.spec.domain.cpu.cores == 2
    assert vmi.spec.domain.devices.rng is not None
    assert vmi.spec.domain.memory is not None
    assert vmi.spec.domain.memory.guest == Quantity("1536Mi")
    assert vmi.spec.volumes[0].cloud_init_no_cloud is not None
    assert vmi.spec.volumes[0].cloud_init_no_cloud.user_data == "#cloud-config\nhostname: demo\n"


def test_migrations_and_policies_are_read() -> None:
    migration = load_migration(VMIM)
    assert isinstance(migration, VirtualMachineInstanceMigration)
    assert migration.spec.vmi_name == "demo"
    policy = load_migration_policy(POLICY)
    assert isinstance(policy, MigrationPolicy)
    assert policy.spec.bandwidth_per_migration == 64 * 2**20
    assert policy.spec.completion_timeout_per_gi_b == 120


def test_several_documents_give_several_objects() -> None:
    loaded = load_manifests(f"{VMI}---\n---\n# nothing\n---\n{VMIM}---\n{POLICY}", source="all.yaml")
    assert [item.kind for item in loaded] == [
        "VirtualMachineInstance",
        "VirtualMachineInstanceMigration",
        "MigrationPolicy",
    ]
    assert {item.source for item in loaded} == {"all.yaml"}


def test_errors_of_all_documents_are_reported_together() -> None:
    text = VMI.replace("cores: 2", "cores: x") + "---\n" + VMIM.replace("vmiName", "vmName") + "---\na: [\n"
    assert [(v.field, v.line) for v in refused(text)] == [
        ("manifest", 29),
        ("spec.domain.cpu.cores", 8),
        ("spec.vmName", 26),
    ]
    with pytest.raises(InvalidSpec, match=r"in vm\.yaml"):
        load_manifests(text, source="vm.yaml")


def test_a_virtual_machine_gives_the_instance_of_its_template() -> None:
    (loaded,) = load_manifests(VM)
    assert loaded.kind == "VirtualMachineInstance"
    assert isinstance(loaded.obj, VirtualMachineInstance)
    assert loaded.obj.kind == "VirtualMachineInstance"
    meta = loaded.obj.metadata
    assert meta is not None
    assert (meta.name, meta.namespace, meta.uid) == ("web", "shop", None)
    assert (meta.labels, meta.annotations) == ({"app": "web"}, {"note": "x"})
    named = load_vmi(VM.replace("      labels: {app: web}", "      name: own"))
    assert named.metadata is not None
    assert named.metadata.name == "own"
    assert decode_object(json.loads(json.dumps(_vm_data()))).obj == loaded.obj


def _vm_data() -> dict[str, object]:
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachine",
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": {
            "template": {
                "metadata": {"labels": {"app": "web"}, "annotations": {"note": "x"}},
                "spec": {"domain": {"devices": {}}},
            }
        },
    }


def test_errors_of_a_virtual_machine_are_named_as_written() -> None:
    text = VM.replace("devices: {}", "devices: {}\n        cpus: {}").replace(
        "  runStrategy", "  instancetype: {name: big}\n  runStrategy"
    )
    assert [(v.field, v.type) for v in refused(text)] == [
        ("spec.template.spec.domain.cpus", "FieldUnknown"),
        ("spec.instancetype", "Forbidden"),
    ]


@pytest.mark.parametrize(
    ("change", "fields"),
    [
        (("kind: VirtualMachineInstance\n", ""), ["kind"]),
        (("kind: VirtualMachineInstance\n", "kind: VirtualMachineInstances\n"), ["kind"]),
        (("apiVersion: kubevirt.io/v1\n", ""), ["apiVersion"]),
        (("kubevirt.io/v1", "kubevirt.io/v1beta1"), ["apiVersion"]),
        (("  name: demo\n", "  namespace: demo\n"), ["metadata.name"]),
        (("  name: demo\n", "  name: ''\n"), ["metadata.name"]),
    ],
)
def test_an_object_says_what_it_is(change: tuple[str, str], fields: list[str]) -> None:
    assert VMI.replace(*change, 1) != VMI
    assert [v.field for v in refused(VMI.replace(*change, 1))] == fields
    as_json = to_builtins(load_vmi(VMI))
    as_json |= {"metadata": {}, "apiVersion": "v1"}
    assert [v.field for v in refused(json.dumps(as_json))] == ["apiVersion", "metadata.name"]


def test_loading_one_object_refuses_others() -> None:
    with pytest.raises(InvalidSpec, match="accepted here is a VirtualMachineInstance"):
        load_vmi(VMIM)
    with pytest.raises(InvalidSpec, match="there are 2 objects"):
        load_vmi(f"{VMI}---\n{VMI}")


def test_json_is_read_with_and_without_the_fast_path() -> None:
    vmi = load_vmi(VMI)
    text = to_json(vmi)
    assert load_vmi(text) == vmi
    assert load_vmi(text.replace('"cores": 2', '"cores": 2, "model": null')) == vmi
    assert load_vmi(text.replace('"1.5Gi"', "1610612736.0")) == vmi
    assert load_vmi(text.replace("demo", "d\\u0065mo")) == vmi
    emoji = text.replace('"app"', '"a\\ud83d\\ude00"')
    assert emoji != text
    meta = load_vmi(emoji).metadata
    assert meta is not None
    assert meta.labels == {"a😀": "demo"}


@pytest.mark.parametrize(
    ("text", "field", "message", "line"),
    [
        ('{"kind": "VirtualMachineInstance",\n "kind": "Pod"}', "kind", "given twice, first in line 1", 2),
        ('{"kind": "VirtualMachineInstance",\n "a": NaN}', "manifest", "not a finite number", 2),
        ('{"kind": "VirtualMachineInstance",\n "a": -Infinity}', "manifest", "not a finite number", 2),
        ('{"kind": "VirtualMachineInstance",\n "a" 1}', "manifest", "expected ':'", 2),
        ('{"kind": "x"} {}', "manifest", "expected the end", 1),
        ('{"kind": "\\q"}', "manifest", "unknown escape", 1),
        ('{"a": 1', "manifest", "expected ',' or '}'", 1),
        ("[" * 100, "manifest", "nested too deep", 1),
        ('{"a":' * 100, "manifest", "nested too deep", 1),
        ("[" + "1," * 300_001, "manifest", "too many values", 1),
        ("[]", "manifest", "expected an object", 1),
    ],
)
def test_bad_json_is_refused_with_positions(text: str, field: str, message: str, line: int) -> None:
    matching = [v for v in refused(text) if v.field == field and message in v.message]
    assert [v.line for v in matching] == [line]


def test_yaml_that_begins_like_json_is_yaml() -> None:
    flow = (
        "{apiVersion: kubevirt.io/v1, kind: VirtualMachineInstance,\n"
        " metadata: {name: a}, spec: {domain: {devices: {}}}}"
    )
    quoted = flow.replace("apiVersion", '"apiVersion"') + "\n---\n" + flow
    assert load_vmi(flow).metadata == load_manifests(quoted)[1].obj.metadata


def test_struct_numbers_become_integers() -> None:
    raw = to_builtins(load_vmi(VMI))
    raw["spec"]["domain"]["cpu"]["cores"] = 2.0
    raw["spec"]["domain"]["memory"]["guest"] = 1610612736.0
    assert decode_object(normalise_numbers(raw)).obj == load_vmi(VMI)
    assert normalise_numbers([1.5, 1e300, (2.0,), {"a": -0.0}]) == [1.5, 1e300, [2], {"a": 0}]
    assert (
        decode_object(raw | {"spec": {"domain": {"devices": {}, "memory": {"guest": 0.5}}}}).positions
        == NOWHERE
    )


def test_findings_about_the_model_get_the_position_of_their_field() -> None:
    for text, lines in ((VMI, (12, 10, 17, 14, 5)), (to_json(load_vmi(VMI)), None)):
        (loaded,) = load_manifests(text)
        found = with_positions(
            [
                Violation(field="spec.domain.devices.disks[0].disk.bus", type="x", message="m"),
                Violation(field="spec.domain.devices.disks[5].name", type="x", message="m"),
                Violation(field="spec.volumes[0].emptyDisk.capacity", type="x", message="m"),
                Violation(field="spec.domain.memory.maxGuest", type="x", message="m"),
                Violation(field="metadata.labels[app]", type="x", message="m"),
                Violation(field="spec.domain", type="x", message="m", line=1, column=2),
            ],
            loaded.positions,
        )
        assert (found[-1].line, found[-1].column) == (1, 2)
        if lines:
            assert tuple(v.line for v in found[:-1]) == lines
            assert [v.column for v in found[:2]] == [21, 7]
        else:
            shown = [text.splitlines()[(v.line or 0) - 1].strip() for v in found[:-1]]
            assert shown == ['"bus": "virtio"', '"disks": [', "{", '"memory": {', '"app": "demo"']


@pytest.mark.parametrize(
    ("devices", "inputs"),
    [
        ("{autoattachInputDevice: true}", ["default-0"]),
        ("{autoattachInputDevice: true, inputs: [{name: own, type: tablet, bus: usb}]}", ["own"]),
        ("{autoattachInputDevice: false}", []),
        ("{}", []),
    ],
)
def test_a_virtual_machine_that_asks_for_an_input_device_gets_one(devices: str, inputs: list[str]) -> None:
    vmi = load_vmi(
        "{apiVersion: kubevirt.io/v1, kind: VirtualMachine, metadata: {name: v}, "
        f"spec: {{template: {{spec: {{domain: {{devices: {devices}}}}}}}}}}}"
    )
    assert [item.name for item in vmi.spec.domain.devices.inputs] == inputs


def test_findings_about_an_instance_of_a_template_name_the_template() -> None:
    (loaded,) = load_manifests(VM)
    found = with_positions(
        [
            Violation(field=field, type="x", message="m")
            for field in ("spec.domain.memory", "metadata.labels[app]", "metadata.name", "spec")
        ],
        loaded.positions,
    )
    assert [(v.field, v.line) for v in found] == [
        ("spec.template.spec.domain.memory", 12),
        ("spec.template.metadata.labels[app]", 9),
        ("metadata.name", 3),
        ("spec.template.spec", 11),
    ]


def test_positions_without_a_text_are_left_out() -> None:
    found = with_positions([Violation(field="spec", type="x", message="m")], NOWHERE)
    assert (found[0].line, found[0].column) == (None, None)


def test_yaml_output_is_what_people_write() -> None:
    assert to_yaml(load_vmi(VMI)) == textwrap.dedent(
        """\
        apiVersion: kubevirt.io/v1
        kind: VirtualMachineInstance
        metadata:
          labels:
            app: demo
          name: demo
        spec:
          domain:
            devices:
              disks:
              - name: root
                disk:
                  bus: virtio
              rng: {}
            cpu:
              cores: 2
            memory:
              guest: 1.5Gi
          volumes:
          - name: root
            cloudInitNoCloud:
              userData: |
                #cloud-config
                hostname: demo
        """
    )


@pytest.mark.parametrize("text", ["no", "y", "0123", "1e3", "1.0", "null", "~", "2020-01-01", "0x1F", "1:30"])
def test_yaml_output_quotes_what_others_would_misread(text: str) -> None:
    vmi = load_vmi(VMI.replace("{app: demo}", f"{{app: '{text}'}}"))
    line = next(line for line in to_yaml(vmi).splitlines() if "app:" in line)
    assert line.strip() in (f"app: '{text}'", f'app: "{text}"')
    assert load_vmi(to_yaml(vmi)) == vmi


def test_json_output_is_one_line_on_demand() -> None:
    text = to_json(load_migration(VMIM), indent=0)
    assert text == (
        '{"apiVersion":"kubevirt.io/v1alpha3","kind":"VirtualMachineInstanceMigration",'
        '"metadata":{"generateName":"move-"},"spec":{"vmiName":"demo"}}\n'
    )
