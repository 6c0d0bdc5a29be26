# SPDX-License-Identifier: Apache-2.0
"""``launcherctl lab``: labs that outlive their command, and the demo from end to end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from launcher.lab.process import ProcessId

pytestmark = pytest.mark.node

CTL = Path(sys.executable).parent / "launcherctl"
EXAMPLES = Path(__file__).parents[2] / "examples"
Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def run(needs_nodes: None) -> Iterator[Run]:
    """Runs launcherctl with labs of the test's own; ends what is left."""
    with tempfile.TemporaryDirectory(prefix="labs-") as base:
        environment = os.environ | {"LAUNCHER_LAB_DIR": base}

        def call(*words: str | Path) -> subprocess.CompletedProcess[str]:
            return subprocess.run(
                [CTL, *words], env=environment, capture_output=True, text=True, timeout=300, check=False
            )

        yield call
        for folder in Path(base).iterdir():
            if folder.is_dir():
                call("lab", "down", "--name", folder.name)


def _node(run: Run, name: str) -> dict[str, object]:
    (lab,) = json.loads(run("lab", "status", "-o", "json").stdout)
    return next(node for node in lab["nodes"] if node["name"] == name)


def test_up_status_exec_rate_down(run: Run) -> None:
    up = run("lab", "up", "--name", "t", "--nodes", "a")
    assert up.returncode == 0, up.stderr
    assert "SERVING" in up.stdout
    assert run("lab", "up", "--name", "t", "--nodes", "a").returncode == 0, "up twice is fine"
    assert run("lab", "up", "--name", "t", "--nodes", "a,b").returncode == 4, "but not with other nodes"
    assert run("lab", "exec", "--name", "t", "a", "--", "hostname").stdout == "a\n"
    assert run("lab", "rate", "--name", "t", "a", "50").returncode == 0
    assert run("lab", "rate", "--name", "t", "a", "fast").returncode == 2
    assert run("lab", "rate", "--name", "t", "z", "off").returncode == 3
    holder = ProcessId(**_node(run, "a")["holder"])  # type: ignore[arg-type]
    assert holder.alive()
    down = run("lab", "down", "--name", "t")
    assert (down.returncode, down.stdout) == (0, "lab t is down\n")
    assert not holder.alive()
    again = run("lab", "down", "--name", "t")
    assert (again.returncode, again.stdout) == (0, "lab t was not up\n")
    assert run("lab", "status", "-o", "json").stdout == "[]\n"


def test_a_killed_agent_is_started_again(run: Run) -> None:
    assert run("lab", "up", "--name", "t", "--nodes", "a").returncode == 0
    first = int(str(_node(run, "a")["agent_pid"]))
    os.kill(first, signal.SIGKILL)
    deadline = time.monotonic() + 30
    while _node(run, "a")["agent_pid"] in (0, first):
        assert time.monotonic() < deadline
    assert "SERVING" in run("lab", "status").stdout


def test_a_killed_supervisor_takes_everything_along_and_up_works_again(run: Run) -> None:
    assert run("lab", "up", "--name", "t", "--nodes", "a").returncode == 0
    (lab,) = json.loads(run("lab", "status", "-o", "json").stdout)
    holder, owner = ProcessId(**lab["nodes"][0]["holder"]), ProcessId(**lab["owner"])
    assert owner.signal(signal.SIGKILL)
    assert holder.wait_gone(10)
    assert run("lab", "status", "-o", "json").stdout == "[]\n"
    assert not Path(lab["dir"]).exists()
    assert run("lab", "up", "--name", "t", "--nodes", "a").returncode == 0


def test_bad_names_are_refused(run: Run) -> None:
    assert run("lab", "up", "--name", "../x").returncode == 2
    assert run("lab", "up", "--name", "t", "--nodes", "a,a").returncode == 2
    assert run("lab", "exec", "--name", "absent", "a", "true").returncode == 3


def test_the_demo_migrates_and_its_ticks_go_on(run: Run, tmp_path: Path) -> None:
    manifest = tmp_path / "demo.yaml"
    manifest.write_text((EXAMPLES / "demo.yaml").read_text().replace("dirty=6,60", "dirty=1,10"))
    demo = run("lab", "demo", "-f", manifest)
    assert demo.returncode == 0, demo.stdout + demo.stderr
    for expected in ("Result:       succeeded", "Measured by:  libvirt", "none missing", "Running on node b"):
        assert expected in demo.stdout


def test_the_demo_can_leave_its_nodes_up(run: Run, tmp_path: Path) -> None:
    manifest = tmp_path / "demo.yaml"
    manifest.write_text((EXAMPLES / "demo.yaml").read_text().replace("dirty=6,60", "dirty=1,10"))
    demo = run("lab", "demo", "--keep", "-f", manifest)
    assert demo.returncode == 0, demo.stdout + demo.stderr
    assert "launcherctl lab down --name demo" in demo.stdout
    listed = run("--server", str(_node(run, "b")["agent_target"]), "get", "vmi", "-o", "json").stdout
    assert "Running" in listed
    assert run("lab", "down", "--name", "demo").returncode == 0
