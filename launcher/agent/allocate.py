# SPDX-License-Identifier: Apache-2.0
"""Choose what planning must not invent: MACs, tap names, pCPUs, the places of claims. Pure.

MACs and tap names follow from the instance's uid and the interface's name: the same on every node the
instance ever lives on, with nothing to remember or hand over.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from launcher.agent.port import Companions
from launcher.agent.records import InstanceRecord
from launcher.plan.allocations import Allocations, ClaimPlace
from launcher.plan.facts import NodeFacts
from launcher.spec.model import VirtualMachineInstance

TAP_PREFIX = "lt"
"""Interface names hold 15 characters: the prefix and 12 of the hash."""


def allocate(
    vmi: VirtualMachineInstance,
    companions: Companions,
    *,
    uid: str,
    facts: NodeFacts,
    others: Iterable[InstanceRecord],
) -> Allocations:
    """Allocations for the defaulted ``vmi``; ``others`` are the instances of this node."""
    firmware = vmi.spec.domain.firmware
    uuid = (firmware.uuid if firmware is not None else None) or uid
    names = [interface.name for interface in vmi.spec.domain.devices.interfaces]
    return Allocations(
        uid=uid,
        uuid=uuid,
        macs={name: mac_address(uid, name) for name in names},
        taps={name: tap_name(uid, name) for name in names},
        cpuset=_free_cpus(facts, others),
        claims={
            claim.claim: ClaimPlace(
                path=claim.path, block=claim.block, capacity=claim.capacity, shared=claim.shared
            )
            for claim in companions.claims
        },
    )


def mac_address(uid: str, interface: str) -> str:
    """A locally administered unicast MAC for an interface without one."""
    digest = hashlib.sha256(f"mac/{uid}/{interface}".encode()).digest()
    return ":".join(f"{byte:02x}" for byte in (0x02, *digest[:5]))


def tap_name(uid: str, interface: str) -> str:
    """A device name that no other interface of the node has."""
    return TAP_PREFIX + hashlib.sha256(f"tap/{uid}/{interface}".encode()).hexdigest()[:12]


def _free_cpus(facts: NodeFacts, others: Iterable[InstanceRecord]) -> tuple[int, ...]:
    taken: set[int] = set()
    for other in others:
        tune = other.plan.cputune
        taken.update(pin.cpu for pin in tune.vcpus)
        taken.update(tune.emulator)
        taken.update(cpu for pin in tune.iothreads for cpu in pin.cpus)
    return tuple(cpu.id for cell in facts.cells for cpu in cell.cpus if cpu.id not in taken)
