# SPDX-License-Identifier: Apache-2.0
"""What finished files add to the plan of their disks."""

from __future__ import annotations

import pytest

from launcher.errors import HostUnsupported
from launcher.plan.devices.model import Backing, BlockSizes, DevicesPlan, DiskPlan, DiskSource
from launcher.plan.devices.observed import Observed, with_observations

FILE = DiskSource(path="/x.img")
BLOCK = DiskSource(path="/dev/x", block=True)


def complete(seen: Observed, *, source: DiskSource | None = FILE, **disk: object) -> DiskPlan:
    planned = DiskPlan(name="d", device="disk", bus="virtio", target="vda", source=source, **disk)  # type: ignore[arg-type]
    (completed,) = with_observations(DevicesPlan(disks=(planned,)), {"d": seen}).disks
    return completed


@pytest.mark.parametrize(
    ("source", "asked", "seen", "expected"),
    [
        (FILE, {}, Observed(direct=True), ("none", None)),
        (FILE, {}, Observed(direct=True, preallocated=True), ("none", "native")),
        (BLOCK, {}, Observed(direct=True), ("none", "native")),
        (FILE, {}, Observed(direct=False, preallocated=True), ("writethrough", None)),
        (BLOCK, {}, Observed(direct=False), ("writethrough", None)),
        (BLOCK, {"cache": "writeback"}, Observed(direct=True), ("writeback", None)),
        (FILE, {"cache": "writeback"}, Observed(direct=False), ("writeback", None)),
        (BLOCK, {"io": "threads"}, Observed(direct=True), ("none", "threads")),
        (FILE, {"cache": "none"}, Observed(direct=True), ("none", None)),
        (FILE, {"io": "native"}, Observed(direct=True), ("none", "native")),
    ],
)
def test_cache_and_io(
    source: DiskSource, asked: dict[str, object], seen: Observed, expected: tuple[str, str | None]
) -> None:
    completed = complete(seen, source=source, **asked)
    assert (completed.cache, completed.io) == expected


@pytest.mark.parametrize("asked", [{"cache": "none"}, {"io": "native"}])
def test_what_needs_o_direct_is_refused_without_it(asked: dict[str, object]) -> None:
    with pytest.raises(HostUnsupported, match=r"O_DIRECT on /x\.img"):
        complete(Observed(direct=False), **asked)  # type: ignore[arg-type]


def test_the_format_of_the_base_is_corrected() -> None:
    completed = complete(
        Observed(direct=True, backing_format="raw"), backing=Backing(source=FILE, format="qcow2")
    )
    assert completed.backing == Backing(source=FILE, format="raw")


def test_block_sizes_are_taken_only_where_they_are_to_match() -> None:
    seen = Observed(direct=True, block_sizes=BlockSizes(logical=4096, physical=4096))
    assert complete(seen, match_volume=True).block_sizes == seen.block_sizes
    assert complete(seen).block_sizes is None


def test_disks_that_were_not_observed_and_empty_drives_stay() -> None:
    empty = DiskPlan(name="e", device="cdrom", bus="sata", target="sda")
    other = DiskPlan(name="o", device="disk", bus="virtio", target="vdb", source=FILE)
    devices = DevicesPlan(disks=(empty, other))
    assert with_observations(devices, {"e": Observed(direct=False)}) == devices
