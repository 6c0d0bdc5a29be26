# SPDX-License-Identifier: Apache-2.0
"""What tests of agents on real nodes share: manifests, and waiting for what a client sees."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from launcher.cli.client import Client
from launcher.lab.image import Image
from launcher.lab.node import Node
from launcher.v1 import migrations_pb2

DEADLINE_S = 60.0
_TICK = re.compile(rb"^tick (\d+)", re.MULTILINE)
Object = dict[str, Any]


def ticker(image: Image, name: str = "tick", *, grace_s: int = 0, extra: str = "") -> str:
    """A boot sector guest on a containerDisk that prints a tick each second."""
    return f"""
apiVersion: kubevirt.io/v1
kind: VirtualMachineInstance
metadata: {{name: {name}, namespace: default}}
spec:
  terminationGracePeriodSeconds: {grace_s}
  domain:
    memory: {{guest: 64Mi}}
    devices:
      disks: [{{name: root, disk: {{bus: virtio}}}}]
      interfaces: [{{name: default, masquerade: {{}}}}]
  networks: [{{name: default, pod: {{}}}}]
  volumes: [{{name: root, containerDisk: {{image: "{image.reference}"}}}}]
  {extra}
"""


def linux(image: Image, name: str, *, cmdline: str = "", memory: str = "128Mi", grace_s: int = 0) -> str:
    """A Linux guest by direct kernel boot; ``cmdline`` tells its init what to do."""
    return f"""
apiVersion: kubevirt.io/v1
kind: VirtualMachineInstance
metadata: {{name: {name}, namespace: default}}
spec:
  terminationGracePeriodSeconds: {grace_s}
  domain:
    memory: {{guest: {memory}}}
    firmware:
      kernelBoot:
        kernelArgs: "console=ttyS0 quiet panic=1 {cmdline}"
        container: {{image: "{image.reference}", kernelPath: /boot/vmlinux, initrdPath: /boot/initrd}}
    devices:
      autoattachPodInterface: false
"""


def client(node: Node) -> Client:
    """A client of the node's agent."""
    return Client(node.agent_target)


def until(
    agent: Client, name: str, reached: Callable[[Object], object], *, timeout_s: float = DEADLINE_S
) -> Object:
    """Watch an instance until it is as wanted; raises TimedOut."""
    with closing(agent.instances.watch(namespace="default", name=name, timeout_s=timeout_s)) as changes:
        for change in changes:
            if change.object is not None and change.type != "DELETED" and reached(change.object):
                return change.object
    raise AssertionError(f"the watch of {name} ended")


def until_gone(agent: Client, name: str, *, timeout_s: float = DEADLINE_S) -> None:
    """Watch an instance until it is not there."""
    seen = False
    with closing(agent.instances.watch(namespace="default", name=name, timeout_s=timeout_s)) as changes:
        for change in changes:
            seen = seen or change.type == "ADDED"
            if change.type == "DELETED" or (change.type == "BOOKMARK" and not seen):
                return


def running(agent: Client, name: str) -> Object:
    """Wait until the guest runs."""
    return until(agent, name, lambda vmi: phase(vmi) == "Running" and is_true(vmi, "Ready"))


def migrated(agent: Client, name: str, *, timeout_s: float = 120.0) -> migrations_pb2.Migration:
    """Wait for the end of a migration and return it with its report."""
    last = None
    with closing(agent.migrations.watch(name, namespace="default", timeout_s=timeout_s)) as views:
        for view in views:
            last = view
    assert last is not None
    assert last.HasField("report"), "the watch ends with the report"
    return last


def migration(vmi: str, name: str = "") -> Object:
    """A migration object for the instance ``vmi``."""
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachineInstanceMigration",
        "metadata": {"name": name or f"move-{vmi}", "namespace": "default"},
        "spec": {"vmiName": vmi},
    }


def eventually(what: str, look: Callable[[], object], *, timeout_s: float = DEADLINE_S) -> None:
    """Look until it holds; for what no watch tells, such as a console log or a file."""
    end = time.monotonic() + timeout_s
    while not look():
        assert time.monotonic() < end, f"{what}: not within {timeout_s:.0f} s"
        time.sleep(0.05)


def phase(vmi: Object) -> str:
    """The phase of an instance."""
    return str(vmi.get("status", {}).get("phase", ""))


def condition(vmi: Object, kind: str) -> Object | None:
    """A condition of an instance."""
    return next((c for c in vmi.get("status", {}).get("conditions", ()) if c["type"] == kind), None)


def is_true(vmi: Object, kind: str) -> bool:
    """Whether a condition holds."""
    found = condition(vmi, kind)
    return found is not None and found["status"] == "True"


def ticks(agent: Client, name: str) -> list[int]:
    """The numbers that the guest printed on its console here."""
    log = agent.instances.console_log(name, namespace="default")
    return [int(number) for number in _TICK.findall(log)]


def qemu_pid(node: Node, name: str) -> str:
    """The process id of a guest, numbered as inside; empty when it does not run."""
    pid_file = f"/run/libvirt/qemu/default_{name}.pid"
    return node.run(
        "sh", "-c", f"p=$(cat {pid_file} 2>/dev/null) && kill -0 $p 2>/dev/null && echo $p || true"
    ).strip()


def leftovers(node: Node) -> list[str]:
    """What an agent left on its node: instance folders, sockets, taps, domains."""
    state = node.layout.outside("/var/lib/launcher")
    run = node.layout.outside("/run/launcher")
    found = [
        str(path) for path in (*_entries(state / "instances"), *_entries(run / "i"), *_entries(run / "n"))
    ]
    found += [
        line for line in node.run("ip", "-br", "link").splitlines() if line.startswith(("lt", "lw", "lu"))
    ]
    found += node.run("virsh", "list", "--all", "--name").split()
    return found


def _entries(folder: Path) -> list[Path]:
    return sorted(folder.iterdir()) if folder.exists() else []


@contextmanager
def restarting(node: Node) -> Iterator[list[int]]:
    """Start libvirtd again whenever it ends, as systemd does; gives how often."""
    ends: list[int] = []
    stop = threading.Event()

    def watch() -> None:
        while not stop.wait(0.5):
            if node.libvirtd_pid is None:
                ends.append(len(ends) + 1)
                node.start_libvirtd()

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield ends
    finally:
        stop.set()
        thread.join()
