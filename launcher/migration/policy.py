# SPDX-License-Identifier: Apache-2.0
"""The contract between a convergence policy and whoever drives it. Pure: no I/O, clock or logging.

The driver (``source.py``, ``simulator.py``, a replay, a test) feeds samples in the order they were taken and
performs the actions that come back; after each action it says with ``settle`` whether it worked. The
first sample is taken at t = 0 before the migrate call, so that what a policy sets at once is in force
from the first byte. State is a frozen value: it can be written down and resumed by another process.

    driver                                     policy
      |-- step(state, sample at t=0) ------------>|
      |<---------- SetMaxDowntime(150) -----------|   performed, then
      |-- settle(state, Outcome(ok)) ------------>|
      |== migrate ==                              |
      |-- step(state, sample) ------------------->|   every poll and every pass
"""

from __future__ import annotations

from typing import Generic, Protocol, TypeVar

import msgspec

from launcher.migration.cause import Cause
from launcher.migration.sample import Sample


class SetMaxDowntime(msgspec.Struct, frozen=True, kw_only=True, tag="SetMaxDowntime"):
    """Let the hypervisor stop the guest for at most ``ms`` at the switchover."""

    ms: int
    reason: str


class StartPostCopy(msgspec.Struct, frozen=True, kw_only=True, tag="StartPostCopy"):
    """Run the guest on the target now; it has begun only when a sample says so."""

    reason: str


class PauseGuest(msgspec.Struct, frozen=True, kw_only=True, tag="PauseGuest"):
    """Stop the guest on the source so that memory no longer changes; the driver undoes it on failure."""

    reason: str


class BreakPostCopy(msgspec.Struct, frozen=True, kw_only=True, tag="BreakPostCopy"):
    """Cut a post-copy whose link is dead, so that both halves wait for a new one; see ``recovery``."""

    reason: str


class Abort(msgspec.Struct, frozen=True, kw_only=True, tag="Abort"):
    """Give up; the guest stays on the source."""

    reason: str
    cause: Cause = Cause.ABORTED


Action = SetMaxDowntime | StartPostCopy | PauseGuest | BreakPostCopy | Abort


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """An action as performed at ``t`` (seconds since the job began); ``error`` empty: it worked."""

    action: Action
    t: float
    error: str = ""

    @property
    def ok(self) -> bool:
        """The action worked."""
        return not self.error


S = TypeVar("S")


class Decision(msgspec.Struct, Generic[S], frozen=True, kw_only=True):
    """What to do now and the state from here on; ``label`` names a detector's verdict, if it made one."""

    state: S
    actions: tuple[Action, ...] = ()
    label: str = ""


class Policy(Protocol[S]):
    """Rules of convergence. The object itself is immutable: all that changes is in the state."""

    @property
    def name(self) -> str:
        """By which ``compose.make_policy`` finds it again after a restart."""

    def initial(self) -> S:
        """The state before the first sample."""

    def step(self, state: S, sample: Sample) -> Decision[S]:
        """Judge one sample."""

    def settle(self, state: S, outcome: Outcome) -> S:
        """Take note of how an action went."""

    def encode(self, state: S) -> str:
        """The state as text."""

    def decode(self, text: str) -> S:
        """The state from ``encode``; ``msgspec.DecodeError`` when the text is of another policy."""
