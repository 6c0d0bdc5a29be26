# SPDX-License-Identifier: Apache-2.0
"""A plan is refused for everything that the host is known to lack, and for nothing that is not known."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from plan_manifest import UID, UUID, manifest, two_sockets

from launcher.errors import Exhausted, HostUnsupported
from launcher.plan.allocations import Allocations
from launcher.plan.facts import (
    Alias,
    DomainCaps,
    GuestFacts,
    HostDevices,
    NodeFacts,
    NumaCell,
    PagePool,
    Programs,
    version,
)
from launcher.plan.make import make_plan
from launcher.plan.model import HugePages, VMPlan
from launcher.plan.settings import PlanSettings
from launcher.units import GIB, MIB

CAPS = DomainCaps(
    arch="x86_64",
    virt="kvm",
    machine="pc-q35-7.2",
    max_vcpus=288,
    cpu_modes=("host-passthrough", "host-model", "custom"),
    cpu_models=("Haswell",),
    unusable_models=("Icelake-Server",),
    missing_cpu_features=("amx-tile",),
    enums={
        "disk.bus": ("virtio", "scsi", "sata"),
        "filesystem.driverType": ("path", "handle"),
        "hostdev.subsysType": ("usb",),
        "loader.secure": ("no",),
        "loader.type": ("rom", "pflash"),
        "memoryBacking.sourceType": ("file",),
        "panic.model": ("isa",),
        "redirdev.bus": (),
        "tpm.backendModel": ("passthrough",),
        "video.modelType": ("vga", "bochs"),
    },
    unsupported_devices=("rng", "redirdev"),
    hyperv=("relaxed",),
)
LACKING = NodeFacts(
    guests=(
        GuestFacts(
            arch="x86_64",
            machines=("pc-q35-7.2", "q35"),
            aliases=(Alias(name="q35", machine="pc-q35-7.2"),),
        ),
    ),
    domain_caps=(CAPS, replace(CAPS, virt="qemu")),
    devices=HostDevices(vhost_vsock=False),
    programs=Programs(swtpm="/usr/bin/swtpm", virtiofsd="/usr/libexec/virtiofsd", passt="/usr/bin/passt"),
)
NOTHING_KNOWN = NodeFacts()
EFI = "firmware: {bootloader: {efi: %s}}, features: {smm: {}}"

CASES = [
    ("machine: {type: pc-q35-9.9}", "machine type pc-q35-9.9", "spec.domain.machine.type: QEMU here has q35"),
    ("cpu: {model: Skylake-Server}", "CPU model Skylake-Server", "no such model"),
    ("cpu: {model: Icelake-Server}", "CPU model Icelake-Server", "lacks features"),
    ("cpu: {features: [{name: amx-tile}]}", "CPU feature amx-tile", "policy optional"),
    (EFI % "{}", "Secure Boot", "efi.secureBoot"),
    ("features: {hyperv: {relaxed: {}, vapic: {}}}", "Hyper-V feature vapic", "spec.domain.features.hyperv"),
    ("memory: {guest: 1Gi, hugepages: {pageSize: 2Mi}}", "memory from memfd", "spec.domain.memory"),
    ("devices: {tpm: {}}", "an emulated TPM", "spec.domain.devices.tpm"),
    ("devices: {rng: {}}", "rng model virtio-non-transitional", "spec.domain.devices.rng"),
    ("devices: {video: {type: virtio}}", "video type virtio", "offer vga, bochs"),
    ("devices: {autoattachVSOCK: true}", "/dev/vhost-vsock", "vhost_vsock"),
    ("devices: {clientPassthrough: {}}", "USB redirection", "spec.domain.devices.clientPassthrough"),
    ("devices: {panicDevices: [{model: hyperv}]}", "panic device hyperv", "panicDevices[0]"),
    ("devices: {filesystems: [{name: data, virtiofs: {}}]}", "virtiofs", "filesystems[data]"),
    ("cpu: {model: host-passthrough}", "", ""),
    ("cpu: {model: Haswell, features: [{name: amx-tile, policy: optional}]}", "", ""),
    ("devices: {panicDevices: [{model: isa}], video: {type: vga}}", "", ""),
]


def plan(domain: str, facts: NodeFacts, **parts: object) -> VMPlan:
    """Make the plan of a guest of 1 GiB."""
    memory = "" if "memory:" in domain else "memory: {guest: 1Gi}, "
    vmi = manifest(f"{{{memory}{domain}}}")
    allocations = Allocations(uid=UID, uuid=UUID, **parts)  # type: ignore[arg-type]
    return make_plan(vmi, facts, allocations, PlanSettings(allow_emulation=True))


@pytest.mark.parametrize(("domain", "capability", "says"), CASES)
def test_what_the_host_lacks_is_named_with_the_field(domain: str, capability: str, says: str) -> None:
    if not capability:
        plan(domain, LACKING)
        return
    with pytest.raises(HostUnsupported) as caught:
        plan(domain, LACKING)
    assert [name for name, _ in caught.value.findings if name == capability] == [capability]
    assert says in str(caught.value)
    assert "spec.domain." in caught.value.message


@pytest.mark.parametrize(("domain", "capability", "says"), CASES)
def test_nothing_is_refused_for_what_is_not_known(domain: str, capability: str, says: str) -> None:
    plan(domain, NOTHING_KNOWN)


def test_everything_is_named_at_once() -> None:
    domain = (
        f"machine: {{type: isapc}}, {EFI % '{}'}, cpu: {{model: Nope}}, devices: {{tpm: {{}}, rng: {{}}}}"
    )
    with pytest.raises(HostUnsupported) as caught:
        plan(domain, replace(LACKING, firmwares=()))
    assert [capability for capability, _ in caught.value.findings] == [
        "UEFI for amd64 with Secure Boot",
        "machine type isapc",
        "CPU model Nope",
        "an emulated TPM",
        "rng model virtio-non-transitional",
    ]
    assert caught.value.capability.startswith("UEFI for amd64 with Secure Boot, machine type isapc, ")


def test_programs_that_are_not_installed_are_named() -> None:
    facts = NodeFacts(programs=Programs(swtpm="", virtiofsd="", passt=""))
    shared, nic = "filesystems: [{name: data, virtiofs: {}}]", "interfaces: [{name: a, passtBinding: {}}]"
    devices = f"devices: {{tpm: {{}}, {shared}, {nic}}}"
    with pytest.raises(HostUnsupported) as caught:
        plan(devices, facts)
    assert caught.value.capability == "swtpm, virtiofsd, passt"


def test_without_kvm_libvirt_checks_neither_models_nor_hyperv() -> None:
    emulated = replace(LACKING, kvm_usable=False)
    plan("cpu: {model: Icelake-Server, features: [{name: amx-tile}]}", emulated)
    windows = plan("features: {hyperv: {relaxed: {}, vapic: {}, ipi: {enabled: false}}}", emulated)
    assert windows.features.hyperv is not None
    assert [flag.name for flag in windows.features.hyperv] == ["relaxed", "ipi"]
    assert "spec.domain.features.hyperv: vapic left out" in windows.notes[0]
    assert plan("features: {hyperv: {vapic: {}}}", emulated).features.hyperv is None
    with pytest.raises(HostUnsupported, match="CPU model Nope"):
        plan("cpu: {model: Nope}", emulated)
    with pytest.raises(HostUnsupported, match="CPU feature amx-tile"):
        plan("cpu: {features: [{name: amx-tile}]}", emulated)


def paged(*pools: PagePool) -> NodeFacts:
    """A host of two cells that each have ``pools``."""
    cells = tuple(replace(cell, pools=pools) for cell in two_sockets())
    return NodeFacts(cells=cells, page_size=2 * MIB)


SMALL = PagePool(size=2 * MIB, count=300, free=256)
HUGE = PagePool(size=GIB, count=0, free=0)
PAGES = "memory: {guest: %s, hugepages: {pageSize: %s}}"


def test_huge_pages_must_be_there_and_free() -> None:
    facts = paged(SMALL, HUGE)
    backing = plan(PAGES % ("1Gi", "2Mi"), facts).backing
    assert backing is not None
    assert backing.pages == ()  # the kernel's default size needs no name
    with pytest.raises(HostUnsupported, match=r"513 free huge pages of 2\.0 MiB: .*: 512 of 600 are free"):
        plan(PAGES % ("1026Mi", "2Mi"), facts)
    with pytest.raises(HostUnsupported, match=r"1 free huge pages of 1\.0 GiB: .*: 0 of 0 are free"):
        plan(PAGES % ("1Gi", "1Gi"), facts)
    with pytest.raises(HostUnsupported, match=r"huge pages of 1\.0 GiB: .* the kernel has pages of 2\.0 MiB"):
        plan(PAGES % ("1Gi", "1Gi"), paged(SMALL))


def test_a_size_that_is_not_the_kernels_default_is_named() -> None:
    backing = plan(PAGES % ("1Gi", "1Gi"), paged(SMALL, PagePool(size=GIB, count=1, free=1))).backing
    assert backing is not None
    assert backing.pages == (HugePages(size=GIB),)


def test_a_guest_that_mirrors_cells_needs_pages_in_each() -> None:
    mirror = "cpu: {cores: 8, dedicatedCpuPlacement: true, numa: {guestMappingPassthrough: {}}}, " + PAGES
    cpuset = (0, 1, 2, 3, 4, 5, 6, 7)
    facts = paged(SMALL)
    plan(mirror % ("1Gi", "2Mi"), facts, cpuset=cpuset)
    lopsided = (facts.cells[0], replace(facts.cells[1], pools=(PagePool(size=2 * MIB, count=900, free=8),)))
    with pytest.raises(HostUnsupported, match=r"256 free huge pages of 2\.0 MiB in NUMA cell 1: .*8 of 900"):
        plan(mirror % ("1Gi", "2Mi"), replace(facts, cells=lopsided), cpuset=cpuset)


def test_cpus_that_the_node_has_not_are_another_matter_than_cpus_in_use() -> None:
    facts = NodeFacts(cells=(NumaCell(id=0, cpus=two_sockets()[0].cpus),))
    cpu = "cpu: {cores: %d, dedicatedCpuPlacement: true, isolateEmulatorThread: true}, devices: {rng: {}}"
    with pytest.raises(Exhausted):
        plan(cpu % 7, facts, cpuset=(0, 1, 2))
    with pytest.raises(HostUnsupported, match=r"9 CPUs to dedicate: .*dedicatedCpuPlacement: the node has 8"):
        plan(cpu % 8, facts, cpuset=(0, 1, 2))
    lacking = replace(LACKING, cells=facts.cells)
    with pytest.raises(HostUnsupported) as caught:
        plan(cpu % 7, lacking, cpuset=(0, 1, 2))
    assert caught.value.capability == "rng model virtio-non-transitional"


def test_s390x_secure_execution() -> None:
    vmi = manifest("{memory: {guest: 1Gi}, launchSecurity: {}}", architecture="s390x")
    caps = DomainCaps(arch="s390x", virt="kvm", unsupported_features=("s390-pv",))
    allocations = Allocations(uid=UID, uuid=UUID)
    known = NodeFacts(arch="s390x", libvirt_version=version(11, 0), domain_caps=(caps,))
    with pytest.raises(HostUnsupported, match="Secure Execution"):
        make_plan(vmi, known, allocations, PlanSettings())
    make_plan(vmi, replace(known, domain_caps=()), allocations, PlanSettings())
