# SPDX-License-Identifier: Apache-2.0
"""Translation without a node: from the text of a manifest to the text of a domain."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lxml import etree
from msgspec.structs import replace

from launcher.domain.translate import translate
from launcher.errors import InvalidRequest, InvalidSpec
from launcher.spec.load import load_vmi
from launcher.spec.model import Chassis, VirtualMachineInstance

MANIFEST = """
apiVersion: kubevirt.io/v1
kind: VirtualMachineInstance
metadata: {name: guest, namespace: lab}
spec:
  domain:
    cpu: {sockets: 1, cores: 2, dedicatedCpuPlacement: true, isolateEmulatorThread: true}
    memory: {guest: 1Gi}
    devices: {disks: [{name: root, disk: {bus: virtio}}]}
  volumes: [{name: root, persistentVolumeClaim: {claimName: root}}]
"""
TOPOLOGY = """
<capabilities><host><cpu><arch>x86_64</arch></cpu><topology><cells><cell id='0'><cpus>
<cpu id='0' siblings='0,2'/><cpu id='1' siblings='1,3'/>
<cpu id='2' siblings='0,2'/><cpu id='3' siblings='1,3'/>
</cpus></cell></cells></topology></host></capabilities>
"""


def xpath(text: str, path: str) -> list[str]:
    found = etree.fromstring(text).xpath(path)
    assert isinstance(found, list)
    return [str(item) for item in found]


def test_the_same_manifest_gives_the_same_bytes() -> None:
    assert translate(load_vmi(MANIFEST)) == translate(load_vmi(MANIFEST))


def test_an_instance_without_a_name_gets_one_from_its_generate_name() -> None:
    text = MANIFEST.replace("name: ", "generateName: ", 1)
    name = etree.fromstring(translate(load_vmi(text))).findtext("name") or ""
    assert name == etree.fromstring(translate(load_vmi(text))).findtext("name")
    assert re.fullmatch(r"[a-z]+_[a-z]+[0-9a-f]{5}", name), name


def test_without_a_cpuset_there_are_cpus_enough() -> None:
    pins = xpath(translate(load_vmi(MANIFEST)), "//cputune/*/@cpuset")
    assert pins == ["0", "1", "2"]


def test_with_capabilities_all_cpus_of_the_host_may_be_used() -> None:
    text = translate(load_vmi(MANIFEST), capabilities_xml=TOPOLOGY)
    assert xpath(text, "//cputune/*/@cpuset") == ["0", "2", "1"]


def test_a_cpuset_limits_them() -> None:
    text = translate(load_vmi(MANIFEST), capabilities_xml=TOPOLOGY, cpuset=(1, 2, 3))
    assert xpath(text, "//cputune/*/@cpuset") == ["2", "1", "3"]


def test_emulation_is_another_type_of_domain() -> None:
    assert xpath(translate(load_vmi(MANIFEST)), "/domain/@type") == ["kvm"]
    assert xpath(translate(load_vmi(MANIFEST), emulation=True), "/domain/@type") == ["qemu"]


@pytest.mark.parametrize("name", ["root", "other"])
def test_claims_can_be_block_devices(name: str) -> None:
    text = translate(load_vmi(MANIFEST), block_claims=(name,))
    assert xpath(text, "//disk/@type") == ["block" if name == "root" else "file"]


def test_all_errors_of_a_manifest_are_reported() -> None:
    wrong = MANIFEST.replace("sockets: 1", "sockets: 4, maxSockets: 2, realtime: {}").replace(
        "claimName: root}}", "claimName: root}}, {name: root, emptyDisk: {capacity: 1Gi}}"
    )
    with pytest.raises(InvalidSpec) as caught:
        translate(load_vmi(wrong))
    fields = {violation.field for violation in caught.value.violations}
    assert "spec.domain.cpu.sockets" in fields
    assert "spec.volumes[1].name" in fields


def test_other_documents_are_no_capabilities() -> None:
    with pytest.raises(InvalidRequest):
        translate(load_vmi(MANIFEST), capabilities_xml="<domain/>")


def with_chassis(manufacturer: str, asset: str) -> VirtualMachineInstance:
    vmi = load_vmi(MANIFEST)
    chassis = Chassis(manufacturer=manufacturer, asset=asset)
    return replace(vmi, spec=replace(vmi.spec, domain=replace(vmi.spec.domain, chassis=chassis)))


def assert_stays_text(text: str, manufacturer: str, asset: str) -> None:
    root = etree.fromstring(text)
    assert not root.xpath("//evil | //@evil | //comment() | //processing-instruction()")
    entries = {node.get("name"): node.text for node in root.findall("sysinfo/chassis/entry")}
    assert entries == {"manufacturer": manufacturer, "asset": asset}


MARKUP = ['"/><evil/>', "]]><evil/>", "<!--", "&lt;", "<?evil?>", "' evil='"]


@pytest.mark.parametrize("markup", MARKUP)
def test_markup_in_a_manifest_stays_text(markup: str) -> None:
    assert_stays_text(translate(with_chassis(markup, f"a{markup}b")), markup, f"a{markup}b")


@given(
    manufacturer=st.text(min_size=1, max_size=20), asset=st.text(max_size=20), markup=st.sampled_from(MARKUP)
)
@settings(max_examples=60)
def test_any_text_of_a_manifest_stays_text_or_is_refused(manufacturer: str, asset: str, markup: str) -> None:
    try:
        text = translate(with_chassis(manufacturer + markup, asset + markup))
    except InvalidSpec:
        return
    assert_stays_text(text, manufacturer + markup, asset + markup)
