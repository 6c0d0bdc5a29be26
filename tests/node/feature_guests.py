# SPDX-License-Identifier: Apache-2.0
"""Manifests for tests of single features, a shell inside a guest, and QEMU's monitor."""

from __future__ import annotations

import queue
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from agent_world import eventually

from launcher.cli.client import Client
from launcher.lab.image import BZIMAGE_PATH, INITRD_PATH, KERNEL_PATH, Image
from launcher.lab.node import Node

SHELL_TIMEOUT_S = 60.0
BOOT_TIMEOUT_S = 240.0
"""UEFI that measures what it starts into a TPM, by emulation on a busy machine, takes minutes."""
_PROMPT = re.compile(rb"GUEST UP.*# ", re.DOTALL)
Object = dict[str, Any]


def guest(
    name: str,
    *,
    memory: str = "64Mi",
    domain: Mapping[str, Any] | None = None,
    devices: Mapping[str, Any] | None = None,
    disks: Mapping[str, Mapping[str, Any]] | None = None,
    image: Image | None = None,
    **spec: Any,
) -> Object:
    """An instance without network. ``disks`` are copies of ``image`` by name, each with its ``disk``,
    ``cdrom`` or ``lun`` and other fields."""
    found = disks or {}
    reference = image.reference if image is not None else ""
    parts = dict(domain or {})
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachineInstance",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "terminationGracePeriodSeconds": 0,
            "domain": {
                **parts,
                "memory": {"guest": memory, **parts.get("memory", {})},
                "devices": {
                    "autoattachPodInterface": False,
                    "autoattachGraphicsDevice": False,
                    "disks": [{"name": disk, **fields} for disk, fields in found.items()],
                    **(devices or {}),
                },
            },
            "volumes": [{"name": disk, "containerDisk": {"image": reference}} for disk in found],
            **spec,
        },
    }


def kernel_boot(image: Image, *, uefi: bool = False) -> Object:
    """``firmware.kernelBoot`` of the Linux guest with a shell on its console."""
    return {
        "kernelArgs": "console=ttyS0 quiet panic=1 shell=1 tick=0",
        "container": {
            "image": image.reference,
            "kernelPath": BZIMAGE_PATH if uefi else KERNEL_PATH,
            "initrdPath": INITRD_PATH,
        },
    }


class Shell:
    """Runs commands in the guest's shell."""

    def __init__(self, output: Iterator[bytes], keys: queue.Queue[bytes | None]) -> None:
        self._output = output
        self._keys = keys
        self._seen = b""
        self._count = 0

    def run(self, command: str) -> str:
        """What ``command`` prints, errors too; its status is not looked at."""
        self._count += 1
        # The shell echoes what is typed: the marks are joined only when it runs.
        begin, end = f"<<{self._count}", f"{self._count}>>"
        self._keys.put(f"echo '<<''{self._count}'; {command} 2>&1; echo '{self._count}''>>'\n".encode())
        found = self._until(re.compile(rf"{begin}\r?\n(.*?){end}".encode(), re.DOTALL))
        return found[1].decode(errors="replace").replace("\r", "").strip()

    def type(self, command: str) -> None:
        """Have ``command`` run, which ends the guest or this shell: nothing is waited for."""
        self._keys.put(f"{command}\n".encode())

    def _until(self, wanted: re.Pattern[bytes]) -> re.Match[bytes]:
        while (found := wanted.search(self._seen)) is None:
            data = next(self._output, None)
            assert data is not None, f"{wanted.pattern!r} is not in {self._seen[-2000:]!r}"
            self._seen += data
        self._seen = self._seen[found.end() :]
        return found


@contextmanager
def shell(agent: Client, name: str, *, up: bool = False) -> Iterator[Shell]:
    """A shell in the Linux guest ``name``, once that is up; it ends after ``SHELL_TIMEOUT_S``.

    ``up``: it is up already; one that came from another node does not boot here.
    """
    if not up:
        eventually(
            f"the shell of {name} prompts",
            lambda: _PROMPT.search(agent.instances.console_log(name, namespace="default")),
            timeout_s=BOOT_TIMEOUT_S,
        )
    keys: queue.Queue[bytes | None] = queue.Queue()
    console = agent.instances.console(name, iter(keys.get, None), namespace="default")
    end = threading.Timer(SHELL_TIMEOUT_S, console.close)
    end.start()
    try:
        yield Shell(iter(console), keys)
    finally:
        end.cancel()
        keys.put(None)
        console.close()


def monitor(node: Node, name: str, command: str) -> str:
    """What QEMU's monitor says to ``command``."""
    return node.run("virsh", "qemu-monitor-command", "--hmp", f"default_{name}", command)


def threads(node: Node, name: str) -> dict[str, str]:
    """The threads of a guest's QEMU by their names, with the CPUs that each may run on."""
    script = (
        f"for t in /proc/$(cat /run/libvirt/qemu/default_{name}.pid)/task/*; do "
        "echo \"$(cat $t/comm)|$(sed -n 's/^Cpus_allowed_list:[[:space:]]*//p' $t/status)\"; done"
    )
    lines = node.run("sh", "-c", script).splitlines()
    return dict(line.split("|", 1) for line in lines if "|" in line)


def iothreads(xml: str) -> dict[str, str]:
    """The I/O thread of each disk that has one, by target."""
    disks = re.findall(r"<disk .*?</disk>", xml, re.DOTALL)
    found = [(re.search(r"target dev='(\w+)'", d), re.search(r"iothread='(\d+)'", d)) for d in disks]
    return {target[1]: thread[1] for target, thread in found if target and thread}
