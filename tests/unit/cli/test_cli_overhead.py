# SPDX-License-Identifier: Apache-2.0
"""``launcherctl explain --overhead``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from launcher.cli.main import run
from launcher.units import MIB

MANIFEST = """
apiVersion: kubevirt.io/v1
kind: VirtualMachineInstance
metadata: {name: a}
spec:
  domain:
    cpu: {cores: 2}
    memory: {guest: 1Gi, reservedOverhead: {addedOverhead: 16Mi}}
    devices: {tpm: {}, autoattachPodInterface: false, autoattachGraphicsDevice: false}
"""


def test_the_terms_are_printed_and_add_up(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "vmi.yaml"
    file.write_text(MANIFEST)
    assert run(["explain", "-f", str(file), "--overhead"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "  53.0 MiB  swtpm" in lines
    assert lines[-1] == " 145.0 MiB  in all"
    assert run(["explain", "-f", str(file), "--overhead", "-o", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["bytes"] == sum(term["bytes"] for term in found["terms"]) == 145 * MIB


def test_a_wrong_manifest_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "vmi.yaml"
    file.write_text(MANIFEST.replace("cores: 2", "cores: -2"))
    assert run(["explain", "-f", str(file), "--overhead"]) == 2
    assert "spec.domain.cpu.cores" in capsys.readouterr().err
