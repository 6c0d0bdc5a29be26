# SPDX-License-Identifier: Apache-2.0
"""Names of disks in the guest (``vda``, ``sdb``): unique, and kept while the instance lives. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from string import ascii_lowercase

# sata, scsi and usb disks share one sequence, as they do in a guest.
PREFIXES: Mapping[str, str] = {"virtio": "vd", "sata": "sd", "scsi": "sd", "usb": "sd"}

_NAME = re.compile(r"([a-z]d)([a-z]{1,3})")


def target_names(disks: Iterable[tuple[str, str]], known: Mapping[str, str]) -> dict[str, str]:
    """Name the disks, given as (name, bus) in the order of the document.

    ``known`` are the names that volumes have already. A disk keeps its name; a new one takes the first free
    name of its bus, and never one that ``known`` lists, for its owner may not be unplugged yet.
    ``target_names([("a", "virtio"), ("b", "sata"), ("c", "scsi")], {"a": "vdb"})`` is
    ``{"a": "vdb", "b": "sda", "c": "sdb"}``.
    """
    asked = list(disks)
    names: dict[str, str] = {}
    taken: set[str] = set()
    for disk, bus in asked:
        name = known.get(disk, "")
        if name and is_target(name, bus) and name not in taken:
            names[disk] = name
            taken.add(name)
    taken.update(known.values())
    following = dict.fromkeys(PREFIXES.values(), 0)
    for disk, bus in asked:
        if disk in names:
            continue
        prefix = PREFIXES.get(bus, "sd")
        while (name := prefix + letters(following[prefix])) in taken:
            following[prefix] += 1
        following[prefix] += 1
        names[disk] = name
        taken.add(name)
    return {disk: names[disk] for disk, _ in asked}


def is_target(name: str, bus: str) -> bool:
    """Whether ``name`` is one that a disk on ``bus`` can have."""
    found = _NAME.fullmatch(name)
    return found is not None and found.group(1) == PREFIXES.get(bus, "sd")


def letters(index: int) -> str:
    """The kernel's counting: ``letters(0) == 'a'``, ``letters(26) == 'aa'``."""
    text = ""
    index += 1
    while index > 0:
        index, digit = divmod(index - 1, 26)
        text = ascii_lowercase[digit] + text
    return text


def position(name: str) -> int:
    """The number behind a target name: ``position('sda') == 0``, ``position('vdaa') == 26``."""
    index = 0
    for letter in name[2:]:
        index = index * 26 + ascii_lowercase.index(letter) + 1
    return index - 1
