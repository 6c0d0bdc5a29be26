# SPDX-License-Identifier: Apache-2.0
"""The commands that a playground prints can be typed as they are."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from launcher.lab.demo import hints
from launcher.lab.process import ProcessId
from launcher.lab.state import LabState, NodeState


def test_the_first_hint_finds_launcherctl(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    own = ProcessId.own()
    node = NodeState(
        name="a",
        index=1,
        ip="10.99.0.1",
        dir="/x/a",
        holder=own,
        libvirtd_pid=1,
        agent_pid=1,
        libvirt_uri="qemu:///system",
        agent_target="unix:/x/a/s",
    )
    lab = LabState(name="x", dir="/x", owner=own, switch=own, nodes=(node,))
    monkeypatch.setenv("PATH", str(tmp_path))
    assert next(iter(hints(lab))) == f"export PATH={Path(sys.executable).parent}:$PATH"
    (tmp_path / "launcherctl").touch(mode=0o755)
    assert next(iter(hints(lab))).startswith("launcherctl ")
