# SPDX-License-Identifier: Apache-2.0
"""launcherctl against the real API server."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest
import yaml
from component_parts import VMI_YAML
from standin_agent import StandInAgent

from launcher.agent.port import EventType, NodeView
from launcher.cli.client import Client
from launcher.cli.main import run
from launcher.errors import NotFound, TimedOut, Unavailable
from launcher.migration.progress import MigrationProgress


@dataclass(frozen=True)
class Outcome:
    status: int
    out: str
    err: str


Ctl = Callable[..., Outcome]


@pytest.fixture
def ctl(address: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Ctl:
    monkeypatch.setenv("LAUNCHER_SERVER", address)

    def call(*arguments: str) -> Outcome:
        status = run(list(arguments))
        captured = capsys.readouterr()
        return Outcome(status, captured.out, captured.err)

    return call


@pytest.fixture
def manifest(tmp_path: Path) -> str:
    path = tmp_path / "vm.yaml"
    path.write_text(VMI_YAML)
    return str(path)


def launcherctl(address: str, *arguments: str) -> list[str]:
    return [sys.executable, "-m", "launcher.cli.main", "--server", address, *arguments]


def test_create_get_describe_delete(ctl: Ctl, manifest: str) -> None:
    assert ctl("get", "vmi") == Outcome(0, "", "No resources found in default namespace.\n")
    created = ctl("create", "-f", manifest)
    assert created == Outcome(0, "virtualmachineinstance.kubevirt.io/demo created\n", "")
    listed = ctl("get", "vmi")
    assert listed.out.splitlines()[0] == "NAME   AGE         PHASE     IP   NODENAME   READY"
    assert listed.out.splitlines()[1].split() == ["demo", "<unknown>", "Pending", "here"]
    assert ctl("get", "vmis", "-A").out.split()[0] == "NAMESPACE"
    assert "PAUSED" in ctl("get", "vmi/demo", "-o", "wide").out
    assert ctl("get", "vmi", "-o", "name").out == "virtualmachineinstance.kubevirt.io/demo\n"
    one = yaml.safe_load(ctl("get", "vmi", "demo", "-o", "yaml").out)
    assert one["spec"]["domain"]["cpu"] == {"cores": 2}
    assert json.loads(ctl("get", "vmi", "-o", "json").out)["items"] == [one]
    described = ctl("describe", "vmi", "demo").out
    assert "Phase:        Pending" in described
    assert "capacity: 1Gi" in described
    traffic = described.partition("Traffic:\n")[2].splitlines()[:2]
    assert traffic[0].split()[:3] == ["Interface", "RxBytes", "RxPackets"]
    assert traffic[1].split() == ["default", "4096", "0", "0", "0", "0", "7", "0", "0"]
    assert ctl("-n", "other", "get", "vmi", "demo").status == 3
    assert ctl("get", "vmi", "demo", "-n", "other").status == 3
    assert ctl("xml", "demo").out == "<domain><name>default_demo</name></domain>\n"
    assert ctl("logs", "demo", "--tail-bytes", "8").out.split() == ["tick", "2"]
    assert ctl("pause", "vmi", "demo").status == 0
    assert ctl("unpause", "vmi", "demo").status == 0
    again = ctl("unpause", "demo")
    assert (again.status, again.err.splitlines()[0]) == (4, "error: default/demo is not paused")
    assert again.err.splitlines()[1].startswith("hint: ")
    assert ctl("create", "-f", manifest).status == 4
    assert ctl("delete", "vmi", "demo", "--wait", "--grace-period", "0").status == 0
    assert ctl("delete", "vmi", "demo").status == 3
    assert ctl("delete", "vmi", "demo", "--ignore-not-found").status == 0


def test_create_takes_the_namespace_of_the_manifest(ctl: Ctl, tmp_path: Path) -> None:
    """As kubectl does: only a namespace that was named must agree with the manifest's."""
    path = tmp_path / "vm.yaml"
    path.write_text(VMI_YAML.replace("name: demo", "name: demo\n  namespace: lab", 1))
    assert "namespace: lab" in path.read_text()
    assert ctl("create", "-f", str(path)).status == 0
    assert ctl("get", "vmi", "demo", "-n", "lab").status == 0
    for refused in (("-n", "other", "create", "-f", str(path)), ("create", "-f", str(path), "-n", "other")):
        done = ctl(*refused)
        assert (done.status, "metadata.namespace" in done.err) == (2, True)
    path.write_text(VMI_YAML)
    assert ctl("-n", "other", "create", "-f", str(path)).status == 0
    assert ctl("get", "vmi", "demo", "-n", "other").status == 0


def test_delete_wait_has_a_deadline(ctl: Ctl, manifest: str, agent: StandInAgent) -> None:
    ctl("create", "-f", manifest)
    agent.lingers = True
    late = ctl("--timeout", "0.3", "delete", "vmi", "demo", "--wait")
    assert (late.status, "still there after 0.3 s" in late.err) == (1, True)
    assert "--grace-period 0" in late.err


def test_create_sends_what_the_manifest_refers_to(
    ctl: Ctl, tmp_path: Path, agent: StandInAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    beside = "kind: Secret\nmetadata: {name: inside}\nstringData: {password: x}\n---\n"
    (tmp_path / "vm.yaml").write_text(beside + VMI_YAML)
    (tmp_path / "config.yaml").write_text("kind: ConfigMap\nmetadata: {name: c}\ndata: {a: b}\n")
    done = ctl(
        "create", "-f", str(tmp_path / "vm.yaml"), "--config-map", str(tmp_path / "config.yaml"),
        "--claim", "data=/dev/vg/data,block,capacity=1Gi", "-n", "team", "-o", "name",
    )  # fmt: skip
    assert done == Outcome(0, "virtualmachineinstance.kubevirt.io/demo\n", "")
    kept = agent.companions["team", "demo"]
    assert kept.secrets == {"inside": {"password": b"x"}}
    assert kept.config_maps == {"c": {"a": b"b"}}
    assert (kept.claims[0].path, kept.claims[0].block, kept.claims[0].capacity) == (
        "/dev/vg/data",
        True,
        2**30,
    )
    refused = ctl("create", "-f", str(tmp_path / "vm.yaml"), "--claim", "data=/d,blok")
    assert (refused.status, "'blok'" in refused.err) == (2, True)


def test_a_wrong_manifest_shows_every_error_with_its_place(ctl: Ctl, tmp_path: Path) -> None:
    path = tmp_path / "wrong.yaml"
    path.write_text(VMI_YAML.replace("cores: 2", "cores: many").replace("bus: virtio", "speed: 9"))
    outcome = ctl("create", "-f", str(path))
    assert outcome.status == 2
    assert outcome.out == ""
    lines = outcome.err.splitlines()
    assert [line.split(": ")[:2] for line in lines] == [
        [f"{path}:8:14", "spec.domain.cpu.cores"],
        [f"{path}:13:11", "spec.domain.devices.disks[0].disk.speed"],
    ]


def test_migrate_volumes(ctl: Ctl, agent: StandInAgent, tmp_path: Path) -> None:
    path = tmp_path / "claims.yaml"
    path.write_text("""
apiVersion: kubevirt.io/v1
kind: VirtualMachineInstance
metadata: {name: demo}
spec:
  domain:
    memory: {guest: 64Mi}
    devices: {disks: [{name: data, disk: {bus: virtio}}, {name: own, disk: {bus: virtio}}]}
  volumes:
  - {name: data, persistentVolumeClaim: {claimName: old}}
  - {name: own, emptyDisk: {capacity: 1Gi}}
""")
    ctl("create", "-f", str(path))

    def claims() -> list[str | None]:
        volumes = agent.instances["default", "demo"].spec.volumes
        return [v.persistent_volume_claim.claim_name for v in volumes if v.persistent_volume_claim]

    assert claims() == ["old"]
    assert "say where to" in ctl("migrate", "demo").err
    assert (
        ctl("migrate", "demo", "--volume", "data=new=/srv/new,capacity=1Gi", "--name", "within").status == 0
    )
    assert (claims(), agent.strategies) == (["new"], ["Migration"])
    assert agent.targets["default", "within"] == ""
    refused = ctl("migrate", "demo", "--volume", "data=other", "--to", "nowhere")
    assert refused.status != 0
    assert (claims(), agent.strategies) == (["new"], ["Migration"] * 3), "it was taken back"
    assert "there are data, own" in ctl("migrate", "demo", "--volume", "none=new").err
    assert "has no claim" in ctl("migrate", "demo", "--volume", "own=new").err
    assert "must be VOLUME=CLAIM" in ctl("migrate", "demo", "--volume", "data").err
    assert "is on the claim 'new' already" in ctl("migrate", "demo", "--volume", "data=new=/srv/x").err
    assert ctl("migrate", "demo", "--volume", "data=x=srv").err.startswith(
        "error: --volume: must be NAME=PATH"
    )


def test_a_migrations_manifest_may_say_where(
    ctl: Ctl, manifest: str, agent: StandInAgent, tmp_path: Path
) -> None:
    """An example for each end of a migration between nodes that do not know each other goes without --to."""
    ctl("create", "-f", manifest)
    examples = Path(__file__).parents[2] / "examples"
    for end, name in (("receive", "web-comes"), ("send", "web-leaves")):
        path = tmp_path / f"{end}.yaml"
        path.write_text(
            (examples / f"migration-{end}.yaml").read_text().replace("vmiName: web", "vmiName: demo")
        )
        created = ctl("create", "-f", str(path))
        assert created.out == f"virtualmachineinstancemigration.kubevirt.io/{name} created\n"
        assert agent.targets["default", name] == ""


def test_migrate_and_watch(ctl: Ctl, manifest: str, agent: StandInAgent, tmp_path: Path) -> None:
    ctl("create", "-f", manifest)
    done = ctl("migrate", "demo", "--to", "there", "--name", "good", "--watch")
    assert done.status == 0
    assert agent.targets == {("default", "good"): "there"}
    lines = done.out.splitlines()
    assert lines[0] == "virtualmachineinstancemigration.kubevirt.io/good created"
    assert "  Downtime:     87 ms" in lines
    assert "       10.0 s  max_downtime 279 ms  (iteration 3 began)" in lines
    assert "max_downtime 279 ms: iteration 3 began" in done.err
    failed = ctl("migrate", "demo", "--to", "there", "--name", "bad", "--watch")
    assert (failed.status, "failed: no luck" in failed.out) == (1, True)
    made_up = ctl("migrate", "demo", "--to", "there").out
    assert made_up.startswith("virtualmachineinstancemigration.kubevirt.io/demo-")
    assert ctl("migrate", "nobody", "--to", "there").status == 3
    listed = ctl("get", "vmim")
    assert listed.out.splitlines()[0].split() == ["NAME", "PHASE", "VMI"]
    assert ctl("describe", "vmim", "good").status == 0
    view = agent.migrations["default", "good"]
    running = MigrationProgress(phase="Running", elapsed_s=1.0, iteration=3, total=2**30, remaining=2**28)
    agent.migrations["default", "good"] = msgspec.structs.replace(view, progress=running)
    told = ctl("describe", "vmim", "good").out
    assert "Progress:     75 %  iteration 3  remaining 256.0 MiB" in told
    agent.recording = b"x" * 600_000
    assert ctl("migration", "record", "good").out == "x" * 600_000
    assert ctl("migration", "record", "good", "-o", str(tmp_path / "r")).out == ""
    assert (tmp_path / "r").stat().st_size == 600_000
    shown = ctl("migration", "show", "good")
    assert (shown.status, "line 1" in shown.err) == (2, True)
    assert ctl("migration", "record", "nobody").status == 3
    assert ctl("migrate-cancel", "good").status == 0
    assert ctl("migrate-cancel", "good").status == 3
    assert ctl("migrate-cancel", "demo").status == 0


def test_node(ctl: Ctl) -> None:
    assert "Libvirt:            not connected: refused" in ctl("node").out
    assert json.loads(ctl("node", "-o", "json").out)["facts"]["cells"] == [{"id": 0}]


def test_node_facts(ctl: Ctl, agent: StandInAgent, monkeypatch: pytest.MonkeyPatch) -> None:
    facts = {"arch": "amd64", "libvirtVersion": 9000000, "cells": [{"id": 0}]}
    assert yaml.safe_load(ctl("node", "facts").out) == facts
    assert list(yaml.safe_load(ctl("node", "facts").out)) == sorted(facts)
    assert json.loads(ctl("node", "facts", "-o", "json").out) == facts
    monkeypatch.setattr(agent, "node", _node_without_libvirt)
    without = ctl("node", "facts")
    assert (without.status, without.out) == (5, "")
    assert "no facts without libvirt: gone" in without.err


async def _node_without_libvirt() -> NodeView:
    return NodeView(
        name="here",
        version="1",
        libvirt_connected=False,
        libvirt_reason="gone",
        facts={},
        instances=0,
        migrations=0,
        peers=(),
    )


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        (["get", "pods"], 2),
        (["get", "vmi", "a", "b"], 2),
        (["nonsense"], 2),
        (["migrate", "demo"], 2),
        (["create", "-f", "/no/such/file"], 2),
        (["--server", "nowhere", "node"], 2),
        (["--server", "10.0.0.1:1", "node"], 2),
        (["--server", "unix:/no/such/socket", "node"], 5),
        (["--version"], 0),
        (["--help"], 0),
    ],
)
def test_exit_statuses_of_the_process(arguments: list[str], status: int) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "launcher.cli.main", *arguments], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == status
    if status:
        assert done.stdout == ""
        assert "error: " in done.stderr
        assert "Traceback" not in done.stderr


def _read_until(fd: int, wanted: bytes, timeout_s: float = 20.0) -> bytes:
    heard, deadline = b"", time.monotonic() + timeout_s
    while wanted not in heard:
        left = deadline - time.monotonic()
        assert left > 0, heard
        ready, _, _ = select.select([fd], [], [], left)
        if ready:
            heard += os.read(fd, 4096)
    return heard


def test_watch_prints_changes_and_ends_with_130(ctl: Ctl, address: str, manifest: str) -> None:
    ctl("create", "-f", manifest)
    command = launcherctl(address, "get", "vmi", "-w")
    # A shell's background jobs ignore SIGINT and so would whatever they start.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    finally:
        signal.signal(signal.SIGINT, before)
    with process:
        try:
            assert process.stdout is not None
            fd = process.stdout.fileno()
            assert b"NAME" in _read_until(fd, b"Pending")
            ctl("pause", "demo")
            _read_until(fd, b"Running")
            process.send_signal(signal.SIGINT)
            assert process.wait(20) == 130
        finally:
            process.kill()
    assert ctl("get", "vmi", "nobody", "-w").status == 3, "it is not waited for"


def test_console_through_pipes(ctl: Ctl, address: str, manifest: str, agent: StandInAgent) -> None:
    ctl("create", "-f", manifest)
    done = subprocess.run(
        launcherctl(address, "console", "demo"), input=b"root\n", capture_output=True, timeout=60
    )
    assert done.returncode == 0
    assert done.stdout == b"login: ROOT\n"
    assert agent.consoles[-1].closed
    ended = subprocess.run(
        launcherctl(address, "console", "vmi", "demo"), input=b"exit\n", capture_output=True, timeout=60
    )
    assert (ended.returncode, ended.stdout) == (0, b"login: ")
    nobody = subprocess.run(launcherctl(address, "console", "no"), input=b"", capture_output=True, timeout=60)
    assert nobody.returncode == 3


def test_console_of_a_guest_that_never_stops_talking_ends(
    ctl: Ctl, address: str, manifest: str, agent: StandInAgent
) -> None:
    ctl("create", "-f", manifest)
    agent.chatty = True
    done = subprocess.run(launcherctl(address, "console", "demo"), input=b"", capture_output=True, timeout=60)
    assert done.returncode == 0
    assert done.stdout.count(b"tick") > 10
    assert agent.consoles[-1].closed


@pytest.fixture
def terminal() -> Iterator[tuple[int, int]]:
    ours, theirs = pty.openpty()
    yield ours, theirs
    os.close(ours)
    os.close(theirs)


@pytest.mark.parametrize("way_out", ["escape", "terminated", "guest"])
def test_console_on_a_terminal_is_restored(
    ctl: Ctl, address: str, manifest: str, terminal: tuple[int, int], way_out: str
) -> None:
    ctl("create", "-f", manifest)
    ours, theirs = terminal
    before = termios.tcgetattr(theirs)
    command = launcherctl(address, "console", "demo")
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs) as process:
        shown = _read_until(ours, b"login: ")
        assert b"Press Ctrl+]" in shown
        assert not termios.tcgetattr(theirs)[3] & termios.ECHO
        os.write(ours, b"\x03abc")  # Ctrl+C is the guest's
        _read_until(ours, b"ABC")
        if way_out == "escape":
            os.write(ours, b"\x1d")
        elif way_out == "guest":
            os.write(ours, b"exit\n")
        else:
            process.terminate()
        status = process.wait(20)
    assert status == (128 + signal.SIGTERM if way_out == "terminated" else 0)
    assert termios.tcgetattr(theirs) == before


def test_client_for_programs(address: str, agent: StandInAgent) -> None:
    with Client(address, timeout_s=10) as client:
        created = client.instances.create(yaml.safe_load(VMI_YAML), namespace="a")
        assert created["metadata"]["namespace"] == "a"
        watch = client.instances.watch(name="demo", namespace="a")
        assert [next(watch).type, next(watch).type] == ["ADDED", "BOOKMARK"]
        client.instances.pause("demo", namespace="a")
        change = next(watch)
        assert (change.type, change.object is not None) == (EventType.MODIFIED, True)
        watch.close()
        with pytest.raises(NotFound):
            client.instances.get("demo")
        silent = client.instances.watch(namespace="b", timeout_s=0.3)
        assert next(silent).type == "BOOKMARK"
        with pytest.raises(TimedOut):
            next(silent)
    with Client("unix:/no/such/socket") as nobody, pytest.raises(Unavailable, match="cannot reach launcherd"):
        nobody.node()
