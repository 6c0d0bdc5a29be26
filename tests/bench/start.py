# SPDX-License-Identifier: Apache-2.0
"""``make bench-start``: from create to running, by the agent and by plain ``virsh create`` of the same XML.

Needs root and libvirtd, as the tests on real nodes do. Prints numbers and asserts none. The image is in the
cache already; for virsh the overlays are made beforehand and not counted, for the agent they are. Rounds take
turns, so that what else the machine does disturbs all alike.
"""

from __future__ import annotations

import re
import statistics
import sys
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from launcher.cli.client import Client
from launcher.lab import image
from launcher.lab.image import Image
from launcher.lab.lab import Lab
from launcher.lab.node import Node

COUNTS = (1, 10, 50)
ROUNDS = {1: 15, 10: 5, 50: 3}
AT_ONCE = 4
"""virsh processes side by side; the agent starts as many guests at once."""
PLAIN = "/var/lib/launcher-lab/plain"
TIMEOUT_S = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """A node with an agent, a client of it, and the XML of one of its guests."""

    node: Node
    agent: Client
    image: Image
    xml: str
    uid: str
    uuid: str


def main() -> None:
    """Measure and print."""
    counts = tuple(map(int, sys.argv[1:])) or COUNTS
    with Lab(names=("a",)) as lab:
        lab.start_agents()
        node = lab.node("a")
        with Client(node.agent_target, timeout_s=TIMEOUT_S) as agent:
            bench = _prepare(node, agent)
            _make_plain(bench, max(counts))
            print(
                f"{'guests':>8}{'virsh, one by one':>20}{f'virsh, {AT_ONCE} at once':>20}{'agent':>10}",
                end="",
            )
            print(f"{'of one by one':>16}{'of at once':>12}   median of rounds, seconds")
            for count in counts:
                _report(count, *_measure(bench, count))


def _report(count: int, one: list[float], several: list[float], ours: list[float]) -> None:
    a, b, c = (statistics.median(times) for times in (one, several, ours))
    print(f"{count:8}{a:20.2f}{b:20.2f}{c:10.2f}{c / a:16.2f}{c / b:12.2f}", flush=True)


def _measure(bench: Bench, count: int) -> tuple[list[float], list[float], list[float]]:
    ways: tuple[Callable[[Bench, int], float], ...] = (_one_by_one, _at_once, _by_agent)
    times: tuple[list[float], ...] = ([], [], [])
    for _ in range(ROUNDS.get(count, 3)):
        for way, found in zip(ways, times, strict=True):
            found.append(way(bench, count))
    return times[0], times[1], times[2]


def manifest(name: str, image: Image) -> dict[str, Any]:
    """The smallest guest with a disk: a boot sector that ticks."""
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachineInstance",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "terminationGracePeriodSeconds": 0,
            "domain": {
                "memory": {"guest": "16Mi"},
                "devices": {
                    "autoattachPodInterface": False,
                    "autoattachGraphicsDevice": False,
                    "disks": [{"name": "root", "disk": {"bus": "virtio"}}],
                },
            },
            "volumes": [{"name": "root", "containerDisk": {"image": image.reference}}],
        },
    }


def _prepare(node: Node, agent: Client) -> Bench:
    """Start one guest: it fills the cache, and shows what XML the agent writes."""
    found = image.bootsector()
    made = agent.instances.create(manifest("first", found))
    _until_running(agent, {"first"})
    xml = node.run("virsh", "dumpxml", "--inactive", "default_first")
    _remove(agent, {"first"})
    uuid = re.search(r"<uuid>(.*?)</uuid>", xml)
    assert uuid is not None, "a domain has a UUID"
    return Bench(node=node, agent=agent, image=found, xml=xml, uid=str(made["metadata"]["uid"]), uuid=uuid[1])


def _make_plain(bench: Bench, count: int) -> None:
    """For each guest of virsh's: its folders, its XML, and its overlay on the same file."""
    base = bench.node.run("sh", "-c", "ls /var/lib/launcher/cache/images/*/default").strip()
    bench.node.run("mkdir", "-p", PLAIN)
    for number in range(count):
        own = f"{PLAIN}/{number}"
        text = bench.xml.replace(bench.uuid, f"00000000-0000-4000-8000-{number:012}")
        text = text.replace("<name>default_first</name>", f"<name>plain{number}</name>")
        text = re.sub(rf"/(var/lib|run)/launcher/(instances|i)/{bench.uid}", own, text)
        script = (
            f"mkdir -p {own}/disks && cp {base} {own}/disks/root.base && "
            f"qemu-img create -q -f qcow2 -b {own}/disks/root.base -F raw {own}/disks/root.qcow2 && "
            f"cat >{own}.xml <<'END'\n{text}\nEND"
        )
        bench.node.run("sh", "-c", script)


def _one_by_one(bench: Bench, count: int) -> float:
    script = f"for n in $(seq 0 {count - 1}); do virsh -q create {PLAIN}/$n.xml >/dev/null || exit 1; done"
    return _plain(bench, count, script)


def _at_once(bench: Bench, count: int) -> float:
    script = f"seq 0 {count - 1} | xargs -P {AT_ONCE} -I N virsh -q create {PLAIN}/N.xml >/dev/null"
    return _plain(bench, count, script)


def _plain(bench: Bench, count: int, script: str) -> float:
    began = time.monotonic()
    bench.node.run("sh", "-c", script, timeout_s=TIMEOUT_S)
    taken = time.monotonic() - began
    end = f"seq 0 {count - 1} | xargs -P {AT_ONCE} -I N virsh -q destroy plainN"
    bench.node.run("sh", "-c", end, timeout_s=TIMEOUT_S)
    return taken


def _by_agent(bench: Bench, count: int) -> float:
    names = {f"g{number}" for number in range(count)}
    began = time.monotonic()
    for name in sorted(names):
        bench.agent.instances.create(manifest(name, bench.image))
    _until_running(bench.agent, names)
    taken = time.monotonic() - began
    _remove(bench.agent, names)
    return taken


def _until_running(agent: Client, names: set[str]) -> None:
    waiting = set(names)
    with closing(agent.instances.watch(namespace="default", timeout_s=TIMEOUT_S)) as changes:
        for change in changes:
            seen = change.object
            if seen is not None and seen.get("status", {}).get("phase") == "Running":
                waiting.discard(seen["metadata"]["name"])
            if not waiting:
                return


def _remove(agent: Client, names: set[str]) -> None:
    for name in names:
        agent.instances.delete(name, namespace="default", grace_period_s=0)
    left = set(names)
    with closing(agent.instances.watch(namespace="default", timeout_s=TIMEOUT_S)) as changes:
        for change in changes:
            if change.type == "BOOKMARK":
                left &= {vmi["metadata"]["name"] for vmi in agent.instances.list()}
            elif change.type == "DELETED" and change.object is not None:
                left.discard(change.object["metadata"]["name"])
            if not left:
                return


if __name__ == "__main__":
    main()
