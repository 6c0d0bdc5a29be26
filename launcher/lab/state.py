# SPDX-License-Identifier: Apache-2.0
"""What is known about a running lab from outside its owner: records, written to and read from its folder."""

from __future__ import annotations

import tempfile
from pathlib import Path

import msgspec

from launcher.lab.lab import Lab
from launcher.lab.layout import LabLayout, NodeLayout
from launcher.lab.namespaces import Namespaces
from launcher.lab.process import ProcessId
from launcher.lab.switch import SwitchView


class NodeState(msgspec.Struct, frozen=True, kw_only=True):
    """One node. Pids are those of the machine; 0 means that it does not run."""

    name: str
    index: int
    ip: str
    dir: str
    holder: ProcessId
    libvirtd_pid: int
    agent_pid: int
    libvirt_uri: str
    agent_target: str

    @property
    def layout(self) -> NodeLayout:
        """The node's folder."""
        return NodeLayout(Path(self.dir))

    @property
    def namespaces(self) -> Namespaces:
        """To run programs inside."""
        return Namespaces(self.holder.pid)


class LabState(msgspec.Struct, frozen=True, kw_only=True):
    """A lab and its nodes."""

    name: str
    dir: str
    owner: ProcessId
    switch: ProcessId
    nodes: tuple[NodeState, ...]

    def node(self, name: str) -> NodeState | None:
        """The node ``name``, if there is one."""
        return next((node for node in self.nodes if node.name == name), None)

    def rate(self, node: NodeState, mbit: int | None) -> None:
        """Cap what flows to ``node``; see ``SwitchView.rate``."""
        SwitchView(Namespaces(self.switch.pid)).rate(node.index, mbit)


def describe(lab: Lab, name: str, owner: ProcessId) -> LabState:
    """The present state of a lab of this process."""
    return LabState(
        name=name,
        dir=str(lab.dir),
        owner=owner,
        switch=lab.holder,
        nodes=tuple(
            NodeState(
                name=node.name,
                index=lab.names.index(node.name) + 1,
                ip=node.ip,
                dir=str(node.dir),
                holder=node.holder,
                libvirtd_pid=node.libvirtd_pid or 0,
                agent_pid=node.agent_pid or 0,
                libvirt_uri=node.libvirt_uri,
                agent_target=node.agent_target,
            )
            for node in lab.nodes.values()
        ),
    )


def write(state: LabState) -> None:
    """Store it in the lab's folder; readers see the old or the new one."""
    target = LabLayout(Path(state.dir)).state
    with tempfile.NamedTemporaryFile(dir=target.parent, prefix=".state-", delete=False) as partial:
        partial.write(msgspec.json.format(msgspec.json.encode(state)))
    Path(partial.name).rename(target)


def read(folder: Path) -> LabState | None:
    """The state of the lab in ``folder``; None when it has none or its owner has ended."""
    try:
        found = msgspec.json.decode(LabLayout(folder).state.read_bytes(), type=LabState)
    except (OSError, msgspec.DecodeError):
        return None
    return found if found.owner.alive() else None
