# SPDX-License-Identifier: Apache-2.0
"""The playground's guests boot, tick, and move between two nodes by libvirt alone."""

from __future__ import annotations

import gzip
import io
import json
import re
import tarfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from launcher.lab import emulator, image
from launcher.lab.image import Image
from launcher.lab.lab import Lab
from launcher.lab.node import Node

pytestmark = pytest.mark.node

BOOT_TIMEOUT_S = 90.0


def _domain(name: str, memory_mib: int, *, boot: str = "", devices: str = "", log: Path) -> str:
    return f"""
    <domain type='qemu'>
      <name>{name}</name><memory unit='MiB'>{memory_mib}</memory><vcpu>1</vcpu>
      <os><type arch='x86_64' machine='q35'>hvm</type>{boot}</os>
      <features><acpi/></features>
      <cpu mode='custom' match='exact' check='none'><model fallback='forbid'>qemu64</model></cpu>
      <devices>{devices}
        <serial type='pty'><log file='{log}' append='on'/><target port='0'/></serial>
      </devices>
    </domain>"""


def _unpack(layout: Path, target: Path) -> None:
    """Every layer of the layout's only image, into ``target``."""

    def blob(digest: str) -> bytes:
        return (layout / "blobs" / digest.replace(":", "/")).read_bytes()

    index = json.loads((layout / "index.json").read_bytes())
    manifest = json.loads(blob(index["manifests"][0]["digest"]))
    for layer in manifest["layers"]:
        with tarfile.open(fileobj=io.BytesIO(gzip.decompress(blob(layer["digest"])))) as archive:
            # Debian 12's Python 3.11.2 has no filters yet and ignores the attribute.
            archive.extraction_filter = getattr(tarfile, "data_filter", None)
            archive.extractall(target)


def _create(node: Node, lab: Lab, xml: str) -> None:
    file = lab.shared / "domain.xml"
    file.write_text(xml)
    node.run("virsh", "create", file)


def _wait_for(log: Path, pattern: str) -> str:
    deadline = time.monotonic() + BOOT_TIMEOUT_S
    while True:
        text = log.read_bytes().decode(errors="replace") if log.exists() else ""
        if re.search(pattern, text):
            return text
        assert time.monotonic() < deadline, f"no {pattern!r} in: … {text[-500:]}"
        time.sleep(0.05)


def test_the_boot_sector_guest_ticks_and_counts(lab: Lab, node_a: Node) -> None:
    disk, log = image.boot_disk(lab.shared), lab.shared / "sector.log"
    devices = f"<disk type='file'><source file='{disk}'/><target dev='vda' bus='virtio'/><readonly/></disk>"
    _create(node_a, lab, _domain("sector", 16, devices=devices, log=log))
    text = _wait_for(log, "tick 3\r\n")
    node_a.run("virsh", "destroy", "sector")
    assert text.startswith("GUEST UP\r\ntick 1\r\ntick 2\r\n")


def test_the_bootsector_image_holds_that_disk(bootsector_image: Image, tmp_path: Path) -> None:
    _unpack(bootsector_image.folder, tmp_path)
    disk = (tmp_path / image.DISK_PATH.lstrip("/")).read_bytes()
    assert disk == image.boot_disk(tmp_path).read_bytes()
    assert disk[510:512] == b"\x55\xaa"


def test_the_linux_guest_boots_ticks_and_migrates(guest_image: Image, fresh_lab: Callable[..., Lab]) -> None:
    lab = fresh_lab("a", "b")
    a, b = lab.node("a"), lab.node("b")
    _unpack(guest_image.folder, lab.shared)
    boot = (
        f"<kernel>{lab.shared}{image.KERNEL_PATH}</kernel><initrd>{lab.shared}{image.INITRD_PATH}</initrd>"
        "<cmdline>console=ttyS0 quiet panic=1 dirty=4,20 tick=200</cmdline>"
    )
    log = "/var/lib/libvirt/linux.log"
    nic = "<interface type='bridge'><source bridge='br0'/><model type='virtio'/></interface>"
    _create(a, lab, _domain("linux", 128, boot=boot, devices=nic, log=Path(log)))
    on_a, on_b = a.layout.outside(log), b.layout.outside(log)
    assert "GUEST UP" in _wait_for(on_a, "tick 5 ")
    ask = '{"execute": "query-memory-size-summary"}'
    told = json.loads(a.run("virsh", "qemu-monitor-command", "linux", ask))
    # An emulating QEMU before 9.0 copies stale pages of blocks that are multiples of 64 pages.
    odd = told["return"]["base-memory"] % (64 * 4096) != 0
    assert odd is emulator.forgets(a.run("qemu-system-x86_64", "--version"))
    a.run("virsh", "migrate", "--live", "--p2p", "linux", f"qemu+tcp://{b.ip}/system")
    _wait_for(on_b, r"tick \d+ uptime [\d.]+\r\n(.*\n)*tick")
    assert "linux" not in a.run("virsh", "list", "--all", "--name")
    joined = (on_a.read_bytes() + on_b.read_bytes()).decode()
    ticks = [int(number) for number in re.findall(r"tick (\d+) uptime", joined)]
    assert ticks == list(range(1, len(ticks) + 1))


def test_the_power_button_turns_the_linux_guest_off(guest_image: Image, lab: Lab, node_b: Node) -> None:
    _unpack(guest_image.folder, lab.shared)
    boot = (
        f"<kernel>{lab.shared}{image.KERNEL_PATH}</kernel><initrd>{lab.shared}{image.INITRD_PATH}</initrd>"
        "<cmdline>console=ttyS0 quiet tick=100</cmdline>"
    )
    log = lab.shared / "button.log"
    _create(node_b, lab, _domain("button", 128, boot=boot, log=log))
    _wait_for(log, "tick 1 ")
    node_b.run("virsh", "shutdown", "button", "--mode", "acpi")
    _wait_for(log, "GUEST POWERBUTTON")
