# SPDX-License-Identifier: Apache-2.0
"""Has steps of networks made and released by a process inside a node, and kills it in the middle."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from launcher.lab.node import Node
from launcher.plan.steps import AnyStep, encode

DRIVER = Path(__file__).with_name("network_driver.py")
DELAYS_S = (0.0, 0.02)
"""Where in a step the driver is killed: a step takes 5 to 40 ms."""


def drive(node: Node, verb: str, steps: Sequence[AnyStep]) -> None:
    """Make or release all of ``steps``."""
    assert node.run(sys.executable, DRIVER, verb, _file(node, steps)).splitlines()[-1] == "done"


def killed(node: Node, verb: str, steps: Sequence[AnyStep], *, at: int, after_s: float) -> None:
    """Make or release, and be killed ``after_s`` seconds into step ``at``."""
    process = subprocess.Popen(
        [*node.namespaces.prefix(), sys.executable, str(DRIVER), verb, _file(node, steps)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    pid = process.stdout.readline().removeprefix("pid ").strip()
    for line in process.stdout:
        if line.strip() == str(at):
            break
    try:
        process.wait(after_s)
    except subprocess.TimeoutExpired:
        node.run("kill", "-KILL", pid)
    process.wait(30)
    process.stdout.close()


def _file(node: Node, steps: Sequence[AnyStep]) -> str:
    inside = "/run/launcher/steps"
    node.layout.outside(inside).write_text("".join(f"{encode(step)}\n" for step in steps))
    return inside


@contextmanager
def looking_after(node: Node, verb: str, steps: Sequence[AnyStep]) -> Iterator[None]:
    """An executor that made (``make``) or took up (``adopt``) the steps and goes on."""
    process = subprocess.Popen(
        [*node.namespaces.prefix(), sys.executable, str(DRIVER), f"{verb}-and-stay", _file(node, steps)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout is not None
    try:
        assert any(line == "staying\n" for line in process.stdout)
        yield
    finally:
        process.communicate(timeout=30)
