# SPDX-License-Identifier: Apache-2.0
"""Properties of reading: YAML and JSON agree, output reads back, and nothing but InvalidSpec is raised."""

from __future__ import annotations

import copy
import json
from typing import Any

import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from launcher.errors import InvalidSpec
from launcher.spec.export import to_builtins, to_json, to_yaml
from launcher.spec.load import LoadedObject, decode_object, load_manifests, load_vmi, normalise_numbers

VMI: dict[str, Any] = {
    "apiVersion": "kubevirt.io/v1",
    "kind": "VirtualMachineInstance",
    "metadata": {"name": "vm", "labels": {"app": "demo", "on": "no"}, "generation": 3},
    "spec": {
        "terminationGracePeriodSeconds": 0,
        "nodeSelector": {"zone": "a"},
        "livenessProbe": {"httpGet": {"port": 80, "httpHeaders": [{"name": "a", "value": "b"}]}},
        "tolerations": [{"operator": "Exists", "effect": "NoExecute"}],
        "domain": {
            "cpu": {
                "cores": 2,
                "dedicatedCpuPlacement": True,
                "features": [{"name": "vmx", "policy": "require"}],
            },
            "memory": {"guest": "1.5Gi", "hugepages": {"pageSize": "2Mi"}},
            "resources": {"requests": {"cpu": "500m", "memory": 1073741824}},
            "firmware": {"bootloader": {"efi": {"secureBoot": False}}, "serial": "0123"},
            "devices": {
                "disks": [
                    {"name": "a", "bootOrder": 1, "disk": {"bus": "virtio"}},
                    {"name": "b", "cdrom": {}},
                ],
                "interfaces": [{"name": "default", "masquerade": {}, "ports": [{"port": 80}]}],
                "rng": {},
            },
        },
        "networks": [{"name": "default", "pod": {}}],
        "volumes": [
            {"name": "a", "emptyDisk": {"capacity": "1Gi"}},
            {"name": "b", "cloudInitNoCloud": {"userData": "#cloud-config\nusers:\n- name: a\n"}},
        ],
    },
}

# Values that parsed data can hold, and some that only Python can.
values = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.floats(),
        st.text(max_size=12),
        st.sampled_from(["no", "1", "1Gi", "null", "", "\0", "\ud800", "0123", "<<", "~"]),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=6,
)


def places(node: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    found = [path] if path else []
    if isinstance(node, dict):
        for key, value in node.items():
            found += places(value, (*path, key))
    elif isinstance(node, list):
        for index, value in enumerate(node):
            found += places(value, (*path, index))
    return found


PLACES = places(VMI)


@st.composite
def mutated(draw: st.DrawFn) -> dict[str, Any]:
    """The manifest with a few values replaced, removed, or added under other names."""
    raw = copy.deepcopy(VMI)
    for _ in range(draw(st.integers(1, 3))):
        path = draw(st.sampled_from(PLACES))
        parent: Any = raw
        for step in path[:-1]:
            parent = parent[step] if isinstance(parent, dict) and step in parent else None
        if not isinstance(parent, dict):
            continue
        match draw(st.sampled_from(["replace", "remove", "add"])):
            case "replace":
                parent[path[-1]] = draw(values)
            case "remove":
                parent.pop(path[-1], None)
            case "add":
                parent[draw(st.text(max_size=8))] = draw(values)
    return raw


def read(text: str | bytes) -> tuple[LoadedObject, ...] | list[tuple[str, str]]:
    """The objects of a text, or the fields and types of what is wrong with it."""
    try:
        return load_manifests(text)
    except InvalidSpec as error:
        return [(violation.field, violation.type) for violation in error.violations]


def objects(result: object) -> object:
    return [item.obj for item in result] if isinstance(result, tuple) else result


@given(mutated())
@settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow], deadline=None)
def test_property_json_and_parsed_data_agree(raw: dict[str, Any]) -> None:
    try:
        text = json.dumps(raw, allow_nan=False)
    except ValueError:
        return  # not a finite number: there is no JSON for it
    from_text = objects(read(text))
    try:
        from_data: object = [decode_object(raw).obj]
    except InvalidSpec as error:
        from_data = [(violation.field, violation.type) for violation in error.violations]
    assert from_text == from_data


@given(mutated())
@settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow], deadline=None)
def test_property_what_reads_as_json_reads_the_same_as_yaml(raw: dict[str, Any]) -> None:
    try:
        loaded = decode_object(normalise_numbers(raw)).obj
    except InvalidSpec:
        return
    for text in (to_yaml(loaded), to_json(loaded), to_json(loaded, indent=0)):
        assert objects(read(text)) == [loaded]
    assert decode_object(to_builtins(loaded)).obj == loaded
    assert to_yaml(loaded) == to_yaml(load_vmi(to_yaml(loaded)))


@given(mutated())
@settings(max_examples=100, suppress_health_check=[HealthCheck.too_slow], deadline=None)
def test_property_any_yaml_gives_objects_or_invalid_spec(raw: dict[str, Any]) -> None:
    text = yaml.safe_dump(raw, allow_unicode=True)
    result = read(text)
    assert result


BASE_TEXT = to_yaml(load_vmi(json.dumps(VMI)))
FRAGMENTS = st.one_of(
    st.sampled_from(
        [
            "&a ",
            "*a",
            "<<: ",
            "!!int ",
            "- ",
            "? ",
            ": ",
            "{",
            "}",
            "[",
            "]",
            "'",
            '"',
            "\n",
            "\t",
            "#",
            "|",
            ">",
        ]
    ),
    st.text(max_size=5),
)


@given(
    st.lists(st.tuples(st.integers(0, len(BASE_TEXT)), st.integers(0, 20), FRAGMENTS), min_size=1, max_size=4)
)
@settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow], deadline=None)
def test_property_damaged_text_gives_objects_or_invalid_spec(damage: list[tuple[int, int, str]]) -> None:
    for text in (BASE_TEXT, to_json(load_vmi(BASE_TEXT))):
        for start, length, fragment in damage:
            text = text[:start] + fragment + text[start + length :]
        assert read(text)


@given(st.binary(max_size=60))
def test_property_any_bytes_give_objects_or_invalid_spec(data: bytes) -> None:
    assert read(data)
