# SPDX-License-Identifier: Apache-2.0
"""Exit statuses and what is said with them. Stable: scripts depend on both."""

from __future__ import annotations

from collections.abc import Iterator

from launcher import errors
from launcher.errors import LauncherError, Violation

OK = 0
ERROR = 1
INVALID = 2
NOT_FOUND = 3
REFUSED = 4
UNAVAILABLE = 5
INTERRUPTED = 130

_REFUSALS = (
    errors.AlreadyExists,
    errors.WrongPhase,
    errors.HostUnsupported,
    errors.Conflict,
    errors.Exhausted,
    errors.Denied,
    errors.MigrationRefused,
)


def exit_status(error: LauncherError) -> int:
    """The exit status for ``error``."""
    match error:
        case errors.InvalidSpec() | errors.InvalidRequest():
            return INVALID
        case errors.NotFound():
            return NOT_FOUND
        case errors.Unavailable() | errors.GuestAgentError():
            return UNAVAILABLE
        case _ if isinstance(error, _REFUSALS):
            return REFUSED
        case _:
            return ERROR


def explain(error: LauncherError, *, file: str = "") -> str:
    """What to print on stderr: every violation on a line of its own, else ``error: …``; then a hint."""
    if isinstance(error, errors.InvalidSpec | errors.InvalidRequest) and error.violations:
        lines = list(violation_lines(error.violations, file=file))
    elif isinstance(error, errors.MigrationRefused):
        lines = ["error: migration refused", *(f"  {finding}" for finding in error.findings)]
    else:
        lines = [f"error: {error.message}"]
    if error.hint:
        lines.append(f"hint: {error.hint}")
    return "\n".join(lines)


def violation_lines(violations: tuple[Violation, ...], *, file: str = "") -> Iterator[str]:
    """``file:line:col: path: message``; without a file ``error: path: message``."""
    for violation in violations:
        place = ""
        if violation.line is not None:
            place = f"{violation.line}:{violation.column or 1}: "
        where = f"{file}:{place or ' '}" if file else "error: "
        yield f"{where}{violation.field + ': ' if violation.field else ''}{violation.message}"
