# SPDX-License-Identifier: Apache-2.0
"""Tells a fixture, when it is torn down, whether its test failed."""

from __future__ import annotations

import pytest

_FAILED = pytest.StashKey[bool]()


def note(item: pytest.Item, report: pytest.TestReport) -> None:
    """Remember what became of one part of a test."""
    if report.failed:
        item.stash[_FAILED] = True


def failed(item: pytest.Item) -> bool:
    """Whether any part of the test failed so far."""
    return item.stash.get(_FAILED, False)
