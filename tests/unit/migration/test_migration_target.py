# SPDX-License-Identifier: Apache-2.0
"""The receiving side: reservations, leases, and who is told what."""

from __future__ import annotations

import asyncio

import pytest
from migration_stage import Stage
from migration_world import UUID, World, run

from launcher.errors import Exhausted, HypervisorUnavailable, StorageError
from launcher.hypervisor.port import DomainRecord, DomainState
from launcher.migration.peer import PrepareRequest
from launcher.migration.ports import PortPool
from launcher.migration.reservation import IncomingRecord, Landing, Reservation, tcp_endpoints
from launcher.migration.target import LEASE_S, REMEMBER_S, TargetSide


def request(attempt: str = "attempt-1", source: str = "a") -> PrepareRequest:
    return PrepareRequest(attempt=attempt, source_node=source, vmi="{}", domain_xml="<domain/>")


def domain(state: DomainState, reason: str) -> DomainRecord:
    return DomainRecord(uuid=UUID, name="default_vm", state=state, reason=reason, persistent=True)


RUNNING = domain(DomainState.RUNNING, "migrated")
INCOMING = domain(DomainState.PAUSED, "migration")


def test_prepare_reserves_once_however_often_it_is_asked() -> None:
    stage = Stage(World())

    async def scenario() -> None:
        first = await stage.target.prepare(request())
        again = await stage.target.prepare(request())
        assert first == again
        assert (first.findings, first.node, first.migrate_uri) == ((), "b", "tcp://10.0.0.2:49152")
        assert first.lease_s == LEASE_S

    run(scenario())
    assert stage.hooks.reserved == 1


def test_another_sources_attempt_for_the_same_guest_is_refused() -> None:
    stage = Stage(World())

    async def scenario() -> None:
        await stage.target.prepare(request("one"))
        reply = await stage.target.prepare(request("two", "c"))
        assert reply.findings == ("the guest is the subject of another incoming migration (one)",)

    run(scenario())


def test_a_new_attempt_of_the_same_source_takes_the_place_of_one_whose_end_was_not_heard() -> None:
    stage = Stage(World())

    async def scenario() -> None:
        await stage.target.prepare(request("one"))
        stage.world.target = INCOMING
        assert (await stage.target.prepare(request("two"))).findings == ()
        assert stage.world.target is None
        assert not (await stage.target.state("one")).domain

    run(scenario())
    assert (stage.hooks.reserved, stage.hooks.released) == (2, 1)


def test_what_arrived_is_not_taken_for_a_leftover() -> None:
    stage = Stage(World())

    async def scenario() -> None:
        await stage.target.prepare(request("one"))
        stage.world.source, stage.world.target = None, RUNNING
        assert (await stage.target.prepare(request("two"))).findings
        assert stage.world.target is RUNNING

    run(scenario())
    assert stage.hooks.released == 0


def test_a_full_node_says_that_it_is_busy_and_takes_the_next_when_it_is_not() -> None:
    stage = Stage(World())
    stage.hooks.uuids = {"one": "u1", "two": "u2", "three": UUID}

    async def scenario() -> None:
        for attempt in ("one", "two"):
            assert (await stage.target.prepare(request(attempt, attempt))).findings == ()
        reply = await stage.target.prepare(request("three"))
        assert (reply.busy, len(reply.findings)) == (True, 1)
        await stage.target.finish("one", succeeded=False)
        assert not (await stage.target.prepare(request("three"))).busy

    run(scenario())


def test_two_attempts_at_the_same_moment_do_not_both_get_in() -> None:
    stage = Stage(World())

    async def scenario() -> None:
        replies = await asyncio.gather(*(stage.target.prepare(request(a, a)) for a in ("one", "two")))
        assert sorted(bool(reply.findings) for reply in replies) == [False, True]

    run(scenario())


def test_a_failing_reservation_is_a_finding_and_is_undone() -> None:
    stage = Stage(World())
    stage.hooks.fail = StorageError("root", "no space left")

    async def scenario() -> None:
        reply = await stage.target.prepare(request())
        assert "no space left" in reply.findings[0]
        stage.hooks.fail = None
        assert (await stage.target.prepare(request())).findings == ()

    run(scenario())
    assert (stage.hooks.reserved, stage.hooks.released) == (1, 1)


def test_a_reservation_that_takes_too_long_is_given_up() -> None:
    stage = Stage(World())
    stage.hooks.slow_s = 3600

    async def scenario() -> None:
        reply = await stage.target.prepare(request())
        assert "longer than 14 s" in reply.findings[0]

    run(scenario())
    assert stage.hooks.released == 1


@pytest.mark.parametrize("succeeded", [True, False])
def test_a_guest_that_runs_here_is_adopted_whatever_the_source_thinks(succeeded: bool) -> None:
    stage = Stage(World())

    async def scenario() -> None:
        await stage.target.prepare(request())
        stage.world.source = None
        stage.world.put("target", RUNNING)
        for _ in range(2):
            state = await stage.target.finish("attempt-1", succeeded=succeeded)
            assert (state.adopted, state.domain) == (True, "running")

    run(scenario())
    assert (stage.hooks.adopted, stage.hooks.released, stage.world.running) == (1, 0, ["target"])


def test_a_guest_that_its_source_has_is_ended_here_even_if_it_was_adopted() -> None:
    stage = Stage(World())
    stage.world.expendable.add("target")

    async def scenario() -> None:
        await stage.target.prepare(request())
        stage.world.put("target", RUNNING)
        await stage.target.arrived(UUID)
        assert stage.hooks.adopted == 1
        for _ in range(2):
            state = await stage.target.finish("attempt-1", succeeded=False, reclaim=True)
            assert (state.known, state.domain) == (True, "")

    run(scenario())
    assert (stage.world.running, stage.hooks.released) == (["source"], 1)


def test_a_reclaimed_guest_does_not_live_when_libvirt_answers_again() -> None:
    """The target's libvirtd stood still at the switch: the source's resumed the guest without its answer."""
    stage = Stage(World())
    stage.world.expendable.add("target")

    async def scenario() -> None:
        await stage.target.prepare(request())
        stage.world.errors["target.domain"] = [HypervisorUnavailable("it stands still")]
        with pytest.raises(HypervisorUnavailable):
            await stage.target.finish("attempt-1", succeeded=False, reclaim=True)
        assert stage.hooks.fenced == 1
        assert stage.incoming.kept["attempt-1"].reclaimed, "also after a restart of this agent"
        stage.world.put("target", RUNNING)
        await stage.target.arrived(UUID)

    run(scenario())
    assert (stage.hooks.adopted, stage.hooks.released, stage.world.running) == (0, 1, ["source"])


def test_a_domain_that_did_not_come_over_is_not_ended() -> None:
    stage = Stage(World())

    async def scenario() -> None:
        await stage.target.prepare(request())
        stage.world.put("target", domain(DomainState.PAUSED, "user"))
        state = await stage.target.finish("attempt-1", succeeded=False, reclaim=True)
        assert state.domain == "paused"

    run(scenario())
    assert stage.hooks.released == 0


def test_an_incoming_domain_ends_only_when_the_source_says_so() -> None:
    stage = Stage(World())

    async def scenario() -> None:
        await stage.target.prepare(request())
        stage.world.put("target", INCOMING)
        waiting = await stage.target.finish("attempt-1", succeeded=True)
        assert (waiting.domain, waiting.adopted) == ("paused", False)
        gone = await stage.target.finish("attempt-1", succeeded=False)
        assert (gone.known, gone.domain) == (True, "")
        # The source may ask again and still gets proof.
        assert (await stage.target.state("attempt-1")).known

    run(scenario())
    assert (stage.world.target, stage.hooks.released) == (None, 1)


def test_a_domain_in_post_copy_is_neither_adopted_nor_ended() -> None:
    stage = Stage(World())

    async def scenario() -> None:
        await stage.target.prepare(request())
        stage.world.source = None
        stage.world.put("target", domain(DomainState.RUNNING, "post-copy-failed"))
        state = await stage.target.finish("attempt-1", succeeded=False)
        assert (state.reason, state.adopted) == ("post-copy-failed", False)

    run(scenario())
    assert (stage.hooks.adopted, stage.hooks.released) == (0, 0)


def test_an_unknown_attempt_is_said_to_be_unknown() -> None:
    stage = Stage(World())

    async def scenario() -> None:
        assert not (await stage.target.state("other")).known
        assert not (await stage.target.finish("other", succeeded=False)).known

    run(scenario())


@pytest.mark.parametrize(
    ("seen", "adopted", "released"),
    [(None, 0, 1), (RUNNING, 1, 0), (INCOMING, 0, 0)],
    ids=["never came", "arrived", "still loading"],
)
def test_a_lease_that_runs_out_is_settled_by_what_is_there(
    seen: DomainRecord | None, adopted: int, released: int
) -> None:
    stage = Stage(World())

    async def scenario() -> None:
        await stage.target.prepare(request())
        stage.world.source = None
        stage.world.put("target", seen)
        await stage.target.sweep()
        assert (stage.hooks.adopted, stage.hooks.released) == (0, 0), "the lease still holds"
        await asyncio.sleep(LEASE_S + 1)
        await stage.target.sweep()
        assert (stage.hooks.adopted, stage.hooks.released) == (adopted, released)

    run(scenario())


def test_a_restarted_target_knows_its_attempts_and_forgets_them_in_time() -> None:
    stage = Stage(World())

    async def scenario() -> TargetSide:
        await stage.target.prepare(request())
        restarted = stage.make_target()
        restarted.restore(tuple(stage.incoming.kept.values()))
        assert (await restarted.prepare(request())).migrate_uri == "tcp://10.0.0.2:49152"
        await restarted.finish("attempt-1", succeeded=False)
        await asyncio.sleep(REMEMBER_S + 1)
        await restarted.sweep()
        return restarted

    assert run(scenario()).records == ()
    assert (stage.hooks.reserved, stage.hooks.released, stage.incoming.kept) == (1, 1, {})


def test_only_so_many_come_in_at_a_time() -> None:
    stage = Stage(World())

    async def scenario() -> None:
        stage.hooks.identify = lambda request: _uuid(request.attempt)  # type: ignore[method-assign]
        replies = [await stage.target.prepare(request(attempt)) for attempt in ("1", "2", "3")]
        assert [bool(reply.findings) for reply in replies] == [False, False, True]
        assert "2 incoming migrations" in replies[2].findings[0]

    async def _uuid(attempt: str) -> str:
        return attempt

    run(scenario())


def test_ports_are_held_released_and_never_shared() -> None:
    taken = {50001}
    pool = PortPool(50000, 50002, lambda port: port not in taken)
    assert (pool.allocate("a"), pool.allocate("a"), pool.allocate("b")) == (50000, 50000, 50002)
    with pytest.raises(Exhausted, match="50000-50002"):
        pool.allocate("c")
    pool.release("a")
    assert pool.allocate("c") == 50000
    pool.release("nobody")
    assert pool.held("a") is None


def test_a_restarted_target_gives_neither_port_of_an_attempt_to_another() -> None:
    """Nobody listens there yet; that QEMU does in a moment is only known from what was written down."""
    stage = Stage(World())

    async def scenario() -> None:
        landing = Landing(address="10.0.0.2", disks_port=49153)
        kept = IncomingRecord(
            attempt="one",
            source_node="a",
            uuid="other",
            port=49152,
            expires=stage.clock.monotonic() + LEASE_S,
            reservation=Reservation(uuid="other", landing=landing),
        )
        stage.target.restore([kept])
        (finding,) = (await stage.target.prepare(request("two"))).findings
        assert "no free port" in finding

    run(scenario())


def test_a_released_port_rests_while_others_are_free() -> None:
    pool = PortPool(50000, 50002, lambda _port: True)
    first = pool.allocate("a")
    pool.release("a")
    assert pool.allocate("b") != first


@pytest.mark.parametrize(
    ("address", "uri"), [("10.0.0.2", "tcp://10.0.0.2:1"), ("fd00::2", "tcp://[fd00::2]:1")]
)
def test_endpoints_write_addresses_as_uris(address: str, uri: str) -> None:
    assert tcp_endpoints("qemu+tls://b/system", address)("x", 1, Landing()).migrate_uri == uri
