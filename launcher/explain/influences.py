# SPDX-License-Identifier: Apache-2.0
"""What besides the manifest decides a domain: steps of the defaults, settings, the host. Measured. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from msgspec import structs

from launcher.domain.translate import Assumptions
from launcher.errors import LauncherError
from launcher.explain.document import Difference
from launcher.explain.effect import Base
from launcher.explain.manifest import places, plain
from launcher.explain.schema import spec_of
from launcher.explain.translation import Translator
from launcher.explain.variants import repair, replacements
from launcher.plan.allocations import Allocations
from launcher.plan.facts import version
from launcher.spec.defaults import STEPS, Step, trace
from launcher.spec.model import VirtualMachineInstance

_OTHER_CPU = 1000


def default_differences(vmi: VirtualMachineInstance, base: Base) -> Iterator[tuple[str, Difference]]:
    """What differs without each step of the defaults that had something to add."""
    for step, _ in trace(vmi, base.settings):
        difference = _without_step(vmi, base, step) or _with_other_values(vmi, base, step)
        if difference:
            yield f"default {step.name}", difference


def node_differences(vmi: VirtualMachineInstance, base: Base) -> Iterator[tuple[str, Difference]]:
    """What differs with another setting, another host, or other values handed out."""
    for label, translator in (*_settings(base.translator), *_facts(base.translator), *_handed_out(base)):
        try:
            difference = base.difference(translator.translate(vmi))
        except LauncherError:
            continue  # that node does not run it at all
        if difference:
            yield label, difference


def _without_step(vmi: VirtualMachineInstance, base: Base, left_out: Step) -> Difference:
    for step in STEPS:
        if step is not left_out:
            vmi = step.apply(vmi, base.settings)
    try:
        return base.difference(base.translator.complete(vmi))
    except LauncherError:
        return Difference()  # nothing can be planned without it


def _with_other_values(vmi: VirtualMachineInstance, base: Base, changed: Step) -> Difference:
    """What differs when what the step filled in is something else."""
    number = STEPS.index(changed)
    for step in STEPS[:number]:
        vmi = step.apply(vmi, base.settings)
    before = {place.shown: place.value for place in places(plain(vmi), spec_of())}
    data = plain(changed.apply(vmi, base.settings))
    atoms: set[tuple[int, str]] = set()
    for place in places(data, spec_of()):
        if place.leaf and before.get(place.shown) != place.value:
            for other in replacements(data, place, base.settings):
                valid = base.valid(other) or repair(other, base.settings)
                difference = _completed(valid, base, STEPS[number + 1 :]) if valid else Difference()
                if difference:
                    atoms |= difference.atoms
                    break
    return Difference(atoms=frozenset(atoms))


def _completed(vmi: VirtualMachineInstance, base: Base, steps: tuple[Step, ...]) -> Difference:
    for step in steps:
        vmi = step.apply(vmi, base.settings)
    try:
        return base.difference(base.translator.complete(vmi))
    except LauncherError:
        return Difference()


def _settings(translator: Translator) -> Iterator[tuple[str, Translator]]:
    """The node with each setting changed, in planning and in the defaults alike."""
    settings, defaults = translator.assumed.settings, translator.assumed.defaults
    names = dict.fromkeys((*settings.__struct_fields__, *defaults.__struct_fields__))
    for name in names:
        if name == "architecture":
            continue  # a fact of the host
        here = settings if name in settings.__struct_fields__ else defaults
        value = _other(getattr(here, name))
        if value is not None:
            yield (
                f"setting {name}",
                translator.on(
                    replace(
                        translator.assumed,
                        settings=_with(settings, name, value),
                        defaults=_with(defaults, name, value),
                    )
                ),
            )


def _with(struct: Any, name: str, value: object) -> Any:
    return structs.replace(struct, **{name: value}) if name in struct.__struct_fields__ else struct


def _other(value: object) -> object:
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + 1
    if isinstance(value, str):
        return f"{value}-other"
    return None


def _facts(translator: Translator) -> Iterator[tuple[str, Translator]]:
    """Hosts that differ in one thing each."""
    facts = translator.assumed.facts
    emulating = structs.replace(translator.assumed.settings, allow_emulation=True)
    changes = (
        ("host KVM", {"kvm_usable": not facts.kvm_usable}),
        ("host libvirt version", {"libvirt_version": version(9, 0)}),
        ("host QEMU version", {"qemu_version": version(7, 2)}),
        ("host locked memory", {"memory_locking": not facts.memory_locking}),
        ("host NUMA cells", {"cells": ()}),
        ("host firmware images", {"firmwares": None}),
        ("host domain capabilities", {"domain_caps": ()}),
    )
    for label, change in changes:
        other = replace(translator.assumed, facts=structs.replace(facts, **change), settings=emulating)
        yield label, translator.on(other)


def _handed_out(base: Base) -> Iterator[tuple[str, Translator]]:
    """The node that hands out other values."""
    changes: tuple[tuple[str, Callable[[Allocations], Allocations]], ...] = (
        ("node's choice uid", lambda given: structs.replace(given, uid=f"{given.uid}-other")),
        (
            "node's choice of CPUs",
            lambda given: structs.replace(given, cpuset=tuple(cpu + _OTHER_CPU for cpu in given.cpuset)),
        ),
        ("node's choice of CID", lambda given: structs.replace(given, vsock_cid=given.vsock_cid + 1)),
        ("node's places of claims", lambda given: structs.replace(given, claims={})),
        ("node's choice of MAC addresses", lambda given: structs.replace(given, macs={})),
        ("node's choice of taps", lambda given: structs.replace(given, taps={})),
        ("node's host devices", lambda given: structs.replace(given, devices={}, virtual_functions={})),
    )
    for label, change in changes:
        yield label, replace(base.translator, allocate=_changed(base.translator, change))


def _changed(
    translator: Translator, change: Callable[[Allocations], Allocations]
) -> Callable[[VirtualMachineInstance, Assumptions], Allocations]:
    return lambda vmi, assumed: change(translator.allocate(vmi, assumed))
