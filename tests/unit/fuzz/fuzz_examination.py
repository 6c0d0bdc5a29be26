# SPDX-License-Identifier: Apache-2.0
"""What must hold for any manifest: it is refused as one, or becomes XML out of which nothing of it broke."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import msgspec
from fuzz_mutation import MARK
from lxml import etree

from launcher.domain.build import build
from launcher.domain.translate import Assumptions, named, stand_ins, translate
from launcher.errors import Exhausted, HostUnsupported, InvalidRequest, InvalidSpec, LauncherError
from launcher.plan.facts import NodeFacts
from launcher.plan.make import make_plan
from launcher.plan.model import VMPlan
from launcher.plan.paths import instance_paths, kept_paths
from launcher.plan.settings import PlanSettings
from launcher.plan.steps import RequireFile, UseState
from launcher.spec.codec import enc_hook
from launcher.spec.defaults import DefaultsSettings, apply_defaults
from launcher.spec.load import decode_object, load_manifests, normalise_numbers
from launcher.spec.model import MigrationPolicy, VirtualMachineInstance, VirtualMachineInstanceMigration
from launcher.spec.rules import check, check_migration, check_policy

GOLDEN = Path(__file__).parents[2] / "golden"
# What a caller of the API may get for a manifest.
EXPECTED = (InvalidSpec, InvalidRequest, HostUnsupported, Exhausted)
LONGEST_MESSAGE = 1_000_000
_NAME = re.compile(r"[A-Za-z0-9._-]+_[A-Za-z0-9._-]+")
_ALIAS = re.compile(r"ua-[A-Za-z0-9_.-]+")
# Attributes, and elements with a text, that name files.
_PLACES = ("file", "path", "socket", "dev", "dir", "template", "logFile")
_FILES = ("loader", "nvram", "kernel", "initrd", "table", "emulator")
_PARSER = etree.XMLParser(resolve_entities=False, no_network=True, remove_blank_text=True)


def examine(given: str | bytes | dict[str, Any], random: Random) -> str:
    """Send a manifest through all that a manifest goes through; ``translated`` or how it was refused.

    Raises:
        AssertionError: something got through, or came out, that must not.
    """
    try:
        loaded = _load(given)
        outcomes = {_judge(item.obj, random) for item in loaded}
    except EXPECTED as error:
        _check_refusal(error)
        return type(error).__name__
    return max(outcomes)


def outcome(given: str | bytes | dict[str, Any], random: Random) -> str:
    """The document of the manifest's last instance, or the words with which it was refused."""
    try:
        made = [_made(item.obj, random) for item in _load(given)]
    except EXPECTED as error:
        return str(error)
    return made[-1]


def _load(given: str | bytes | dict[str, Any]) -> tuple[Any, ...]:
    if isinstance(given, dict):
        return (decode_object(normalise_numbers(given), judge=True),)
    return load_manifests(given, judge=True)


def _judge(obj: object, random: Random) -> str:
    if isinstance(obj, VirtualMachineInstanceMigration):
        return _judged(check_migration(obj))
    if isinstance(obj, MigrationPolicy):
        return _judged(check_policy(obj))
    assert isinstance(obj, VirtualMachineInstance)
    state = random.getstate()
    made = _made(obj, random)
    random.setstate(state)
    assert _made(obj, random) == made, "the same manifest gives the same bytes"
    _check_document(made, obj)
    _check_defaults(obj)
    return "translated"


def _made(obj: object, random: Random) -> str:
    if not isinstance(obj, VirtualMachineInstance):
        return repr(obj)
    return random.choice((_without_a_node, _without_kvm, _on_a_node))(obj, random)


def _judged(violations: Iterable[object]) -> str:
    return "refused" if list(violations) else "checked"


def _without_a_node(vmi: VirtualMachineInstance, _: Random) -> str:
    return translate(vmi, cpuset=tuple(range(8)), block_claims=("data", "root"))


def _without_kvm(vmi: VirtualMachineInstance, _: Random) -> str:
    return translate(vmi, emulation=True)


def _on_a_node(vmi: VirtualMachineInstance, random: Random) -> str:
    facts = random.choice(hosts())
    defaults = DefaultsSettings(architecture=facts.arch)
    full = apply_defaults(named(vmi), defaults)
    violations = check(vmi, settings=defaults, defaulted=full)
    if violations:
        raise InvalidSpec(violations)
    settings = PlanSettings(allow_emulation=random.random() < 0.5)
    picked = stand_ins(full, Assumptions(facts=facts, settings=settings, defaults=defaults))
    plan = make_plan(full, facts, picked, settings)
    _check_paths(plan, settings)
    return build(plan)


@cache
def hosts() -> tuple[NodeFacts, ...]:
    """The hosts of the golden cases, and one of which nothing is known."""
    paths = sorted(GOLDEN.glob("*/facts.json"))
    return (NodeFacts(), *(msgspec.json.decode(path.read_bytes(), type=NodeFacts) for path in paths))


def _check_refusal(error: LauncherError) -> None:
    """An error goes to logs, terminals and gRPC."""
    text = str(error)
    assert len(text) < LONGEST_MESSAGE, "an error is no copy of the manifest"
    assert text.replace("\n", "").isprintable(), f"an error shows {text!r}"
    for violation in getattr(error, "violations", ()):
        assert violation.field, "a finding has a place"
        assert violation.message
        for part in (violation.field, violation.type, violation.message, violation.value):
            assert part.isprintable(), f"a finding shows {part!r}"


def _check_document(xml: str, vmi: VirtualMachineInstance) -> None:
    root = etree.fromstring(xml, _PARSER)
    meta = vmi.metadata
    assert meta is not None
    assert root.tag == "domain"
    assert "<!" not in xml, "there are no declarations and no CDATA"
    for element in root.iter():
        assert isinstance(element.tag, str), "there are elements only, no comments and instructions"
        assert MARK not in element.tag, "a text became an element"
        assert not any(MARK in str(name) for name in element.attrib), "a text became an attribute"
        places = [element.get(name) for name in _PLACES]
        places += [element.text] if element.tag in _FILES else []
        for place in places:
            assert ".." not in (place or "").split("/"), f"{place!r} leads out of its directory"
    name = root.findtext("name") or ""
    own = f"{meta.namespace or 'default'}_{meta.name or meta.generate_name}"
    assert name == own if meta.name else name.startswith(own), f"{name!r} is not the instance's"
    assert _NAME.fullmatch(name), f"the name {name!r} is no file name"
    for alias in root.iterfind("devices/*/alias"):
        assert _ALIAS.fullmatch(alias.get("name", "")), f"alias {alias.get('name')!r}"


def _check_defaults(vmi: VirtualMachineInstance) -> None:
    """A manifest whose defaults are spelt out, as it is shown to users, is right too and means the same."""
    full = apply_defaults(named(vmi))
    text = msgspec.json.encode(full, enc_hook=enc_hook)
    (again,) = load_manifests(text)
    assert again.obj == full, "what is written can be read"
    if not check(vmi, creating=False):
        assert not check(full, creating=False), "what is right stays right when it is spelt out"


def _check_paths(plan: VMPlan, settings: PlanSettings) -> None:
    """What an instance makes lies in its own directories; only files that users keep lie elsewhere, and the
    state of its TPM, where libvirt looks for it."""
    kept = kept_paths(settings.state_dir, plan.identity.namespace, plan.identity.name)
    tpm = f"{settings.swtpm_dir}/{plan.identity.uuid}"
    paths = instance_paths(settings, plan.identity.uid)
    assert plan.identity.uid not in ("", ".", "..")
    assert "/" not in plan.identity.uid
    for step in plan.steps:
        path = getattr(step, "path", None)
        if path is None:
            continue
        assert path == os.path.normpath(path), f"{path!r} is not where it seems to be"
        if isinstance(step, UseState):
            assert step.kept in (None, kept.nvram, kept.tpm), f"{step.kept!r} is not the name's"
            if path == tpm:
                continue
        if not isinstance(step, RequireFile) and not getattr(step, "keep", False):
            inside = path in (paths.state, paths.run) or path.startswith((f"{paths.state}/", f"{paths.run}/"))
            assert inside, f"{path!r} is outside of the instance's directories"
            assert all(len(part.encode()) <= 255 for part in path.split("/")), f"{path!r} is no file name"
