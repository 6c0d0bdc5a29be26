# SPDX-License-Identifier: Apache-2.0
"""Rules of ``spec.domain.memory``: there is some, it fits its limits and its huge pages, and it can grow."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from launcher.errors import Violation
from launcher.spec.defaults.hotplug import LARGEST_MEMORY, memory_obstacles
from launcher.spec.model import Quantity
from launcher.spec.rules.checks import one_of
from launcher.spec.rules.compute import SMALLEST_MEMORY, amount_path
from launcher.spec.rules.context import DOMAIN, Context, Rule
from launcher.spec.rules.finding import invalid, required, unsupported
from launcher.units import GIB, KIB

MEMORY: Final = f"{DOMAIN}.memory"
MEM_LOCK: Final = ("Required", "NotRequired")

# Huge pages of architectures that do not list theirs: any power of two in these bounds, the node decides.
_SMALLEST_PAGE: Final = 64 * KIB
_LARGEST_PAGE: Final = 16 * GIB


def size(ctx: Context) -> Iterator[Violation]:
    """The guest has memory: as much as makes sense, and no more than its limit."""
    memory = ctx.full_domain.memory
    if memory is None or memory.guest is None:
        yield required(
            f"{MEMORY}.guest", "needs an amount such as 1Gi (or hugepages, or memory in resources)"
        )
        return
    guest = ctx.memory.guest
    if guest is None:
        return
    if guest < 0:
        yield invalid(f"{MEMORY}.guest", guest, "must not be negative")
    elif guest < SMALLEST_MEMORY:
        yield invalid(f"{MEMORY}.guest", guest, "is a suffix such as Mi missing? accepted are 1M and more")
    elif guest > LARGEST_MEMORY:
        yield invalid(f"{MEMORY}.guest", guest, "more than a guest can address; accepted are at most 4Pi")
    limit = ctx.resources.limits.get("memory")
    if limit is not None and limit > 0 and guest > limit:
        yield invalid(f"{MEMORY}.guest", guest, f"must not exceed resources.limits.memory, {limit}")


def requested(ctx: Context) -> Iterator[Violation]:
    """An amount that becomes the guest's memory is what a guest can have."""
    if ctx.memory.guest is not None:
        return
    for group in ("requests", "limits"):
        amount: Quantity | None = getattr(ctx.resources, group).get("memory")
        if amount is not None and amount > LARGEST_MEMORY:
            yield invalid(amount_path(group, "memory"), amount, "more than a guest can address; at most 4Pi")
    request, limit = ctx.resources.requests.get("memory"), ctx.resources.limits.get("memory")
    if not request and limit is not None and 0 < limit < SMALLEST_MEMORY:
        message = "is the guest's memory; is a suffix such as Mi missing? accepted are 1M and more"
        yield invalid(amount_path("limits", "memory"), limit, message)


def hugepages(ctx: Context) -> Iterator[Violation]:
    """Huge pages have a size that the architecture has, and memory is made of whole ones."""
    pages = ctx.memory.hugepages
    if pages is None:
        return
    field = f"{MEMORY}.hugepages.pageSize"
    if not pages.page_size:
        yield required(field, "needs the size of the pages, such as 2Mi or 1Gi")
        return
    try:
        page = Quantity(pages.page_size)
    except ValueError:
        yield invalid(field, pages.page_size, "not a size; accepted is a quantity such as 2Mi or 1Gi")
        return
    if not _is_page(page, ctx.arch.page_sizes):
        accepted = tuple(_mebibytes(known) for known in ctx.arch.page_sizes) or (
            "powers of two from 64Ki to 16Gi",
        )
        yield unsupported(field, pages.page_size, accepted, f" on {ctx.arch.name}")
        return
    if ctx.secure_execution:
        yield invalid(
            f"{MEMORY}.hugepages", None, "the memory of a Secure Execution guest cannot be huge pages"
        )
    yield from _whole_pages(ctx, page)


def _whole_pages(ctx: Context, page: Quantity) -> Iterator[Violation]:
    amounts = (
        (f"{MEMORY}.guest", ctx.memory.guest),
        (f"{MEMORY}.maxGuest", ctx.memory.max_guest),
        (amount_path("requests", "memory"), ctx.resources.requests.get("memory")),
        (amount_path("limits", "memory"), None if _has_size(ctx) else ctx.resources.limits.get("memory")),
    )
    for field, amount in amounts:
        if amount is None or amount <= 0:
            continue
        if amount < page:
            yield invalid(field, amount, f"less than one huge page of {page}")
            yield invalid(f"{MEMORY}.hugepages.pageSize", page, f"larger than the memory, {amount} ({field})")
        elif amount.value % page.value:
            yield invalid(field, amount, f"not a multiple of the huge pages' size, {page}")
            yield invalid(
                f"{MEMORY}.hugepages.pageSize", page, f"does not divide the memory, {amount} ({field})"
            )


def _has_size(ctx: Context) -> bool:
    return ctx.memory.guest is not None or "memory" in ctx.resources.requests


def max_guest(ctx: Context) -> Iterator[Violation]:
    """Memory that shall grow has a size now, and nothing that forbids it."""
    maximum = ctx.memory.max_guest
    if maximum is None:
        return
    domain = ctx.full_domain
    if domain.memory is None or domain.memory.guest is None or domain.memory.guest == maximum:
        return
    if maximum > LARGEST_MEMORY:
        yield invalid(
            f"{MEMORY}.maxGuest", maximum, "more than a guest can address; accepted are at most 4Pi"
        )
    written = {"memory.guest": domain.memory.guest, "memory.maxGuest": maximum}
    for field, message in memory_obstacles(domain, ctx.arch, maximum):
        yield invalid(f"{DOMAIN}.{field}", written[field], message)
    if maximum < domain.memory.guest:
        yield invalid(f"{MEMORY}.guest", domain.memory.guest, f"must not exceed maxGuest, {maximum}")


def overhead(ctx: Context) -> Iterator[Violation]:
    """A reserved overhead is not negative, and locking is asked for or not."""
    reserved = ctx.memory.reserved_overhead
    if reserved is None:
        return
    path = f"{MEMORY}.reservedOverhead"
    if reserved.added_overhead is not None and reserved.added_overhead < 0:
        yield invalid(f"{path}.addedOverhead", reserved.added_overhead, "must not be negative")
    yield from one_of(f"{path}.memLock", reserved.mem_lock, MEM_LOCK)


def _is_page(page: Quantity, known: tuple[int, ...]) -> bool:
    if known:
        return page.value in known
    size = page.bytes_floor()
    return page.is_integer and _SMALLEST_PAGE <= size <= _LARGEST_PAGE and size & (size - 1) == 0


def _mebibytes(size: int) -> str:
    return f"{size // GIB}Gi" if size % GIB == 0 else f"{size // KIB // KIB}Mi"


RULES: tuple[Rule, ...] = (size, requested, hugepages, max_guest, overhead)
