# SPDX-License-Identifier: Apache-2.0
"""Masks of realtime vCPUs."""

from __future__ import annotations

import pytest

from launcher.errors import InvalidSpec
from launcher.plan.realtime import realtime_vcpus
from launcher.spec.model import CPU, Realtime


@pytest.mark.parametrize(
    ("mask", "vcpus"),
    [
        (None, (0, 1, 2, 3)),
        ("", (0, 1, 2, 3)),
        ("0-3,^1", (0, 2, 3)),
        ("^1,0-3", (0, 2, 3)),
        (" 2 , 0", (0, 2)),
        ("^1", ()),
        ("1-900000000", (1, 2, 3)),
    ],
)
def test_a_mask_selects(mask: str | None, vcpus: tuple[int, ...]) -> None:
    assert realtime_vcpus(CPU(realtime=Realtime(mask=mask)), 4) == vcpus


@pytest.mark.parametrize("mask", ["a", "3-1", "1-", "-1", "^1-2", "1,,2", "²", "0-²"])
def test_other_masks_are_refused(mask: str) -> None:
    with pytest.raises(InvalidSpec, match="an example is 0-3"):
        realtime_vcpus(CPU(realtime=Realtime(mask=mask)), 4)


def test_ordinary_guests_have_none() -> None:
    assert realtime_vcpus(CPU(), 4) == ()
