# SPDX-License-Identifier: Apache-2.0
"""docs/annotations.md lists what the code reads, and nothing else."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
# What stands in quotes in the code and is an annotation: a kubevirt.io key that is no API version, or ours.
_KEY = re.compile(r'"((?:[a-z]+\.)?kubevirt\.io/(?!v\d)[A-Za-z0-9-]+|launcher/[a-z-]+)"')
PACKAGES = ("spec", "plan", "agent", "guest", "storage", "network")


def test_the_document_lists_what_is_read() -> None:
    read = {
        key
        for package in PACKAGES
        for path in (ROOT / "launcher" / package).rglob("*.py")
        for key in _KEY.findall(path.read_text())
    }
    table = (ROOT / "docs" / "annotations.md").read_text()
    listed = set(re.findall(r"^\| `([^`]+)` \|", table, re.MULTILINE))
    assert listed == read
