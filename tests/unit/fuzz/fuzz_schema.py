# SPDX-License-Identifier: Apache-2.0
"""Fields of the API and values for them, read off the classes of the model. Knows no rules."""

from __future__ import annotations

from functools import cache
from random import Random
from typing import Any

import msgspec.inspect as mi

from launcher.spec.model import (
    MigrationPolicy,
    VirtualMachine,
    VirtualMachineInstance,
    VirtualMachineInstanceMigration,
)
from launcher.spec.quantity import Quantity

# Words that mean something in some field.
WORDS = tuple(
    """
    virtio sata scsi usb none writethrough writeback native threads stop ignore enospace report amd64
    arm64 s390x q35 pc-q35-7.2 virt s390-ccw-virtio host-model host-passthrough Skylake-Server vmx
    require force disable shared auto supplementalPool 2Mi 1Gi 64Ki default root boot data TCP UDP e1000
    rtl8139 ac97 ich9 tablet vga virtio-gpu bochs reset poweroff shutdown 00:11:22:33:44:55
    02:00:00:00:00:01 0000:01:00.0 0000:00:02.0 10.0.2.0/24 fd10::/64 0-3 0-1,^1 utc Europe/Berlin
    5d307ca9-b3ef-428c-8861-06e72d69f223 /var/lib/disk.img /boot/vmlinuz Disk DiskOrCreate
    registry.example/image:latest oci:/images/fedora Always Never IfNotPresent YWJj deadbeef true false
    LiveMigrate Paused Terminate Reboot example.com/device nvidia.com/gpu
    """.split()  # noqa: SIM905 - read as what they are, words
)
NUMBERS = (0, 1, 2, 3, 4, 8, 22, 64, 512, 4096, 65535, -1, 2**31, 2**63 - 1)
QUANTITIES = (
    "1",
    "2",
    "4",
    "500m",
    "1500m",
    "64Mi",
    "1Gi",
    "2Gi",
    "3Gi",
    "1G",
    "0",
    "1Ki",
    "-1",
    "8Ei",
    2,
    1024,
)
_KINDS = (VirtualMachineInstance, VirtualMachine, VirtualMachineInstanceMigration, MigrationPolicy)
# What is filled in below a field that is filled in: enough to be meant, not the whole API.
_DEPTH = 4


@cache
def _root(name: str) -> mi.Type | None:
    return next((mi.type_info(kind) for kind in _KINDS if kind.__name__ == name), None)


def keys_below(path: tuple[Any, ...], value: Any) -> list[tuple[str, mi.Type]]:
    """Fields that the object at ``path`` of an instance could have and does not have."""
    if not isinstance(value, dict):
        return []
    kind = _root("VirtualMachineInstance")
    for key in path:
        kind = _below(kind, key)
    struct = _struct(kind)
    if struct is None:
        return []
    return [(f.encode_name, f.type) for f in struct.fields if f.encode_name not in value]


def value_for(kind: mi.Type, random: Random, texts: tuple[str, ...], depth: int = _DEPTH) -> Any:
    """A value that decodes as ``kind``, mostly; its texts are words of the API or, seldom, of ``texts``."""
    match kind:
        case mi.Metadata():
            return value_for(kind.type, random, texts, depth)
        case mi.UnionType():
            kinds = [item for item in kind.types if not isinstance(item, mi.NoneType)]
            return value_for(random.choice(kinds), random, texts, depth)
        case mi.BoolType():
            return random.random() < 0.7
        case mi.IntType():
            return random.choice(NUMBERS)
        case mi.LiteralType():
            return random.choice(kind.values)
        case mi.VarTupleType() | mi.ListType():
            count = random.choice((0, 1, 1, 2, 3)) if depth else 0
            return [value_for(kind.item_type, random, texts, depth - 1) for _ in range(count)]
        case mi.DictType():
            keys = random.sample(("cpu", "memory", "app", "example.com/x"), k=random.choice((0, 1, 2)))
            return {key: value_for(kind.value_type, random, texts, depth - 1) for key in keys}
        case mi.CustomType() if kind.cls is Quantity:
            return random.choice(QUANTITIES)
        case mi.StructType():
            return _object(kind, random, texts, depth)
    return random.choice(texts if random.random() < 0.1 else WORDS)


def _object(kind: mi.StructType, random: Random, texts: tuple[str, ...], depth: int) -> dict[str, Any]:
    optional = [field for field in kind.fields if not field.required]
    few = min(len(optional), random.choice((0, 1, 1, 2, 3))) if depth > 0 else 0
    chosen = [field for field in kind.fields if field.required] + random.sample(optional, k=few)
    return {field.encode_name: value_for(field.type, random, texts, depth - 1) for field in chosen}


def _struct(kind: mi.Type | None) -> mi.StructType | None:
    match kind:
        case mi.StructType():
            return kind
        case mi.Metadata():
            return _struct(kind.type)
        case mi.UnionType():
            return next(filter(None, map(_struct, kind.types)), None)
    return None


def _below(kind: mi.Type | None, key: Any) -> mi.Type | None:
    match kind:
        case mi.Metadata():
            return _below(kind.type, key)
        case mi.UnionType():
            return next(filter(None, (_below(item, key) for item in kind.types)), None)
        case mi.StructType():
            return next((field.type for field in kind.fields if field.encode_name == key), None)
        case mi.VarTupleType() | mi.ListType() if isinstance(key, int):
            return kind.item_type
        case mi.DictType():
            return kind.value_type
    return None
