# SPDX-License-Identifier: Apache-2.0
"""One guest that is sent to and fro between two agents while things die, and a checker that never looks away.

The guest counts ticks, checks every page before it writes it again, and reads back what it wrote to its disk.
Its console is followed on both nodes, and both libvirtds are asked all the time whether it runs.
"""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from types import TracebackType
from typing import Any, Self

import libvirt
import psutil
from agent_world import client, eventually, leftovers, qemu_pid, until, until_gone

from launcher.cli.client import Client, Object
from launcher.errors import AlreadyExists, CommandFailed, LauncherError, NotFound, Unavailable
from launcher.lab import image
from launcher.lab.follower import Follower
from launcher.lab.lab import Lab
from launcher.lab.node import Node
from launcher.lab.ticks import continuity
from launcher.rpc.struct import to_plain
from launcher.v1.migrations_pb2 import Migration

POLICIES = "/var/lib/launcher-lab/policies"
WIRE_MBIT = 60
POST_COPY_MBIT = 16
LEFT_BYTES = 8 << 20
"""With so much to come post-copy goes on for 4 s at least."""
SEND_BUFFER = "4096 16384 131072"
"""tcp_wmem of the nodes. A page that the guest waits for in post-copy comes after all that is in the sender's
buffer: with the kernel's default, over a slow wire, the guest would hardly run before all is there."""
TICK_MS = 200
FIRST_PORT, LAST_PORT = 49152, 49157
NAME = "subject"
OTHER = "other"
END_S = 240.0
LOOK_S = 0.3


def manifest(
    name: str,
    *,
    dirty: str = "16,8",
    extra: str = "",
    memory: str = "memory: {guest: 160Mi}",
    nics: str = "autoattachPodInterface: false",
    networks: str = "[]",
) -> str:
    """The guest: a disk of its own that is copied, and all its checks."""
    reference = image.guest().reference
    return f"""
apiVersion: kubevirt.io/v1
kind: VirtualMachineInstance
metadata: {{name: {name}, namespace: default, labels: {{matrix: "yes"}}}}
spec:
  terminationGracePeriodSeconds: 0
  domain:
    {memory}
    firmware:
      kernelBoot:
        kernelArgs: "console=ttyS0 quiet panic=1 tick={TICK_MS} dirty={dirty} disk=/dev/vda {extra}"
        container: {{image: "{reference}", kernelPath: /boot/vmlinux, initrdPath: /boot/initrd}}
    devices: {{{nics}, disks: [{{name: data, disk: {{bus: virtio}}}}]}}
  networks: {networks}
  volumes: [{{name: data, emptyDisk: {{capacity: 64Mi}}}}]
"""


class Watchdog:
    """Asks both libvirtds for ever: the guest must not run on both."""

    def __init__(self, nodes: dict[str, Node], name: str) -> None:
        self._uris = {name: node.libvirt_uri for name, node in nodes.items()}
        self._domain = f"default_{name}"
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)
        self._connections: dict[str, libvirt.virConnect] = {}
        self.looks = 0
        self.conflicts: list[str] = []

    def __enter__(self) -> Self:
        libvirt.registerErrorHandler(lambda _context, _error: None, None)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(20)

    def _watch(self) -> None:
        first, second = self._uris
        while not self._stop.wait(LOOK_S):
            # Between two looks at the first the second was looked at: what is seen is true at one moment.
            seen = [self._runs(node) for node in (first, second, first)]
            self.looks += None not in seen
            if all(seen):
                self.conflicts.append(f"{self._domain} ran on {first} and {second}")

    def _runs(self, node: str) -> bool | None:
        try:
            if node not in self._connections:
                self._connections[node] = libvirt.openReadOnly(self._uris[node])
            state: Any = self._connections[node].lookupByName(self._domain).state()[0]
        except libvirt.libvirtError as error:
            if error.get_error_code() == libvirt.VIR_ERR_NO_DOMAIN:
                return False
            with suppress(libvirt.libvirtError):
                self._connections.pop(node, None)
            return None
        return bool(state == libvirt.VIR_DOMAIN_RUNNING)


class Subject:
    """The guest, wherever it is. ``source`` is the node that it is on, ``target`` the other."""

    def __init__(
        self, nodes: dict[str, Node], agents: dict[str, Client], policy: Callable[..., None]
    ) -> None:
        self.nodes, self.agents = nodes, agents
        self.policy = policy
        self.home = ""
        self.sound = False
        """The last thing that was done to it ended well; else the next begins with a new guest."""
        self.number = 0
        self._stack = ExitStack()
        self._follower: Follower | None = None
        self._watchdog: Watchdog | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    @property
    def source(self) -> Node:
        return self.nodes[self.home]

    @property
    def target(self) -> Node:
        return self.nodes[self.away]

    @property
    def away(self) -> str:
        return next(name for name in self.nodes if name != self.home)

    def ready(self, **given: str) -> None:
        """All daemons and links are there and the guest runs, made anew if there is none."""
        for node in self.nodes.values():
            node.rate(None)
            node.set_link(True)
            node.wait_serving()
        if self.home and self.sound and not given:
            self.sound = False
            return
        self.forget()
        self.sound = False
        self.home = "a"
        created = self.agents["a"].instances.create(manifest(NAME, **given))
        uid = str(created["metadata"]["uid"])
        path = f"/var/lib/launcher/instances/{uid}/serial0.log"
        logs = {name: node.layout.outside(path) for name, node in self.nodes.items()}
        self._follower = self._stack.enter_context(Follower(logs))
        self._watchdog = self._stack.enter_context(Watchdog(self.nodes, NAME))
        follower = self._follower

        def up() -> bool:
            text = "\n".join(follower.lines())
            return len(follower.ticks()) > 5 and "dirty 16" in text and "disk 100" in text

        follower.wait(up, timeout_s=120, what="the guest's work")

    def forget(self) -> None:
        """Remove the guest, and look once more at what it and the watchdog saw."""
        self._stack.close()
        for agent in self.agents.values():
            clear(agent)
        self.home = ""
        for node in self.nodes.values():
            self.clean(node.name)

    def begin(self, *, post_copy: bool = False, after_s: int = 6) -> str:
        """Send the guest to the other node, slowly, and return the name of its migration; see ``policy``."""
        self.policy(post_copy=post_copy, after_s=after_s)
        self.target.rate(WIRE_MBIT)
        self.number += 1
        name = f"{NAME}-{self.number}"
        self.agents[self.home].migrations.create(migration(NAME, name), target=self.away)
        return name

    def move(self) -> Migration:
        """Send the guest to the other node as quickly as it goes, and look at the end."""
        return self.settled(self.ask())

    def ask(self) -> str:
        """Ask for the guest to be sent, whichever agent is away; the migration's name."""
        self.number += 1
        name, end = f"{NAME}-{self.number}", time.monotonic() + END_S
        wanted = migration(NAME, name)
        while True:
            try:
                self.agents[self.home].migrations.create(wanted, target=self.away)
                break
            except Unavailable:
                assert time.monotonic() < end
                time.sleep(0.2)
            except AlreadyExists:  # The agent died between doing it and saying so.
                break
        return name

    def until(self, name: str, reached: Callable[[Migration], object], *, timeout_s: float = 90) -> Migration:
        """Look at the migration, also while its agent is away, until it is as wanted."""
        end = time.monotonic() + timeout_s
        last: Migration | None = None
        while time.monotonic() < end:
            with suppress(LauncherError):
                last = self.agents[self.home].migrations.get(name, namespace="default")
                if reached(last):
                    return last
            time.sleep(0.05)
        raise AssertionError(f"{name} is not as wanted after {timeout_s:.0f} s: {last}")

    def until_data(self, name: str) -> None:
        self.until(name, lambda m: m.progress.iteration >= 1 and m.progress.remaining_bytes)

    def until_post_copy(self, name: str) -> None:
        """The guest ticks on the target, and most is still to come over a wire that is slower from then on.

        A moment before that nothing could help it: see docs.
        """
        self.until(name, lambda m: mode(m) == "PostCopy")
        follower = self._follower
        assert follower is not None
        there = len([tick for tick in follower.ticks() if tick.node == self.away])
        follower.wait(
            lambda: len([tick for tick in follower.ticks() if tick.node == self.away]) > there + 1,
            timeout_s=60,
            what=f"ticks on {self.away}",
        )
        self.target.rate(POST_COPY_MBIT)
        left = self.until(name, lambda m: True)
        assert not left.HasField("report"), f"post-copy was over before anything happened: {left}"
        assert left.progress.remaining_bytes > LEFT_BYTES, f"post-copy is nearly over: {left.progress}"

    def ended(self, name: str, *, timeout_s: float = END_S) -> Migration:
        """The migration with its report."""
        return self.until(name, lambda m: m.HasField("report"), timeout_s=timeout_s)

    def settled(self, name: str, *, timeout_s: float = END_S) -> Migration:
        """The migration's end: one guest goes on where the report says, and nothing is at the other node."""
        end = self.ended(name, timeout_s=timeout_s)
        here = self.away if end.report.succeeded else self.home
        other = next(node for node in self.nodes if node != here)
        assert self._runs(here), f"{end.report.reason}: it does not run on {here}"
        assert not self._runs(other), f"{end.report.reason}: it runs on {other}, too"
        self.home = here
        self.goes_on()
        self.clean(other)
        self.sound = True
        return end

    def clean(self, node: str) -> None:
        """Nothing is left on a node, at the latest when a reservation ran out."""
        eventually(f"{node} is clean", lambda: self._is_clean(node), timeout_s=180)

    def _is_clean(self, node: str) -> bool:
        with suppress(CommandFailed):  # libvirtd is away.
            return leftovers(self.nodes[node]) == []
        return False

    def goes_on(self) -> None:
        """The guest ticks where it is, it never was in two places, and has all that it wrote."""
        follower, watchdog = self._follower, self._watchdog
        assert follower is not None
        assert watchdog is not None
        before, written = len(follower.ticks()), disk_reports(follower)
        follower.wait(
            lambda: len(follower.ticks()) > before + 5 and follower.ticks()[-1].node == self.home,
            timeout_s=90,
            what=f"ticks on {self.home}",
        )
        follower.wait(
            lambda: disk_reports(follower) > written, timeout_s=90, what=f"work on the disk on {self.home}"
        )
        self.check()
        assert watchdog.looks > 5

    def check(self) -> None:
        """What must hold at any time."""
        follower, watchdog = self._follower, self._watchdog
        assert follower is not None
        assert watchdog is not None
        ticks = follower.ticks()
        found = continuity(ticks)
        twice = [number for number, count in Counter(tick.number for tick in ticks).items() if count > 1]
        assert twice == [], "two copies ticked"
        assert found is None or found.missing == ()
        bad = [line for line in follower.lines() if line.startswith("BAD")]
        assert bad == [], bad
        assert watchdog.conflicts == []

    def second(self) -> str:
        """Ask for the migration of another guest, which runs beside this one."""
        agent = self.agents[self.home]
        agent.instances.create(manifest(OTHER))
        until(agent, OTHER, lambda vmi: vmi.get("status", {}).get("phase") == "Running")
        self.number += 1
        name = f"{OTHER}-{self.number}"
        agent.migrations.create(migration(OTHER, name), target=self.away)
        return name

    def drop_second(self) -> None:
        """Remove it."""
        agent = self.agents[self.home]
        agent.instances.delete(OTHER, namespace="default", grace_period_s=0)
        until_gone(agent, OTHER)

    def lost(self) -> None:
        """The guest died with its QEMU: it runs nowhere, and did not run twice before."""
        self.check()
        # The end of the migration is told first, what it means for the instance a moment later.
        eventually("it runs nowhere", lambda: not any(self._runs(node) for node in self.nodes))
        self.forget()

    def _runs(self, node: str) -> bool:
        eventually(f"the agent of {node} answers", lambda: answers(self.agents[node]))
        try:
            vmi = self.agents[node].instances.get(NAME, namespace="default")
        except NotFound:
            return False
        return str(vmi.get("status", {}).get("phase")) == "Running" and bool(qemu_pid(self.nodes[node], NAME))


def disk_reports(follower: Follower) -> int:
    """How often the guest said that it wrote and read a hundred blocks more."""
    return sum(line.startswith("disk ") for line in follower.lines())


def migration(vmi: str, name: str) -> Object:
    """A migration object."""
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachineInstanceMigration",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"vmiName": vmi},
    }


def status(view: Migration) -> dict[str, Any]:
    found: dict[str, Any] = to_plain(view.object).get("status", {})
    return found


def mode(view: Migration) -> str:
    return str(status(view).get("migrationState", {}).get("mode", ""))


def phase(view: Migration) -> str:
    return str(status(view).get("phase", ""))


def cause(view: Migration) -> str:
    """The cause code of a migration that failed."""
    return str(status(view)["conditions"][0]["reason"])


def clear(agent: Client) -> None:
    """Delete all instances."""
    for instance in agent.instances.list():
        with suppress(NotFound):
            agent.instances.delete(instance["metadata"]["name"], namespace="default", grace_period_s=0)
    for instance in agent.instances.list():
        until_gone(agent, instance["metadata"]["name"])


@contextmanager
def matrix() -> Iterator[Subject]:
    """The lab: agents that read a policy, and let one migration go at a time."""
    with ExitStack() as stack:
        lab = stack.enter_context(Lab(names=("a", "b")))
        folder = lab.shared / "policies"
        folder.mkdir()

        def policy(*, post_copy: bool = False, after_s: int = 6) -> None:
            # Post-copy, if it may be, begins when memory flowed for ``after_s``.
            timeout, consent = (
                (after_s, "allowPostCopy: true") if post_copy else (150, "allowPostCopy: false")
            )
            (folder / "matrix.yaml").write_text(f"""
apiVersion: migrations.kubevirt.io/v1alpha1
kind: MigrationPolicy
metadata: {{name: matrix}}
spec:
  selectors: {{virtualMachineInstanceSelector: {{matrix: "yes"}}}}
  completionTimeoutPerGiB: {timeout}
  {consent}
""")

        policy()
        for name in lab.names:
            config = lab.node(name).layout.agent_config
            text = config.read_text().replace('"policies_dir" = ""', f'"policies_dir" = "{POLICIES}"')
            text = text.replace('"outbound" = 2', '"outbound" = 1')
            config.write_text(text.replace('"port_max" = 49215', f'"port_max" = {LAST_PORT}'))
            assert str(LAST_PORT) in config.read_text()
        lab.start_agents()
        nodes = {name: lab.node(name) for name in lab.names}
        for node in nodes.values():
            node.run("sysctl", "-q", "-w", f"net.ipv4.tcp_wmem={SEND_BUFFER}")
        agents = {name: stack.enter_context(client(node)) for name, node in nodes.items()}
        subject = stack.enter_context(Subject(nodes, agents, policy))
        yield subject
        subject.forget()


# What dies, or stands still ---------------------------------------------------------------------------------


def kill_agent(node: Node) -> None:
    node.stop_agent(signal.SIGKILL)
    node.start_agent()


def kill_libvirtd(node: Node) -> None:
    node.stop_libvirtd(signal.SIGKILL)
    node.start_libvirtd()


def kill_qemu(node: Node) -> None:
    pid = qemu_pid(node, NAME)
    assert pid, "there is something to kill"
    node.run("kill", "-9", pid)


def command(node: Node, name: str) -> None:
    """A command of QEMU's, for what libvirt lets nobody do to the guest while it has a job."""
    node.run("virsh", "qemu-monitor-command", f"default_{NAME}", json.dumps({"execute": name}))


@contextmanager
def frozen(pid: int | None) -> Iterator[None]:
    """A process stands still; it may be killed meanwhile. nsenter(1) above it stops along with it."""
    assert pid is not None
    parent = psutil.Process(pid).ppid()
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for stopped in (parent, pid):
            with suppress(ProcessLookupError):
                os.kill(stopped, signal.SIGCONT)


def answers(agent: Client) -> bool:
    try:
        agent.node()
    except Unavailable:
        return False
    return True
