# SPDX-License-Identifier: Apache-2.0
"""``launcherctl migration replay``: a series in, decisions out as JSON lines."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from launcher.cli import exits
from launcher.cli.main import run


def series(tmp_path: Path, *, passes: int = 60) -> Path:
    """A plateau: a pass each two seconds that leaves half a gigabyte."""
    samples = [
        {
            "elapsedMs": 400 * i,
            "remainingBytes": 500_000_000,
            "memBps": 500_000_000,
            "iteration": 1 + i // 5,
            "boundary": i % 5 == 4,
        }
        for i in range(5 * passes)
    ]
    path = tmp_path / "series.json"
    path.write_text(json.dumps({"name": "plateau", "options": {"guestMemory": "4Gi"}, "samples": samples}))
    return path


def lines(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_the_classic_mode_gives_up_where_the_default_waits(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = series(tmp_path)
    assert run(["migration", "replay", "--classic", str(path)]) == exits.OK
    classic = lines(capsys)
    assert [call for line in classic for call in line["calls"]] == [
        {"call": "MigrateSetMaxDowntime", "value": 300},
        {"call": "MigrateSetMaxDowntime", "value": 900},
        {"call": "AbortJob"},
    ]
    assert classic[1]["action"] == "softStopAndCopy"
    assert run(["migration", "replay", str(path)]) == exits.OK
    default = lines(capsys)
    assert {call["call"] for line in default for call in line["calls"]} == {"MigrateSetMaxDowntime"}
    assert default[-1]["calls"][0]["value"] == 900
    assert all(line["reason"] for line in default)


def test_rules_are_named_or_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(series(tmp_path, passes=5))
    assert run(["migration", "replay", "--rules", "fixed", path]) == exits.OK
    assert lines(capsys)[0]["calls"] == [{"call": "MigrateSetMaxDowntime", "value": 900}]
    assert run(["migration", "replay", "--rules", "guess", path]) != exits.OK
    assert "classic-stall" in capsys.readouterr().err
    assert run(["migration", "replay", "--rules", "fixed", "--classic", path]) != exits.OK


def test_what_is_no_series_is_an_error_that_names_the_place(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "bad.json"
    path.write_text('{"samples": [{"elapsedMs": "soon"}]}')
    assert run(["migration", "replay", str(path)]) == exits.INVALID
    assert "$.samples[0].elapsedMs" in capsys.readouterr().err
