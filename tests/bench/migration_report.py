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
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

from launcher.cli import progress
from launcher.cli.client import Client, Object
from launcher.lab import image
from launcher.lab.follower import Follower
from launcher.lab.lab import Lab
from launcher.lab.ticks import continuity
from launcher.migration.recording import read_recording
from launcher.migration.rerun import recorded, rerun
from launcher.v1.migrations_pb2 import Migration

POLICIES = "/var/lib/launcher-lab/policies"
CAP_MIB = 16
CONSENT_MS = 900
"""The default of maxDowntimeMs."""
TICK_MS = 100
SET_MIB = 48
MEMORY_MIB = 192
BOOT_S = 120.0
MOST_S = 600.0
SETTLE_TICKS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What the guest does: ``dirty`` is the argument of its init."""

    name: str
    dirty: str
    told: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Consent:
    """What its MigrationPolicy allows."""

    name: str
    spec: str
    disruption: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One migration as it went; ``wrong`` is empty when nothing was."""

    load: str
    consent: str
    outcome: str
    total_ms: int
    downtime_ms: int | None
    gap_s: float
    passes: int
    how: str
    wrong: str = ""


LOADS = (
    Load(name="idle", dirty="", told="writes nothing"),
    Load(name="below", dirty=f"{SET_MIB},6", told="6 MiB/s"),
    Load(name="near", dirty=f"{SET_MIB},14", told="14 MiB/s"),
    Load(name="above", dirty=f"{SET_MIB},40", told="40 MiB/s"),
    Load(name="bursty", dirty=f"{SET_MIB},40,8,12", told="40 MiB/s for 8 s of each 20 s"),
)
CONSENTS = (
    Consent(name="default", spec="", disruption=False),
    Consent(name="post-copy", spec="allowPostCopy: true", disruption=True),
    Consent(name="disruption", spec="allowWorkloadDisruption: true", disruption=True),
    Consent(name="neither", spec="allowPostCopy: false\n  allowWorkloadDisruption: false", disruption=False),
)


def main() -> int:
    """Run all, print the table; 1 when something was not as it must be."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--loads", default=",".join(load.name for load in LOADS))
    parser.add_argument("--consents", default=",".join(consent.name for consent in CONSENTS))
    parser.add_argument("--recordings", type=Path, help="keep recordings and consoles in this folder")
    given = parser.parse_args()
    loads = [load for load in LOADS if load.name in given.loads.split(",")]
    consents = [consent for consent in CONSENTS if consent.name in given.consents.split(",")]
    rows: list[Row] = []
    with Lab(names=("a", "b")) as lab:
        _configure(lab)
        lab.start_agents()
        with Client(lab.node("a").agent_target) as a, Client(lab.node("b").agent_target) as b:
            for load in loads:
                for consent in consents:
                    rows.append(_one(lab, a, b, load, consent, given.recordings))
                    print(_line(rows[-1]), file=sys.stderr, flush=True)
    print("\n".join(_table(rows)))
    return 1 if any(row.wrong for row in rows) else 0


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


def _one(lab: Lab, a: Client, b: Client, load: Load, consent: Consent, keep: Path | None) -> Row:
    name = f"{load.name}-{consent.name}"
    uid = str(a.instances.create(_manifest(name, load, consent))["metadata"]["uid"])
    log = f"/var/lib/launcher/instances/{uid}"
    logs = {}
    for node in lab.names:
        found = lab.node(node).layout.outside(log)
        logs[node] = found / "serial0.log"
    with Follower(logs) as follower:

        def ready() -> bool:
            ticks = len(follower.ticks())
            return ticks >= SETTLE_TICKS and (not load.dirty or "dirty " in "\n".join(follower.lines()))

        follower.wait(ready, timeout_s=BOOT_S, what=f"the load of {name}")
        end = _migrate(a, name)
        here = "b" if end.report.succeeded else "a"
        told = len([tick for tick in follower.ticks() if tick.node == here])
        wanted = told + SETTLE_TICKS
        follower.wait(
            lambda: len([tick for tick in follower.ticks() if tick.node == here]) >= wanted,
            timeout_s=BOOT_S,
            what=f"ticks of {name} on {here}",
        )
        row = _judge(follower, end, load, consent)
        if keep is not None:
            keep.mkdir(parents=True, exist_ok=True)
            (keep / f"{name}.console").write_text("\n".join(follower.lines()))
    recording = a.migrations.recording(name)
    if keep is not None:
        (keep / f"{name}.jsonl").write_bytes(recording)
    read = read_recording(recording)
    if rerun(read) != recorded(read):
        row = replace(row, wrong=f"{row.wrong} its recording does not repeat its decisions".strip())
    running = [node for node, agent in (("a", a), ("b", b)) if _runs(agent, name)]
    if running != [here]:
        row = replace(row, wrong=f"{row.wrong} it runs on {running}".strip())
    for agent in (a, b):
        for vmi in agent.instances.list():
            agent.instances.delete(vmi["metadata"]["name"], grace_period_s=0)
        _until_empty(agent)
    return row


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


def _judge(follower: Follower, end: Migration, load: Load, consent: Consent) -> Row:
    ticks, report = follower.ticks(), end.report
    found = continuity(ticks)
    wrong = []
    if found is None or found.missing:
        wrong.append(f"ticks are missing: {found.missing if found else 'all'}")
    if len({tick.number for tick in ticks}) != len(ticks):
        wrong.append("a tick came twice")
    wrong += [line for line in follower.lines() if line.startswith("BAD")][:3]
    downtime = report.downtime_ms if report.HasField("downtime_ms") else None
    if report.succeeded and not consent.disruption and (downtime is None or downtime > CONSENT_MS):
        wrong.append(f"it stood still for {downtime} ms, {CONSENT_MS} were allowed")
    return Row(
        load=load.name,
        consent=consent.name,
        outcome="moved" if report.succeeded else "stayed",
        total_ms=report.total_ms,
        downtime_ms=downtime,
        gap_s=found.longest_gap_s if found else 0.0,
        passes=report.iterations,
        how=_how(report.succeeded, report.post_copy, [step.action for step in report.steps], report.reason),
        wrong="; ".join(wrong),
    )


def _how(succeeded: bool, post_copy: bool, steps: list[str], reason: str) -> str:
    if not succeeded:
        return reason.partition(";")[0]
    if post_copy:
        return "post-copy"
    if "max_downtime 2000000 ms" in steps or "pause guest" in steps:
        return "stopped"
    limits = [step for step in steps if step.startswith("max_downtime")]
    return f"pre-copy, {limits[-1].removeprefix('max_downtime ')} allowed" if limits else "pre-copy"


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


def _line(row: Row) -> str:
    downtime = f"{row.downtime_ms} ms" if row.downtime_ms is not None else "none"
    return (
        f"{row.load:8}{row.consent:12}{row.outcome:8}{row.total_ms / 1000:7.1f} s {downtime:>9} "
        f"{row.gap_s * 1000:6.0f} ms {row.passes:4} passes  {row.how}  {row.wrong}"
    )


def _table(rows: list[Row]) -> Iterator[str]:
    told = {load.name: load.told for load in LOADS}
    yield f"Guest of {MEMORY_MIB} MiB, {SET_MIB} MiB of them written; at most {CAP_MIB} MiB/s are sent."
    yield ""
    yield "| guest writes | allowed | outcome | total | downtime | longest gap | passes | how it ended |"
    yield "|---|---|---|---:|---:|---:|---:|---|"
    for row in rows:
        downtime = f"{row.downtime_ms} ms" if row.downtime_ms is not None else ""
        yield (
            f"| {told[row.load]} | {row.consent} | {row.outcome} | {row.total_ms / 1000:.1f} s | {downtime} "
            f"| {row.gap_s * 1000:.0f} ms | {row.passes} | {row.how} |"
        )
    yield ""
    wrong = [row for row in rows if row.wrong]
    yield from (f"WRONG: {row.load}, {row.consent}: {row.wrong}" for row in wrong)
    if not wrong:
        yield "No tick was lost or came twice, memory was as written, downtimes within what was allowed."


if __name__ == "__main__":
    sys.exit(main())
