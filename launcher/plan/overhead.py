# SPDX-License-Identifier: Apache-2.0
"""Memory that an instance costs the node beside the guest's own, term by term. Pure.

Counted is what one guest brings along: its QEMU process and the programs that run beside it. The agent,
libvirtd and virtlogd serve all guests of a node; the node reserves their memory once (``memory.reserved``).
KubeVirt, whose every guest has these programs for itself, counts 190 MiB more for each. Nothing is added for
dedicated CPUs or the Guaranteed class: that margin keeps a container below its limit, and there is none here.
Translated code of an emulated guest is not counted: nothing bounds it.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from launcher.plan.arch import ARM64
from launcher.plan.model import VMPlan
from launcher.spec.model import VirtualMachineInstance
from launcher.units import GIB, MIB

# Where no other source is named, the numbers are those that KubeVirt reserves for the same thing.
QEMU = 50 * MIB  # measured: 40 to 50 MiB of a guest that has not begun to run
VCPU = 8 * MIB
IO_THREAD = 8 * MIB
DISPLAY = 32 * MIB
PFLASH = 128 * MIB  # two flash devices of 64 MiB, mapped as a whole
VFIO = GIB
ENCRYPTION = 256 * MIB
SWTPM = 53 * MIB
PASST = 250 * MIB
VIRTIOFSD = 80 * MIB
# A page table entry of 8 bytes maps a page of 4 KiB.
PAGE_TABLE_SHARE = 512


class Term(msgspec.Struct, frozen=True, kw_only=True):
    """``size`` bytes for ``what``."""

    what: str
    size: int


class Overhead(msgspec.Struct, frozen=True, kw_only=True):
    """The terms; ``total`` is their sum in bytes."""

    terms: tuple[Term, ...]

    @property
    def total(self) -> int:
        """Bytes in all."""
        return sum(term.size for term in self.terms)


def memory_overhead(plan: VMPlan, *, guest: int | None = None, added: int = 0) -> Overhead:
    """What a guest of ``plan`` costs beside its memory.

    ``guest`` is the memory it has now, when that is not what it booted with; ``added`` see
    ``added_overhead``. Both in bytes.
    """
    terms = _terms(plan, plan.memory.size if guest is None else guest, added)
    return Overhead(terms=tuple(Term(what=what, size=size) for what, size in terms if size))


def added_overhead(vmi: VirtualMachineInstance) -> int:
    """What the manifest itself adds, in bytes: ``memory.reservedOverhead.addedOverhead``."""
    memory = vmi.spec.domain.memory
    reserved = memory.reserved_overhead if memory is not None else None
    added = reserved.added_overhead if reserved is not None else None
    return added.bytes_floor() if added is not None else 0


def _terms(plan: VMPlan, guest: int, added: int) -> Iterator[tuple[str, int]]:
    devices = plan.devices
    yield "QEMU", QEMU
    yield "page tables", guest // PAGE_TABLE_SHARE
    yield f"{plan.vcpus.current} vCPUs", VCPU * plan.vcpus.current
    yield f"{plan.iothreads.count} I/O threads beside the main loop", IO_THREAD * (1 + plan.iothreads.count)
    if devices.graphics is not None or devices.video is not None:
        yield "display", DISPLAY
    if plan.identity.arch == ARM64.libvirt:
        yield "firmware flash", PFLASH
    if any(hostdev.usb is None for hostdev in devices.hostdevs):
        yield "VFIO", VFIO
    if plan.launch_security is not None:
        yield "memory encryption", ENCRYPTION
    if devices.tpm is not None:
        yield "swtpm", SWTPM
    passt = sum(1 for interface in devices.interfaces if interface.passt is not None)
    yield f"passt for {passt} interfaces", PASST * passt
    yield f"virtiofsd for {len(devices.filesystems)} filesystems", VIRTIOFSD * len(devices.filesystems)
    yield "memory.reservedOverhead.addedOverhead", max(0, added)
