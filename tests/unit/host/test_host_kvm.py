# SPDX-License-Identifier: Apache-2.0
"""KVM that is there, half there, and not there."""

from __future__ import annotations

import platform
from pathlib import Path

import pytest

from launcher.host.kvm import X86_MACHINES, Kvm, probe

WITH_VMX = "processor\t: 0\nflags\t\t: fpu vmx sse\n"
WITHOUT = "processor\t: 0\nflags\t\t: fpu vmx_like sse\n"


@pytest.fixture
def cpuinfo(tmp_path: Path) -> Path:
    path = tmp_path / "cpuinfo"
    path.write_text(WITH_VMX)
    return path


def test_a_cpu_without_the_flag_is_refused_whatever_the_device_does(cpuinfo: Path) -> None:
    cpuinfo.write_text(WITHOUT)
    found = probe(cpuinfo=cpuinfo, machine="x86_64")
    assert not found.usable
    assert "neither vmx nor svm" in found.reason


def test_no_device(cpuinfo: Path, tmp_path: Path) -> None:
    found = probe(device=tmp_path / "kvm", cpuinfo=cpuinfo, machine="x86_64")
    assert found == Kvm(usable=False, reason=f"cannot open {tmp_path}/kvm: No such file or directory")


def test_a_file_that_is_no_kvm(cpuinfo: Path) -> None:
    found = probe(device=Path("/dev/null"), cpuinfo=cpuinfo, machine="x86_64")
    assert not found.usable
    assert "makes no VM" in found.reason


def test_other_architectures_have_no_flag(tmp_path: Path) -> None:
    found = probe(device=tmp_path / "kvm", cpuinfo=tmp_path / "none", machine="aarch64")
    assert "cannot open" in found.reason


def test_an_unreadable_cpuinfo(tmp_path: Path) -> None:
    found = probe(cpuinfo=tmp_path / "none", machine="x86_64")
    assert "cannot read" in found.reason


def test_this_machine_is_judged_by_its_flags_and_device() -> None:
    found = probe()
    assert found.usable is (found.reason == "")
    if platform.machine() in X86_MACHINES and not {"vmx", "svm"} & set(
        Path("/proc/cpuinfo").read_text().split()
    ):
        assert "neither vmx nor svm" in found.reason
