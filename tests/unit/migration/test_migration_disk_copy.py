# SPDX-License-Identifier: Apache-2.0
"""Disks that are copied under their guest: a model of libvirt in which anything may die at any moment."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from launcher.migration.cause import Cause
from launcher.migration.copy_clock import CopyClock, overdue
from launcher.migration.disk_copy import (
    MOST_BEGINS,
    MOST_PIVOTS,
    Begin,
    DiskCopy,
    Drop,
    Pivot,
    Seen,
    begun,
    failed,
    next_step,
    pivoting,
)
from launcher.migration.options import Options
from launcher.units import GIB

ONE = DiskCopy(volume="one", target="vda", source="/old/one", destination="/new/one", bytes=10)
TWO = DiskCopy(volume="two", target="vdb", source="/old/two", destination="/new/two", bytes=10)
STAYS = {"one": Seen(source="/old/one"), "two": Seen(source="/old/two")}


def copied(name: str, ready: str = "") -> Seen:
    return Seen(source=f"/old/{name}", copy_to=f"/new/{name}", copy_ready=ready)


def test_all_are_copied_before_the_first_is_pivoted() -> None:
    copies: tuple[DiskCopy, ...] = (ONE, TWO)
    now = next_step(copies, STAYS)
    assert now.action == Begin(ONE)
    copies = begun(now.copies, ONE)
    seen = {**STAYS, "one": copied("one", "yes")}
    now = next_step(copies, seen, issued=frozenset({"one"}))
    assert now.action == Begin(TWO)
    copies = begun(now.copies, TWO)
    seen = {"one": copied("one", "yes"), "two": copied("two")}
    assert next_step(copies, seen).action is None
    seen["two"] = copied("two", "yes")
    assert isinstance(next_step(copies, seen).action, Pivot)
    copies = pivoting(copies, copies[0])
    seen["one"] = Seen(source="/new/one")
    now = next_step(copies, seen, give_up="cancelled")
    assert isinstance(now.action, Pivot), "it is too late to cancel"
    assert now.action.copy.volume == "two"
    seen["two"] = Seen(source="/new/two")
    now = next_step(pivoting(now.copies, now.action.copy), seen)
    assert now.ended
    assert [copy.state for copy in now.copies] == ["moved", "moved"]


def test_what_was_begun_by_an_agent_that_died_is_begun_again_but_not_for_ever() -> None:
    copies = begun((ONE,), ONE)
    now = next_step(copies, STAYS)
    assert now.action == Begin(replace(ONE, begins=1))
    lost = next_step(copies, STAYS, issued=frozenset({"one"}))
    assert lost.ended
    assert lost.copies[0].why
    for _ in range(MOST_BEGINS - 1):
        copies = begun(now.copies, now.copies[0])
        now = next_step(copies, STAYS)
    assert now.ended


def test_one_that_fails_ends_the_others_and_a_cancel_ends_all() -> None:
    copies = begun(begun((ONE, TWO), ONE), TWO)
    seen = {"one": copied("one"), "two": copied("two")}
    now = next_step(copies, seen, give_up="cancelled")
    assert isinstance(now.action, Drop)
    seen["one"] = copied("one", "abort")
    assert next_step(copies, seen, give_up="cancelled").action is None, "it ends already"
    gone = {"one": Seen(source="/old/one"), "two": copied("two")}
    now = next_step(failed(copies, copies[0], "no room"), gone)
    assert isinstance(now.action, Drop)
    assert now.action.copy.volume == "two"
    now = next_step(now.copies, STAYS)
    assert now.ended
    assert {copy.why for copy in now.copies} == {"no room"}


def test_a_pivot_that_did_not_happen_leaves_the_disk_where_it_is() -> None:
    copies = pivoting(begun((ONE,), ONE), begun((ONE,), ONE)[0])
    now = next_step(copies, STAYS)
    assert now.ended
    assert now.copies[0].state == "left"
    assert next_step(copies, {"one": copied("one", "pivot")}).action is None, "it is being pivoted"
    strange = next_step((ONE,), {"one": Seen(source="/old/one", copy_to="/else")})
    assert strange.ended
    assert "by somebody else" in strange.copies[0].why
    assert next_step((ONE,), {"one": Seen(source="/third")}).ended
    # It happened after all, when it had been given up: the guest writes there.
    late = next_step(now.copies, {"one": Seen(source="/new/one")})
    assert (late.ended, late.copies[0].state, late.copies[0].why) == (True, "moved", "")
    assert next_step((ONE,), {}).ended


def test_a_pivot_that_was_given_up_and_happens_all_the_same_is_seen() -> None:
    """The guest writes there: what libvirt shows counts, whatever was decided before it was over."""
    copies = begun((ONE,), ONE)
    for _ in range(MOST_PIVOTS):
        copies = pivoting(copies, copies[0])
    now = next_step(copies, {"one": copied("one", "yes")})
    assert isinstance(now.action, Drop), "the calls hang"
    now = next_step(now.copies, {"one": Seen(source="/new/one")})
    assert now.ended
    assert (now.copies[0].state, now.copies[0].why) == ("moved", "")


@dataclass
class Model:
    """libvirt, the record, and an agent that may be killed before and after each thing that it does."""

    copies: tuple[DiskCopy, ...] = (ONE, TWO)
    seen: dict[str, Seen] = field(default_factory=lambda: dict(STAYS))
    issued: set[str] = field(default_factory=set)
    pivots: dict[str, int] = field(default_factory=dict)

    def step(self, *, die: str, give_up: str) -> bool:
        now = next_step(self.copies, self.seen, give_up=give_up, issued=frozenset(self.issued))
        self.copies = now.copies
        if now.ended:
            return True
        match now.action:
            case Begin(copy=copy):
                self.copies = begun(self.copies, copy)
                if die != "before":
                    assert not self.seen[copy.volume].copy_to
                    assert self.seen[copy.volume].source == copy.source
                    self.seen[copy.volume] = copied(copy.volume)
                    self.issued.add(copy.volume)
            case Pivot(copy=copy):
                self.copies = pivoting(self.copies, copy)
                if die != "before":
                    assert self.seen[copy.volume].copy_ready == "yes"
                    self.pivots[copy.volume] = self.pivots.get(copy.volume, 0) + 1
                    self.seen[copy.volume] = Seen(source=copy.destination)
            case Drop(copy=copy):
                if die != "before":
                    self.seen[copy.volume] = Seen(source=copy.source)
            case None:
                for name, disk in self.seen.items():
                    if disk.copy_to:
                        self.seen[name] = copied(name, "yes")
        if die:
            self.issued.clear()
        return False


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["", "", "before", "after"]), st.booleans()), max_size=30))
def test_no_disk_is_pivoted_twice_and_all_end_in_one_place(events: list[tuple[str, bool]]) -> None:
    world, give_up, ended = Model(), "", False
    for die, cancel in events:
        give_up = give_up or ("cancelled" if cancel and not world.pivots else "")
        ended = world.step(die=die, give_up=give_up)
        if ended:
            break
    for _ in range(20):
        if ended:
            break
        ended = world.step(die="", give_up=give_up)
    assert ended
    assert all(count == 1 for count in world.pivots.values())
    for copy in world.copies:
        where = world.seen[copy.volume]
        assert not where.copy_to, "no job is left behind"
        assert where.source == (copy.destination if copy.state == "moved" else copy.source)
    if not any(die for die, _ in events):
        assert len(world.pivots) in (0, 2)


def test_the_clock_of_disks() -> None:
    options = Options(completion_timeout_per_gib_s=10, progress_timeout_s=5)
    clock = CopyClock(total=2 * GIB + 1)
    assert overdue(clock, options, began=0.0, now=30.0) == (Cause.NONE, "")
    assert overdue(clock, options, began=0.0, now=30.5)[0] is Cause.COMPLETION_TIMEOUT
    clock = clock.looked(done=0, rest=GIB, now=1.0).looked(done=GIB // 2, rest=GIB // 2, now=2.0)
    shown = clock.progress("Running", 2.0)
    assert (shown.disk_remaining, shown.bandwidth_bps, shown.eta_s) == (GIB // 2, GIB // 2, 1.0)
    idle = clock.looked(done=GIB // 2, rest=GIB // 2, now=6.0)
    assert overdue(idle, options, began=0.0, now=7.0) == (Cause.NONE, "")
    assert overdue(idle, options, began=0.0, now=7.5)[0] is Cause.PROGRESS_TIMEOUT
    whole = clock.looked(done=GIB, rest=0, now=8.0).looked(done=GIB, rest=0, now=20.0)
    assert overdue(whole, options, began=0.0, now=21.0) == (Cause.NONE, ""), "it waits for the others"
    never = Options(completion_timeout_per_gib_s=0, progress_timeout_s=0)
    assert overdue(idle, never, began=0.0, now=1e9) == (Cause.NONE, "")
