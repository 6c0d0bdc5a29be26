# SPDX-License-Identifier: Apache-2.0
"""What of a running guest can change, what its record says then, and how its domain gets there."""

from __future__ import annotations

from typing import Any

import pytest
from agent_nodes import PAGE, accepted, live, manifest, node, site
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from launcher.agent import reconcile as do
from launcher.agent.draft import Site, draft
from launcher.agent.hotplug import (
    TRIES,
    Attempts,
    Hardware,
    PlugMemory,
    PlugVCPUs,
    current_memory,
    memory_step,
    requested_memory,
    vcpus_step,
)
from launcher.agent.ledger import Holding, Pages, holding
from launcher.agent.port import Companions
from launcher.agent.records import InstanceRecord, Moment
from launcher.agent.status import show
from launcher.agent.update import updated
from launcher.domain.devices.memory import memory_device
from launcher.domain.read import DomainView, MemoryDeviceView
from launcher.errors import Conflict, Exhausted, InvalidSpec, WrongPhase
from launcher.hypervisor.port import DomainRecord, DomainState
from launcher.plan.devices.model import PciAddress
from launcher.plan.model import VCPUPin
from launcher.spec.load import load_vmi
from launcher.spec.model import Quantity
from launcher.units import GIB, MIB

GROWING = manifest()
RUNNING = DomainRecord(uuid="u", name="n", state=DomainState.RUNNING, reason="booted", persistent=True)
NOW = Moment(boot_id="boot-1", seconds=1000.0)


def change(record: InstanceRecord, text: str, where: Site | None = None, **more: Any) -> InstanceRecord:
    return updated(record, load_vmi(text), site=where or site(node()), **more)


def refused(record: InstanceRecord, text: str) -> dict[str, str]:
    """The paths that are refused, and why."""
    with pytest.raises(InvalidSpec) as caught:
        change(record, text)
    return {violation.field: violation.message for violation in caught.value.violations}


def sockets(number: int, **more: str) -> str:
    return manifest(cpu=f"{{sockets: {number}}}", **more)


# What is accepted


def test_sockets_and_memory_go_into_the_record_and_the_rest_stays() -> None:
    record = accepted(GROWING, site(node()))
    after = change(record, sockets(3, memory="{guest: 2Gi}"))
    assert after.plan.vcpus.current == 3
    assert after.plan.memory == record.plan.memory, "the size at boot stays what it was"
    assert after.manifest.spec.domain.memory is not None
    assert after.manifest.spec.domain.memory.guest == Quantity("2Gi")
    assert after.defaulted.spec.domain.cpu is not None
    assert after.defaulted.spec.domain.cpu.max_sockets == 4, "the room is that of the start"
    assert replace(after, manifest=record.manifest, defaulted=record.defaulted, plan=record.plan) == record


def test_nothing_new_changes_nothing_whatever_the_phase() -> None:
    record = replace(accepted(GROWING, site(node())), phase="Pending")
    assert change(record, GROWING) is record
    assert change(record, manifest(memory="{guest: 1024Mi}")) is record
    shown = show(record, None, node="n", now="t", before=None)
    assert updated(record, shown, site=site(node())) is record, "what is shown can be sent back"


def test_it_can_be_changed_again_and_memory_back_to_what_it_booted_with() -> None:
    record = change(accepted(GROWING, site(node())), sockets(2, memory="{guest: 4Gi}"))
    after = change(record, sockets(4, memory="{guest: 1Gi}"))
    assert (after.plan.vcpus.current, after.plan.vcpus.maximum) == (4, 4)


def test_requests_and_limits_go_along() -> None:
    more = "resources: {requests: {memory: 1Gi, cpu: 500m}, limits: {memory: 2Gi}}"
    record = accepted(manifest(more=more), site(node()))
    after = change(record, sockets(2, memory="{guest: 3Gi}", more=more))
    resources = after.manifest.spec.domain.resources
    assert resources is not None
    assert resources.requests == {"memory": Quantity("3Gi"), "cpu": Quantity("1500m")}
    assert resources.limits == {"memory": Quantity("4Gi")}
    adapted = "resources: {requests: {memory: 3Gi, cpu: 1500m}, limits: {memory: 4Gi}}"
    assert change(record, sockets(2, memory="{guest: 3Gi}", more=adapted)) == after
    other = "resources: {requests: {memory: 2Gi, cpu: 500m}, limits: {memory: 2Gi}}"
    assert set(refused(record, sockets(2, memory="{guest: 3Gi}", more=other))) == {
        "spec.domain.resources.requests.memory"
    }


def test_a_guest_sized_by_its_requests_is_changed_by_them() -> None:
    text = manifest(memory="{}", more="resources: {requests: {memory: %s}}")
    record = accepted(text % "1Gi", site(node()))
    after = change(record, text % "2Gi")
    assert after.defaulted.spec.domain.memory is not None
    assert after.defaulted.spec.domain.memory.guest == Quantity("2Gi")


# What is refused


@pytest.mark.parametrize(
    ("old", "new", "field", "why"),
    [
        ({}, {"cpu": "{sockets: 5}"}, "spec.domain.cpu.sockets", "must not exceed the 4"),
        ({"cpu": "{sockets: 2}"}, {}, "spec.domain.cpu.sockets", "must not be less than 2"),
        ({}, {"cpu": "{sockets: 1, cores: 2}"}, "spec.domain.cpu.cores", "cannot be changed"),
        ({}, {"cpu": "{sockets: 1, maxSockets: 9}"}, "spec.domain.cpu.maxSockets", "cannot be changed"),
        ({"cpu": "{cores: 1}"}, {"cpu": "{cores: 1, sockets: 2}"}, "spec.domain.cpu.sockets", "without room"),
        ({}, {"memory": "{guest: 5Gi}"}, "spec.domain.memory.guest", "must not exceed maxGuest"),
        ({}, {"memory": "{guest: 512Mi}"}, "spec.domain.memory.guest", "that it booted with"),
        ({}, {"memory": "{guest: 1025Mi}"}, "spec.domain.memory.guest", "multiples of 2Mi"),
        ({"memory": "{guest: 512Mi}"}, {}, "spec.domain.memory.guest", "without room"),
        ({}, {"memory": "{guest: 1Gi, maxGuest: 8Gi}"}, "spec.domain.memory.maxGuest", "cannot be changed"),
        ({}, {"memory": "{}"}, "spec.domain.memory.guest", "needs an amount"),
    ],
)
def test_what_cannot_be_is_refused_at_its_path(
    old: dict[str, str], new: dict[str, str], field: str, why: str
) -> None:
    record = accepted(manifest(**old), site(node()))
    found = refused(record, manifest(**new))
    assert list(found) == [field]
    assert why in found[field]


def test_everything_else_is_named_path_by_path() -> None:
    record = accepted(GROWING, site(node()))
    text = sockets(9, memory="{guest: 9Gi}", more="chassis: {manufacturer: Other}").replace(
        "metadata: {", "metadata: {labels: {a: b}, "
    )
    text = text.replace("spec:\n", "spec:\n  hostname: other\n  volumes: [{name: v, configMap: {name: c}}]\n")
    assert set(refused(record, text)) == {
        "metadata.labels[a]",
        "spec.hostname",
        "spec.volumes[0]",
        "spec.domain.chassis.manufacturer",
        "spec.domain.cpu.sockets",
        "spec.domain.memory.guest",
    }


def test_a_default_that_this_node_has_otherwise_is_no_change() -> None:
    record = accepted(GROWING, site(node()))
    elsewhere = site(node())
    other = replace(elsewhere.defaults, cpu_model="Haswell", max_hotplug_ratio=2, eviction_strategy="None")
    here = Site(facts=elsewhere.facts, plan=elsewhere.plan, defaults=other, limits=elsewhere.limits)
    assert change(record, sockets(4), here).plan.vcpus.current == 4


def test_only_a_guest_that_runs_here_and_stays_is_changed() -> None:
    record = accepted(GROWING, site(node()))
    for state in (
        {"phase": "Scheduled"},
        {"desired": "deleted"},
        {"outgoing": "attempt"},
        {"phase": "Failed"},
    ):
        with pytest.raises(WrongPhase):
            change(replace(record, **state), sockets(2))
    with pytest.raises(Conflict, match="another instance by now"):
        change(record, sockets(2).replace("uid: uid-web", "uid: other"))


def test_realtime_guests_and_those_without_slots_keep_what_they_have() -> None:
    cpu = "{sockets: %d, dedicatedCpuPlacement: true, realtime: {}, numa: {guestMappingPassthrough: {}}}"
    huge = '{guest: 64Mi, hugepages: {pageSize: "2Mi"}}'
    record = accepted(manifest(cpu=cpu % 1, memory=huge), site(node(pages=(64, 64))))
    found = refused(record, manifest(cpu=cpu % 2, memory=huge))
    assert "realtime" in found["spec.domain.cpu.sockets"]
    closed = GROWING.replace("devices: {", "devices: {disableHotplug: true, ")
    found = refused(accepted(closed, site(node())), closed.replace("guest: 1Gi", "guest: 2Gi"))
    assert "no slot" in found["spec.domain.memory.guest"]


def test_fewer_sockets_only_down_to_what_the_guest_got_when_the_rest_was_given_up() -> None:
    record = change(accepted(GROWING, site(node())), sockets(3))
    after = change(record, sockets(1), lowest_sockets=1)
    assert after.plan.vcpus.current == 1
    with pytest.raises(InvalidSpec, match="must not be less than 2"):
        change(record, sockets(1), lowest_sockets=2)


# What the node must have for it

OWN = "{sockets: %d, cores: 2, dedicatedCpuPlacement: true%s}"


def test_plugged_vcpus_get_pcpus_that_nobody_has_and_the_others_keep_theirs() -> None:
    facts = node()
    other = Holding(key="x", cpus=frozenset({1, 9, 2}))
    record = accepted(manifest(cpu=OWN % (1, "")), site(facts, [other]))
    assert [pin.cpu for pin in record.plan.cputune.vcpus] == [0, 8]
    after = change(record, manifest(cpu=OWN % (2, "")), site(facts, [other]))
    assert [pin.cpu for pin in after.plan.cputune.vcpus] == [0, 8, 10, 3]
    assert after.allocations.cpuset == (0, 3, 8, 10)
    assert after.plan.vcpus.cpuset == (0, 8), "that cannot change while it runs"
    crowd = Holding(key="x", cpus=frozenset(range(16)) - {0, 8, 5})
    with pytest.raises(Exhausted, match="2 dedicated CPUs are asked for, 1 are free"):
        change(record, manifest(cpu=OWN % (2, "")), site(facts, [crowd]))


def test_vcpus_that_come_to_a_mirrored_guest_are_of_its_first_cell() -> None:
    facts = node(pages=(64, 64))
    mirror = OWN % (3, ", maxSockets: 8, numa: {guestMappingPassthrough: {}}")
    huge = '{guest: 64Mi, hugepages: {pageSize: "2Mi"}}'
    other = Holding(key="x", cpus=frozenset({0, 8, 1, 9, 4, 12}))
    record = accepted(manifest(cpu=mirror, memory=huge), site(facts, [other]))
    assert [pin.cpu for pin in record.plan.cputune.vcpus] == [5, 13, 6, 14, 7, 15]
    with pytest.raises(Exhausted, match="2 dedicated CPUs are asked for, 0 are free"):
        change(
            record,
            manifest(cpu=mirror.replace("sockets: 3", "sockets: 4"), memory=huge),
            site(facts, [other]),
        )


def test_memory_that_comes_is_reserved() -> None:
    small = node(memory=4 * GIB)
    record = accepted(GROWING, site(small))
    after = change(record, manifest(memory="{guest: 3Gi}"), site(small))
    assert holding(after).memory - holding(record).memory == 2 * GIB + 4 * MIB
    with pytest.raises(Exhausted, match="of memory are asked for"):
        change(record, manifest(memory="{guest: 4Gi}"), site(small))
    huge = '{guest: %s, hugepages: {pageSize: "2Mi"}}'
    pooled = node(pages=(1024, 0))
    record = accepted(manifest(memory=huge % "1Gi"), site(pooled))
    after = change(record, manifest(memory=huge % "2Gi"), site(pooled))
    assert holding(after).pages == (Pages(size=PAGE, count=1024),)
    with pytest.raises(Exhausted, match=r"2048 huge pages of 2\.0 MiB are asked for, 1024 are left"):
        change(record, manifest(memory=huge % "4Gi"), site(pooled))


# How the domain gets there


def grown(record: InstanceRecord, view: DomainView) -> DomainView:
    """The domain after the next steps."""
    plug = vcpus_step(record, view)
    if plug is not None:
        view = replace(view, vcpus=plug.count)
    step = memory_step(record, view)
    if step is not None:
        device = replace(step.device, current=step.device.requested)
        memory = view.memory + (device.size if step.attach else 0)
        view = replace(view, memory=memory, memory_devices=(device,))
    return view


def test_steps_follow_from_what_the_domain_has() -> None:
    record = accepted(GROWING, site(node()))
    view = live(record)
    assert (vcpus_step(record, view), memory_step(record, view)) == (None, None)
    after = change(record, sockets(2, memory="{guest: 1536Mi}"))
    assert vcpus_step(after, view) == PlugVCPUs(2)
    step = memory_step(after, view)
    assert step == PlugMemory(
        MemoryDeviceView(
            alias="memory",
            size=3 * GIB,
            block=2 * MIB,
            requested=512 * MIB,
            address=PciAddress(bus=view.free_ports[0], slot=0),
        ),
        attach=True,
    )
    has_it = grown(after, view)
    assert (vcpus_step(after, has_it), memory_step(after, has_it)) == (None, None)
    assert (has_it.boot_memory, current_memory(has_it), requested_memory(has_it)) == (
        GIB,
        1536 * MIB,
        1536 * MIB,
    )
    less = memory_step(change(after, sockets(2, memory="{guest: 1Gi}")), has_it)
    assert less is not None
    assert (less.attach, less.device.requested, less.device.size) == (False, 0, 3 * GIB)


def test_the_device_is_written_with_alias_and_address() -> None:
    device = MemoryDeviceView(
        alias="memory", size=GIB, block=2 * MIB, requested=4 * MIB, address=PciAddress(bus=7, slot=0)
    )
    xml = memory_device(device)
    assert '<memory model="virtio-mem">' in xml
    assert f'<requested unit="b">{4 * MIB}</requested>' in xml
    assert '<alias name="ua-memory"/>' in xml
    assert 'bus="0x07"' in xml


def test_pins_come_before_the_vcpus() -> None:
    record = accepted(manifest(cpu=OWN % (1, "")), site(node()))
    after = change(record, manifest(cpu=OWN % (2, "")))
    assert vcpus_step(after, live(record)) == PlugVCPUs(4, (VCPUPin(vcpu=2, cpu=1), VCPUPin(vcpu=3, cpu=9)))


def test_reconcile_does_one_after_the_other_and_backs_off() -> None:
    record = accepted(GROWING, site(node()))
    view = live(record)
    after = change(record, sockets(2, memory="{guest: 2Gi}"))

    def decide(hardware: Hardware, record: InstanceRecord = after) -> do.Decision:
        return do.reconcile(record, RUNNING, now=NOW, efforts=do.Efforts(), hardware=hardware)

    assert decide(Hardware()) == do.Decision(), "nothing is known of the domain"
    assert decide(Hardware(live=view), record) == do.Decision()
    assert decide(Hardware(live=view)).actions == (PlugVCPUs(2),)
    failed = Attempts(failures=2, ago_s=1.0, error="no")
    (memory,) = decide(Hardware(live=view, vcpus=failed)).actions
    assert isinstance(memory, PlugMemory)
    waiting = decide(Hardware(live=view, vcpus=failed, memory=Attempts(failures=1, ago_s=0.5)))
    assert waiting == do.Decision(look_again_s=1.5)
    given_up = Attempts(failures=TRIES, ago_s=99.0, error="no")
    assert decide(Hardware(live=view, vcpus=given_up, memory=given_up)) == do.Decision()
    for kept in ({"outgoing": "x"}, {"desired": "deleted"}, {"user_paused": True}):
        actions = decide(Hardware(live=view), replace(after, **kept)).actions
        assert not any(isinstance(action, PlugVCPUs | PlugMemory) for action in actions)


@pytest.mark.parametrize(
    ("attempts", "status", "said"),
    [
        (Attempts(), "True", "1 of 2 vCPUs are plugged"),
        (Attempts(1, 1.0, "busy"), "True", "1 of 2 vCPUs are plugged; busy"),
        (Attempts(TRIES, 1.0, "timed out"), "False", "1 of 2 vCPUs are plugged; timed out"),
    ],
)
def test_conditions_and_status_tell_what_is(attempts: Attempts, status: str, said: str) -> None:
    record = accepted(GROWING, site(node()))
    view = live(record)
    after = change(record, sockets(2, memory="{guest: 2Gi}"))
    hardware = Hardware(live=view, vcpus=attempts)
    shown = show(after, RUNNING, node="n", now="t", before=None, hardware=hardware).status
    assert shown is not None
    found = {c.type: c for c in shown.conditions}
    assert (found["HotVCPUChange"].status, found["HotVCPUChange"].message) == (status, said)
    assert found["HotMemoryChange"].message == "2.0 GiB are asked for, the guest is offered 1.0 GiB"
    assert shown.current_cpu_topology is not None
    assert shown.current_cpu_topology.sockets == 1
    assert shown.memory is not None
    assert (shown.memory.guest_at_boot, shown.memory.guest_current) == (Quantity(GIB), Quantity(GIB))

    done = show(
        after, RUNNING, node="n", now="t", before=None, hardware=Hardware(live=grown(after, view))
    ).status
    assert done is not None
    assert not {c.type for c in done.conditions} & {"HotVCPUChange", "HotMemoryChange"}
    assert done.memory is not None
    assert done.memory.guest_current == done.memory.guest_requested == Quantity(2 * GIB)


# Elsewhere


def test_the_target_of_a_migration_has_the_same_record() -> None:
    record = change(accepted(GROWING, site(node())), sockets(3, memory="{guest: 2Gi}"))
    view = grown(record, live(accepted(GROWING, site(node()))))
    other = site(node())
    there = Site(
        facts=other.facts,
        plan=other.plan,
        defaults=replace(other.defaults, live_update=False),
        limits=other.limits,
    )
    arrived = draft(
        record.manifest, Companions(), uid=record.uid, site=there, now="t", boot_id="b", live=view
    )
    assert arrived.plan.vcpus == record.plan.vcpus
    assert arrived.plan.memory == record.plan.memory
    assert arrived.defaulted.spec.domain.cpu == record.defaulted.spec.domain.cpu
    assert holding(arrived).memory == holding(record).memory
    assert (vcpus_step(arrived, view), memory_step(arrived, view)) == (None, None)


@given(wanted=st.lists(st.tuples(st.integers(1, 6), st.integers(0, 5 * 512)), max_size=5))
def test_every_accepted_change_is_reached_and_stays_within_the_room(wanted: list[tuple[int, int]]) -> None:
    record = accepted(GROWING, site(node()))
    view = live(record)
    for number, blocks in wanted:
        try:
            record = change(record, sockets(number, memory=f"{{guest: {2 * blocks}Mi}}"))
        except InvalidSpec:
            continue
        view = grown(record, view)
        assert (vcpus_step(record, view), memory_step(record, view)) == (None, None)
        assert view.vcpus == record.plan.vcpus.current == number
        assert current_memory(view) == 2 * blocks * MIB
        assert view.boot_memory == GIB
        assert view.vcpus <= 4
        assert GIB <= current_memory(view) <= 4 * GIB
