# SPDX-License-Identifier: Apache-2.0
"""Thousands of broken manifests become our errors or sound XML, and nothing else. ``make fuzz`` has more."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from copy import deepcopy
from pathlib import Path
from random import Random
from typing import Any

import pytest
from fuzz_examination import examine
from fuzz_many import case
from fuzz_mutation import TEXTS, seeds
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from lxml import etree

from launcher.domain.translate import translate
from launcher.errors import LauncherError
from launcher.spec.load import load_vmi

COUNT = 1500
# Shrinking a number leads to another manifest, not to a smaller one.
EACH = settings(
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
)
# Where a text goes into the XML or becomes a path, and one that is accepted there.
PLACES: dict[tuple[str | int, ...], str] = {
    ("metadata", "name"): "box",
    ("metadata", "namespace"): "lab",
    ("metadata", "uid"): "5d307ca9",
    ("spec", "domain", "devices", "disks", 0, "serial"): "S1",
    ("spec", "domain", "devices", "disks", 0, "tag"): "tag",
    ("spec", "domain", "devices", "disks", 0, "cache"): "none",
    ("spec", "domain", "devices", "interfaces", 0, "macAddress"): "02:00:00:00:00:01",
    ("spec", "domain", "devices", "interfaces", 0, "model"): "virtio",
    ("spec", "domain", "devices", "interfaces", 0, "pciAddress"): "0000:07:00.0",
    ("spec", "domain", "machine", "type"): "q35",
    ("spec", "domain", "cpu", "model"): "Nehalem",
    ("spec", "domain", "cpu", "features", 0, "name"): "aes",
    ("spec", "domain", "clock", "timezone"): "Europe/Berlin",
    ("spec", "domain", "firmware", "uuid"): "5d307ca9-b3ef-428c-8861-06e72d69f223",
    ("spec", "domain", "firmware", "serial"): "abc",
    ("spec", "domain", "firmware", "kernelBoot", "kernelArgs"): "quiet",
    ("spec", "domain", "firmware", "kernelBoot", "container", "kernelPath"): "/vmlinuz",
    ("spec", "domain", "chassis", "manufacturer"): "Smith & <Sons>",
    ("spec", "domain", "chassis", "asset"): "7",
    ("spec", "volumes", 0, "hostDisk", "path"): "/srv/disk.img",
    ("spec", "volumes", 1, "containerDisk", "image"): "registry.example/b:1",
    ("spec", "volumes", 2, "persistentVolumeClaim", "claimName"): "c",
    ("spec", "networks", 0, "multus", "networkName"): "lan",
}
NASTY = st.sampled_from(TEXTS) | st.text(max_size=20) | st.from_regex(r"[a-z0-9]([-a-z0-9.]{0,20}[a-z0-9])?")
# Words that may choose something else; all others are refused or only written down.
MEANINGFUL = re.compile(r"[A-Za-z0-9_.:-]*")


def manifest() -> dict[str, Any]:
    """A manifest in which many texts go into the XML."""
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachineInstance",
        "metadata": {"name": "box", "namespace": "lab", "uid": "5d307ca9"},
        "spec": {
            "domain": {
                "machine": {"type": "q35"},
                "cpu": {"cores": 2, "model": "Nehalem", "features": [{"name": "aes", "policy": "require"}]},
                "clock": {"timezone": "Europe/Berlin"},
                "chassis": {"manufacturer": "Smith & <Sons>", "asset": "7"},
                "memory": {"guest": "1Gi"},
                "firmware": {
                    "serial": "abc",
                    "kernelBoot": {
                        "kernelArgs": "quiet",
                        "container": {"image": "registry.example/k:1", "kernelPath": "/vmlinuz"},
                    },
                },
                "devices": {
                    "disks": [{"name": name, "disk": {"bus": "virtio"}} for name in ("a", "b", "c")],
                    "interfaces": [{"name": "net", "bridge": {}}],
                },
            },
            "networks": [{"name": "net", "multus": {"networkName": "lan"}}],
            "volumes": [
                {"name": "a", "hostDisk": {"path": "/srv/disk.img", "type": "Disk"}},
                {"name": "b", "containerDisk": {"image": "registry.example/b:1"}},
                {"name": "c", "persistentVolumeClaim": {"claimName": "c"}},
            ],
        },
    }


def with_text(path: tuple[str | int, ...], text: str) -> dict[str, Any]:
    whole = manifest()
    place: Any = whole
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = text
    return whole


@pytest.mark.parametrize("number", range(0, COUNT, 100))
def test_each_of_a_hundred_manifests_is_refused_as_one_or_translated(number: int) -> None:
    outcomes = {examine(*case(each)) for each in range(number, number + 100)}
    assert {"translated", "InvalidSpec"} <= outcomes, "the changes are neither too gentle nor too rude"


@settings(EACH, max_examples=300)
@given(number=st.integers(10**6, 2**63))
def test_any_other_manifest_too(number: int) -> None:
    examine(*case(number))


@settings(EACH, max_examples=600)
@given(path=st.sampled_from(tuple(PLACES)), text=NASTY)
def test_no_text_breaks_out_of_its_place(path: tuple[str | int, ...], text: str) -> None:
    examine(json.dumps(with_text(path, text)), Random(0))
    found = structure(with_text(path, text))
    if found is not None and not MEANINGFUL.fullmatch(text):
        assert found == structure(with_text(path, PLACES[path])), "a text changes a text, and nothing else"


@pytest.mark.parametrize("path", PLACES, ids=lambda path: str(path[-1]))
def test_places_take_their_own_text(path: tuple[str | int, ...]) -> None:
    assert structure(with_text(path, PLACES[path])) is not None


@settings(EACH, max_examples=200)
@given(old=st.sampled_from(("a", "b", "c", "net")), text=NASTY)
def test_no_name_breaks_out(old: str, text: str) -> None:
    """Names are changed wherever they stand, so that only the rules of names can refuse them."""
    whole = manifest()
    spec = whole["spec"]
    for named in (*spec["volumes"], *spec["networks"], *spec["domain"]["devices"]["disks"]):
        if named["name"] == old:
            named["name"] = text
    if old == "net":
        spec["domain"]["devices"]["interfaces"][0]["name"] = text
    examine(json.dumps(whole), Random(0))


@pytest.mark.parametrize("number", range(len(seeds())))
def test_the_seeds_are_right(number: int) -> None:
    assert examine(json.dumps(seeds()[number]), Random(0)) in ("translated", "HostUnsupported", "checked")


def test_results_do_not_hang_on_the_order_of_sets() -> None:
    program = "import fuzz_many; print(fuzz_many.digest(300))"
    digests = {
        subprocess.run(
            [sys.executable, "-c", program],
            check=True,
            capture_output=True,
            text=True,
            cwd=Path(__file__).parent,
            env={**os.environ, "PYTHONHASHSEED": seed},
        ).stdout
        for seed in ("1", "2")
    }
    assert len(digests) == 1


def test_examining_a_manifest_does_not_change_it() -> None:
    for seed in seeds():
        before = deepcopy(seed)
        examine(seed, Random(0))
        assert seed == before


def structure(whole: dict[str, Any]) -> list[tuple[str, list[str]]] | None:
    """Tags and names of attributes in order, if the manifest is right."""
    try:
        xml = translate(load_vmi(json.dumps(whole)))
    except LauncherError:
        return None
    return [(str(node.tag), [str(name) for name in node.attrib]) for node in etree.fromstring(xml).iter()]
