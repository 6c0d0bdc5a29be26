# SPDX-License-Identifier: Apache-2.0
"""What the instances of a node have is nobody else's: pCPUs, pages, memory, vsock addresses."""

from __future__ import annotations

import dataclasses

import pytest
from agent_nodes import PAGE, accepted, cell, manifest, node, site
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from launcher.agent.draft import Site
from launcher.agent.ledger import FIRST_CID, LAST_CID, Holding, Ledger, Limits, Pages, holding
from launcher.agent.records import InstanceRecord
from launcher.agent.settings import node_limits
from launcher.errors import Conflict, Exhausted, HostUnsupported, InvalidRequest
from launcher.host.config import Config, Cpus, Memory
from launcher.plan.facts import NodeFacts
from launcher.plan.settings import BridgedNetwork, NetworkSettings
from launcher.units import GIB, MIB

OWN = "{cores: %d, threads: %d, sockets: 1, dedicatedCpuPlacement: true%s}"


def own(cores: int, threads: int = 1, more: str = "") -> str:
    return OWN % (cores, threads, f", {more}" if more else "")


def pins(record: InstanceRecord) -> list[int]:
    return [pin.cpu for pin in record.plan.cputune.vcpus]


def test_each_guest_gets_cpus_of_its_own_in_one_cell_if_possible() -> None:
    facts = node()
    first = accepted(manifest("one", cpu=own(3, 2)), site(facts))
    second = accepted(manifest("two", cpu=own(3, 2)), site(facts, [holding(first)]))
    third = accepted(manifest("three", cpu=own(2, 2)), site(facts, [holding(first), holding(second)]))
    assert pins(first) == [0, 8, 1, 9, 2, 10]
    assert pins(second) == [4, 12, 5, 13, 6, 14], "cell 0 has not enough left"
    assert pins(third) == [3, 11, 7, 15], "what is left is in two cells"
    assert first.plan.vcpus.cpuset == (0, 1, 2, 8, 9, 10)


def test_what_is_set_apart_is_exactly_what_is_pinned() -> None:
    more = "isolateEmulatorThread: true"
    io = "ioThreadsPolicy: supplementalPool\n    ioThreads: {supplementalPoolThreadCount: 2}"
    record = accepted(manifest(cpu=own(2, 2, more), more=io), site(node()))
    assert set(record.allocations.cpuset) == holding(record).cpus
    assert len(record.allocations.cpuset) == 4 + 2 + 1


def test_shared_io_threads_stay_on_the_guests_own_cpus() -> None:
    io = "ioThreadsPolicy: shared"
    record = accepted(manifest(cpu=own(4), more=io), site(node()))
    assert pins(record) == [0, 8, 1, 9]
    assert holding(record).cpus == {0, 8, 1, 9}


def test_no_cpu_is_left_for_one_guest_too_many() -> None:
    facts = node()
    first = accepted(manifest("one", cpu=own(13)), site(facts))
    with pytest.raises(Exhausted, match="4 dedicated CPUs are asked for, 3 are free"):
        accepted(manifest("two", cpu=own(4)), site(facts, [holding(first)]))
    all_of_it = Holding(key="x", cpus=frozenset(range(16)))
    with pytest.raises(Exhausted, match="1 dedicated CPUs are asked for, 0 are free"):
        accepted(manifest("two", cpu=own(1)), site(facts, [all_of_it]))
    with pytest.raises(HostUnsupported, match="17 CPUs to dedicate"):
        accepted(manifest("two", cpu=own(17)), site(facts))


def test_reserved_cpus_are_never_dedicated_and_others_only_if_they_may() -> None:
    facts = node()
    kept = Ledger(facts, Limits(reserved_cpus=frozenset({0, 8}))).free_cpus()
    assert kept == (1, 2, 3, 4, 5, 6, 7, 9, 10, 11, 12, 13, 14, 15)
    some = Ledger(facts, Limits(dedicated_cpus=(2, 3, 99)), [Holding(key="x", cpus=frozenset({2}))])
    assert some.free_cpus() == (3,), "CPU 99 does not exist"


def test_guests_without_dedicated_cpus_are_kept_off_those_for_others() -> None:
    record = accepted(manifest(), site(node(), limits=Limits(dedicated_cpus=tuple(range(2, 16)))))
    assert record.plan.vcpus.cpuset == (0, 1)
    with pytest.raises(HostUnsupported, match="all of its CPUs"):
        accepted(manifest(), site(node(), limits=Limits(dedicated_cpus=tuple(range(16)))))


@given(
    asked=st.lists(
        st.tuples(st.integers(1, 6), st.sampled_from((1, 2)), st.booleans(), st.integers(0, 2)), max_size=6
    )
)
def test_no_two_guests_ever_share(asked: list[tuple[int, int, bool, int]]) -> None:
    facts = node()
    records: list[InstanceRecord] = []
    for number, (cores, threads, isolated, pool) in enumerate(asked):
        more = "isolateEmulatorThread: true" if isolated else ""
        io = f"ioThreadsPolicy: supplementalPool\n    ioThreads: {{supplementalPoolThreadCount: {pool}}}"
        text = manifest(f"vm{number}", cpu=own(cores, threads, more), more=io if pool else "")
        try:
            record = accepted(text, site(facts, map(holding, records)))
        except Exhausted:
            free = 16 - len({cpu for other in records for cpu in holding(other).cpus})
            assert cores * threads + isolated + pool > free, "it is refused only for want of CPUs"
            continue
        assert len(holding(record).cpus) == cores * threads + isolated + pool
        records.append(record)
    held = [cpu for record in records for cpu in holding(record).cpus]
    assert len(held) == len(set(held))


# Huge pages

HUGE = '{guest: 64Mi, hugepages: {pageSize: "2Mi"}}'
MIRROR = "numa: {guestMappingPassthrough: {}}"


def test_pages_that_a_guest_will_take_are_not_promised_again() -> None:
    facts = node(pages=(20, 20))
    first = accepted(manifest("one", memory=HUGE), site(facts), running=False)
    assert holding(first).pages == (Pages(size=PAGE, count=32),)
    with pytest.raises(Exhausted, match=r"32 huge pages of 2.0 MiB are asked for, 8 are left"):
        accepted(manifest("two", memory=HUGE), site(facts, [holding(first)]))


def test_pages_that_it_has_taken_are_counted_once() -> None:
    taken = NodeFacts(cells=(cell(0, ((0,),), pages=80, free=48),), memory=64 * GIB)
    first = accepted(manifest("one", memory=HUGE), site(taken))
    assert Ledger(taken, Limits(), [holding(first)]).pages_left(PAGE, None) == 48
    others_have_some = NodeFacts(cells=(cell(0, ((0,),), pages=80, free=10),), memory=64 * GIB)
    assert Ledger(others_have_some, Limits(), [holding(first)]).pages_left(PAGE, None) == 10
    assert Ledger(node(), Limits()).pages_left(PAGE, None) is None, "nothing is known of pools"


def test_a_mirrored_guest_goes_where_the_pages_are_and_reserves_them_there() -> None:
    facts = node(pages=(16, 64))
    text = manifest("one", cpu=own(2, 2, MIRROR), memory=HUGE)
    record = accepted(text, site(facts))
    assert pins(record) == [4, 12, 5, 13], "cell 0 has 16 pages, 32 are needed"
    assert holding(record).pages == (Pages(size=PAGE, count=32, cell=1),)
    assert record.plan.numatune is not None
    assert record.plan.numatune.nodes == (1,)
    second = accepted(manifest("two", cpu=own(2, 2, MIRROR), memory=HUGE), site(facts, [holding(record)]))
    assert pins(second) == [6, 14, 7, 15]
    left = Ledger(facts, Limits(), [holding(record), holding(second)])
    assert (left.pages_left(PAGE, 1), left.pages_left(PAGE, 0)) == (0, 16)
    with pytest.raises((Exhausted, HostUnsupported), match="huge pages"):
        accepted(
            manifest("three", cpu=own(1, 1, MIRROR), memory=HUGE),
            site(facts, [holding(record), holding(second)]),
        )


def test_a_mirrored_guest_in_two_cells_takes_its_part_from_each() -> None:
    facts = node(pages=(16, 16))
    record = accepted(
        manifest(cpu=own(4, 2, MIRROR).replace("cores: 4", "cores: 6"), memory=HUGE), site(facts)
    )
    assert holding(record).pages == (Pages(size=PAGE, count=16, cell=0), Pages(size=PAGE, count=16, cell=1))


# Memory


def test_memory_is_promised_once_with_what_the_guest_costs_beside() -> None:
    facts = node(memory=4 * GIB)
    first = accepted(manifest("one", memory="{guest: 2Gi}"), site(facts))
    assert holding(first).memory > 2 * GIB + 50 * MIB
    with pytest.raises(
        Exhausted, match=r"2.1 GiB of memory are asked for \(overhead included\), 1.7 GiB are left"
    ):
        accepted(manifest("two", memory="{guest: 2Gi}"), site(facts, [holding(first)]))
    accepted(
        manifest("two", memory="{guest: 2Gi}"), site(facts, [holding(first)], Limits(overcommit_percent=120))
    )


def test_what_is_requested_counts_and_overhead_only_if_wanted() -> None:
    facts = node()
    less = "resources: {requests: {memory: 512Mi}, overcommitGuestOverhead: true}"
    assert holding(accepted(manifest(memory="{guest: 1Gi}", more=less), site(facts))).memory == 512 * MIB
    limit = "resources: {limits: {memory: 3Gi}}"
    assert holding(accepted(manifest(memory="{guest: 1Gi}", more=limit), site(facts))).memory > 3 * GIB


def test_a_guest_of_huge_pages_takes_no_ordinary_memory_but_the_overhead() -> None:
    held = holding(accepted(manifest(memory=HUGE), site(node(pages=(64, 0)))))
    assert 50 * MIB < held.memory < 128 * MIB


def test_pools_and_the_hosts_share_are_nobodys_to_reserve() -> None:
    facts = node(pages=(512, 0), memory=8 * GIB)
    assert Ledger(facts, Limits(reserved_memory=GIB)).memory_left() == 6 * GIB
    assert Ledger(node(memory=None), Limits()).memory_left() is None


# vsock


def test_addresses_are_unique_kept_and_the_same_everywhere() -> None:
    empty = Ledger(node(), Limits())
    cid = empty.free_cid("uid-1")
    assert FIRST_CID <= cid <= LAST_CID
    assert empty.free_cid("uid-1") == cid
    assert Ledger(node(), Limits(), [Holding(key="x", cid=cid)]).free_cid("uid-1") != cid
    assert empty.free_cid("uid-2", wanted=cid) == cid, "a guest that comes from elsewhere keeps its own"
    clash = Ledger(node(), Limits(), [Holding(key="x", cid=77)])
    assert clash.free_cid("uid-1", wanted=77) == cid
    assert empty.free_cid("uid-1", wanted=2) == cid, "that is the host's"


def test_a_guest_with_vsock_has_its_address_in_plan_and_status() -> None:
    text = manifest().replace("autoattachPodInterface", "autoattachVSOCK: true, autoattachPodInterface")
    record = accepted(text, site(node()))
    assert record.plan.devices.vsock is not None
    assert record.plan.devices.vsock.cid == record.allocations.vsock_cid == holding(record).cid >= FIRST_CID


# Configuration


def test_the_configuration_says_what_may_be_had() -> None:
    limits = node_limits(Config(cpus=Cpus(reserved="0-1", dedicated="4-5,2"), memory=Memory(reserved="1Gi")))
    assert limits.reserved_cpus == {0, 1}
    assert limits.dedicated_cpus == (4, 5, 2)
    assert limits.reserved_memory == GIB
    assert node_limits(Config()).dedicated_cpus is None


@pytest.mark.parametrize(
    ("config", "key"),
    [
        (Config(cpus=Cpus(reserved="0-x")), "cpus.reserved"),
        (Config(cpus=Cpus(dedicated="5-2")), "cpus.dedicated"),
        (Config(cpus=Cpus(reserved="1", dedicated="0-3")), "cpus.dedicated"),
        (Config(memory=Memory(reserved="much")), "memory.reserved"),
        (Config(memory=Memory(reserved="-1")), "memory.reserved"),
        (Config(memory=Memory(overcommit_percent=0)), "memory.overcommit_percent"),
    ],
)
def test_a_wrong_configuration_is_refused_with_its_key(config: Config, key: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        node_limits(config)
    assert caught.value.violations[0].field == key


def on_networks(name: str, *, mac: str = "", cidr: str = "10.0.2.0/24") -> str:
    """An instance behind masquerade that is on a network which others are on, too."""
    given = f", macAddress: {mac}" if mac else ""
    return f"""
apiVersion: kubevirt.io/v1
kind: VirtualMachineInstance
metadata: {{name: {name}, namespace: lab, uid: uid-{name}}}
spec:
  domain:
    memory: {{guest: 1Gi}}
    devices:
      interfaces:
        - {{name: default, masquerade: {{}}, macAddress: 02:00:00:00:00:01}}
        - {{name: lan, bridge: {{}}{given}}}
  networks: [{{name: default, pod: {{vmNetworkCIDR: {cidr}}}}}, {{name: lan, multus: {{networkName: blue}}}}]
"""


def with_lan(held: list[Holding]) -> Site:
    network = NetworkSettings(bridges={"blue": BridgedNetwork(bridge="br1")})
    there = site(node(), held)
    return dataclasses.replace(there, plan=replace(there.plan, network=network))


def test_a_mac_address_on_a_network_is_one_instances() -> None:
    first = accepted(on_networks("one", mac="02-00-00-00-0A-77"), with_lan([]))
    held = [holding(first)]
    with pytest.raises(Conflict, match=r"'lan': lab/one has the MAC address 02:00:00:00:0a:77"):
        accepted(on_networks("two", mac="02:00:00:00:0a:77"), with_lan(held))
    second = accepted(on_networks("two", mac="02:00:00:00:0a:78"), with_lan(held))
    third = accepted(on_networks("three"), with_lan([*held, holding(second)]))
    assert len({dict(holding(one).macs)["lan"] for one in (first, second, third)}) == 3
    assert all(set(dict(holding(one).macs)) == {"lan"} for one in (first, second, third)), "not masquerade's"


@pytest.mark.parametrize("cidr", ["100.64.0.0/16", "100.64.9.0/24", "100.0.0.0/8"])
def test_a_guests_range_is_not_where_the_node_reaches_it(cidr: str) -> None:
    with pytest.raises(HostUnsupported, match=r"it overlaps 100\.64\.0\.0/16"):
        accepted(on_networks("one", cidr=cidr), with_lan([]))
