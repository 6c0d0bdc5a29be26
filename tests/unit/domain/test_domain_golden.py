# SPDX-License-Identifier: Apache-2.0
"""Manifests and the domain XML that must come out of them: ``tests/golden/CASE/``.

A case is ``vmi.yaml``, ``domain.xml`` and, where the defaults do not do, ``facts.json`` (a NodeFacts; without
one the newest libvirt), ``allocations.json`` and ``settings.json`` (parts of Allocations and PlanSettings).
After a change that is meant, run
``LAUNCHER_REGENERATE=1 .venv/bin/pytest tests/unit/domain/test_domain_golden.py`` and read the diff.
"""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

import libvirt
import msgspec
import pytest
from lxml import etree

from launcher.domain.build import AFTER_DEVICES, DOMAIN, build
from launcher.domain.devices import DEVICES
from launcher.domain.read import read_domain
from launcher.plan import model
from launcher.plan.allocations import Allocations
from launcher.plan.facts import NodeFacts, version
from launcher.plan.make import make_plan
from launcher.plan.model import VMPlan
from launcher.plan.settings import PlanSettings
from launcher.spec.defaults import DefaultsSettings, apply_defaults
from launcher.spec.load import load_vmi
from launcher.spec.rules import check

GOLDEN = Path(__file__).parents[2] / "golden"
CASES = sorted(path.parent.name for path in GOLDEN.glob("*/vmi.yaml"))
SCHEMA = Path("/usr/share/libvirt/schemas/domain.rng")
UID = "2b1f6d1e-6a1c-4f43-9f6a-0d6d7c9a4e55"


@cache
def case_facts(case: str) -> NodeFacts:
    path = GOLDEN / case / "facts.json"
    return msgspec.json.decode(path.read_bytes(), type=NodeFacts) if path.exists() else NodeFacts()


def settings_of(case: str) -> DefaultsSettings:
    return DefaultsSettings(architecture=case_facts(case).arch)


@cache
def case_plan(case: str) -> VMPlan:
    vmi = apply_defaults(load_vmi((GOLDEN / case / "vmi.yaml").read_text()), settings_of(case))
    assert vmi.metadata is not None
    assert vmi.spec.domain.firmware is not None
    raw = {"uid": vmi.metadata.uid or UID, "uuid": vmi.spec.domain.firmware.uuid}
    path = GOLDEN / case / "allocations.json"
    if path.exists():
        raw |= msgspec.json.decode(path.read_bytes())
    allocations = msgspec.convert(raw, Allocations)
    return make_plan(vmi, case_facts(case), allocations, plan_settings(case))


def plan_settings(case: str) -> PlanSettings:
    path = GOLDEN / case / "settings.json"
    chosen = msgspec.json.decode(path.read_bytes()) if path.exists() else {}
    return msgspec.convert({"allow_emulation": True} | chosen, PlanSettings)


@cache
def schema() -> etree.RelaxNG:
    return etree.RelaxNG(etree.parse(SCHEMA))


@pytest.mark.parametrize("case", CASES)
def test_the_xml_is_the_golden_one(case: str) -> None:
    golden = GOLDEN / case / "domain.xml"
    xml = build(case_plan(case))
    if os.environ.get("LAUNCHER_REGENERATE"):
        golden.write_text(xml)
    assert xml == golden.read_text()


@pytest.mark.parametrize("case", CASES)
def test_planning_again_gives_the_same_bytes(case: str) -> None:
    once = build(case_plan(case))
    case_plan.cache_clear()
    assert build(case_plan(case)) == once


@pytest.mark.parametrize("case", CASES)
def test_a_plan_survives_json(case: str) -> None:
    plan = case_plan(case)
    assert model.decode(model.encode(plan)) == plan


# A case for a newer libvirt than the installed one cannot be judged by its schema.
EXPRESSIBLE = [case for case in CASES if case_facts(case).libvirt_version <= libvirt.getVersion()]


def test_most_cases_are_judged_by_the_installed_schema() -> None:
    assert len(EXPRESSIBLE) >= 12


@pytest.mark.parametrize("case", EXPRESSIBLE)
def test_the_xml_passes_the_installed_schema(case: str) -> None:
    document = etree.fromstring(build(case_plan(case)))
    assert schema().validate(document), schema().error_log


@pytest.mark.parametrize("case", CASES)
def test_the_document_can_be_read_back(case: str) -> None:
    plan = case_plan(case)
    view = read_domain(build(plan))
    assert view.uuid == plan.identity.uuid
    assert view.uid == plan.identity.uid
    assert view.instance == f"{plan.identity.namespace}/{plan.identity.name}"
    assert view.memory == plan.memory.size
    assert (view.vcpus, view.max_vcpus) == (plan.vcpus.current, plan.vcpus.maximum)
    assert [disk.alias for disk in view.disks] == [disk.name for disk in plan.devices.disks]


def test_every_builder_writes_something_in_some_case() -> None:
    plans = [case_plan(case) for case in CASES]
    silent = [
        builder.__name__
        for builder in (*DOMAIN, *DEVICES, *AFTER_DEVICES)
        if not any(list(builder(plan)) for plan in plans)
    ]
    assert silent == []


def test_every_part_of_a_plan_is_set_in_some_case() -> None:
    """A field that no golden file shows could be written in any way at all."""
    seen: set[str] = set()
    for case in CASES:
        _fields(msgspec.to_builtins(case_plan(case)), seen)
    parts = [
        part
        for part in vars(model).values()
        if isinstance(part, type) and issubclass(part, model.Part) and part is not model.Part
    ]
    unseen = {field.encode_name for part in parts for field in msgspec.structs.fields(part)} - seen
    assert unseen == set()


def test_every_manifest_keeps_the_rules() -> None:
    """A case that an agent would refuse shows nothing."""
    broken = {
        case: check(load_vmi((GOLDEN / case / "vmi.yaml").read_text()), settings=settings_of(case))
        for case in CASES
    }
    assert {case: found for case, found in broken.items() if found} == {}


def _fields(value: object, seen: set[str]) -> None:
    if isinstance(value, dict):
        seen.update(value)
        for item in value.values():
            _fields(item, seen)
    elif isinstance(value, list | tuple):
        for item in value:
            _fields(item, seen)


def test_old_releases_get_a_slot_and_a_cell_for_memory_hotplug() -> None:
    old, new = case_plan("hotplug-old-libvirt"), case_plan("hotplug")
    assert case_facts("hotplug-old-libvirt").libvirt_version < version(9, 5)
    assert (old.memory.slots, len(old.cpu.cells)) == (1, 1)
    assert (new.memory.slots, len(new.cpu.cells)) == (0, 0)
