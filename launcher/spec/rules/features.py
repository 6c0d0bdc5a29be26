# SPDX-License-Identifier: Apache-2.0
"""Rules of ``spec.domain.features``: Hyper-V flags and what they need, and what an architecture lacks."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from launcher.errors import Violation
from launcher.spec.defaults.features import HYPERV_DEPENDENCIES, HYPERV_FLAGS, SPINLOCK_RETRIES
from launcher.spec.rules.checks import UINT32, in_range
from launcher.spec.rules.context import DOMAIN, Context, Rule
from launcher.spec.rules.finding import invalid, required, unsupported

FEATURES: Final = f"{DOMAIN}.features"
HYPERV: Final = f"{FEATURES}.hyperv"

# Twelve characters are what CPUID has room for; a comma would end the option on QEMU's command line.
_VENDOR_ID: Final = re.compile(r"[\x20-\x2b\x2d-\x7e]{1,12}")


def modes(ctx: Context) -> Iterator[Violation]:
    """Hyper-V flags are either listed or passed through, and only where the guest can have them."""
    listed, passed = ctx.features.hyperv, ctx.features.hyperv_passthrough
    if listed is not None and passed is not None:
        message = "hyperv and hypervPassthrough exclude each other"
        yield invalid(HYPERV, None, message)
        yield invalid(f"{FEATURES}.hypervPassthrough", None, message)
    if ctx.arch.hyperv:
        return
    if listed is not None and any(_is_on(getattr(listed, flag)) for flag in HYPERV_FLAGS):
        yield unsupported(HYPERV, None, (), f" on {ctx.arch.name}")
    if passed is not None and passed.enabled is not False:
        yield unsupported(f"{FEATURES}.hypervPassthrough", None, (), f" on {ctx.arch.name}")


def dependencies(ctx: Context) -> Iterator[Violation]:
    """A Hyper-V flag that is on has what it needs; what is only absent is turned on with it."""
    features = ctx.full_domain.features
    if features is None or features.hyperv is None:
        return
    for flag, needed in HYPERV_DEPENDENCIES:
        state, other = getattr(features.hyperv, flag), getattr(features.hyperv, needed)
        if _is_on(state) and not _is_on(other):
            yield invalid(f"{HYPERV}.{needed}.enabled", False, f"{flag} needs {needed}, which is disabled")


def evmcs(ctx: Context) -> Iterator[Violation]:
    """evmcs needs the CPU feature vmx, so it must not be switched off."""
    hyperv = ctx.features.hyperv
    if hyperv is None or not _is_on(hyperv.evmcs):
        return
    for index, feature in enumerate(ctx.cpu.features):
        if feature.name == "vmx" and feature.policy in ("disable", "forbid"):
            yield invalid(
                f"{DOMAIN}.cpu.features[{index}].policy",
                feature.policy,
                "hyperv.evmcs needs vmx; accepted: require",
            )


def spinlocks(ctx: Context) -> Iterator[Violation]:
    """Spinlocks are retried at least as often as Hyper-V allows."""
    hyperv = ctx.features.hyperv
    if hyperv is not None and hyperv.spinlocks is not None:
        yield from in_range(
            f"{HYPERV}.spinlocks.spinlocks", hyperv.spinlocks.spinlocks, SPINLOCK_RETRIES, UINT32
        )


def vendor_id(ctx: Context) -> Iterator[Violation]:
    """A vendor id is up to twelve ASCII characters without a comma."""
    hyperv = ctx.features.hyperv
    if hyperv is None or hyperv.vendorid is None:
        return
    field = f"{HYPERV}.vendorid.vendorid"
    text = hyperv.vendorid.vendorid
    if text:
        if _VENDOR_ID.fullmatch(text) is None:
            yield invalid(field, text, "accepted are at most 12 printable ASCII characters without a comma")
    elif _is_on(hyperv.vendorid):
        yield required(field, "needs the vendor id that the guest shall see, at most 12 characters")


def system_management(ctx: Context) -> Iterator[Violation]:
    """Only amd64 has a system management mode."""
    smm = ctx.features.smm
    if smm is not None and smm.enabled is not False and not ctx.arch.smm:
        yield unsupported(f"{FEATURES}.smm", None, (), f" on {ctx.arch.name}")


def _is_on(state: object) -> bool:
    return state is not None and getattr(state, "enabled", None) is not False


RULES: tuple[Rule, ...] = (modes, dependencies, evmcs, spinlocks, vendor_id, system_management)
