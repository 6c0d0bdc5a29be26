# SPDX-License-Identifier: Apache-2.0
"""The switch between the nodes: a bridge in a network namespace of its own, one port (veth) a node.

Every link is made from inside that namespace, so the machine's own network never sees one.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass

from launcher.errors import CommandFailed
from launcher.lab.namespaces import Holder, Namespaces, shell_script

BRIDGE = "switch"
NODE_INTERFACE = "eth0"
SUBNET = "10.99.0"
"""All labs use these addresses; they are private to each lab's namespaces."""

BURST = "256kb"
"""Token bucket of a capped port: several of the largest TCP segments (64 KiB)."""


def address(index: int) -> str:
    """The address of node ``index`` (from 1)."""
    return f"{SUBNET}.{index}"


def build(holder: Holder) -> SwitchView:
    """Turn the namespaces of ``holder`` into a switch without ports."""
    holder.namespaces.run(
        *shell_script(
            [
                f"ip link add {BRIDGE} type bridge stp_state 0 forward_delay 0",
                f"ip link set {BRIDGE} up",
                "ip link set lo up",
            ]
        )
    )
    return SwitchView(holder.namespaces)


@dataclass(frozen=True, slots=True)
class SwitchView:
    """A running switch, also one that another process holds."""

    namespaces: Namespaces

    def plug(self, index: int, node: Namespaces) -> None:
        """Connect a node: its end of the cable appears inside it as eth0, down and without an address."""
        port = self._port(index)
        peer = ("peer", "name", NODE_INTERFACE, "netns", str(node.pid))
        self.namespaces.run_net("ip", "link", "add", port, "type", "veth", *peer)
        self.namespaces.run_net("ip", "link", "set", port, "master", BRIDGE, "up")

    def set_link(self, index: int, *, up: bool) -> None:
        """Pull or plug in the node's cable."""
        self.namespaces.run_net("ip", "link", "set", self._port(index), "up" if up else "down")

    def rate(self, index: int, mbit: int | None) -> None:
        """Cap what flows to the node, in Mbit/s; None takes the cap away.

        Raises:
            CommandFailed: this kernel has no token bucket filter.
        """
        port = self._port(index)
        if mbit is None:
            with contextlib.suppress(CommandFailed):  # there was no cap
                self.namespaces.run_net("tc", "qdisc", "del", "dev", port, "root")
            return
        shape = ("tbf", "rate", f"{mbit}mbit", "burst", BURST, "latency", "20ms")
        self.namespaces.run_net("tc", "qdisc", "replace", "dev", port, "root", *shape)

    @staticmethod
    def _port(index: int) -> str:
        return f"port{index}"
