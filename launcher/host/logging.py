# SPDX-License-Identifier: Apache-2.0
"""Logging with fields on the standard library: ``log.info("domain started", vmi=key)``. Decides no level.

Formats: ``json`` (one object a line), ``logfmt`` (``key=value``), ``console`` (for people) and
``auto``: for people with journald's priorities if stderr is the journal, console on a terminal, else
logfmt.
Fields whose names speak of secrets are hidden, and bytes are never written.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
import sys
from collections.abc import Iterator, Mapping, MutableMapping
from contextvars import ContextVar
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any, Final, TextIO

from launcher.errors import InvalidRequest, Violation

LEVELS: Final = ("debug", "info", "warning", "error")
FORMATS: Final = ("auto", "json", "logfmt", "console")

# key words of logging.Logger._log; every other key word is a field
_STDLIB_WORDS: Final = ("exc_info", "stack_info", "stacklevel", "extra")
_SECRET_NAME: Final = re.compile(
    r"pass(word|wd|phrase)|secret|token|credential|private|user_?data|network_?data"
)
_BARE: Final = re.compile(r"[\w.:/@%+,-]+")
# sd-daemon(3): <N> at the start of a line is its syslog priority
_PRIORITIES: Final = ((logging.CRITICAL, 2), (logging.ERROR, 3), (logging.WARNING, 4), (logging.INFO, 6))
_NOTHING: Final[Mapping[str, object]] = MappingProxyType({})
_context: ContextVar[Mapping[str, object]] = ContextVar("log_fields", default=_NOTHING)


class Log(logging.LoggerAdapter[logging.Logger]):
    """A logger whose key words are fields; ``level`` and ``msg`` are arguments, so no names for fields."""

    def bind(self, **fields: object) -> Log:
        """The same logger with these fields on every line."""
        return Log(self.logger, {**(self.extra or {}), **fields})

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        """Move what is not a key word of the standard library into the record's fields."""
        fields = {**_context.get(), **(self.extra or {})}
        fields |= {name: kwargs.pop(name) for name in list(kwargs) if name not in _STDLIB_WORDS}
        kwargs["extra"] = {**(kwargs.get("extra") or {}), "fields": fields}
        return msg, kwargs


def get(name: str) -> Log:
    """The logger of a module: ``log = get(__name__)``."""
    return Log(logging.getLogger(name), {})


@contextlib.contextmanager
def fields(**values: object) -> Iterator[None]:
    """Put these fields on every line logged inside, also by tasks started inside."""
    token = _context.set({**_context.get(), **values})
    try:
        yield
    finally:
        _context.reset(token)


def setup(
    form: str, level: str, *, stream: TextIO | None = None, environ: Mapping[str, str] = os.environ
) -> None:
    """Send all logging of the process to ``stream`` (stderr) in format ``form`` from ``level`` up.

    Raises:
        InvalidRequest: no such format or level.
    """
    stream = sys.stderr if stream is None else stream
    findings = [
        Violation(
            field=name, type="FieldValueNotSupported", value=value, message=f"one of {', '.join(accepted)}"
        )
        for name, value, accepted in (("log_format", form, FORMATS), ("log_level", level, LEVELS))
        if value not in accepted
    ]
    if findings:
        raise InvalidRequest(findings)
    handler = logging.StreamHandler(stream)
    handler.setFormatter(formatter(form, stream, environ))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())


def formatter(form: str, stream: TextIO, environ: Mapping[str, str]) -> logging.Formatter:
    """The formatter for ``form``; ``auto`` looks at what ``stream`` is."""
    if form == "auto":
        if is_journal(stream, environ.get("JOURNAL_STREAM", "")):
            return JournalFormatter()
        form = "console" if stream.isatty() else "logfmt"
    return {"json": JsonFormatter, "logfmt": LogfmtFormatter, "console": ConsoleFormatter}[form]()


def is_journal(stream: TextIO, journal_stream: str) -> bool:
    """True if ``stream`` is the one that JOURNAL_STREAM (``DEVICE:INODE``) names."""
    try:
        status = os.fstat(stream.fileno())
    except (OSError, ValueError):  # no descriptor, or closed
        return False
    return journal_stream == f"{status.st_dev}:{status.st_ino}"


def _shown(record: logging.LogRecord) -> dict[str, object]:
    """The record's fields as they may be written."""
    return {name: _shown_value(name, value) for name, value in getattr(record, "fields", {}).items()}


def _shown_value(name: str, value: object) -> object:
    if _SECRET_NAME.search(name.lower()):
        return "[hidden]"
    if isinstance(value, (bytes, bytearray, memoryview)):
        return f"[{len(value)} bytes]"
    return value if isinstance(value, (str, int, float, bool)) or value is None else str(value)


def _moment(record: logging.LogRecord) -> str:
    moment = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
    return moment.removesuffix("+00:00") + "Z"


class JsonFormatter(logging.Formatter):
    """One JSON object a line. Fields stand beside ``time``, ``level``, ``logger``, ``message``, ``stack``;
    one that has such a name gets an underscore at its end."""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        line: dict[str, object] = {
            "time": _moment(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["stack"] = self.formatException(record.exc_info)
        for name, value in _shown(record).items():
            line[f"{name}_" if name in line else name] = value
        return json.dumps(line, ensure_ascii=False)


def _pairs(values: Mapping[str, object]) -> str:
    return " ".join(f"{name}={_quoted(value)}" for name, value in values.items())


def _quoted(value: object) -> str:
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    text = str(value)
    return text if _BARE.fullmatch(text) else json.dumps(text, ensure_ascii=False)


class LogfmtFormatter(logging.Formatter):
    """``time=… level=… logger=… message="…" key=value …`` on one line, a stack trace quoted in it."""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        head = {
            "time": _moment(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        stack = {"stack": self.formatException(record.exc_info)} if record.exc_info else {}
        return _pairs({**head, **_shown(record), **stack})


class ConsoleFormatter(logging.Formatter):
    """``12:00:00.123 WARNING message key=value``, and the stack trace below, for people."""

    def format(self, record: logging.LogRecord) -> str:
        """The line or lines."""
        head = f"{_moment(record)[11:23]} {record.levelname:<7} "
        return head + self._rest(record)

    def _rest(self, record: logging.LogRecord) -> str:
        pairs = _pairs(_shown(record))
        text = f"{record.getMessage()} {pairs}" if pairs else record.getMessage()
        return f"{text}\n{self.formatException(record.exc_info)}" if record.exc_info else text


class JournalFormatter(ConsoleFormatter):
    """``<4>message key=value``: journald takes the priority off each line and has a clock of its own."""

    def format(self, record: logging.LogRecord) -> str:
        """The line or lines."""
        priority = next((number for level, number in _PRIORITIES if record.levelno >= level), 7)
        return "\n".join(f"<{priority}>{line}" for line in self._rest(record).splitlines())
