# SPDX-License-Identifier: Apache-2.0
"""The files of generated volumes, and what is said when something for them is missing."""

from __future__ import annotations

import base64
import json
from typing import Any

import msgspec
import pytest

from launcher.errors import InvalidRequest, InvalidSpec
from launcher.plan.devices.model import DevicesPlan, DiskPlan, InterfacePlan, PciAddress
from launcher.plan.media.material import Material
from launcher.plan.media.volume import acpi_table, require_content, volume_files
from launcher.plan.steps import MakeIso, WriteAcpiTable
from launcher.spec.codec import dec_hook
from launcher.spec.model import VirtualMachineInstance

UUID = "5a9fc181-957e-5c32-9e5a-2de5e9673531"
SECRET = {
    "login": {"userData": b"#from secret", "networkdata": b"version: 2"},
    "keys": {"b": b"ssh-2\n", "a": b"ssh-1"},
}


def material(source: str, *, spec: str = "", name: str = "web.one", **beside: Any) -> Material:
    text = f"""
metadata:
  name: {name}
  namespace: lab
  uid: u-1
  labels: {{app: web, tier: "front \\"end\\""}}
  annotations: {{kubevirt.io/instancetype-name: small, note: äö}}
spec:
  domain: {{memory: {{guest: 1Gi}}, cpu: {{cores: 2}}, devices: {{interfaces: [{{name: net, tag: front}}],
           disks: [{{name: v, tag: data}}, {{name: w, tag: log}}]}},
           resources: {{requests: {{memory: 512Mi, cpu: 1500m}}}}}}
  volumes: [{{name: v, {source}}}]
{spec}
"""
    vmi = msgspec.convert(msgspec.yaml.decode(text), VirtualMachineInstance, dec_hook=dec_hook)
    return Material(vmi=vmi, uuid=UUID, **beside)


def files(source: str, **more: Any) -> dict[str, bytes]:
    return {file.path: file.data for file in volume_files(material(source, **more), "v")}


# --- cloud-init -------------------------------------------------------------------------------------------


def test_no_cloud_has_data_metadata_and_a_network_only_when_given() -> None:
    found = files("cloudInitNoCloud: {userData: '#cloud-config'}")
    assert json.loads(found["meta-data"]) == {
        "instance-type": "small",
        "instance-id": UUID,
        "local-hostname": "web",
    }
    assert found["user-data"] == b"#cloud-config"
    assert set(found) == {"meta-data", "user-data"}


def test_network_data_alone_comes_with_empty_user_data() -> None:
    found = files("cloudInitNoCloud: {networkData: 'version: 2'}")
    assert (found["user-data"], found["network-config"]) == (b"", b"version: 2")


def test_base64_and_hostname() -> None:
    text = base64.b64encode(bytes(range(256))).decode()
    found = files(f"cloudInitNoCloud: {{userDataBase64: {text}}}", spec=f"  hostname: {'h' * 70}")
    assert found["user-data"] == bytes(range(256))
    assert json.loads(found["meta-data"])["local-hostname"] == "h" * 63


def test_config_drive_tells_tagged_devices_with_their_addresses() -> None:
    nic = InterfacePlan(
        name="net", model="virtio", mac="02:00:00:00:00:01", address=PciAddress(bus=1, slot=0)
    )
    disks = (
        DiskPlan(name="v", device="disk", bus="virtio", target="vda", address=PciAddress(bus=4, slot=0)),
        DiskPlan(name="w", device="disk", bus="scsi", target="sda", unit=0, serial="S1"),
        DiskPlan(name="x", device="disk", bus="sata", target="sdb"),
    )
    untagged = InterfacePlan(name="other", model="virtio", address=PciAddress(bus=2, slot=0))
    found = files(
        "cloudInitConfigDrive: {userData: x, networkData: '{}'}",
        devices=DevicesPlan(interfaces=(nic, untagged), disks=disks),
    )
    metadata = json.loads(found["openstack/latest/meta_data.json"])
    assert metadata == {
        "instance_type": "small",
        "instance_id": "web.one.lab",
        "hostname": "web",
        "uuid": UUID,
        "devices": [
            {
                "type": "nic",
                "bus": "pci",
                "address": "0000:01:00.0",
                "mac": "02:00:00:00:00:01",
                "tags": ["front"],
            },
            {"type": "disk", "bus": "pci", "address": "0000:04:00.0", "tags": ["data"]},
            {"type": "disk", "bus": "scsi", "address": "0:0:0:0", "serial": "S1", "tags": ["log"]},
        ],
    }
    assert found["openstack/latest/user_data"] == b"x"
    assert found["openstack/latest/network_data.json"] == b"{}"


@pytest.mark.parametrize("kind", ["cloudInitNoCloud", "cloudInitConfigDrive"])
def test_a_secret_gives_user_and_network_data(kind: str) -> None:
    found = files(
        f"{kind}: {{secretRef: {{name: login}}, networkDataSecretRef: {{name: login}}}}", secrets=SECRET
    )
    assert {b"#from secret", b"version: 2"} < set(found.values())


@pytest.mark.parametrize(
    ("kind", "method", "path", "key"),
    [
        ("cloudInitNoCloud", "noCloud", "meta-data", "public-keys"),
        ("cloudInitConfigDrive", "configDrive", "openstack/latest/meta_data.json", "public_keys"),
    ],
)
def test_ssh_keys_go_into_the_metadata(kind: str, method: str, path: str, key: str) -> None:
    credentials = f"""  accessCredentials:
  - sshPublicKey: {{source: {{secret: {{secretName: keys}}}}, propagationMethod: {{{method}: {{}}}}}}
"""
    found = files(f"{kind}: {{userData: x}}", spec=credentials, secrets=SECRET)
    assert json.loads(found[path])[key] == {"0": "ssh-1", "1": "ssh-2"}


@pytest.mark.parametrize(
    ("source", "error", "says"),
    [
        ("cloudInitNoCloud: {userDataBase64: '***'}", InvalidSpec, r"spec\.volumes\[v\]\.userDataBase64"),
        ("cloudInitNoCloud: {}", InvalidSpec, "neither user data nor network data"),
        ("cloudInitNoCloud: {secretRef: {name: gone}}", InvalidRequest, r"companions\.secrets\[gone\]"),
        ("cloudInitNoCloud: {secretRef: {name: keys}}", InvalidRequest, "userdata, userData"),
    ],
)
def test_data_that_cannot_be_had(source: str, error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        files(source, secrets=SECRET)


# --- configMap, secret, serviceAccount, sysprep ------------------------------------------------------------


def test_keys_become_files() -> None:
    data = {"a.conf": b"1", "b": b"\xff"}
    assert files("configMap: {name: c}", config_maps={"c": data}) == data
    assert files("secret: {secretName: s}", secrets={"s": data}) == data


def test_what_is_optional_may_be_missing() -> None:
    assert files("configMap: {name: c, optional: true}") == {}
    assert files("secret: {secretName: s, optional: true}") == {}


@pytest.mark.parametrize("key", ["../x", "a/b", "", "..", "a b"])
def test_a_key_that_is_no_file_name_is_refused(key: str) -> None:
    with pytest.raises(InvalidRequest, match=r"companions\.secrets\[s\]"):
        files("secret: {secretName: s}", secrets={"s": {key: b""}})


def test_a_service_account_knows_its_namespace() -> None:
    found = files(
        "serviceAccount: {serviceAccountName: builder}", service_accounts={"builder": {"token": b"t"}}
    )
    assert found == {"token": b"t", "namespace": b"lab"}


@pytest.mark.parametrize("kind", ["secret", "configMap"])
def test_sysprep_needs_an_answer_file_in_any_case(kind: str) -> None:
    beside = "secrets" if kind == "secret" else "config_maps"
    source = f"sysprep: {{{kind}: {{name: w}}}}"
    assert files(source, **{beside: {"w": {"AutoUnattend.xml": b"<x/>"}}}) == {"AutoUnattend.xml": b"<x/>"}
    with pytest.raises(InvalidRequest, match="unattend"):
        files(source, **{beside: {"w": {"other.xml": b""}}})


# --- downwardAPI ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("item", "content"),
    [
        ("fieldRef: {fieldPath: metadata.name}", "web.one"),
        ("fieldRef: {fieldPath: metadata.namespace}", "lab"),
        ("fieldRef: {fieldPath: metadata.uid}", "u-1"),
        ("fieldRef: {fieldPath: metadata.labels}", 'app="web"\ntier="front \\"end\\""'),
        ("""fieldRef: {fieldPath: "metadata.annotations['note']"}""", "äö"),
        ("""fieldRef: {fieldPath: "metadata.labels['none']"}""", ""),
        ("resourceFieldRef: {resource: requests.cpu}", "2"),
        ("resourceFieldRef: {resource: requests.cpu, divisor: 1m}", "1500"),
        ("resourceFieldRef: {resource: requests.memory, divisor: 1Mi}", "512"),
        ("resourceFieldRef: {resource: limits.cpu}", "2"),
        ("resourceFieldRef: {resource: limits.memory, divisor: 1Gi}", "1"),
        ("resourceFieldRef: {resource: limits.ephemeral-storage}", "0"),
    ],
)
def test_fields_of_the_instance(item: str, content: str) -> None:
    found = files(f"downwardAPI: {{fields: [{{path: ./a//b, {item}}}]}}")
    assert found == {"a/b": content.encode()}


def test_modes_are_kept() -> None:
    source = "downwardAPI: {fields: [{path: a, mode: 0400, fieldRef: {fieldPath: metadata.name}}]}"
    (file,) = volume_files(material(source.replace("0400", "256")), "v")
    assert file.mode == 0o400


# --- ACPI tables, and all together -------------------------------------------------------------------------


def test_acpi_tables_come_out_of_their_secret() -> None:
    made = material("secret: {secretName: s}", secrets={"s": {"slic.bin": b"SLIC", "msdm.bin": b"MSDM"}})
    steps = [WriteAcpiTable(owner="u", volume="v", table=table, path="/x") for table in ("slic", "msdm")]
    assert [acpi_table(made, step) for step in steps] == [b"SLIC", b"MSDM"]
    with pytest.raises(InvalidRequest, match=r"slic\.bin"):
        acpi_table(material("secret: {secretName: s}", secrets={"s": {}}), steps[0])


def test_everything_that_is_missing_is_named_at_once() -> None:
    made = material("secret: {secretName: s}", spec="  accessCredentials: []")
    iso = MakeIso(owner="u", volume="v", path="/x", label="l")
    table = WriteAcpiTable(owner="u", volume="v", table="slic", path="/y")
    with pytest.raises(InvalidRequest) as caught:
        require_content(made, (iso, table))
    assert len(caught.value.violations) == 2


def test_content_shows_in_no_text_about_it() -> None:
    made = material("secret: {secretName: s}", secrets={"s": {"k": b"hunter2"}})
    assert "hunter2" not in repr(made)
    assert "hunter2" not in repr(volume_files(made, "v"))
