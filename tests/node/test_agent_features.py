# SPDX-License-Identifier: Apache-2.0
"""What a manifest can ask for besides disks and networks, on a real node: started, and seen from inside.

Guests run emulated here: what needs KVM, SEV or TDX is only refused in these tests.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from agent_world import client, condition, eventually, is_true, leftovers, ticks, until, until_gone
from feature_guests import Object, guest, iothreads, kernel_boot, monitor, shell, threads

from launcher.cli.client import Client
from launcher.errors import HostUnsupported
from launcher.lab import image
from launcher.lab.image import Image
from launcher.lab.lab import Lab
from launcher.lab.node import Node
from launcher.rpc.struct import to_plain
from launcher.units import MIB

pytestmark = pytest.mark.node

PAGE = 2 * MIB
PAGES = Path("/sys/kernel/mm/hugepages/hugepages-2048kB")
UUID = "0f6c9f2e-1f5b-4d0e-9a51-6d3f5e7c8b21"


@pytest.fixture(scope="module")
def node(needs_nodes: None) -> Iterator[Node]:
    with Lab(names=("a",)) as lab:
        lab.start_agents()
        yield lab.node("a")


@pytest.fixture
def agent(node: Node) -> Iterator[Client]:
    with client(node) as agent:
        yield agent
        remove_all(agent)
        assert leftovers(node) == []
        kept = "find /var/lib/libvirt/swtpm /var/lib/libvirt/qemu/nvram -type f 2>/dev/null || true"
        assert node.run("sh", "-c", kept) == ""


@pytest.fixture(scope="module")
def uefi_image(needs_nodes: None) -> Image:
    return image.uefi_guest()


@pytest.fixture
def pages(node: Node) -> Iterator[None]:
    """Another 128 MiB of huge pages of 2 MiB."""
    with huge_pages(64):
        yield


@contextmanager
def huge_pages(count: int) -> Iterator[None]:
    pool = PAGES / "nr_hugepages"
    before = int(pool.read_text())
    pool.write_text(str(before + count))
    try:
        got = int(pool.read_text()) - before
        if got < count:
            pytest.skip(f"the kernel gives {got} of {count} huge pages: its memory is in use or in pieces")
        yield
    finally:
        pool.write_text(str(before))


def remove_all(agent: Client) -> None:
    names = [instance["metadata"]["name"] for instance in agent.instances.list()]
    for name in names:
        agent.instances.delete(name, namespace="default", grace_period_s=0)
    for name in names:
        until_gone(agent, name)


def start(agent: Client, manifest: Object) -> str:
    """Create it, wait until it runs, and return its name."""
    name: str = agent.instances.create(manifest)["metadata"]["name"]
    vmi = until(agent, name, lambda vmi: is_true(vmi, "Ready") or condition(vmi, "Synchronized"))
    assert is_true(vmi, "Ready"), condition(vmi, "Synchronized")
    return name


def known(agent: Client) -> Object:
    """The facts of the node."""
    return to_plain(agent.node().facts)


def refused(agent: Client, **parts: Any) -> HostUnsupported:
    """The refusal of such a guest, of which nothing may be left."""
    with pytest.raises(HostUnsupported) as caught:
        agent.instances.create(guest("refused", **parts))
    assert agent.instances.list() == []
    return caught.value


# --- firmware, TPM, huge pages ----------------------------------------------------------------------------


def test_uefi_with_a_lasting_tpm_on_huge_pages(
    agent: Client, node: Node, uefi_image: Image, pages: None
) -> None:
    with huge_pages(128):
        free = int((PAGES / "free_hugepages").read_text())
        domain = {
            "firmware": {
                "bootloader": {"efi": {"secureBoot": False, "persistent": True}},
                "kernelBoot": kernel_boot(uefi_image, uefi=True),
            },
            "memory": {"hugepages": {"pageSize": "2Mi"}},
        }
        manifest = guest("uefi", memory="256Mi", domain=domain, devices={"tpm": {"persistent": True}})
        name = start(agent, manifest)
        xml = agent.instances.domain_xml(name, namespace="default")
        assert "/usr/share/OVMF/OVMF_CODE_4M.fd" in xml
        assert "template='/usr/share/OVMF/OVMF_VARS_4M.fd'" in xml
        assert "persistent_state='yes'" in xml
        with shell(agent, name) as inside:
            assert "runtime" in inside.run("ls /sys/firmware/efi")
            assert inside.run("cat /sys/class/tpm/tpm0/tpm_version_major") == "2"
            assert inside.run("readlink /sys/class/tpm/tpm0/device/driver").endswith("/tpm_crb")
            assert "EDK II" in inside.run("dmesg | grep -i 'efi: EFI'")
        # QEMU preallocates nothing here: what the guest has touched came from the pool.
        assert int((PAGES / "free_hugepages").read_text()) < free
        agent.instances.delete(name, namespace="default", grace_period_s=0, remove_persistent_state=True)
        until_gone(agent, name)
        assert int((PAGES / "free_hugepages").read_text()) == free


def test_secure_boot_with_smm_and_a_tpm(agent: Client, node: Node, uefi_image: Image) -> None:
    domain = {
        "features": {"smm": {}},
        "firmware": {"bootloader": {"efi": {}}, "kernelBoot": kernel_boot(uefi_image, uefi=True)},
    }
    name = start(agent, guest("secure", memory="256Mi", domain=domain, devices={"tpm": {}}))
    xml = agent.instances.domain_xml(name, namespace="default")
    assert re.search(r"<loader [^>]*secure='yes'[^>]*>/usr/share/OVMF/OVMF_CODE_4M.ms.fd<", xml)
    assert "template='/usr/share/OVMF/OVMF_VARS_4M.ms.fd'" in xml
    with shell(agent, name) as inside:
        assert "Secure boot enabled" in inside.run("dmesg | grep -i secureboot")
        assert inside.run("readlink /sys/class/tpm/tpm0/device/driver").endswith("/tpm_tis")


def test_huge_pages_that_are_not_free_are_refused_until_they_are(
    agent: Client, bootsector_image: Image, node: Node
) -> None:
    free = int((PAGES / "free_hugepages").read_text())
    size = f"{(free + 32) * 2}Mi"
    parts: Object = {
        "memory": size,
        "domain": {"memory": {"hugepages": {"pageSize": "2Mi"}}},
        "disks": {"root": {"disk": {"bus": "virtio"}}},
        "image": bootsector_image,
    }
    error = refused(agent, **parts)
    assert error.capability == f"{free + 32} free huge pages of 2.0 MiB"
    assert "spec.domain.memory.hugepages.pageSize" in error.message
    with huge_pages(32):
        assert agent.instances.create(guest("pages", **parts), dry_run=True)


# --- CPUs -------------------------------------------------------------------------------------------------


def test_dedicated_cpus_in_a_mirrored_cell(
    agent: Client, node: Node, bootsector_image: Image, pages: None
) -> None:
    cpus = [cpu["id"] for cell in known(agent)["cells"] for cpu in cell["cpus"]]
    if len(cpus) < 2:
        pytest.skip("the machine has one CPU")
    domain = {
        "cpu": {"cores": 2, "dedicatedCpuPlacement": True, "numa": {"guestMappingPassthrough": {}}},
        "memory": {"hugepages": {"pageSize": "2Mi"}},
    }
    disks = {"root": {"disk": {"bus": "virtio"}}}
    name = start(agent, guest("pinned", domain=domain, disks=disks, image=bootsector_image))
    found = threads(node, name)
    assert {found["CPU 0/TCG"], found["CPU 1/TCG"]} == {str(cpu) for cpu in cpus[:2]}
    xml = agent.instances.domain_xml(name, namespace="default")
    assert re.search(r"<memnode cellid='0' mode='strict' nodeset='0'/>", xml)
    assert "node 0 cpus: 0 1" in monitor(node, name, "info numa")


def test_a_supplemental_pool_has_cpus_of_its_own(agent: Client, node: Node, bootsector_image: Image) -> None:
    domain = {
        "cpu": {"cores": 1, "dedicatedCpuPlacement": True},
        "ioThreadsPolicy": "supplementalPool",
        "ioThreads": {"supplementalPoolThreadCount": 1},
    }
    disks = {"root": {"disk": {"bus": "virtio"}}}
    name = start(agent, guest("pool", domain=domain, disks=disks, image=bootsector_image))
    found = threads(node, name)
    assert found["CPU 0/TCG"].isdecimal()
    assert found["IO iothread1"].isdecimal()
    assert found["CPU 0/TCG"] != found["IO iothread1"]


def test_a_linux_guest_sees_what_was_asked_for(
    agent: Client, node: Node, guest_image: Image, bootsector_image: Image
) -> None:
    domain = {
        "cpu": {
            "model": "Nehalem",
            "sockets": 2,
            "threads": 2,
            "features": [{"name": "aes"}, {"name": "popcnt", "policy": "disable"}],
        },
        "chassis": {"asset": "rack-7"},
        "clock": {
            "utc": {"offsetSeconds": 86400},
            "timer": {"hpet": {"present": False}, "rtc": {"tickPolicy": "catchup"}, "pit": {"present": True}},
        },
        "firmware": {"uuid": UUID, "serial": "sn-1", "kernelBoot": kernel_boot(guest_image)},
        "ioThreadsPolicy": "auto",
    }
    devices = {
        "rng": {},
        "inputs": [{"name": "pen", "type": "tablet", "bus": "virtio"}],
        "autoattachMemBalloon": True,
    }
    disks: Object = {
        "first": {"disk": {"bus": "virtio"}, "serial": "one"},
        "second": {"disk": {"bus": "virtio"}, "dedicatedIOThread": True},
        "third": {"disk": {"bus": "scsi"}},
        "media": {"cdrom": {"bus": "scsi"}},
    }
    manifest = guest(
        "linux", memory="160Mi", domain=domain, devices=devices, disks=disks, image=bootsector_image
    )
    name = start(agent, manifest)
    xml = agent.instances.domain_xml(name, namespace="default")
    with shell(agent, name) as inside:
        cpuinfo = inside.run("grep -e model.name -e flags -e siblings /proc/cpuinfo | sort -u")
        assert "Nehalem" in cpuinfo
        assert " aes " in cpuinfo
        assert " popcnt" not in cpuinfo
        assert re.search(r"siblings\s*: 2", cpuinfo)
        assert inside.run("nproc") == "4"
        ids = "product_uuid product_serial chassis_asset_tag"
        assert inside.run(f"cd /sys/class/dmi/id; cat {ids}").split() == [UUID, "sn-1", "rack-7"]
        assert "hpet" not in inside.run("dmesg | grep -i hpet0; ls /dev/hpet").replace("/dev/hpet", "")
        ahead = int(inside.run("cat /sys/class/rtc/rtc0/since_epoch")) - int(node.run("date", "+%s"))
        assert 86_000 < ahead < 87_000
        assert inside.run("cat /sys/class/misc/hw_random/rng_current").startswith("virtio_rng")
        assert "QEMU Virtio Tablet" in inside.run("grep Name /proc/bus/input/devices")
        assert inside.run("ls /sys/block").split() == ["sda", "sr0", "vda", "vdb"]
        assert inside.run("cat /sys/block/vda/serial") == "one"
    eventually("the balloon tells", lambda: "unused " in node.run("virsh", "dommemstat", f"default_{name}"))
    assert {"IO iothread1", "IO iothread2"} <= set(threads(node, name))
    used = iothreads(xml)
    assert used["vda"] != used["vdb"]
    assert set(used) == {"vda", "vdb"}


# --- devices ----------------------------------------------------------------------------------------------


def test_buses_and_small_devices(agent: Client, node: Node, bootsector_image: Image) -> None:
    disks: Object = {
        "root": {"disk": {"bus": "sata"}, "bootOrder": 1},
        "stick": {"disk": {"bus": "usb"}},
        "plain": {"disk": {"bus": "virtio"}},
        "tape": {"disk": {"bus": "scsi"}},
        "media": {"cdrom": {"bus": "sata"}},
    }
    devices = {
        "watchdog": {"name": "dog", "i6300esb": {"action": "poweroff"}},
        "panicDevices": [{"model": "isa"}],
        "sound": {"name": "card", "model": "ich9"},
        "inputs": [{"name": "pen", "type": "tablet", "bus": "usb"}],
        "clientPassthrough": {},
        "rng": {},
        "autoattachGraphicsDevice": True,
        "useVirtioTransitional": True,
    }
    name = start(agent, guest("small", devices=devices, disks=disks, image=bootsector_image))
    eventually("the guest boots from SATA", lambda: ticks(agent, name))
    tree = monitor(node, name, "info qtree")
    for device in (
        "i6300esb",
        "pvpanic",
        "ich9-intel-hda",
        "usb-tablet",
        "usb-redir",
        "virtio-rng-pci-transitional",
        "virtio-balloon-pci-transitional",
        "ide-hd",
        "ide-cd",
        "scsi-hd",
        "usb-storage",
        "virtio-blk-pci",
    ):
        assert f"dev: {device}" in tree, device
    assert monitor(node, name, "info block").count("Attached to:") == 5
    assert "poweroff" in agent.instances.domain_xml(name, namespace="default")


@pytest.mark.parametrize("kind", ["vga", "virtio", "bochs", "cirrus", "ramfb"])
def test_video(agent: Client, node: Node, bootsector_image: Image, kind: str) -> None:
    disks = {"root": {"disk": {"bus": "virtio"}}}
    devices = {"autoattachGraphicsDevice": True, "video": {"type": kind}}
    name = start(agent, guest(kind, devices=devices, disks=disks, image=bootsector_image))
    device = {"vga": "VGA", "virtio": "virtio-vga", "bochs": "bochs-display", "cirrus": "cirrus-vga"}
    assert f"dev: {device.get(kind, kind)}" in monitor(node, name, "info qtree")


def test_features_of_the_hypervisor_are_not_refused(
    agent: Client, node: Node, bootsector_image: Image
) -> None:
    hyperv: Object = {
        "relaxed": {},
        "vapic": {},
        "spinlocks": {"spinlocks": 8191},
        "vpindex": {},
        "runtime": {},
        "synic": {},
        "synictimer": {"direct": {}},
        "reset": {},
        "vendorid": {"vendorid": "launcher"},
        "frequencies": {},
        "reenlightenment": {},
        "tlbflush": {},
        "ipi": {},
    }
    domain = {
        "features": {
            "acpi": {},
            "apic": {"endOfInterrupt": True},
            "hyperv": hyperv,
            "kvm": {"hidden": True},
            "pvspinlock": {"enabled": False},
        },
        "clock": {"timezone": "Europe/Berlin", "timer": {"hyperv": {}, "kvm": {"present": False}}},
        "firmware": {"bootloader": {"bios": {"useSerial": True}}},
    }
    disks = {"root": {"disk": {"bus": "virtio"}}}
    name = start(agent, guest("windows", domain=domain, disks=disks, image=bootsector_image))
    eventually("the guest ticks", lambda: ticks(agent, name))
    xml = agent.instances.domain_xml(name, namespace="default")
    for element in ("<vendor_id ", "<apic eoi='on'/>", "<timer name='hypervclock' present='yes'/>"):
        assert element in xml
    assert "vpindex" not in xml  # QEMU does not start with it without KVM
    assert b"SeaBIOS" in agent.instances.console_log(name, namespace="default")


# --- refusals and facts -----------------------------------------------------------------------------------


def test_everything_that_the_node_lacks_is_named_at_once(agent: Client, node: Node) -> None:
    error = refused(
        agent,
        domain={
            "machine": {"type": "pc-q35-99.0"},
            "cpu": {"model": "Z80", "cores": 64, "dedicatedCpuPlacement": True},
        },
        devices={"autoattachVSOCK": True, "panicDevices": [{"model": "pvpanic"}]},
    )
    capabilities = [capability for capability, _ in error.findings]
    expected = ["64 CPUs to dedicate", "machine type pc-q35-99.0", "CPU model Z80"]
    assert [c for c in capabilities if c in expected] == expected
    assert not Path("/dev/vhost-vsock").exists() or "/dev/vhost-vsock" not in capabilities
    for _, reason in error.findings:
        assert "spec.domain." in reason or "libvirt" in reason


def test_firmware_is_what_the_descriptors_say_now(agent: Client, node: Node) -> None:
    """An administrator hides the packaged descriptors on this node; no agent is told."""
    secure: Object = {"features": {"smm": {}}, "firmware": {"bootloader": {"efi": {}}}}
    assert agent.instances.create(guest("secure", domain=secure), dry_run=True)
    node.run("sh", "-c", "mount -t tmpfs tmpfs /usr/share/qemu/firmware")
    try:
        assert refused(agent, domain=secure).capability == "UEFI for amd64 with Secure Boot"
        assert known(agent)["firmwares"] == []
    finally:
        node.run("umount", "/usr/share/qemu/firmware")
    assert agent.instances.create(guest("secure", domain=secure), dry_run=True)


def test_the_facts_are_those_of_the_host(agent: Client, node: Node) -> None:
    facts = known(agent)
    assert (facts["arch"], facts["node"]) == ("amd64", "a")
    assert facts["kernel"] == node.run("uname", "-r").strip()
    assert facts["cpus"] == int(node.run("nproc", "--all"))
    assert (facts["qemu_uid"], facts["qemu_gid"]) == (0, 0)
    assert facts["kvm_usable"] is False
    assert facts["kvm_reason"]
    assert facts["programs"]["swtpm"] == node.run("sh", "-c", "command -v swtpm").strip()
    (firmware, *_) = facts["firmwares"]
    assert "secure-boot" in firmware["features"]
    machines = next(guest for guest in facts["guests"] if guest["arch"] == "x86_64")["machines"]
    assert "q35" in machines
    (caps,) = (caps for caps in facts["domain_caps"] if caps["arch"] == "x86_64")
    assert caps["virt"] == "qemu"
    assert "tpm-crb" in caps["enums"]["tpm.model"]
    pool = next(pool for pool in facts["cells"][0]["pools"] if pool["size"] == PAGE)
    assert pool["count"] == int((PAGES / "nr_hugepages").read_text())
