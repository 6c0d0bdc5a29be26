# SPDX-License-Identifier: Apache-2.0
"""What a finding shows of the user's text is one short line, for it goes to terminals and logs."""

from __future__ import annotations

import pytest

from launcher.spec.path import ROOT
from launcher.spec.rules.finding import forbidden, invalid, not_found, required, unsupported

NASTY = "a\r\n\x1b[2J\ud800"
SHOWN = r"a\r\n\x1b[2J\ud800"


def test_keys_in_paths_are_escaped_and_shortened() -> None:
    assert str(ROOT / "spec" / NASTY) == f"spec.{SHOWN}"
    assert str((ROOT / "metadata" / "labels")[NASTY]) == f"metadata.labels[{SHOWN}]"
    assert len(str(ROOT / ("x" * 5000))) <= 120


@pytest.mark.parametrize(
    "finding",
    [
        invalid("spec", NASTY, f"not {NASTY}"),
        required("spec", f"not {NASTY}"),
        unsupported("spec", NASTY, ("ok",), f" on {NASTY}"),
        not_found("spec", NASTY, f"not {NASTY}"),
        forbidden("spec", f"not {NASTY}"),
    ],
    ids=lambda finding: finding.type,
)
def test_messages_that_repeat_a_text_are_escaped(finding: object) -> None:
    message = getattr(finding, "message", "")
    assert SHOWN in message
    assert message.isprintable()
    assert getattr(finding, "value", "").isprintable()


def test_messages_that_repeat_a_long_text_are_shortened() -> None:
    assert len(required("spec", "x" * 70_000).message) == 600
