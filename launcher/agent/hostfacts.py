# SPDX-License-Identifier: Apache-2.0
"""The facts of this host. What libvirt says is read once per connection, what changes under way at each use.

Nothing polls: firmware descriptors and pools of huge pages are looked at when somebody asks for the facts.
"""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass

from msgspec.structs import replace

from launcher.domain.caps import domain_caps, node_facts
from launcher.host import descriptors, hugepages, kvm, machine
from launcher.host.config import Config
from launcher.host.descriptors import Descriptors
from launcher.host.hugepages import Pool
from launcher.host.kvm import Kvm
from launcher.host.logging import get
from launcher.host.machine import Machine
from launcher.hypervisor.port import HostTexts, Hypervisor
from launcher.plan.arch import ARCHITECTURES
from launcher.plan.descriptors import parse_descriptors
from launcher.plan.facts import DomainCaps, Firmware, HostDevices, NodeFacts, NumaCell, PagePool, Programs
from launcher.plan.machines import pinned_machine
from launcher.spec.model import VirtualMachineInstance

log = get(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Now:
    """What may change while the connection to libvirt stays."""

    machine: Machine
    pools: tuple[Pool, ...]
    page_size: int | None
    descriptors: Descriptors
    firmwares: tuple[Firmware, ...]


class HostFacts:
    """``get`` reads what is not known; ``forget`` after libvirt came back: it may be another."""

    def __init__(self, config: Config, hypervisor: Hypervisor) -> None:
        self._config = config
        self._hypervisor = hypervisor
        self._known: NodeFacts | None = None
        self._connections = 0
        self._asked: set[tuple[str, str]] = set()
        self._descriptors: Descriptors | None = None
        self._lock = asyncio.Lock()

    def forget(self) -> None:
        """Read anew at the next ``get``."""
        self._known = None
        self._connections += 1

    async def get(self, vmi: VirtualMachineInstance | None = None) -> NodeFacts:
        """The facts, with the domain capabilities of the machine that ``vmi`` asks for.

        Raises:
            HypervisorUnavailable: there is no connection and what is needed is not known.
        """
        async with self._lock:
            connection = self._connections
            known = self._known or await self._read()
            if vmi is not None:
                known = await self._with_machine(known, vmi)
            if connection == self._connections:  # or it came back meanwhile, perhaps as another
                self._known = known
            now = await asyncio.to_thread(self._look)
            self._descriptors = now.descriptors
            return _merged(known, now)

    async def _read(self) -> NodeFacts:
        texts = await self._hypervisor.host_texts()
        usable = await asyncio.to_thread(kvm.probe)
        if not usable.usable:
            log.info("KVM is not usable", why=usable.reason)
        self._asked.clear()
        return _parsed(texts, usable, node=self._config.node_name)

    async def _with_machine(self, known: NodeFacts, vmi: VirtualMachineInstance) -> NodeFacts:
        """Ask about a machine once; one that QEMU does not have is refused by planning."""
        arch = ARCHITECTURES.get(vmi.spec.architecture or known.arch)
        guest = known.guest(arch) if arch is not None else None
        machine = pinned_machine(vmi, known, self._config.machines)
        if guest is None or machine not in guest.machines:
            return known
        wanted = (guest.arch, machine)
        if wanted in self._asked or any((c.arch, c.machine) == wanted for c in known.domain_caps):
            return known
        found = tuple(domain_caps(text) for text in await self._hypervisor.domain_capabilities(*wanted))
        self._asked.add(wanted)
        return replace(known, domain_caps=(*known.domain_caps, *_here(found, known.kvm_usable)))

    def _look(self) -> _Now:
        folders = descriptors.directories("firmware", privileged=os.geteuid() == 0, environment=os.environ)
        found = descriptors.read(folders, before=self._descriptors)
        firmwares = parse_descriptors(found.texts)
        images = {f.executable for f in firmwares} | {f.nvram_template for f in firmwares if f.nvram_template}
        there = descriptors.present(images)
        return _Now(
            machine=machine.look(),
            pools=hugepages.pools(),
            page_size=hugepages.default_size(),
            descriptors=found,
            firmwares=tuple(
                f for f in firmwares if {f.executable, f.nvram_template or f.executable} <= there
            ),
        )


def _parsed(texts: HostTexts, usable: Kvm, *, node: str) -> NodeFacts:
    facts = node_facts(
        texts.capabilities,
        texts.domain_capabilities.values(),
        node=node,
        libvirt_version=texts.libvirt_version,
        qemu_version=texts.hypervisor_version,
        kvm_usable=usable.usable,
        kvm_reason=usable.reason,
    )
    return replace(facts, domain_caps=_here(facts.domain_caps, usable.usable))


def _here(found: tuple[DomainCaps, ...], kvm_usable: bool) -> tuple[DomainCaps, ...]:
    """libvirt speaks of KVM wherever the device opens."""
    return tuple(caps for caps in found if caps.virt != "kvm" or kvm_usable)


def _merged(known: NodeFacts, now: _Now) -> NodeFacts:
    there = now.machine
    return replace(
        known,
        kernel=there.kernel,
        cpus=there.cpus,
        memory=there.memory,
        smt=there.smt,
        memory_locking=there.memory_locking,
        ipv6=there.ipv6,
        page_size=now.page_size,
        programs=Programs(swtpm=there.swtpm, virtiofsd=there.virtiofsd, passt=there.passt),
        devices=HostDevices(vhost_vsock=there.vhost_vsock, vhost_net=there.vhost_net),
        cells=tuple(_with_pools(cell, now.pools) for cell in known.cells),
        firmwares=now.firmwares,
    )


def _with_pools(cell: NumaCell, pools: tuple[Pool, ...]) -> NumaCell:
    """libvirt's numbers are those of the time when it was asked; ordinary pages have no pool."""
    found = tuple(
        PagePool(size=pool.size, count=pool.count, free=pool.free) for pool in pools if pool.cell == cell.id
    )
    sizes = {pool.size for pool in found}
    return replace(cell, pools=(*(pool for pool in cell.pools if pool.size not in sizes), *found))
