# SPDX-License-Identifier: Apache-2.0
"""Capabilities and domain capabilities become facts."""

from __future__ import annotations

import pytest

from launcher.domain.caps import domain_caps, node_facts
from launcher.errors import InvalidRequest
from launcher.plan.arch import AMD64, ARM64
from launcher.plan.facts import Distance, HostCPU, NumaCell, PagePool
from launcher.units import GIB, KIB, MIB

CAPABILITIES = """
<capabilities>
  <host><cpu><arch>x86_64</arch></cpu>
    <topology><cells num='1'><cell id='0'>
      <memory unit='KiB'>4194304</memory>
      <pages unit='KiB' size='4'>1000</pages><pages unit='KiB' size='2048'>64</pages>
      <distances><sibling id='0' value='10'/></distances>
      <cpus num='4'>
        <cpu id='0' siblings='0-1'/><cpu id='1' siblings='0-1'/>
        <cpu id='2' siblings='2,3'/><cpu id='3' siblings='2,3'/>
      </cpus>
    </cell></cells></topology>
  </host>
  <guest><os_type>hvm</os_type>
    <arch name='x86_64'><wordsize>64</wordsize><emulator>/usr/bin/qemu-system-x86_64</emulator>
      <machine canonical='pc-q35-7.2' maxCpus='288'>q35</machine>
      <domain type='qemu'/><domain type='kvm'/>
    </arch>
  </guest>
  <guest><os_type>hvm</os_type>
    <arch name='aarch64'><emulator>/usr/bin/qemu-system-aarch64</emulator>
      <machine>virt-7.2</machine><domain type='qemu'/>
    </arch>
  </guest>
</capabilities>
"""

DOMAIN_CAPABILITIES = """
<domainCapabilities>
  <path>/usr/bin/qemu-system-x86_64</path><domain>qemu</domain><machine>pc-q35-7.2</machine><arch>x86_64</arch>
  <vcpu max='288'/>
  <cpu>
    <mode name='host-passthrough' supported='no'/><mode name='maximum' supported='yes'/>
    <mode name='host-model' supported='yes'><model fallback='allow'>EPYC</model>
      <feature policy='require' name='acpi'/><feature policy='disable' name='sha-ni'/></mode>
    <mode name='custom' supported='yes'>
      <model usable='yes'>qemu64</model><model usable='no'>Haswell</model></mode>
  </cpu>
  <devices><video supported='yes'><enum name='modelType'><value>vga</value><value>bochs</value></enum></video>
    <tpm supported='no'><enum name='model'><value>tpm-crb</value></enum></tpm></devices>
  <features><backup supported='yes'/><sev supported='no'/></features>
</domainCapabilities>
"""


def test_cells_have_cores_distances_and_pages() -> None:
    facts = node_facts(CAPABILITIES)
    assert facts.cells == (
        NumaCell(
            id=0,
            cpus=(
                HostCPU(id=0, siblings=(0, 1)),
                HostCPU(id=1, siblings=(0, 1)),
                HostCPU(id=2, siblings=(2, 3)),
                HostCPU(id=3, siblings=(2, 3)),
            ),
            memory=4 * GIB,
            distances=(Distance(cell=0, value=10),),
            pools=(PagePool(size=4 * KIB, count=1000), PagePool(size=2 * MIB, count=64)),
        ),
    )


def test_guests_say_what_runs_and_how() -> None:
    facts = node_facts(CAPABILITIES)
    assert facts.arch == "amd64"
    assert facts.kvm_usable
    assert facts.kvm(AMD64)
    assert facts.runs(ARM64)
    assert not facts.kvm(ARM64)
    guest = facts.guest(AMD64)
    assert guest is not None
    assert guest.machines == ("q35", "pc-q35-7.2")


def test_a_probe_overrules_the_capabilities() -> None:
    assert not node_facts(CAPABILITIES, kvm_usable=False).kvm(AMD64)


def test_capabilities_without_guests_leave_kvm_assumed() -> None:
    bare = "<capabilities><host><cpu><arch>s390x</arch></cpu></host></capabilities>"
    facts = node_facts(bare)
    assert facts.arch == "s390x"
    assert facts.kvm_usable
    assert facts.cells == ()


def test_domain_capabilities_name_what_is_supported() -> None:
    caps = domain_caps(DOMAIN_CAPABILITIES)
    assert (caps.arch, caps.virt, caps.max_vcpus) == ("x86_64", "qemu", 288)
    assert caps.cpu_modes == ("maximum", "host-model", "custom")
    assert caps.host_model == "EPYC"
    assert caps.cpu_models == ("qemu64",)
    assert caps.enums == {"video.modelType": ("vga", "bochs")}
    assert caps.features == ("backup",)
    assert caps.unsupported_features == ("sev",)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "<capabilities>",
        "<domain/>",
        CAPABILITIES.replace("siblings='0-1'", "siblings='1-0'"),
        CAPABILITIES.replace("siblings='0-1'", "siblings='0-99999999999'"),
        CAPABILITIES.replace("cell id='0'", "cell id='x'"),
        CAPABILITIES.replace(">64<", ">many<"),
        CAPABILITIES.replace("<memory unit='KiB'>", "<memory unit='parsec'>"),
    ],
)
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(InvalidRequest):
        node_facts(text)


def test_entities_are_not_resolved() -> None:
    text = '<!DOCTYPE a [<!ENTITY e SYSTEM "file:///etc/hostname">]><capabilities><host><cpu><arch>&e;</arch></cpu></host></capabilities>'
    assert node_facts(text).arch == "amd64"


def test_what_the_host_denies_is_told_from_what_it_does_not_know() -> None:
    caps = domain_caps(DOMAIN_CAPABILITIES)
    assert caps.cpu_models == ("qemu64",)
    assert caps.unusable_models == ("Haswell",)
    assert caps.missing_cpu_features == ("sha-ni",)
    assert caps.unsupported_devices == ("tpm",)


def test_aliases_of_machines_are_resolved_and_choose_the_capabilities() -> None:
    facts = node_facts(CAPABILITIES, [DOMAIN_CAPABILITIES, DOMAIN_CAPABILITIES.replace("q35-7.2", "q35-6.2")])
    guest = facts.guest(AMD64)
    assert guest is not None
    assert guest.canonical("q35") == "pc-q35-7.2"
    assert guest.canonical("pc-q35-6.2") == "pc-q35-6.2"
    for asked, found in [("q35", "pc-q35-7.2"), ("pc-q35-6.2", "pc-q35-6.2"), ("pc-q35-5.0", "pc-q35-7.2")]:
        caps = facts.caps(AMD64, "qemu", asked)
        assert caps is not None
        assert caps.machine == found
    assert facts.caps(AMD64, "kvm", "q35") is None


@pytest.mark.parametrize(
    ("label", "user"),
    [
        (
            "<baselabel type='kvm'>+64055:+108</baselabel><baselabel type='qemu'>+1:+2</baselabel>",
            (64055, 108),
        ),
        ("<baselabel>+0:+0</baselabel>", (0, 0)),
        ("<baselabel type='kvm'>system_u:system_r</baselabel>", (None, None)),
        ("", (None, None)),
    ],
)
def test_the_user_of_qemu_is_that_of_the_dac_label(label: str, user: tuple[int | None, int | None]) -> None:
    models = f"<secmodel><model>none</model></secmodel><secmodel><model>dac</model>{label}</secmodel>"
    facts = node_facts(CAPABILITIES.replace("</topology>", f"</topology>{models}"))
    assert (facts.qemu_uid, facts.qemu_gid) == user
