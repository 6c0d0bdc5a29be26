# SPDX-License-Identifier: Apache-2.0
"""Whether the link of a migration carries anything, judged by counted bytes alone. Pure.

The rate that QEMU reports keeps its last value while its thread is blocked in a write, and libvirt leaves
out a zero, so neither can tell a dead link from a busy one; the counter of sent bytes can.
"""

from __future__ import annotations

import msgspec

from launcher.migration.sample import Sample

HEALTHY_MS = 1500
"""A link over which nothing came for so long is not trusted with a step that cannot be taken back."""
DEAD_MS = 75_000
"""A link over which nothing came for so long is given up: longer than a routing change or a restart of a
switch port takes, shorter than TCP itself needs to find out."""
WINDOW_MS = 1000
"""The rate is measured over at least so long."""
PEAK_DECAY = 0.99
"""Per window: what was the best rate once is forgotten after a few minutes, so that a link that got slower
for good is taken for what it is."""


class LinkState(msgspec.Struct, frozen=True, kw_only=True):
    """Counted bytes and what follows. ``moved_ms`` is None until the first byte; rates are bytes a second.

    ``mark`` bytes were sent at ``mark_ms``, where the present window of measuring begins.
    """

    processed: int = 0
    moved_ms: int | None = None
    mark: int = 0
    mark_ms: int = 0
    rate: float = 0.0
    peak: float = 0.0


def observe(state: LinkState, sample: Sample, now: int, *, alpha: float) -> LinkState:
    """Take note of a sample; ``alpha`` is the weight of the newest window in the average."""
    if not sample.processed:
        return state
    replace = msgspec.structs.replace
    if state.moved_ms is None or sample.processed < state.processed:
        return replace(state, processed=sample.processed, moved_ms=now, mark=sample.processed, mark_ms=now)
    if sample.processed > state.processed:
        state = replace(state, processed=sample.processed, moved_ms=now)
    if now - state.mark_ms < WINDOW_MS:
        return state
    measured = (state.processed - state.mark) * 1000 / (now - state.mark_ms)
    rate = measured if state.rate == 0 else alpha * measured + (1 - alpha) * state.rate
    peak = max(rate, state.peak * PEAK_DECAY)
    return replace(state, rate=rate, peak=peak, mark=state.processed, mark_ms=now)


def quiet_ms(state: LinkState, now: int) -> int:
    """For how long nothing came; 0 before the first byte."""
    return 0 if state.moved_ms is None else now - state.moved_ms


def healthy(state: LinkState, now: int) -> bool:
    """Bytes came just now, and not much fewer than this migration has seen."""
    if state.moved_ms is None or quiet_ms(state, now) > HEALTHY_MS:
        return False
    return state.rate * 2 >= state.peak
