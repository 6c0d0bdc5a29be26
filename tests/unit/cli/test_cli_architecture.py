# SPDX-License-Identifier: Apache-2.0
"""Commands without an agent: a manifest that names no architecture is one for this machine, or as told."""

from __future__ import annotations

import platform
from pathlib import Path

import pytest

from launcher.cli.main import run

MANIFEST = """
apiVersion: kubevirt.io/v1
kind: VirtualMachineInstance
metadata: {name: a}
spec:
  domain:
    memory: {guest: 1Gi}
    devices: {watchdog: {name: dog, i6300esb: {action: reset}}}
"""
UNWATCHED = MANIFEST.replace("watchdog: {name: dog, i6300esb: {action: reset}}", "")


@pytest.mark.parametrize(
    ("machine", "options", "emulator"),
    [
        ("x86_64", [], "x86_64"),
        ("aarch64", [], "aarch64"),
        ("s390x", [], "s390x"),
        ("riscv64", [], "x86_64"),
        ("x86_64", ["--arch", "arm64"], "aarch64"),
    ],
)
def test_translate(
    machine: str,
    options: list[str],
    emulator: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(platform, "machine", lambda: machine)
    file = tmp_path / "vmi.yaml"
    file.write_text(UNWATCHED)
    assert run(["translate", "-f", str(file), *options]) == 0
    assert f'<type arch="{emulator}"' in capsys.readouterr().out
    file.write_text(UNWATCHED.replace("spec:", "spec:\n  architecture: s390x"))
    assert run(["translate", "-f", str(file), *options]) == 0
    assert '<type arch="s390x"' in capsys.readouterr().out


@pytest.mark.parametrize("command", ["validate", "translate", "plan", "explain"])
def test_rules_are_those_of_the_architecture(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "vmi.yaml"
    file.write_text(MANIFEST)
    assert run([command, "-f", str(file), "--arch", "amd64"]) == 0
    capsys.readouterr()
    assert run([command, "-f", str(file), "--arch", "arm64"]) == 2
    assert "spec.domain.devices.watchdog" in capsys.readouterr().err
