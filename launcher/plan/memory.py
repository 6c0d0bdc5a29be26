# SPDX-License-Identifier: Apache-2.0
"""Guest memory, room for more of it, and what backs it. Pure."""

from __future__ import annotations

from math import floor

from launcher.plan import versions
from launcher.plan.context import PlanContext
from launcher.plan.model import GuestCell, HugePages, MemoryBacking, MemoryPlan
from launcher.plan.node_networks import plugin_of
from launcher.plan.numa import GuestNuma
from launcher.spec.model import Interface
from launcher.spec.quantity import Quantity

# "false" keeps hugepages off memfd (for hosts whose memfd cannot take hugepages).
MEMFD = "kubevirt.io/memfd"


def memory(context: PlanContext) -> MemoryPlan:
    """Size at boot and, when it may grow, the maximum."""
    size, maximum = context.memory, _maximum(context)
    if maximum is None or maximum == size:
        return MemoryPlan(size=size)
    slotless = context.facts.libvirt_version >= versions.MAX_MEMORY_WITHOUT_SLOTS
    return MemoryPlan(size=size, maximum=maximum, slots=0 if slotless else 1)


def page_size(context: PlanContext) -> int | None:
    """Size of the hugepages in bytes; None: ordinary pages."""
    asked = context.domain.memory
    if asked is None or asked.hugepages is None or asked.hugepages.page_size is None:
        return None
    return floor(Quantity(asked.hugepages.page_size).value)


def backing(context: PlanContext, numa: GuestNuma | None) -> MemoryBacking | None:
    """What backs the memory; None: anonymous memory, as usual."""
    huge, shared = page_size(context) is not None, _is_shared(context)
    if not huge and not shared:
        return None
    return MemoryBacking(
        hugepages=huge,
        pages=numa.pages if numa is not None else _pages(context),
        memfd=uses_memfd(context),
        shared=shared,
        immediate=numa is not None,
        nosharepages=numa is not None and context.realtime,
        locked=context.realtime and context.facts.memory_locking,
    )


def _pages(context: PlanContext) -> tuple[HugePages, ...]:
    """The size has to be named where it is not the kernel's default: libvirt takes that otherwise."""
    size, default = page_size(context), context.facts.page_size
    return (HugePages(size=size),) if size is not None and default is not None and size != default else ()


def uses_memfd(context: PlanContext) -> bool:
    """Whether memory comes from memfd: for sharing always, for hugepages unless an annotation forbids it."""
    if not context.arch.memfd:
        return False
    if _is_shared(context):
        return True
    return page_size(context) is not None and context.annotations.get(MEMFD) != "false"


def single_cell(context: PlanContext, plan: MemoryPlan) -> tuple[GuestCell, ...]:
    """One guest cell of everything where libvirt wants a cell: for memfd, and on old releases for hotplug."""
    cpu = context.domain.cpu
    if cpu is not None and cpu.numa is not None:
        return ()
    for_hotplug = plan.maximum is not None and (
        context.facts.libvirt_version < versions.MAX_MEMORY_WITHOUT_CELL
    )
    if not uses_memfd(context) and not for_hotplug:
        return ()
    return (GuestCell(id=0, vcpus=tuple(range(context.topology.maximum)), memory=plan.size),)


def _maximum(context: PlanContext) -> int | None:
    asked = context.domain.memory
    if asked is None or asked.guest is None or asked.max_guest is None:
        return None
    return floor(asked.max_guest.value)


def _is_shared(context: PlanContext) -> bool:
    """virtiofsd, passt and switches behind vhost-user read guest memory from their own processes."""
    nics = context.devices.interfaces
    return bool(context.devices.filesystems) or any(
        _is_passt(nic) or _is_vhost_user(context, nic) for nic in nics
    )


def _is_vhost_user(context: PlanContext, interface: Interface) -> bool:
    plugin = plugin_of(context, interface)
    return plugin is not None and plugin.attachment == "vhost-user"


def _is_passt(interface: Interface) -> bool:
    return interface.passt is not None or interface.passt_binding is not None
