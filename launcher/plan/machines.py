# SPDX-License-Identifier: Apache-2.0
"""Which board a guest gets when it starts: a versioned one, which it keeps wherever it goes. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from launcher.plan.arch import AMD64, ARCHITECTURES
from launcher.plan.facts import NodeFacts
from launcher.spec.model import VirtualMachineInstance


def pinned_machine(vmi: VirtualMachineInstance, facts: NodeFacts, baseline: Mapping[str, str]) -> str:
    """The machine that ``vmi`` asks for or else the usual one, as the versioned one that it stands for.

    ``baseline`` says what an alias stands for on every node; without it, it is QEMU's newest on this one. An
    alias of which nothing is known stays one.
    """
    arch = ARCHITECTURES.get(vmi.spec.architecture or facts.arch, AMD64)
    asked = vmi.spec.domain.machine
    machine = (asked.type if asked is not None else None) or arch.machine
    if machine in baseline:
        return baseline[machine]
    guest = facts.guest(arch)
    return guest.canonical(machine) if guest is not None else machine
