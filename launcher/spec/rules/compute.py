# SPDX-License-Identifier: Apache-2.0
"""Rules of ``resources``, the machine type and I/O threads."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from launcher.errors import Violation
from launcher.spec.path import ROOT
from launcher.spec.rules.checks import in_range, is_qualified_name, one_of
from launcher.spec.rules.context import DOMAIN, Context, Rule
from launcher.spec.rules.finding import invalid, required

IO_THREADS_POLICIES: Final = ("shared", "auto", "supplementalPool")
# More threads than this serve no disk faster; QEMU itself has no limit.
MOST_IO_THREADS: Final = 256
# A request below this is a forgotten suffix (KubeVirt's limit).
SMALLEST_MEMORY: Final = 10**6

_MACHINE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,63}")


def amount_path(group: str, key: str) -> str:
    """The path of a request or limit: ``spec.domain.resources.requests.cpu``."""
    return str((ROOT / "spec" / "domain" / "resources" / group).amount(key))


def resources(ctx: Context) -> Iterator[Violation]:
    """Amounts are not negative, have known keys, and no request exceeds its limit."""
    for group, amounts in (("requests", ctx.resources.requests), ("limits", ctx.resources.limits)):
        for key, amount in amounts.items():
            if not is_qualified_name(key):
                message = "not the name of a resource, such as cpu or memory"
                yield invalid(amount_path(group, key), key, message)
            if amount.value < 0:
                yield invalid(amount_path(group, key), amount, "must not be negative")
    for key, amount in ctx.resources.requests.items():
        limit = ctx.resources.limits.get(key)
        if limit is not None and limit and amount > limit:
            yield invalid(amount_path("requests", key), amount, f"must not exceed the limit, {limit}")


def memory_request(ctx: Context) -> Iterator[Violation]:
    """A memory request is not so small that its suffix must have been forgotten."""
    request = ctx.resources.requests.get("memory")
    if request is not None and 0 < request < SMALLEST_MEMORY:
        yield invalid(
            amount_path("requests", "memory"),
            request,
            "is a suffix such as Mi missing? accepted are 1M and more",
        )


def machine_type(ctx: Context) -> Iterator[Violation]:
    """The machine type belongs to the architecture."""
    machine = ctx.domain.machine
    if machine is None or not machine.type:
        return
    if not machine.type.startswith(ctx.arch.machines) or _MACHINE.fullmatch(machine.type) is None:
        accepted = ", ".join(f"{prefix}*" for prefix in ctx.arch.machines)
        yield invalid(
            f"{DOMAIN}.machine.type", machine.type, f"not a machine of {ctx.arch.name}; accepted: {accepted}"
        )


def io_threads(ctx: Context) -> Iterator[Violation]:
    """The policy is known, and a supplemental pool has threads."""
    policy = ctx.domain.io_threads_policy
    yield from one_of(f"{DOMAIN}.ioThreadsPolicy", policy, IO_THREADS_POLICIES)
    threads = ctx.domain.io_threads
    count = threads.supplemental_pool_thread_count if threads is not None else None
    field = f"{DOMAIN}.ioThreads.supplementalPoolThreadCount"
    if policy == "supplementalPool" and count is None:
        yield required(
            field, f"ioThreadsPolicy supplementalPool needs the number of threads, 1 to {MOST_IO_THREADS}"
        )
    yield from in_range(field, count, 1 if policy == "supplementalPool" else 0, MOST_IO_THREADS)


RULES: tuple[Rule, ...] = (resources, memory_request, machine_type, io_threads)
