# SPDX-License-Identifier: Apache-2.0
"""Names of disks in the guest."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from launcher.plan.devices.target import PREFIXES, is_target, letters, position, target_names

buses = st.sampled_from(sorted(PREFIXES))
disk_lists = st.lists(
    st.tuples(st.integers(0, 400).map(str), buses), max_size=60, unique_by=lambda disk: disk[0]
)
known_names = st.dictionaries(
    st.integers(0, 400).map(str),
    st.builds(
        lambda prefix, index: prefix + letters(index), st.sampled_from(["vd", "sd"]), st.integers(0, 60)
    ),
    max_size=30,
)


@pytest.mark.parametrize(
    ("index", "text"), [(0, "a"), (25, "z"), (26, "aa"), (51, "az"), (52, "ba"), (701, "zz"), (702, "aaa")]
)
def test_letters_count_as_the_kernel_does(index: int, text: str) -> None:
    assert letters(index) == text
    assert position("sd" + text) == index


def test_sata_scsi_and_usb_share_one_sequence() -> None:
    disks = [("a", "sata"), ("b", "virtio"), ("c", "scsi"), ("d", "usb"), ("e", "virtio")]
    assert target_names(disks, {}) == {"a": "sda", "b": "vda", "c": "sdb", "d": "sdc", "e": "vdb"}


def test_a_name_stays_when_an_earlier_disk_is_gone() -> None:
    assert target_names([("b", "virtio"), ("new", "virtio")], {"b": "vdb"}) == {"b": "vdb", "new": "vda"}


def test_a_name_of_a_disk_that_is_being_unplugged_is_not_given_again() -> None:
    assert target_names([("new", "virtio")], {"leaving": "vda"}) == {"new": "vdb"}


def test_a_disk_that_changed_its_bus_gets_a_new_name() -> None:
    assert target_names([("a", "scsi")], {"a": "vda"}) == {"a": "sda"}


@pytest.mark.parametrize("name", ["", "vd", "vdA", "hda", "vdaaaa", "vd1"])
def test_what_is_no_name_is_not_kept(name: str) -> None:
    assert target_names([("a", "virtio")], {"a": name}) == {"a": "vda"}


@given(disk_lists, known_names)
def test_names_are_unique_fit_the_bus_and_stick(disks: list[tuple[str, str]], known: dict[str, str]) -> None:
    names = target_names(disks, known)
    assert list(names) == [disk for disk, _ in disks]
    assert len(set(names.values())) == len(names)
    for disk, bus in disks:
        assert is_target(names[disk], bus)
        rivals = [
            other for other, other_bus in disks if other != disk and known.get(other) == known.get(disk)
        ]
        if is_target(known.get(disk, ""), bus) and not rivals:
            assert names[disk] == known[disk]
    assert target_names(disks, names) == names


@given(disk_lists, known_names)
def test_new_disks_never_take_a_name_that_is_known(
    disks: list[tuple[str, str]], known: dict[str, str]
) -> None:
    names = target_names(disks, known)
    for disk, _ in disks:
        if known.get(disk) != names[disk]:
            assert names[disk] not in known.values()


@given(st.integers(0, 26**3))
def test_position_undoes_letters(index: int) -> None:
    assert position("vd" + letters(index)) == index
