# SPDX-License-Identifier: Apache-2.0
"""Exit statuses are a promise to scripts."""

from __future__ import annotations

import pytest

from launcher import errors
from launcher.cli import exits
from launcher.errors import LauncherError, Violation

FOUND = [
    Violation(field="spec.a", type="FieldUnknown", message="unknown field", line=3, column=5),
    Violation(field="spec.b", type="FieldValueRequired", message="is required"),
]


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (errors.InvalidSpec(FOUND), 2),
        (errors.InvalidRequest(FOUND), 2),
        (errors.NotFound("VMI", "a"), 3),
        (errors.AlreadyExists("VMI", "a"), 4),
        (errors.WrongPhase("x"), 4),
        (errors.HostUnsupported("KVM", "x"), 4),
        (errors.Conflict("x"), 4),
        (errors.Exhausted("memory", "x"), 4),
        (errors.Denied("x"), 4),
        (errors.MigrationRefused(["x"]), 4),
        (errors.Unavailable("x"), 5),
        (errors.HypervisorUnavailable("x"), 5),
        (errors.GuestAgentError("x"), 5),
        (errors.TimedOut("x"), 1),
        (errors.MigrationFailed("x"), 1),
        (errors.Bug("x"), 1),
    ],
)
def test_status(error: LauncherError, status: int) -> None:
    assert exits.exit_status(error) == status


def test_every_violation_has_a_line_with_its_place() -> None:
    error = errors.InvalidSpec(FOUND, hint="see docs")
    assert exits.explain(error, file="vm.yaml").splitlines() == [
        "vm.yaml:3:5: spec.a: unknown field",
        "vm.yaml: spec.b: is required",
        "hint: see docs",
    ]
    assert exits.explain(error).splitlines()[0] == "error: spec.a: unknown field"


def test_other_errors() -> None:
    assert exits.explain(errors.NotFound("VMI", "a", hint="h")) == "error: VMI 'a' not found\nhint: h"
    assert exits.explain(errors.MigrationRefused(["a", "b"])) == "error: migration refused\n  a\n  b"
