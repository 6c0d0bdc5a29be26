# SPDX-License-Identifier: Apache-2.0
"""Which vCPUs run under a realtime scheduler. Pure."""

from __future__ import annotations

from launcher.errors import InvalidSpec, Violation
from launcher.spec.model import CPU

_FIELD = "spec.domain.cpu.realtime.mask"


def realtime_vcpus(cpu: CPU, count: int) -> tuple[int, ...]:
    """vCPUs of ``count`` that ``cpu.realtime`` selects; none without it, all with an empty mask.

    The mask is a comma list of ``a-b``, ``n`` and ``^n``; a negation wins wherever it stands:
    ``0-3,^1`` selects 0, 2 and 3.

    Raises:
        InvalidSpec: the mask does not follow that grammar.
    """
    if cpu.realtime is None:
        return ()
    mask = (cpu.realtime.mask or "").strip()
    if not mask:
        return tuple(range(count))
    chosen: set[int] = set()
    removed: set[int] = set()
    for item in mask.split(","):
        negated = item.strip().startswith("^")
        first, dash, last = item.strip().removeprefix("^").partition("-")
        if not (first.isascii() and first.isdecimal()) or (dash and (negated or not last.isdecimal())):
            raise _bad(mask, item)
        low, high = int(first), int(last) if dash else int(first)
        if low > high:
            raise _bad(mask, item)
        (removed if negated else chosen).update(range(low, min(high, count - 1) + 1))
    return tuple(sorted(vcpu for vcpu in chosen - removed if vcpu < count))


def _bad(mask: str, item: str) -> InvalidSpec:
    message = f"{item.strip()!r} is none of a-b (a <= b), n and ^n; an example is 0-3,^1"
    return InvalidSpec([Violation(field=_FIELD, type="FieldValueInvalid", value=mask, message=message)])
