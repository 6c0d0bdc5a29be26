# SPDX-License-Identifier: Apache-2.0
"""``launcherctl migration show``, ``plot`` and ``replay`` of a recording in a file."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import IO

import pytest
from lxml import etree

from launcher.cli import exits
from launcher.cli.main import run
from launcher.cli.plot.axes import round_top, seconds_ticks
from launcher.cli.plot.terminal import Canvas
from launcher.migration.compose import make_policy
from launcher.migration.options import Options, Workload
from launcher.migration.policy import Outcome, SetMaxDowntime
from launcher.migration.progress import MigrationReport
from launcher.migration.recording import VERSION, Decided, Ended, Header, Looked, Stepped, encode
from launcher.migration.sample import Sample

MIB = 1 << 20


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    """A guest with passes of 2 s over which the ramp goes up, as the standard rules decide it."""
    options, workload = Options(), Workload(memory_bytes=512 * MIB)
    policy = make_policy("standard", options, workload)
    header = Header(
        version=VERSION,
        migration="lab/move<1>",
        instance="lab/web",
        attempt="u",
        source_node="a",
        target_node="b",
        rules="standard",
        options=options,
        workload=workload,
        at="2026-01-01T00:00:00Z",
    )
    text, state, limit = encode(header), policy.initial(), None
    for number in range(100):
        sample = Sample(
            t=number * 0.4,
            iteration=1 + number // 5,
            boundary=number % 5 == 0,
            remaining=(300 - number) * MIB,
            processed=number * 40 * MIB,
            dirty_rate=30 * MIB,
            max_downtime_ms=limit,
        )
        text += encode(Looked(sample=sample))
        decision = policy.step(state, sample)
        state = decision.state
        outcomes = []
        for action in decision.actions:
            outcomes.append(Outcome(action=action, t=sample.t))
            state = policy.settle(state, outcomes[-1])
            limit = action.ms if isinstance(action, SetMaxDowntime) else limit
        if outcomes:
            text += encode(Decided(t=sample.t, outcomes=tuple(outcomes), label=decision.label))
    report = MigrationReport(succeeded=True, total_ms=39_600, downtime_ms=87)
    text += encode(Ended(at="", phase="Succeeded", cause="", reason="", report=report))
    path = tmp_path / "move.jsonl"
    path.write_bytes(text)
    return path


def test_show_tells_what_was_decided_and_why(recording: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["migration", "show", "-f", str(recording)]) == exits.OK
    out = capsys.readouterr().out
    assert "lab/move<1>: lab/web from a to b" in out
    assert "Succeeded after 39.6 s with 87 ms of downtime" in out
    assert "up to 900 ms of downtime; allowed: nothing more" in out
    assert "100 samples over 39.6 s; 20 passes" in out
    assert "allow 150 ms: ramp: initial value" in out
    assert out.count("allow ") >= 4


@pytest.fixture
def moved(tmp_path: Path) -> Path:
    """A volume of 100 MiB that was moved under its guest."""
    header = Header(
        version=VERSION,
        migration="lab/move",
        instance="lab/web",
        attempt="u",
        source_node="a",
        target_node="a",
        rules="",
        options=Options(bandwidth_bps=10 * MIB),
        workload=Workload(memory_bytes=0, disk_bytes=100 * MIB),
        at="2026-01-01T00:00:00Z",
    )
    text = encode(header) + encode(Stepped(t=0.0, step="copy", volume="data", reason="to /new/disk.img"))
    for second in range(11):
        done = second * 10 * MIB
        sample = Sample(t=second, remaining=100 * MIB - done, processed=done, total=100 * MIB)
        text += encode(Looked(sample=sample))
    text += encode(Stepped(t=10.5, step="pivot", volume="data", reason="the same", error="no answer"))
    text += encode(Ended(at="", phase="Succeeded", cause="", reason="", report=None))
    path = tmp_path / "moved.jsonl"
    path.write_bytes(text)
    return path


def test_a_move_on_one_node_is_shown_and_drawn_and_has_no_rules(
    moved: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["migration", "show", "-f", str(moved)]) == exits.OK
    out = capsys.readouterr().out
    assert "lab/move: volumes of lab/web on a" in out
    assert "Rules:    none" in out
    assert "Volumes:  100.0 MiB, bandwidth: 10.0 MiB/s; the guest's writes do not wait" in out
    assert "0.0 s  copy data: to /new/disk.img" in out
    assert "10.5 s  change over to the copy of data failed: no answer" in out
    assert run(["migration", "plot", "-f", str(moved)]) == exits.OK
    assert "copy data" in capsys.readouterr().out
    for rules in ([], ["--rules", "fixed"], ["--classic"], ["--check"]):
        assert run(["migration", "replay", *rules, str(moved)]) == exits.INVALID
        told = capsys.readouterr()
        assert "there is nothing to replay" in told.err
        assert told.out == ""


def test_plot_draws_on_the_terminal(recording: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["migration", "plot", "-f", str(recording)]) == exits.OK
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 100
    drawn = [line for line in lines if "│" in line]
    assert len(drawn) == 18
    assert all(any(0x2800 < ord(char) <= 0x28FF for char in "".join(drawn[i : i + 6])) for i in (0, 6, 12))
    assert "500.0 MiB│" in lines[3]
    assert any(line.startswith(" " * 12 + "└0s") for line in lines)
    assert any("ramp: initial value" in line for line in lines)


def test_a_plot_of_nothing_says_so(recording: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As of a migration whose target was never reached."""
    kept = [
        line for line in recording.read_text().splitlines() if json.loads(line)["kind"] in ("header", "ended")
    ]
    recording.write_text("\n".join(kept) + "\n")
    assert run(["migration", "plot", "-f", str(recording)]) == exits.OK
    told = capsys.readouterr().out
    assert told.splitlines()[-1] == "There is nothing to draw: no byte was seen to move."
    assert "remaining" not in told


def test_plot_writes_svg(recording: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "move.svg"
    assert run(["migration", "plot", "-f", str(recording), "-o", str(path)]) == exits.OK
    root = etree.fromstring(path.read_bytes())
    space = {"s": "http://www.w3.org/2000/svg"}
    lines = root.findall("s:polyline", space)
    assert [line.get("stroke") for line in lines] == ["blue", "green", "red", "magenta"]
    for line in lines:
        for point in (line.get("points") or "").split():
            x, y = map(float, point.split(","))
            assert 90 <= x <= 940
            assert 60 <= y <= 60 + 3 * 190
    texts = [text.text or "" for text in root.findall("s:text", space)]
    assert "lab/move<1>: lab/web from a to b" in texts
    marks = root.xpath("//s:line[@class='mark']", namespaces=space)
    assert isinstance(marks, list)
    assert len(marks) == sum("allow" in text for text in texts) >= 4
    assert run(["migration", "plot", "-f", str(recording), "-o", "-"]) == exits.OK
    assert capsys.readouterr().out == path.read_text()


def test_where_nothing_can_be_written_is_said(
    recording: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    where = tmp_path / "no" / "move.svg"
    assert run(["migration", "plot", "-f", str(recording), "-o", str(where)]) == exits.ERROR
    assert capsys.readouterr().err == f"error: {where}: No such file or directory\n"


@pytest.mark.parametrize("command", ["show", "plot"])
def test_a_full_disk_is_no_fault_of_ours(recording: Path, command: str) -> None:
    with Path("/dev/full").open("w") as full:
        ended = launcherctl("migration", command, "-f", str(recording), stdout=full)
    assert ended.returncode == exits.ERROR
    assert ended.stderr == "error: No space left on device\n"


@pytest.mark.parametrize("command", ["show", "plot"])
def test_a_closed_stdout_hears_nothing(recording: Path, command: str) -> None:
    line = f'exec "$0" -m launcher.cli.main migration {command} -f "$1" >&-'
    ended = subprocess.run(
        ["sh", "-c", line, sys.executable, str(recording)], stderr=subprocess.PIPE, text=True, check=False
    )
    assert (ended.returncode, ended.stderr) == (exits.OK, "")


def launcherctl(*words: str, stdout: IO[str]) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "launcher.cli.main", *words]
    return subprocess.run(command, stdout=stdout, stderr=subprocess.PIPE, text=True, check=False)


def test_replay_of_a_recording_repeats_it(recording: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["migration", "replay", "--check", str(recording)]) == exits.OK
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert lines[0] == {
        "step": 0,
        "nowMs": 0,
        "calls": [{"call": "MigrateSetMaxDowntime", "value": 150}],
        "reason": "ramp: initial value",
    }
    assert run(["migration", "replay", "--rules", "fixed", "--check", str(recording)]) == exits.ERROR
    assert "not the decisions" in capsys.readouterr().err
    assert run(["migration", "replay", "--classic", str(recording)]) == exits.OK
    assert capsys.readouterr().out == "", "the classic mode without tuning sets nothing"


def test_a_migration_or_a_file_is_named(recording: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words in ([], ["move", "-f", str(recording)]):
        assert run(["migration", "show", *words]) == exits.INVALID
        assert "name a migration, or a recording" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("value", "base", "top"),
    [(0, 10, 1), (1, 10, 1), (1.1, 10, 2), (299, 10, 500), (900, 10, 1000), (2 * MIB, 1024, 2 * MIB)],
)
def test_axes_end_at_round_numbers(value: float, base: int, top: float) -> None:
    assert round_top(value, base) == pytest.approx(top)


def test_times_along_the_axis() -> None:
    assert seconds_ticks(39.6) == (0, 5, 10, 15, 20, 25, 30, 35)
    assert seconds_ticks(0) == (0.0,)


def test_the_canvas_sets_dots_where_they_belong() -> None:
    canvas = Canvas(2, 1)
    canvas.dot(0, 0, "red")
    canvas.dot(3, 3, "blue")
    canvas.dot(9, 9, "blue")
    assert canvas.rows()[0].plain == chr(0x2840) + chr(0x2808)
