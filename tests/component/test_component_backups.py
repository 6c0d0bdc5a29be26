# SPDX-License-Identifier: Apache-2.0
"""Copies of guests over the real API server: launcherctl freeze and snapshot."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from standin_agent import StandInAgent

from launcher.agent.port import BackupRequest
from launcher.cli.main import run

Ctl = Callable[..., tuple[int, str, str]]


@pytest.fixture
def ctl(address: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Ctl:
    monkeypatch.setenv("LAUNCHER_SERVER", address)

    def call(*arguments: str) -> tuple[int, str, str]:
        status = run(list(arguments))
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return call


def test_a_freeze_ends_by_itself(ctl: Ctl, agent: StandInAgent) -> None:
    assert ctl("freeze", "vmi/demo")[0] == 0
    assert agent.backups.frozen == {("default", "demo"): 300.0}
    assert ctl("freeze", "demo", "--unfreeze-timeout", "0", "-n", "lab")[0] == 0
    assert agent.backups.frozen["lab", "demo"] == 0.0
    assert ctl("unfreeze", "demo")[0] == 0
    assert list(agent.backups.frozen) == [("lab", "demo")]
    assert ctl("freeze", "demo", "--unfreeze-timeout", "-1")[0] == 2


def test_a_snapshot_is_waited_for(ctl: Ctl) -> None:
    status, out, _ = ctl("snapshot", "create", "demo", "--name", "s", "--volume", "root")
    assert (status, out) == (0, "snapshot s Succeeded (Online, GuestAgent)\n  root: /s/root.qcow2\n")
    status, out, _ = ctl("snapshot", "create", "demo", "--name", "t", "--skip-quiesce", "--no-wait")
    assert (status, out) == (0, "snapshot t InProgress (Online)\n")
    status, _, err = ctl("snapshot", "create", "demo", "--name", "bad")
    assert (status, err) == (1, "error: snapshot bad failed: no space left\n")


def test_snapshots_are_listed_and_deleted(ctl: Ctl) -> None:
    for name in ("one", "two"):
        ctl("snapshot", "create", "demo", "--name", name, "--no-wait")
    ctl("snapshot", "create", "other", "--name", "three", "--no-wait", "-n", "lab")
    status, out, _ = ctl("snapshot", "list")
    assert status == 0
    assert [line.split()[:5] for line in out.splitlines()[1:]] == [
        ["default", "demo", "one", "Succeeded", "2026-03-01T12:00:00Z"],
        ["default", "demo", "two", "Succeeded", "2026-03-01T12:00:00Z"],
        ["lab", "other", "three", "Succeeded", "2026-03-01T12:00:00Z"],
    ]
    shown = json.loads(ctl("snapshot", "list", "vmi/demo", "-o", "json")[1])
    assert [copy["name"] for copy in shown] == ["one", "two"]
    assert ctl("snapshot", "delete", "demo", "--name", "one") == (0, "snapshot one deleted\n", "")
    assert ctl("snapshot", "delete", "demo", "--name", "one")[0] == 3


def test_memory_is_dumped_into_a_claim(ctl: Ctl, agent: StandInAgent) -> None:
    status, out, _ = ctl("memory-dump", "get", "demo", "--claim", "dumps=/srv/dumps")
    assert (status, out) == (0, "MemoryDumpCompleted: demo-dumps.memory.dump in dumps\n")
    status, _, err = ctl("memory-dump", "get", "demo", "--claim", "bad")
    assert (status, err) == (1, "error: memory dump failed: no\n")
    assert agent.backups.dumps == [
        ("default", "demo", "dumps", "/srv/dumps"),
        ("default", "demo", "bad", ""),
    ]
    assert ctl("memory-dump", "remove", "demo")[0] == 0
    assert ctl("memory-dump", "remove", "demo")[0] == 3


def test_a_backup_is_pushed_or_pulled(ctl: Ctl, agent: StandInAgent) -> None:
    status, out, _ = ctl("backup", "begin", "demo", "--name", "full", "--to", "/srv/b")
    shown = "backup full Succeeded (Online, GuestAgent)\n  root: /b/root.qcow2\n  checkpoint: full-cp\n"
    assert (status, out) == (0, shown)
    options = ("--mode", "pull", "--incremental", "full-cp", "--volume", "root", "--skip-quiesce")
    status, out, _ = ctl("backup", "begin", "demo", "--name", "next", *options, "--deadline", "60")
    assert status == 0
    assert "root: NBD export root at /run/b.sock" in out
    assert agent.backups.requests == [
        BackupRequest(name="full", directory="/srv/b"),
        BackupRequest(
            name="next",
            mode="pull",
            incremental="full-cp",
            volumes=("root",),
            quiesce=False,
            deadline_s=60,
        ),
    ]
    assert ctl("backup", "end", "demo", "--name", "next")[0] == 0
    assert ctl("backup", "abort", "demo", "--name", "next") == (0, "backup next aborted\n", "")
    assert ctl("backup", "end", "demo", "--name", "other")[0] == 3
    assert len(ctl("backup", "list", "demo")[1].splitlines()) == 3
    assert "full-cp" in ctl("backup", "checkpoints")[1]
    assert ctl("backup", "delete-checkpoint", "demo", "--name", "full-cp")[0] == 0
    assert "full-cp" not in ctl("backup", "checkpoints")[1]
