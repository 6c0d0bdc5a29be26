# SPDX-License-Identifier: Apache-2.0
"""Which vCPUs run under a realtime scheduler. Pure."""

from __future__ import annotations

import re

from launcher.errors import InvalidSpec, Violation
from launcher.spec.model import CPU

_FIELD = "spec.domain.cpu.realtime.mask"
_ITEM = re.compile(r"(?P<negated>\^(?=[0-9]+$))?(?P<first>[0-9]{1,9})(?:-(?P<last>[0-9]{1,9}))?", re.ASCII)


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
        found = _ITEM.fullmatch(item.strip())
        if found is None:
            raise _bad(mask, item)
        low = int(found["first"])
        high = int(found["last"] or low)
        if low > high:
            raise _bad(mask, item)
        (removed if found["negated"] else chosen).update(range(low, min(high, count - 1) + 1))
    return tuple(sorted(vcpu for vcpu in chosen - removed if vcpu < count))


def _bad(mask: str, item: str) -> InvalidSpec:
    message = f"{item.strip()!r} is none of a-b (a <= b), n and ^n; an example is 0-3,^1"
    return InvalidSpec([Violation(field=_FIELD, type="FieldValueInvalid", value=mask, message=message)])
