# SPDX-License-Identifier: Apache-2.0
"""A guest that mirrors the host's NUMA cells (``cpu.numa.guestMappingPassthrough``). Pure."""

from __future__ import annotations

import msgspec

from launcher.errors import Exhausted, InvalidSpec, Violation
from launcher.plan.context import PlanContext
from launcher.plan.facts import Distance, NumaCell
from launcher.plan.model import CPUTune, GuestCell, HugePages, MemNode, NumaTune
from launcher.plan.pinning import host_cells


class GuestNuma(msgspec.Struct, frozen=True, kw_only=True):
    """Mirrored cells in the three places of a domain; ids of ``cells`` and ``pages`` are the guest's."""

    cells: tuple[GuestCell, ...]
    tune: NumaTune
    pages: tuple[HugePages, ...]


def guest_numa(context: PlanContext, tune: CPUTune, page_size: int) -> GuestNuma | None:
    """Cells of the guest, in the host's order and numbered from 0; None when it mirrors none.

    Raises:
        InvalidSpec: the memory is no multiple of the page size.
        Exhausted: the memory has fewer pages than the guest would have cells.
    """
    cpu = context.domain.cpu
    if cpu is None or cpu.numa is None or cpu.numa.guest_mapping_passthrough is None:
        return None
    involved: list[tuple[NumaCell, tuple[int, ...]]] = []
    for cell in host_cells(context):
        owned = {host_cpu.id for host_cpu in cell.cpus}
        vcpus = tuple(pin.vcpu for pin in tune.vcpus if pin.cpu in owned)
        if vcpus:
            involved.append((cell, vcpus))
    sizes = split_memory(context.memory, page_size, len(involved))
    guest_ids = {cell.id: guest_id for guest_id, (cell, _) in enumerate(involved)}
    return GuestNuma(
        cells=tuple(
            GuestCell(id=guest_id, vcpus=vcpus, memory=size, distances=_distances(cell, guest_ids))
            for guest_id, ((cell, vcpus), size) in enumerate(zip(involved, sizes, strict=True))
        ),
        tune=NumaTune(
            nodes=tuple(guest_ids),
            memnodes=tuple(MemNode(cell=guest_id, node=node) for node, guest_id in guest_ids.items()),
        ),
        pages=tuple(HugePages(size=page_size, cell=guest_id) for guest_id in guest_ids.values()),
    )


def split_memory(memory: int, page_size: int, cells: int) -> tuple[int, ...]:
    """Split ``memory`` into whole pages, evenly; what is left goes one page each to the first cells.

    ``split_memory(10 GiB, 1 GiB, 3)`` is 4, 3 and 3 GiB.
    """
    if memory % page_size:
        message = f"{memory} bytes are no multiple of the page size of {page_size} bytes"
        raise InvalidSpec(
            [Violation(field="spec.domain.memory.guest", type="FieldValueInvalid", message=message)]
        )
    pages, rest = divmod(memory // page_size, cells)
    if pages == 0:
        raise Exhausted(
            "hugepages", f"{memory} bytes are less than one page of {page_size} for {cells} NUMA cells"
        )
    return tuple((pages + (1 if cell < rest else 0)) * page_size for cell in range(cells))


def _distances(cell: NumaCell, guest_ids: dict[int, int]) -> tuple[Distance, ...]:
    return tuple(
        Distance(cell=guest_ids[distance.cell], value=distance.value)
        for distance in cell.distances
        if distance.cell in guest_ids
    )
