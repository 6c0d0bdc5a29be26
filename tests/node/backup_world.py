# SPDX-License-Identifier: Apache-2.0
"""What tests of snapshots, backups and dumps share: a guest with disks, its agent, and looks into copies."""

from __future__ import annotations

import base64
import subprocess
from pathlib import Path

from feature_guests import Object, Shell, guest, kernel_boot

from launcher.lab.image import Image
from launcher.lab.node import Node

MIB = 1 << 20

# As much of qemu-ga as a copy needs: it says whether it is frozen, and writes down what it was asked. Frozen,
# it marks the disk, so that the copy shows whether its moment was a frozen one.
AGENT = r"""(exec 3<>/dev/virtio-ports/org.qemu.guest_agent.0; state=thawed
say() { echo "{\"return\": $1}" >&3; }
mark() { printf %-16s "$1" | dd of=/dev/vda bs=512 seek=8 conv=notrunc,sync 2>/dev/null; sync; }
while :; do while read -r line <&3; do case "$line" in
*guest-fsfreeze-status*) say "\"$state\"" ;;
*guest-fsfreeze-freeze*) [ -e /tmp/wait ] && sleep 6
  state=frozen; echo freeze >>/tmp/asked; mark frozen; say 1 ;;
*guest-fsfreeze-thaw*) state=thawed; echo thaw >>/tmp/asked; say 1; mark thawed ;;
*) id=$(echo "$line" | sed -n 's/.*"id": *\([0-9]*\).*/\1/p'); say "${id:-{\}}" ;;
esac; done; sleep 0.2; done) & echo $! >/tmp/agent
"""


def disks_guest(
    image: Image, name: str, volumes: dict[str, Object], *, tracked: bool = False, memory: str = "128Mi"
) -> Object:
    """A Linux guest with a shell and the volumes as virtio disks, in this order from vda."""
    disks = [
        {"name": disk, "disk": {"bus": "virtio"}, **({"changedBlockTracking": True} if tracked else {})}
        for disk in volumes
    ]
    return guest(
        name,
        memory=memory,
        domain={"firmware": {"kernelBoot": kernel_boot(image)}},
        devices={"disks": disks},
        volumes=[{"name": disk, **source} for disk, source in volumes.items()],
    )


def start_agent(inside: Shell) -> None:
    """Run AGENT in the guest; it goes over in pieces that a terminal takes."""
    text = base64.b64encode(AGENT.encode()).decode()
    for start in range(0, len(text), 400):
        inside.run(f"echo {text[start : start + 400]} >>/tmp/agent.b64")
    inside.run("base64 -d /tmp/agent.b64 >/tmp/agent.sh; . /tmp/agent.sh")


def write(inside: Shell, device: str, text: str, block: int) -> None:
    """Fill the MiB number ``block`` of a guest's disk with ``text``, and see it on the disk."""
    to = f"dd of=/dev/{device} bs={MIB} seek={block} conv=notrunc,fsync"
    inside.run(f"yes {text} | head -c {MIB} | {to} 2>/dev/null")


def content(node: Node, path: str, *, form: str = "qcow2") -> bytes:
    """What a guest would read of the image ``path`` of the node."""
    outside = node.layout.outside(path)
    return raw_content(outside, form)


def raw_content(path: Path, form: str) -> bytes:
    """What is in an image here."""
    target = path.with_suffix(".content")
    argv = ["qemu-img", "convert", "-U", "-f", form, "-O", "raw", str(path), str(target)]
    subprocess.run(argv, check=True, capture_output=True)
    try:
        return target.read_bytes()
    finally:
        target.unlink()


def block(data: bytes, number: int) -> str:
    """What ``write`` filled a MiB with, all of it; empty for zeros."""
    part = data[number * MIB : (number + 1) * MIB]
    line = part.split(b"\n", 1)[0].rstrip(b"\0") + b"\n"
    if line != b"\n":
        assert part == (line * (MIB // len(line) + 1))[:MIB]
    return line.decode().strip()
