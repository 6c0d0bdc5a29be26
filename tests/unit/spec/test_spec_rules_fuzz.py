# SPDX-License-Identifier: Apache-2.0
"""Whatever decodes can be checked and defaulted: no exception, no loss, nothing unprintable in a finding."""

from __future__ import annotations

from copy import deepcopy

import msgspec
import spec_rules_compute_cases as compute
import spec_rules_device_cases as device
import spec_rules_domain_cases as domain_cases
import spec_rules_network_cases as network
import spec_rules_storage_cases as storage
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from msgspec import inspect as mi
from spec_rules_manifests import manifest

from launcher.errors import InvalidSpec
from launcher.spec.defaults import ARCHITECTURES, DefaultsSettings, apply_defaults, trace
from launcher.spec.load import decode_object
from launcher.spec.model import (
    MigrationPolicy,
    Quantity,
    VirtualMachineInstance,
    VirtualMachineInstanceMigration,
    VirtualMachineInstanceStatus,
)
from launcher.spec.rules import check, check_migration, check_policy

TEXTS = st.sampled_from(
    (
        "",
        "a",
        "b",
        "default",
        "amd64",
        "arm64",
        "s390x",
        "virtio",
        "sata",
        "usb",
        "Paused",
        "TCP",
        "0-3,^1",
        "2Mi",
        "1Gi",
        "0",
        "-1",
        "10.0.2.0/24",
        "02:00:00:00:00:01",
        "0000:00:1f.7",
        "shared",
        "supplementalPool",
        "/",
        "/../x",
        "YWJj",
        "vmx",
        "q35",
        "\ud800",
        "\x00<&\"'>\n",
        "é" * 300,
        "]]>",
    )
) | st.text(max_size=8)
INTEGERS = st.sampled_from((-(2**63), -1, 0, 1, 2, 3, 512, 4096, 65536, 2**31, 2**32, 2**63 - 1))
QUANTITIES = st.sampled_from(
    ("0", "1", "-1", "1500m", "1n", "2", "63M", "1Gi", "1025Mi", "64Ki", "7Ei", "-7Ei", "9E")
).map(Quantity)


def strategy(kind: mi.Type) -> st.SearchStrategy[object]:
    """Any value that msgspec would decode as ``kind``, small."""
    match kind:
        case mi.Metadata():
            return strategy(kind.type)
        case mi.UnionType():
            return st.one_of([strategy(item) for item in kind.types])
        case mi.NoneType():
            return st.none()
        case mi.BoolType():
            return st.booleans()
        case mi.IntType():
            low = -(2**63) if kind.ge is None else kind.ge
            high = 2**63 - 1 if kind.le is None else kind.le
            return INTEGERS.map(lambda value: max(low, min(high, value)))
        case mi.FloatType():
            return st.just(1.0)
        case mi.StrType():
            return TEXTS
        case mi.LiteralType():
            return st.sampled_from(kind.values)
        case mi.VarTupleType() | mi.ListType():
            return st.lists(strategy(kind.item_type), max_size=3).map(tuple)
        case mi.DictType():
            keys = st.sampled_from(("cpu", "memory", "a b", "example.com/x"))
            return st.dictionaries(keys, strategy(kind.value_type), max_size=2)
        case mi.CustomType() if kind.cls is Quantity:
            return QUANTITIES
        case mi.AnyType():
            return st.none()
        case mi.StructType():
            return structs(kind)
    raise AssertionError(f"no strategy for {kind}")


def structs(kind: mi.StructType) -> st.SearchStrategy[object]:
    """Structs with few of their optional fields, so that the whole stays small."""
    if kind.cls is VirtualMachineInstanceStatus:
        return st.none()

    @st.composite
    def build(draw: st.DrawFn) -> object:
        optional = [field.name for field in kind.fields if not field.required]
        chosen = draw(st.lists(st.sampled_from(optional), max_size=6, unique=True)) if optional else []
        fields = [field for field in kind.fields if field.required or field.name in chosen]
        return kind.cls(**{field.name: draw(strategy(field.type)) for field in fields})

    return build()


def anything(cls: type[msgspec.Struct]) -> st.SearchStrategy[object]:
    kind = mi.type_info(cls)
    assert isinstance(kind, mi.StructType)
    return structs(kind)


NODES = st.builds(
    DefaultsSettings,
    architecture=st.sampled_from([*ARCHITECTURES, "riscv"]),
    live_update=st.booleans(),
    max_hotplug_ratio=st.integers(0, 8),
    max_cpu_sockets=st.integers(0, 8),
    max_guest=st.none() | QUANTITIES,
    pod_binding=st.sampled_from(("masquerade", "bridge")),
    bridge_on_pod_network=st.booleans(),
)
# Shrinking objects of this size takes minutes and helps little: the failing assertion says more.
FEW = settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
)


def examine(instance: VirtualMachineInstance, node: DefaultsSettings) -> None:
    full = apply_defaults(instance, node)
    assert apply_defaults(full, node) == full, "defaults are idempotent"
    assert [step.name for step, _ in trace(full, node)] == [], "and then have nothing to add"
    devices, complete = instance.spec.domain.devices, full.spec.domain.devices
    assert [disk.name for disk in complete.disks][: len(devices.disks)] == [
        disk.name for disk in devices.disks
    ]
    for violation in check(instance, settings=node):
        assert violation.field.isprintable()
        assert violation.field.startswith(("spec", "metadata"))
        assert violation.value.isprintable()
        assert violation.message
    # What is right stays right when it is written out in full.
    if not check(instance, settings=node, creating=False):
        assert check(full, settings=node, creating=False) == ()


@FEW
@given(instance=anything(VirtualMachineInstance), node=NODES)
def test_any_object_that_decodes(instance: VirtualMachineInstance, node: DefaultsSettings) -> None:
    examine(instance, node)


SEEDS = [
    manifest(fragment)
    for table in (compute, domain_cases, storage, network, device)
    for _, fragment in table.ACCEPTED
]


@st.composite
def mutations(draw: st.DrawFn) -> object:
    """A right manifest in which a few values were replaced, removed or copied from another."""
    raw = deepcopy(draw(st.sampled_from(SEEDS)))
    for _ in range(draw(st.integers(1, 4))):
        places = list(walk(raw))
        holder, key = draw(st.sampled_from(places))
        other, found = draw(st.sampled_from(list(walk(draw(st.sampled_from(SEEDS))))))
        holder[key] = draw(TEXTS | INTEGERS | st.booleans() | st.just(deepcopy(other[found])))  # type: ignore[index]
    return raw


def walk(raw: object) -> list[tuple[object, object]]:
    """Every (container, key) of a document."""
    pairs = (
        list(raw.items()) if isinstance(raw, dict) else list(enumerate(raw)) if isinstance(raw, list) else []
    )
    return [place for key, value in pairs for place in ((raw, key), *walk(value))]


@FEW
@given(raw=mutations(), node=NODES)
def test_manifests_that_were_tampered_with(raw: object, node: DefaultsSettings) -> None:
    try:
        instance = decode_object(raw).obj
    except InvalidSpec:
        return
    if isinstance(instance, VirtualMachineInstance):
        examine(instance, node)


@FEW
@given(anything(VirtualMachineInstanceMigration), anything(MigrationPolicy))
def test_any_migration_and_policy(item: VirtualMachineInstanceMigration, policy: MigrationPolicy) -> None:
    for violation in (*check_migration(item), *check_policy(policy)):
        assert violation.field.isprintable()
        assert violation.value.isprintable()
