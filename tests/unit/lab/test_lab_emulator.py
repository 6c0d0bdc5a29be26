# SPDX-License-Identifier: Apache-2.0
"""What stands in QEMU's place asks for two pages more for each block of memory, and changes nothing else."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from launcher.lab import emulator

PassedOn = Callable[..., list[str]]

MIB = 1 << 20
PC_RAM = '{"qom-type":"memory-backend-ram","id":"pc.ram","size":%d}'
NODE = '{"qom-type":"memory-backend-memfd","id":"ram-node%d","share":true,"size":%d,"host-nodes":[0]}'


@pytest.fixture
def passed_on(tmp_path: Path) -> PassedOn:
    """Runs the script with words; what QEMU would be given."""
    real = tmp_path / "real"
    real.write_text('#!/bin/sh\nfor word; do printf "%s\\0" "$word"; done\n')
    real.chmod(0o755)
    script = tmp_path / "script"
    script.write_text(emulator.script("QEMU emulator version 7.2.22", str(real)))
    script.chmod(0o755)

    def run(*words: str) -> list[str]:
        done = subprocess.run([script, *words], capture_output=True, check=True, timeout=10)
        return done.stdout.decode().split("\0")[:-1]

    return run


def test_words_without_memory_are_passed_on_as_they_are(passed_on: PassedOn) -> None:
    words = ["-S", "-m", "16", "", "-name", "a b", '{"odd": "$x `y` *"}']
    assert passed_on(*words) == words


@pytest.mark.parametrize(("given", "asked"), [("192", "196616k"), ("size=196608k", "196616k")])
def test_the_only_block_of_memory_is_two_pages_more(passed_on: PassedOn, given: str, asked: str) -> None:
    found = passed_on("-object", PC_RAM % (192 * MIB), "-m", given, "-machine", "q35,memory-backend=pc.ram")
    assert found == [
        "-object",
        PC_RAM % (192 * MIB + 8192),
        "-m",
        f"size={asked}",
        "-machine",
        "q35,memory-backend=pc.ram",
    ]


def test_each_numa_node_is_and_as_much_can_be_plugged(passed_on: PassedOn) -> None:
    blocks = [word for number in (0, 1) for word in ("-object", NODE % (number, 64 * MIB))]
    found = passed_on("-m", "size=131072k,slots=16,maxmem=1048576k", *blocks)
    assert found[1] == "size=131088k,slots=16,maxmem=1048592k"
    assert [json.loads(word)["size"] for word in found[3::2]] == [64 * MIB + 8192] * 2
    assert [json.loads(word)["host-nodes"] for word in found[3::2]] == [[0], [0]]


@pytest.mark.parametrize("kind", ['"hugetlb":true', '"mem-path":"/dev/hugepages/x"', '"id":"memdimm0"'])
def test_huge_pages_files_and_plugged_memory_stay(passed_on: PassedOn, kind: str) -> None:
    name = "" if "id" in kind else '"id":"pc.ram",'
    words = ["-m", "64", "-object", f'{{"qom-type":"memory-backend-memfd",{name}{kind},"size":67108864}}']
    assert passed_on(*words) == words


def test_a_block_is_no_multiple_of_64_pages_whatever_mib_it_has() -> None:
    assert {(mib * MIB + emulator.EXTRA_BYTES) % (64 * 4096) for mib in range(1, 4096)} == {8192}


@pytest.mark.parametrize(
    ("version", "forgets"),
    [
        ("QEMU emulator version 7.2.22 (Debian 1:7.2+dfsg-7+deb12u18+b3)", True),
        ("QEMU emulator version 8.2.0", True),
        ("QEMU emulator version 9.0.0", False),
        ("QEMU emulator version 10.0.3 (Debian 1:10.0.3+ds-0+deb13u1)", False),
        ("something else", False),
    ],
)
def test_which_qemu_forgets(version: str, forgets: bool) -> None:
    assert emulator.forgets(version) is forgets
