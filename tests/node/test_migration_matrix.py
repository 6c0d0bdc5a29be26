# SPDX-License-Identifier: Apache-2.0
"""The failure matrix: whatever dies, and when, one guest runs in the end, or a report says why not."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from agent_world import eventually, leftovers, qemu_pid
from agent_world import phase as phase_of
from migration_matrix import (
    NAME,
    Subject,
    cause,
    command,
    frozen,
    kill_agent,
    kill_libvirtd,
    kill_qemu,
    mode,
    phase,
)
from migration_rows import World

from launcher.errors import WrongPhase
from launcher.lab.node import Node

pytestmark = [pytest.mark.node, pytest.mark.slow]

Kill = Callable[[Node], None]
DAEMONS: dict[str, tuple[str, Kill]] = {
    "source-agent": ("source", kill_agent),
    "target-agent": ("target", kill_agent),
    "source-libvirtd": ("source", kill_libvirtd),
    "target-libvirtd": ("target", kill_libvirtd),
}
AGENTS = ("source-agent", "target-agent")


@pytest.fixture(scope="module")
def world(needs_nodes: None) -> Iterator[World]:
    with World() as made:
        yield made


@pytest.fixture
def subject(world: World, request: pytest.FixtureRequest) -> Iterator[Subject]:
    with world.row(request.node) as made:
        yield made


def strike(subject: Subject, victim: str) -> None:
    side, kill = DAEMONS[victim]
    kill(subject.source if side == "source" else subject.target)


def free(subject: Subject) -> None:
    """The wire carries all it can again."""
    subject.target.rate(None)


@pytest.mark.parametrize("victim", DAEMONS)
def test_a_daemon_dies_while_the_target_prepares(subject: Subject, victim: str) -> None:
    with frozen(subject.target.agent_pid):
        name = subject.begin()
        subject.until(name, lambda m: phase(m) == "PreparingTarget")
        free(subject)
        strike(subject, victim)
    end = subject.settled(name)
    assert end.report.succeeded or cause(end) in {"target-unreachable", "source-unable", "refused"}
    if victim == "source-agent":
        assert end.report.succeeded, end.report.reason


@pytest.mark.parametrize("victim", DAEMONS)
def test_a_daemon_dies_in_pre_copy(subject: Subject, victim: str) -> None:
    name = subject.begin()
    subject.until_data(name)
    strike(subject, victim)
    free(subject)
    end = subject.settled(name)
    assert end.report.succeeded, end.report.reason
    earlier = [report.reason for report in end.report.earlier]
    if victim in AGENTS:
        assert earlier == [], "no migration depends on the life of an agent"
    else:
        assert len(earlier) == 1, "it was interrupted, and tried again"


@pytest.mark.parametrize("victim", [*DAEMONS, "nobody"])
def test_a_daemon_dies_while_the_guest_is_handed_over(subject: Subject, victim: str) -> None:
    """The target's libvirtd stands still: memory is over there, and nobody said yet who goes on."""
    name = subject.begin()
    subject.until_data(name)
    with frozen(subject.target.libvirtd_pid):
        free(subject)
        eventually("the guest is stopped for the switch", lambda: stopped(subject.source))
        if victim != "nobody":
            strike(subject, victim)
    end = subject.settled(name)
    if victim in (*AGENTS, "nobody"):
        assert end.report.succeeded, end.report.reason


def test_a_target_that_stands_still_for_too_long_does_not_run_a_second_copy(subject: Subject) -> None:
    """libvirt's own keep-alive gives the target up after 30 s and resumes the source."""
    name = subject.begin()
    subject.until_data(name)
    with frozen(subject.target.libvirtd_pid):
        free(subject)
        eventually("the guest is stopped for the switch", lambda: stopped(subject.source))
        end = subject.ended(name)
        assert not end.report.succeeded
        eventually("the copy is fenced", lambda: not qemu_pid(subject.target, NAME))
    subject.settled(name)


def stopped(node: Node) -> bool:
    return node.run("virsh", "domstate", f"default_{NAME}", "--reason").strip() == "paused (migrating)"


@pytest.mark.parametrize("victim", DAEMONS)
def test_a_daemon_dies_in_post_copy(subject: Subject, victim: str) -> None:
    name = subject.begin(post_copy=True)
    subject.until_post_copy(name)
    strike(subject, victim)
    free(subject)
    end = subject.settled(name)
    assert end.report.succeeded, end.report.reason
    assert end.report.post_copy


def test_a_target_libvirtd_that_dies_in_the_moment_of_the_switch_to_post_copy_is_told(
    subject: Subject,
) -> None:
    """libvirt ends an incoming guest that was not told to run when it is started again: the guest is lost."""
    name = subject.begin(post_copy=True, after_s=14)
    subject.until_data(name)
    with frozen(subject.target.libvirtd_pid):
        subject.until(name, lambda m: mode(m) == "PostCopy")
        strike(subject, "target-libvirtd")
    end = subject.ended(name)
    assert not end.report.succeeded
    assert cause(end) in {"post-copy-failed", "guest-ended", "lost"}
    subject.lost()


@pytest.mark.parametrize("victim", ["source-agent", "source-libvirtd"])
def test_a_daemon_dies_while_the_migration_waits_for_its_turn(subject: Subject, victim: str) -> None:
    with frozen(subject.target.agent_pid):
        blocker = subject.begin()
        subject.until(blocker, lambda m: phase(m) == "PreparingTarget")
        other = subject.second()
        subject.until(other, lambda m: phase(m) == "Pending")
        strike(subject, victim)
        subject.until(other, lambda m: phase(m) == "Pending")
    free(subject)
    agent = subject.agents[subject.home]
    agent.migrations.cancel(other, namespace="default")
    assert cause(subject.ended(other)) == "cancelled"
    subject.drop_second()
    subject.settled(blocker)


@pytest.mark.parametrize("side", ["source", "target"])
def test_a_qemu_dies_in_pre_copy(subject: Subject, side: str) -> None:
    name = subject.begin()
    subject.until_data(name)
    kill_qemu(subject.source if side == "source" else subject.target)
    if side == "target":
        assert cause(subject.settled(name)) == "hypervisor"
        return
    assert cause(subject.ended(name)) == "guest-ended"
    agent = subject.agents[subject.home]
    eventually("it is known", lambda: phase_of(agent.instances.get(NAME, namespace="default")) == "Failed")
    subject.lost()


@pytest.mark.parametrize("side", ["source", "target"])
def test_a_qemu_dies_while_the_guest_is_handed_over(subject: Subject, side: str) -> None:
    name = subject.begin()
    subject.until_data(name)
    with frozen(subject.target.libvirtd_pid):
        free(subject)
        eventually("the guest is stopped for the switch", lambda: stopped(subject.source))
        kill_qemu(subject.source if side == "source" else subject.target)
    end = subject.ended(name)
    if side == "target" or end.report.succeeded:
        subject.settled(name)
        return
    assert cause(end) in {"guest-ended", "lost"}
    subject.lost()


@pytest.mark.parametrize("side", ["source", "target"])
def test_a_qemu_dies_in_post_copy(subject: Subject, side: str) -> None:
    name = subject.begin(post_copy=True)
    subject.until_post_copy(name)
    kill_qemu(subject.source if side == "source" else subject.target)
    end = subject.ended(name)
    assert cause(end) == "lost", end.report.reason
    assert f"QEMU ended on the {side}" in end.report.reason
    assert "crash-consistent" in end.report.reason
    assert [qemu_pid(node, NAME) for node in subject.nodes.values()] == ["", ""], "neither half is left"
    agent = subject.agents[subject.home]
    eventually("it failed", lambda: phase_of(agent.instances.get(NAME, namespace="default")) == "Failed")
    assert agent.instances.get(NAME, namespace="default")["status"]["reason"] == "PostcopyFailed"
    subject.clean(subject.away)
    subject.lost()


def test_a_slow_link_is_waited_for(subject: Subject) -> None:
    name = subject.begin()
    subject.until_data(name)
    subject.target.rate(2)
    subject.until(name, lambda m: m.progress.elapsed_seconds > 20)
    assert len(subject.until(name, lambda m: True).report.steps) == 0
    free(subject)
    assert subject.settled(name).report.succeeded


def test_a_link_that_is_cut_in_pre_copy_leaves_the_guest(subject: Subject) -> None:
    name = subject.begin()
    subject.until_data(name)
    subject.target.set_link(False)
    end = subject.ended(name, timeout_s=200)
    assert cause(end) == "link"
    subject.target.set_link(True)
    subject.settled(name)


def test_a_slow_link_in_post_copy_is_waited_for(subject: Subject) -> None:
    name = subject.begin(post_copy=True)
    subject.until_post_copy(name)
    subject.target.rate(2)
    began = subject.until(name, lambda m: True).progress.elapsed_seconds
    subject.until(name, lambda m: m.progress.elapsed_seconds > began + 15)
    free(subject)
    assert subject.settled(name).report.succeeded


def test_a_link_that_is_cut_in_post_copy_is_mended(subject: Subject) -> None:
    name = subject.begin(post_copy=True)
    subject.until_post_copy(name)
    subject.target.set_link(False)
    subject.until(name, lambda m: "PostCopyInterrupted" in str(m.object), timeout_s=120)
    free(subject)
    subject.target.set_link(True)
    end = subject.settled(name)
    assert end.report.succeeded, end.report.reason


def test_cancel_while_the_target_prepares(subject: Subject) -> None:
    with frozen(subject.target.agent_pid):
        name = subject.begin()
        subject.until(name, lambda m: phase(m) == "PreparingTarget")
        subject.agents[subject.home].migrations.cancel(name, namespace="default")
    assert cause(subject.settled(name)) == "cancelled"


def test_cancel_in_pre_copy(subject: Subject) -> None:
    name = subject.begin()
    subject.until_data(name)
    subject.agents[subject.home].migrations.cancel(name, namespace="default")
    assert cause(subject.settled(name)) == "cancelled"


def test_cancel_while_the_guest_is_handed_over_has_an_outcome(subject: Subject) -> None:
    name = subject.begin()
    subject.until_data(name)
    with frozen(subject.target.libvirtd_pid):
        free(subject)
        eventually("the guest is stopped for the switch", lambda: stopped(subject.source))
        subject.agents[subject.home].migrations.cancel(name, namespace="default")
    end = subject.settled(name)
    if end.report.succeeded:
        assert "came too late" in end.report.reason


def test_cancel_in_post_copy_is_too_late(subject: Subject) -> None:
    name = subject.begin(post_copy=True)
    subject.until_post_copy(name)
    source = subject.agents[subject.home]
    source.migrations.cancel(name, namespace="default")
    assert mode(subject.until(name, lambda m: True)) == "PostCopy"
    free(subject)
    end = subject.settled(name)
    assert end.report.succeeded
    assert "came too late" in end.report.reason
    with pytest.raises(WrongPhase, match="ended"):
        source.migrations.cancel(name, namespace="default")


def test_cancel_after_the_agent_restarted(subject: Subject) -> None:
    name = subject.begin()
    subject.until_data(name)
    kill_agent(subject.source)
    subject.agents[subject.home].migrations.cancel(name, namespace="default")
    assert cause(subject.settled(name)) == "cancelled"


def test_a_guest_that_is_shut_down_ends_the_migration_and_stays_down(subject: Subject) -> None:
    name = subject.begin()
    subject.until_data(name)
    command(subject.source, "system_powerdown")
    assert cause(subject.ended(name)) == "guest-ended"
    agent = subject.agents[subject.home]
    over = {"Succeeded", "Failed"}
    eventually("it is known", lambda: phase_of(agent.instances.get(NAME, namespace="default")) in over)
    subject.lost()


def test_a_guest_that_is_reset_is_migrated_all_the_same(subject: Subject) -> None:
    name = subject.begin()
    subject.until_data(name)
    subject.check()
    command(subject.source, "system_reset")
    free(subject)
    end = subject.ended(name)
    assert end.report.succeeded, end.report.reason
    assert phase_of(subject.agents[subject.away].instances.get(NAME, namespace="default")) == "Running"
    subject.forget()


def test_a_source_that_loses_everything_leaves_nothing_on_the_target(subject: Subject) -> None:
    """As if its host had crashed and come back."""
    name = subject.begin()
    subject.until_data(name)
    source = subject.source
    source.stop_agent(9)
    source.stop_libvirtd(9)
    kill_qemu(source)
    source.start_libvirtd()
    source.start_agent()
    free(subject)
    assert cause(subject.ended(name)) in {"guest-ended", "lost"}
    eventually("the target is clean", lambda: leftovers(subject.target) == [], timeout_s=180)
    subject.lost()
