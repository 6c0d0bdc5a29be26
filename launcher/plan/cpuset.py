# SPDX-License-Identifier: Apache-2.0
"""Lists of CPUs as the kernel and libvirt write them: ``0-3,8``. Pure."""

from __future__ import annotations

# More than any kernel is built for (CONFIG_NR_CPUS is at most 8192); keeps a typo from filling the memory.
MAX_CPU = 1 << 16


def parse_cpuset(text: str) -> tuple[int, ...]:
    """CPUs in the order written: ``parse_cpuset('4-6,1') == (4, 5, 6, 1)``; an empty text names none.

    Raises:
        ValueError: it is not a comma list of numbers and ascending ranges.
    """
    cpus: dict[int, None] = {}
    for item in text.split(","):
        if not item.strip():
            continue
        first, dash, last = item.strip().partition("-")
        low, high = _number(first), _number(last) if dash else _number(first)
        if low > high:
            raise ValueError(f"{item.strip()!r} is no ascending range")
        cpus.update(dict.fromkeys(range(low, high + 1)))
    return tuple(cpus)


def _number(text: str) -> int:
    if not (text.isascii() and text.isdecimal()) or int(text) > MAX_CPU:
        raise ValueError(f"{text!r} is no CPU number")
    return int(text)
