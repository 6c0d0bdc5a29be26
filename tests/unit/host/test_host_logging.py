# SPDX-License-Identifier: Apache-2.0
"""Log lines: fields, formats, the journal, and no secrets."""

from __future__ import annotations

import io
import json
import logging
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from launcher.errors import InvalidRequest
from launcher.host.logging import fields, formatter, get, is_journal, setup

log = get("launcher.test")


@pytest.fixture
def root() -> Iterator[None]:
    """Puts the process's logging back."""
    logger = logging.getLogger()
    handlers, level = logger.handlers[:], logger.level
    yield
    logger.handlers[:], logger.level = handlers, level


def lines(form: str, level: str = "info") -> io.StringIO:
    stream = io.StringIO()
    setup(form, level, stream=stream, environ={})
    return stream


def test_json_is_one_object_a_line(root: None) -> None:
    stream = lines("json")
    log.bind(vmi="ns/a").info(
        "started %s", "it", waited_s=1.5, count=2, ok=True, nothing=None, path=Path("/a")
    )
    log.debug("not shown")
    line = json.loads(stream.getvalue())
    assert line.pop("time").endswith("Z")
    assert line == {
        "level": "info",
        "logger": "launcher.test",
        "message": "started it",
        "vmi": "ns/a",
        "waited_s": 1.5,
        "count": 2,
        "ok": True,
        "nothing": None,
        "path": "/a",
    }


def test_a_field_does_not_hide_what_every_line_has(root: None) -> None:
    stream = lines("json")
    log.info("said", logger="mine", time="noon")
    line = json.loads(stream.getvalue())
    assert (line["logger"], line["logger_"], line["time_"]) == ("launcher.test", "mine", "noon")


def test_a_trace_stays_on_the_line(root: None) -> None:
    stream = lines("json")
    try:
        raise ValueError("broken\nbadly")
    except ValueError:
        log.exception("failed", vmi="a")
    (line,) = stream.getvalue().splitlines()
    assert "ValueError: broken\nbadly" in json.loads(line)["stack"]


def test_logfmt_quotes_what_needs_it(root: None) -> None:
    stream = lines("logfmt")
    log.warning("two words", vmi="ns/a", text='a "b"\nc', empty="", ok=False, nothing=None, count=1)
    line = stream.getvalue().rstrip("\n")
    assert line.partition(" ")[2] == (
        'level=warning logger=launcher.test message="two words" vmi=ns/a text="a \\"b\\"\\nc" empty=""'
        " ok=false nothing=null count=1"
    )


def test_console_is_for_people(root: None) -> None:
    stream = lines("console")
    log.error("no such disk", path="/a b")
    time, rest = stream.getvalue().rstrip("\n").split(" ", 1)
    assert len(time) == len("12:00:00.123")
    assert rest == 'ERROR   no such disk path="/a b"'


def test_fields_of_the_context_reach_every_line(root: None) -> None:
    stream = lines("json")
    with fields(rpc="Create", request_id="1"), fields(vmi="a"):
        log.info("inside", vmi="b")
    log.info("outside")
    inside, outside = (json.loads(line) for line in stream.getvalue().splitlines())
    assert (inside["rpc"], inside["request_id"], inside["vmi"]) == ("Create", "1", "b")
    assert "rpc" not in outside


@pytest.mark.parametrize("form", ["json", "logfmt", "console"])
@pytest.mark.parametrize(
    "name", ["password", "vncPasswd", "token", "userData", "user_data", "client_secret", "privateKey"]
)
def test_secrets_are_hidden(root: None, form: str, name: str) -> None:
    stream = lines(form)
    log.bind(**{name: "hunter2"}).info("set", blob=b"hunter2")
    assert "hunter2" not in stream.getvalue()
    assert "[hidden]" in stream.getvalue()
    assert "[7 bytes]" in stream.getvalue()


def test_the_journal_gets_priorities_on_every_line(tmp_path: Path, root: None) -> None:
    with (tmp_path / "journal").open("w") as stream:
        status = os.fstat(stream.fileno())
        environ = {"JOURNAL_STREAM": f"{status.st_dev}:{status.st_ino}"}
        setup("auto", "debug", stream=stream, environ=environ)
        log.debug("a")
        log.info("b", vmi="x")
        log.warning("c")
        log.error("d\nsecond line")
        log.critical("e")
    assert (tmp_path / "journal").read_text().splitlines() == [
        "<7>a",
        "<6>b vmi=x",
        "<4>c",
        "<3>d",
        "<3>second line",
        "<2>e",
    ]


def test_auto_elsewhere_is_logfmt(tmp_path: Path) -> None:
    with (tmp_path / "log").open("w") as stream:
        assert type(formatter("auto", stream, {"JOURNAL_STREAM": "1:1"})).__name__ == "LogfmtFormatter"
        assert not is_journal(stream, "")
    assert not is_journal(io.StringIO(), "1:1")
    reader, writer = os.openpty()
    with os.fdopen(writer, "w") as terminal, os.fdopen(reader):
        assert type(formatter("auto", terminal, {})).__name__ == "ConsoleFormatter"


def test_unknown_settings_are_all_named() -> None:
    with pytest.raises(InvalidRequest) as raised:
        setup("xml", "loud")
    assert [violation.field for violation in raised.value.violations] == ["log_format", "log_level"]
    assert "one of auto, json, logfmt, console" in str(raised.value)
