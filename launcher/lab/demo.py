# SPDX-License-Identifier: Apache-2.0
"""The main job, visible: an instance is created on node a and moves to node b while its guest ticks on.

It speaks to the agents by gRPC only, as any client would; consoles are read from the nodes' folders.
"""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import click
from lxml import etree

from launcher.cli import progress
from launcher.cli.client import Client, Object
from launcher.errors import CommandFailed, MigrationFailed, NotFound, TimedOut
from launcher.lab import detached, image, state
from launcher.lab.follower import Follower
from launcher.lab.lab import Lab
from launcher.lab.process import ProcessId
from launcher.lab.state import LabState, NodeState
from launcher.lab.ticks import Tick, continuity

NAME = "demo"
SOURCE, TARGET = "a", "b"
LINK_MBIT = 160
"""The link's rate: slow enough to watch, fast enough for 160 MiB of guest in some seconds."""

TICK_PERIOD_S = 1.0
JITTER_S = 1.0
"""How much later than due a tick may appear on a busy machine before the demo calls it a failure."""

RUNNING_TIMEOUT_S = 60.0
BOOT_TIMEOUT_S = 90.0
MIGRATION_TIMEOUT_S = 240.0
DELETE_TIMEOUT_S = 60.0
TICKS_BEFORE = 4
TICKS_AFTER = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """What the steps of the demo work on."""

    lab: LabState
    source: NodeState
    target: NodeState
    on_source: Client
    on_target: Client


def run(manifest: Path, *, keep: bool, kvm: bool = False) -> None:
    """Run the demo; raises a ``LauncherError`` when anything is not as it should be."""
    began = time.monotonic()
    _say("Guest image (Debian's cloud kernel and busybox; kept for the next time)")
    built = image.guest()
    _tell(f"{built.folder} after {time.monotonic() - began:.1f} s")
    with ExitStack() as stack:
        lab = stack.enter_context(_lab(keep=keep, kvm=kvm))
        scene = _scene(lab, stack)
        _play(scene, manifest.read_text(), keep=keep)
    if keep:
        _say("The nodes stay up. To play with them:")
        for line in hints(lab):
            click.echo(f"  {line}")
    _say(f"Done in {time.monotonic() - began:.0f} s")


def hints(lab: LabState) -> Iterator[str]:
    """Commands that reach the nodes of ``lab``."""
    if shutil.which("launcherctl") is None:
        yield f"export PATH={Path(sys.executable).parent}:$PATH"
    option = "" if lab.name == detached.DEFAULT_NAME else f" --name {lab.name}"
    for node in lab.nodes:
        yield f"launcherctl --server {node.agent_target} get vmi"
    first = lab.nodes[0]
    yield f"export LAUNCHER_SERVER={first.agent_target}"
    yield "launcherctl create -f examples/minimal.yaml"
    yield "launcherctl console minimal"
    if len(lab.nodes) > 1:
        yield f"launcherctl migrate minimal --to {lab.nodes[1].name} --watch"
    yield f"launcherctl lab exec{option} {first.name} -- virsh list"
    yield f"launcherctl lab down{option}"


@contextmanager
def _lab(*, keep: bool, kvm: bool) -> Iterator[LabState]:
    """A lab that ends with the demo, or one that stays."""
    _say("Two nodes, each with its own libvirtd and launcherd, in namespaces of this machine")
    began = time.monotonic()
    if keep:
        detached.down(NAME)
        found = detached.up(NAME, (SOURCE, TARGET), kvm=kvm)
        _tell_nodes(found, began)
        yield found
        return
    with Lab(names=(SOURCE, TARGET), kvm=kvm) as lab:
        lab.install(image.guest(), "guest")
        lab.start_agents()
        found = state.describe(lab, NAME, ProcessId.own())
        _tell_nodes(found, began)
        yield found
        _say("Everything is torn down")


def _tell_nodes(lab: LabState, began: float) -> None:
    for node in lab.nodes:
        _tell(f"{node.name}  {node.ip}  libvirtd {node.libvirtd_pid}  launcherd {node.agent_pid}")
    _tell(f"up after {time.monotonic() - began:.1f} s")


def _scene(lab: LabState, stack: ExitStack) -> Scene:
    source, target = lab.node(SOURCE), lab.node(TARGET)
    if source is None or target is None:
        raise NotFound("node", f"{SOURCE} or {TARGET}")
    return Scene(
        lab=lab,
        source=source,
        target=target,
        on_source=stack.enter_context(Client(source.agent_target)),
        on_target=stack.enter_context(Client(target.agent_target)),
    )


def _play(scene: Scene, manifest: str, *, keep: bool) -> None:
    name = _create(scene, manifest)
    with Follower(_logs(scene, name)) as follower:
        _show_console(follower)
        _cap(scene)
        downtime_s = _migrate(scene, name)
        _wait_for_ticks(follower, scene.target.name, TICKS_AFTER)
        _judge(follower.ticks(), downtime_s)
    _check_state(scene, name)
    if not keep:
        _delete(scene, name)


def _create(scene: Scene, manifest: str) -> str:
    _say(f"Create the instance on node {scene.source.name}")
    created = scene.on_source.instances.create(manifest)
    name = str(created["metadata"]["name"])
    with closing(scene.on_source.instances.watch(name=name, timeout_s=RUNNING_TIMEOUT_S)) as changes:
        for change in changes:
            phase = _phase(change.object)
            if phase in ("Failed", "Succeeded"):
                raise MigrationFailed(f"instance {name} ended in phase {phase}", hint="see the agent's log")
            if phase == "Running":
                break
    _tell(f"{name} is Running")
    return name


def _logs(scene: Scene, name: str) -> dict[str, Path]:
    """The console's log on both nodes; its path is the same in each node's own view."""
    xml = etree.fromstring(scene.on_source.instances.domain_xml(name))
    found = xml.find("devices/serial/log")
    if found is None:
        raise NotFound("console log of", name)
    path = str(found.get("file"))
    return {node.name: node.layout.outside(path) for node in (scene.source, scene.target)}


def _show_console(follower: Follower) -> None:
    _say("The guest's console")
    shown = 0

    def enough() -> bool:
        nonlocal shown
        lines = follower.lines()
        for line in lines[shown:]:
            _tell(line)
        shown = len(lines)
        return len(follower.ticks()) >= TICKS_BEFORE

    follower.wait(enough, timeout_s=BOOT_TIMEOUT_S, what=f"tick {TICKS_BEFORE}")


def _cap(scene: Scene) -> None:
    try:
        scene.lab.rate(scene.target, LINK_MBIT)
    except CommandFailed as error:
        _tell(f"the link cannot be capped on this kernel, so the migration will be short ({error.message})")


def _migrate(scene: Scene, name: str) -> float:
    """Migrate and give the downtime in seconds."""
    _say(f"Migrate it live to node {scene.target.name} over a link of {LINK_MBIT} Mbit/s")
    migration: Object = {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachineInstanceMigration",
        "metadata": {"name": f"{name}-to-{scene.target.name}"},
        "spec": {"vmiName": name},
    }
    migrations = scene.on_source.migrations
    created = migrations.create(migration, target=scene.target.name)
    watch = migrations.watch(str(created["metadata"]["name"]), timeout_s=MIGRATION_TIMEOUT_S)
    with closing(watch) as views:
        last = progress.follow(progress.endings(views), out=sys.stdout)
    if last is None or not last.HasField("report"):
        raise MigrationFailed("the migration ended without a report")
    click.echo()
    for line in progress.report_lines(last.report):
        click.echo(line)
    if not last.report.succeeded:
        raise MigrationFailed(f"the migration failed: {last.report.reason}")
    if last.report.source != "libvirt" or not last.report.HasField("downtime_ms"):
        raise MigrationFailed("the report does not come from libvirt's statistics of the completed job")
    return last.report.downtime_ms / 1000


def _wait_for_ticks(follower: Follower, node: str, count: int) -> None:
    def enough() -> bool:
        return sum(tick.node == node for tick in follower.ticks()) >= count

    follower.wait(enough, timeout_s=BOOT_TIMEOUT_S, what=f"{count} ticks on node {node}")


def _judge(ticks: tuple[Tick, ...], downtime_s: float) -> None:
    """Show the ticks around the switch-over and refuse a gap longer than the downtime explains."""
    _say("The guest's ticks")
    before = [tick for tick in ticks if tick.node == SOURCE][-2:]
    after = [tick for tick in ticks if tick.node == TARGET][:2]
    for tick in before + after:
        since = tick.at - (before or after)[0].at
        _tell(f"+{since:5.2f} s  on {tick.node}: tick {tick.number} (guest's uptime {tick.uptime} s)")
    found = continuity(ticks)
    if found is None:
        raise MigrationFailed("the guest printed fewer than two ticks")
    missing = f"missing: {', '.join(map(str, found.missing))}" if found.missing else "none missing"
    allowed_s = downtime_s + TICK_PERIOD_S
    _tell(f"ticks {found.first} to {found.last}, {missing}")
    _tell(
        f"longest gap {found.longest_gap_s:.2f} s, after tick {found.gap_after}; "
        f"downtime {downtime_s:.2f} s + one tick {TICK_PERIOD_S:.2f} s = {allowed_s:.2f} s"
    )
    if not found.within(allowed_s + JITTER_S):
        raise MigrationFailed("the guest stood still for longer than the migration's downtime")


def _check_state(scene: Scene, name: str) -> None:
    here = scene.on_target.instances.get(name).get("status", {})
    if (here.get("phase"), here.get("nodeName")) != ("Running", scene.target.name):
        raise MigrationFailed(f"{name} is {here.get('phase')} on {here.get('nodeName')}")
    _tell(f"{name} is Running on node {scene.target.name}")


def _delete(scene: Scene, name: str) -> None:
    instances = scene.on_target.instances
    instances.delete(name)
    _until(lambda: not _present(scene.on_target, name), DELETE_TIMEOUT_S, f"{name} to be deleted")
    _tell(f"{name} is deleted")


def _present(client: Client, name: str) -> bool:
    return any(item["metadata"]["name"] == name for item in client.instances.list())


def _until(condition: Callable[[], bool], timeout_s: float, what: str) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            raise TimedOut(f"waited {timeout_s:g} s for {what}")
        time.sleep(0.1)


def _phase(instance: Object | None) -> str:
    return str((instance or {}).get("status", {}).get("phase", ""))


def _say(text: str) -> None:
    click.echo(click.style(f"\n{text}", bold=True))


def _tell(text: str) -> None:
    click.echo(f"  {text}")
