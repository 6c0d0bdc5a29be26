# SPDX-License-Identifier: Apache-2.0
"""What a node must have for a field: examples are planned for nodes that have nothing. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import islice
from typing import Any, Final, TypeAlias

from msgspec import structs

from launcher.errors import HostUnsupported, LauncherError
from launcher.explain.effect import MOST_CHANGES
from launcher.explain.examples import Example, examples
from launcher.explain.manifest import Place
from launcher.explain.translation import Translator
from launcher.explain.variants import changes, repair
from launcher.plan.arch import ARCHITECTURES
from launcher.plan.facts import DomainCaps, HostDevices, NodeFacts, Programs, version
from launcher.plan.runnable import require_runnable
from launcher.spec.model import VirtualMachineInstance

Findings: TypeAlias = frozenset[tuple[str, str]]
World: TypeAlias = Callable[[Example], Translator]

# Older than anything that the plans make a difference for.
_ANCIENT: Final = version(6, 0)
# A need for more or less of the same is none of what changes the number; how many is the example's affair.
_NUMBERS: Final = re.compile(r"[0-9]+(?:\.[0-9]+)?")
_COUNT: Final = re.compile(r"^[0-9]+ (?=free )")
_OLDER: Final = re.compile(r"libvirt is older than (\d+\.\d+)")


class _Nothing(dict[str, tuple[str, ...]]):
    """Enumerations that are all known and have nothing that anybody asks for."""

    def get(self, key: str, default: Any = None) -> tuple[str, ...]:
        return ("nothing",)

    def __missing__(self, key: str) -> tuple[str, ...]:
        return ("nothing",)


def needs(path: str) -> tuple[str, ...]:
    """What fields at and below ``path`` need of a node, a phrase each."""
    return _found(path, (_old, _poor))


def unserved(path: str) -> tuple[str, ...]:
    """What fields at and below ``path`` need that no node has yet: an instance with them is refused."""
    return _found(path, (_as_it_is,))


def _found(path: str, worlds: tuple[World, ...]) -> tuple[str, ...]:
    phrases = (
        phrase
        for example in examples()
        if example.valid
        for place in example.at(path)
        for world in worlds
        for phrase in _phrases(example, place, world)
    )
    return tuple(dict.fromkeys(phrases))


def _phrases(example: Example, place: Place, world: World) -> Iterator[str]:
    translator = world(example)
    lacking = _findings(translator, example.vmi)
    if not lacking:
        return
    settings = example.base.settings
    for data in islice(changes(example.base.data, place, settings), MOST_CHANGES):
        vmi = example.base.valid(data) or repair(data, settings)
        if vmi is None:
            continue
        other = {_NUMBERS.sub("", capability) for capability, _ in _findings(translator, vmi)}
        for capability, why in sorted(lacking):
            if _NUMBERS.sub("", capability) not in other:
                yield _phrase(capability, why)
        return


def _phrase(capability: str, why: str) -> str:
    older = _OLDER.search(why)
    if older is not None:
        return f"libvirt {older[1]} or newer ({capability})"
    return _COUNT.sub("", capability)


def _findings(translator: Translator, vmi: VirtualMachineInstance) -> Findings:
    """What the node lacks for a manifest, planned and run."""
    try:
        require_runnable(translator.translate(vmi).plan.devices)
    except HostUnsupported as error:
        return frozenset(error.findings)
    except LauncherError:
        return frozenset()
    return frozenset()


def _as_it_is(example: Example) -> Translator:
    """The node of the examples, which lacks nothing: what it refuses, no agent serves."""
    return example.base.translator


def _old(example: Example) -> Translator:
    return _on(example, lambda facts: structs.replace(facts, libvirt_version=_ANCIENT, qemu_version=_ANCIENT))


def _poor(example: Example) -> Translator:
    return _on(example, _without_everything)


def _on(example: Example, change: Callable[[NodeFacts], NodeFacts]) -> Translator:
    translator = example.base.translator
    return translator.on(replace(translator.assumed, facts=change(translator.assumed.facts)))


def _without_everything(facts: NodeFacts) -> NodeFacts:
    caps = DomainCaps(
        arch=ARCHITECTURES[facts.arch].libvirt,
        virt="kvm",
        cpu_modes=("nothing",),
        cpu_models=("nothing",),
        hyperv=("nothing",),
        enums=_Nothing(),
    )
    cells = tuple(
        structs.replace(cell, pools=tuple(structs.replace(pool, free=0) for pool in cell.pools))
        for cell in facts.cells
    )
    return structs.replace(
        facts,
        cells=cells,
        domain_caps=(caps,),
        firmwares=(),
        programs=Programs(swtpm="", virtiofsd="", passt=""),
        devices=HostDevices(vhost_vsock=False, vhost_net=False),
    )
