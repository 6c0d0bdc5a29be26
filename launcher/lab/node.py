# SPDX-License-Identifier: Apache-2.0
"""One node of the playground: namespaces, its own libvirtd and its own agent.

A node must leave nothing outside its folder, and ends when its owner does.
"""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from launcher.errors import CommandFailed, TimedOut
from launcher.lab import capabilities_cache, command, conf, health
from launcher.lab.layout import SYSTEM_ROOT, LabLayout, NodeLayout
from launcher.lab.namespaces import Holder, Namespaces, shell_script
from launcher.lab.pki import qemu_folder
from launcher.lab.process import ProcessId
from launcher.lab.service import POLL_S, Program, Service
from launcher.lab.setup import NodeSetup, script
from launcher.lab.switch import SwitchView

LIBVIRTD_TIMEOUT_S = 60.0
LIBVIRTD_KILL_AFTER_S = 5.0
AGENT_TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePlan:
    """What a node is told by its lab. ``addresses`` are those of all nodes, also of those not started.

    ``system``: the root folder of another Debian release, whose libvirtd and QEMU the node has. ``stand_in``:
    what it sees in QEMU's place (see ``emulator``).
    """

    name: str
    index: int
    addresses: Mapping[str, str]
    layout: NodeLayout
    lab: LabLayout
    cache: Path
    kvm: bool
    system: Path | None = None
    stand_in: Path | None = None

    @property
    def ip(self) -> str:
        """This node's address."""
        return self.addresses[self.name]

    @property
    def capabilities(self) -> Path:
        """Where what this node's libvirtd learns about its QEMU is kept."""
        release = self.system.name if self.system is not None else ""
        if self.stand_in is not None:
            release = "-".join(filter(None, (release, self.stand_in.name)))
        return capabilities_cache.kept(self.cache, kvm=self.kvm, release=release)


class Node:
    """A running node. Made by ``Lab.node``; libvirtd runs when it is made, the agent not yet."""

    def __init__(self, plan: NodePlan, switch: SwitchView) -> None:
        self.name = plan.name
        self.ip = plan.ip
        self.dir = plan.layout.root
        self.layout = plan.layout
        self._plan = plan
        self._switch = switch
        _write_files(plan)
        self._holder = Holder()
        self.namespaces: Namespaces = self._holder.namespaces
        self._libvirtd = Service(self.namespaces, _libvirtd(plan))
        self._agent = Service(self.namespaces, _agent(plan.layout))
        with ExitStack() as undo:
            undo.callback(self.close)
            switch.plug(plan.index, self.namespaces)
            self.namespaces.run(*shell_script(script(plan.layout, _setup(plan))))
            self.start_libvirtd()
            undo.pop_all()

    @property
    def libvirt_uri(self) -> str:
        """Reaches this node's libvirtd from inside and outside."""
        return self.layout.libvirt_uri

    @property
    def agent_target(self) -> str:
        """Reaches this node's agent from inside and outside, as gRPC spells it."""
        return f"unix:{self.layout.agent_socket}"

    @property
    def holder(self) -> ProcessId:
        """PID 1 of the node, numbered as outside."""
        return self._holder.process_id

    @property
    def libvirtd_pid(self) -> int | None:
        """libvirtd, numbered as outside; None when it does not run."""
        found = self._libvirtd.process_id
        return found.pid if found else None

    @property
    def agent_pid(self) -> int | None:
        """The agent, numbered as outside; None when it does not run."""
        found = self._agent.process_id
        return found.pid if found else None

    def run(self, *argv: str | Path, timeout_s: float = 60.0) -> str:
        """Run a program inside and return its stdout; see ``command.run`` for the errors."""
        return self.namespaces.run(*argv, timeout_s=timeout_s).decode(errors="replace")

    def start_libvirtd(self) -> None:
        """Start libvirtd and wait until it lists its domains. Guests of an earlier one are found again."""
        self.layout.libvirt_socket.unlink(missing_ok=True)
        self._libvirtd.launch()
        self._libvirtd.wait_ready()

    def stop_libvirtd(self, number: int = signal.SIGTERM) -> None:
        """Stop libvirtd; guests go on."""
        self._libvirtd.stop(number)

    def start_agent(self, *, wait: bool = True) -> None:
        """Start the agent and (unless told otherwise) wait until it answers."""
        self._agent.launch()
        if wait:
            self.wait_agent()

    def wait_agent(self) -> None:
        """Wait until the agent answers; raises Unavailable or TimedOut with its last words."""
        self._agent.wait_ready()

    def wait_serving(self) -> None:
        """Wait until the agent has libvirt, too; raises TimedOut with its last words."""
        deadline = time.monotonic() + AGENT_TIMEOUT_S
        while (found := health.check(self.agent_target)) != "SERVING":
            if time.monotonic() > deadline:
                raise TimedOut(
                    f"the agent of node {self.name} says {found or 'nothing'!r} instead of SERVING after "
                    f"{AGENT_TIMEOUT_S:g} s: {self._agent.last_words()}"
                )
            time.sleep(POLL_S)

    def stop_agent(self, number: int = signal.SIGTERM) -> None:
        """Stop the agent; guests go on."""
        self._agent.stop(number)

    def agent_log(self) -> str:
        """All that the agent printed."""
        log = self.layout.agent_log
        return log.read_text(errors="replace") if log.exists() else ""

    def set_link(self, up: bool) -> None:
        """Pull or plug in the node's cable."""
        self._switch.set_link(self._plan.index, up=up)

    def rate(self, mbit: int | None) -> None:
        """Cap what flows to the node, in Mbit/s; None takes the cap away."""
        self._switch.rate(self._plan.index, mbit)

    def close(self) -> None:
        """End everything inside at once."""
        self._holder.close()
        for service in (self._agent, self._libvirtd):
            service.stop()
        capabilities_cache.keep(self._plan.capabilities, self.layout.root / "cache")


def _write_files(plan: NodePlan) -> None:
    layout = plan.layout
    for folder in layout.folders:
        folder.mkdir(parents=True, exist_ok=True)
    layout.no_kvm.touch()
    capabilities_cache.restore(plan.capabilities, layout.root / "cache")
    etc = layout.root / "etc"
    certificates = qemu_folder(plan.lab.pki, plan.name)
    certificates.mkdir(parents=True, exist_ok=True)  # libvirtd refuses one that is not there
    text = conf.qemu_conf(layout, plan.ip, hugepages=_has_hugetlbfs(), certificates=certificates)
    (etc / "qemu.conf").write_text(text)
    (etc / "libvirtd.conf").write_text(conf.libvirtd_conf(layout, plan.ip))
    config = conf.agent_config(layout, plan.name, plan.addresses, plan.lab.pki)
    layout.agent_config.write_text(conf.toml(config))


def _has_hugetlbfs() -> bool:
    return "hugetlbfs" in Path("/proc/filesystems").read_text().split()


def _setup(plan: NodePlan) -> NodeSetup:
    return NodeSetup(
        name=plan.name,
        ip=plan.ip,
        hosts=plan.lab.hosts,
        shared=plan.lab.shared,
        hugepages=_has_hugetlbfs(),
        hide_kvm=not plan.kvm and Path("/dev/kvm").exists(),
        cgroups=Path("/sys/fs/cgroup").is_dir(),
        lab=plan.lab.root,
        system=plan.system,
        stand_in=plan.stand_in,
    )


def _libvirtd(plan: NodePlan) -> Program:
    layout = plan.layout
    root = ["chroot", SYSTEM_ROOT] if plan.system is not None else []

    def answers() -> bool:
        # Opening a connection blocks until libvirtd's drivers are up; listing asks the QEMU driver itself.
        if not layout.libvirt_socket.exists():
            return False
        try:
            command.run(
                ["virsh", "-q", "-c", layout.libvirt_uri, "list", "--all"], timeout_s=LIBVIRTD_TIMEOUT_S
            )
        except (CommandFailed, TimedOut):
            return False
        return True

    return Program(
        name="libvirtd",
        # The default pid file is in /run itself, which all nodes share.
        argv=[*root, "libvirtd", "--listen", "--pid-file", "/run/libvirt/libvirtd.pid"],
        output=layout.libvirtd_output,
        ready=answers,
        ready_timeout_s=LIBVIRTD_TIMEOUT_S,
        logs=(layout.libvirtd_log, layout.libvirtd_output),
        # libvirt 11.3, asked to end soon after its start, at times waits for its udev thread for ever.
        kill_after_s=LIBVIRTD_KILL_AFTER_S,
    )


def _agent(layout: NodeLayout) -> Program:
    def answers() -> bool:
        return layout.agent_socket.exists() and health.check(f"unix:{layout.agent_socket}") != ""

    return Program(
        name="launcherd",
        argv=[Path(sys.executable).parent / "launcherd", "--config", layout.agent_config],
        output=layout.agent_log,
        ready=answers,
        ready_timeout_s=AGENT_TIMEOUT_S,
        logs=(layout.agent_log,),
    )
