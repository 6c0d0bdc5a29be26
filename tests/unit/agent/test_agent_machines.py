# SPDX-License-Identifier: Apache-2.0
"""A guest keeps the board that it first got, on whatever node it arrives; what a baseline may be."""

from __future__ import annotations

import dataclasses

import msgspec
import pytest
from agent_nodes import NOW, accepted, live, manifest, node, site

from launcher.agent.draft import Site, draft
from launcher.agent.port import Companions
from launcher.agent.settings import plan_settings
from launcher.domain.build import build
from launcher.errors import InvalidRequest
from launcher.host.config import Config
from launcher.plan.facts import Alias, GuestFacts
from launcher.spec.load import load_vmi


def with_qemu(newest: str) -> Site:
    guest = GuestFacts(
        arch="x86_64",
        machines=("q35", "pc-q35-7.2", newest),
        aliases=(Alias(name="q35", machine=newest),),
    )
    return site(msgspec.structs.replace(node(), guests=(guest,)))


def test_a_guest_that_arrives_keeps_its_board() -> None:
    born = accepted(manifest(), with_qemu("pc-q35-7.2"))
    assert born.plan.boot.machine == "pc-q35-7.2"
    there = draft(
        load_vmi(manifest()),
        Companions(),
        uid=born.uid,
        site=with_qemu("pc-q35-10.0"),
        now=NOW,
        boot_id="boot-1",
        live=live(born),
    )
    assert there.plan.boot.machine == "pc-q35-7.2"
    assert 'machine="pc-q35-7.2"' in build(there.plan)
    assert accepted(manifest(), with_qemu("pc-q35-10.0")).plan.boot.machine == "pc-q35-10.0"


def test_the_baseline_holds_for_guests_that_start() -> None:
    where = with_qemu("pc-q35-10.0")
    fleet = dataclasses.replace(
        where, plan=msgspec.structs.replace(where.plan, machines={"q35": "pc-q35-7.2"})
    )
    assert accepted(manifest(), fleet).plan.boot.machine == "pc-q35-7.2"


@pytest.mark.parametrize("machine", ["q35", "pc-q35", "", "pc-q35-7.2; rm", "pc q35-7.2"])
def test_a_baseline_is_a_versioned_machine(machine: str) -> None:
    with pytest.raises(InvalidRequest, match=r"machines\.q35"):
        plan_settings(Config(machines={"q35": machine}))
    for fine in ("pc-q35-7.2", "pc-q35-rhel9.4.0", "virt-9.1"):
        assert plan_settings(Config(machines={"q35": fine})).machines == {"q35": fine}
