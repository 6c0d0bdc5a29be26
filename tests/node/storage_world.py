# SPDX-License-Identifier: Apache-2.0
"""What tests of volumes share: where nodes see files, what agents leave, what an instance complains about."""

from __future__ import annotations

import re
from pathlib import Path

from agent_world import condition, is_true, until, until_gone
from feature_guests import Object

from launcher.cli.client import Client
from launcher.lab.layout import SHARED_MOUNT
from launcher.lab.node import Node

MIB = 1 << 20
STATE, RUN = "/var/lib/launcher", "/run/launcher"


def inside(path: Path) -> str:
    """Where nodes see a file of the lab's shared folder."""
    parts = path.parts
    return str(Path(SHARED_MOUNT, *parts[parts.index("shared") + 1 :]))


def files(node: Node) -> list[str]:
    """All that agents may leave; the cache of images and what migrations recorded are meant to stay."""
    kept = ("-not", "-path", f"{STATE}/cache*", "-not", "-path", f"{STATE}/recordings*")
    found = node.run("find", STATE, RUN, "-mindepth", "1", *kept)
    return sorted(path for path in found.splitlines() if "/launcher.db" not in path and ".sock" not in path)


def daemons(node: Node) -> str:
    """The virtiofsd processes of the node, as lines."""
    return node.run("sh", "-c", "pgrep -a virtiofsd || true")


def remove_all(agent: Client) -> None:
    """Delete all instances and wait until they are gone."""
    names = [instance["metadata"]["name"] for instance in agent.instances.list()]
    for name in names:
        agent.instances.delete(name, namespace="default", grace_period_s=0)
    for name in names:
        until_gone(agent, name)


def ready(agent: Client, name: str) -> Object:
    """Wait until the guest runs; fails with what the agent complains about."""
    vmi = until(agent, name, lambda vmi: is_true(vmi, "Ready") or condition(vmi, "Synchronized"))
    assert is_true(vmi, "Ready"), condition(vmi, "Synchronized")
    return vmi


def complaint(agent: Client, name: str, words: str) -> str:
    """Wait until the instance says so in its condition."""

    def says(vmi: Object) -> bool:
        found = condition(vmi, "Synchronized")
        return found is not None and re.search(words, found["message"]) is not None

    found = condition(until(agent, name, says), "Synchronized")
    assert found is not None
    return str(found["message"])
