# SPDX-License-Identifier: Apache-2.0
"""``make migration-report``: twenty live migrations of real guests under emulation, and how they went.

Guests that write nothing, less, about as much, and more than the migration may send, and one that writes in
bursts; each with the default options, with post-copy, with disruption, and with neither allowed. Every page
is checked by the guest before it is written again, and it counts ticks. The end is an error when a tick is
missing or came twice, when memory was not as it had been written, when the guest runs on no node or on two,
or when it stood still for longer than was consented to.
"""

from __future__ import annotations

import argparse
import collections
import shutil
import sys
import time
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

from migration_judgement import (
    CAP_MIB,
    CONSENTS,
    MEMORY_MIB,
    TICK_MS,
    Consent,
    Load,
    Row,
    chosen,
    judge,
    line,
    table,
)

from launcher.cli import progress
from launcher.cli.client import Client, Object
from launcher.lab import image
from launcher.lab.follower import Follower
from launcher.lab.lab import Lab
from launcher.lab.ticks import stamped
from launcher.migration.recording import read_recording
from launcher.migration.rerun import recorded, rerun
from launcher.v1.migrations_pb2 import Migration

POLICIES = "/var/lib/launcher-lab/policies"
BOOT_S = 120.0
MOST_S = 600.0
SETTLE_TICKS = 20


def main() -> int:
    """Run what was asked for, print the table; 1 when something was not as it must be."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--only", default="", metavar="ROWS", help="such as bursty,above/post-copy,/neither (default: all)"
    )
    parser.add_argument("--times", type=int, default=1, help="so often each row")
    parser.add_argument(
        "--recordings", type=Path, help="keep recordings, consoles with times, and logs in this folder"
    )
    given = parser.parse_args()
    try:
        wanted = chosen(given.only)
    except ValueError as error:
        parser.error(str(error))
    rows: list[Row] = []
    with Lab(names=("a", "b")) as lab:
        _configure(lab)
        lab.start_agents()
        with Client(lab.node("a").agent_target) as a, Client(lab.node("b").agent_target) as b:
            world = _World(lab=lab, a=a, b=b, keep=given.recordings)
            for load, consent in [row for row in wanted for _ in range(given.times)]:
                rows.append(_one(world, load, consent, len(rows) + 1))
                print(line(rows[-1]), file=sys.stderr, flush=True)
    print("\n".join(table(rows)))
    return 1 if any(row.wrong for row in rows) else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class _World:
    lab: Lab
    a: Client
    b: Client
    keep: Path | None


def _configure(lab: Lab) -> None:
    folder = lab.shared / "policies"
    folder.mkdir()
    for consent in CONSENTS:
        (folder / f"{consent.name}.yaml").write_text(f"""
apiVersion: migrations.kubevirt.io/v1alpha1
kind: MigrationPolicy
metadata: {{name: {consent.name}}}
spec:
  selectors: {{virtualMachineInstanceSelector: {{consent: {consent.name}}}}}
  bandwidthPerMigration: {CAP_MIB}Mi
  {consent.spec}
""")
    for name in lab.names:
        config = lab.node(name).layout.agent_config
        config.write_text(config.read_text().replace('"policies_dir" = ""', f'"policies_dir" = "{POLICIES}"'))


def _manifest(name: str, load: Load, consent: Consent) -> str:
    dirty = f"dirty={load.dirty}" if load.dirty else ""
    reference = image.guest().reference
    return f"""
apiVersion: kubevirt.io/v1
kind: VirtualMachineInstance
metadata: {{name: {name}, namespace: default, labels: {{consent: {consent.name}}}}}
spec:
  terminationGracePeriodSeconds: 0
  domain:
    memory: {{guest: {MEMORY_MIB}Mi}}
    firmware:
      kernelBoot:
        kernelArgs: "console=ttyS0 quiet panic=1 tick={TICK_MS} {dirty}"
        container: {{image: "{reference}", kernelPath: /boot/vmlinux, initrdPath: /boot/initrd}}
    devices: {{autoattachPodInterface: false}}
"""


def _one(world: _World, load: Load, consent: Consent, number: int) -> Row:
    """Move a guest of its own from a to b, and look at it until it has gone on for a while where it ended."""
    lab, a, b = world.lab, world.a, world.b
    name = f"{load.name}-{consent.name}-{number}"
    uid = str(a.instances.create(_manifest(name, load, consent))["metadata"]["uid"])
    log = f"/var/lib/launcher/instances/{uid}/serial0.log"
    with Follower({node: lab.node(node).layout.outside(log) for node in lab.names}) as follower:

        def ready() -> bool:
            ticks = len(follower.ticks())
            return ticks >= SETTLE_TICKS and (not load.dirty or "dirty " in "\n".join(follower.lines()))

        def ticked(node: str) -> int:
            return sum(tick.node == node for tick in follower.ticks())

        try:
            follower.wait(ready, timeout_s=BOOT_S, what=f"the load of {name}")
            end = _migrate(a, name)
            here = "b" if end.report.succeeded else "a"
            wanted = ticked(here) + SETTLE_TICKS
            what = f"ticks of {name} on {here}"
            follower.wait(lambda: ticked(here) >= wanted, timeout_s=BOOT_S, what=what)
        finally:
            _keep(world, name, follower)
    recording = a.migrations.recording(name)
    if world.keep is not None:
        (world.keep / f"{name}.jsonl").write_bytes(recording)
    read = read_recording(recording)
    if read.end is None or read.end.report is None:
        raise SystemExit(f"{name}: its recording has no end")
    row = judge(load, consent, follower.chunks(), read.end.report, read)
    more = [] if rerun(read) == recorded(read) else ["its recording does not repeat its decisions"]
    running = [node for node, agent in (("a", a), ("b", b)) if _runs(agent, name)]
    more += [] if running == [here] else [f"it runs on {running}"]
    for agent in (a, b):
        for vmi in agent.instances.list():
            agent.instances.delete(vmi["metadata"]["name"], grace_period_s=0)
        _until_empty(agent)
    return replace(row, wrong=(*row.wrong, *more))


def _keep(world: _World, name: str, follower: Follower) -> None:
    """The consoles of both nodes with the time of each line, and what agents and QEMU have logged so far."""
    if world.keep is None:
        return
    world.keep.mkdir(parents=True, exist_ok=True)
    (world.keep / f"{name}.console").write_text("".join(f"{text}\n" for text in stamped(follower.chunks())))
    for node in world.lab.names:
        layout = world.lab.node(node).layout
        shutil.copy(layout.agent_log, world.keep / f"{node}.launcherd.log")
        for log in layout.outside("/var/log/libvirt/qemu").glob(f"*{name}*"):
            shutil.copy(log, world.keep / f"{node}.{log.name}")


def _migrate(a: Client, name: str) -> Migration:
    wanted: Object = {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachineInstanceMigration",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"vmiName": name},
    }
    a.migrations.create(wanted, target="b")
    with closing(a.migrations.watch(name, timeout_s=MOST_S)) as views:
        seen = collections.deque(progress.endings(views), maxlen=1)
    if not seen:
        raise SystemExit(f"{name}: the watch showed nothing")
    return seen[0]


def _runs(agent: Client, name: str) -> bool:
    return any(
        vmi["metadata"]["name"] == name and vmi.get("status", {}).get("phase") == "Running"
        for vmi in agent.instances.list()
    )


def _until_empty(agent: Client) -> None:
    deadline = time.monotonic() + BOOT_S
    while agent.instances.list():
        if time.monotonic() > deadline:
            raise SystemExit("an instance is not deleted")
        time.sleep(0.1)


if __name__ == "__main__":
    sys.exit(main())
