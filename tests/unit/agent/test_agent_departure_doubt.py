# SPDX-License-Identifier: Apache-2.0
"""An emulated guest of an old QEMU is in danger when it is migrated, and the log says so."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from launcher.agent.departure import doubt
from launcher.agent.records import InstanceRecord
from launcher.plan.facts import assumed_facts, version


@pytest.mark.parametrize(
    ("virt", "qemu", "feared"),
    [
        ("qemu", version(7, 2), True),
        ("qemu", version(8, 2, 2), True),
        ("qemu", version(9, 0), False),
        ("kvm", version(7, 2), False),
    ],
)
def test_which_guests_are_in_danger(
    make_record: Callable[..., InstanceRecord], virt: str, qemu: int, feared: bool
) -> None:
    record = make_record()
    identity = msgspec.structs.replace(record.plan.identity, virt=virt)
    record = msgspec.structs.replace(record, plan=msgspec.structs.replace(record.plan, identity=identity))
    facts = msgspec.structs.replace(assumed_facts(), qemu_version=qemu)
    said = doubt(record, facts)
    assert bool(said) is feared
    assert (f"QEMU {qemu // 10**6}." in said) is feared
