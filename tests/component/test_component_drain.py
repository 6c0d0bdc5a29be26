# SPDX-License-Identifier: Apache-2.0
"""launcherctl drain against the real API server."""

from __future__ import annotations

import pytest
from standin_agent import StandInAgent

from launcher.agent.port import DrainRequest
from launcher.cli.main import run


def test_what_moves_is_told_as_it_happens_and_what_stays_at_the_end(
    address: str, agent: StandInAgent, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["-s", address, "drain", "--to", "c, d"]) == 1
    said = capsys.readouterr()
    assert said.out == (
        "lab/web goes to c, migration drain-web-x (at least 1.50 s)\nlab/web is on c\n1 moved, 1 left\n"
    )
    assert said.err == "lab/stuck stays: its disk is here\n"
    assert agent.drains.asked == [DrainRequest(targets=("c", "d"))]


def test_a_dry_run_names_what_it_would_do(
    address: str, agent: StandInAgent, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["-s", address, "-n", "lab", "drain", "--dry-run", "web", "other/db"]) == 0
    assert capsys.readouterr().out == "lab/web would go to b (at least 1.50 s)\n"
    assert agent.drains.asked == [DrainRequest(instances=("lab/web", "other/db"), dry_run=True)]


def test_marks_are_taken_back(address: str, agent: StandInAgent) -> None:
    assert run(["-s", address, "drain", "--undo"]) == 0
    assert agent.drains.asked == [DrainRequest(undo=True)]
