# SPDX-License-Identifier: Apache-2.0
"""Options of migrations in the node's configuration, policy files, and who goes next."""

from __future__ import annotations

import asyncio
import datetime
from pathlib import Path
from typing import Any

import pytest

from launcher.agent.migration_options import check_rules, node_options, outbound_limit, read_policies
from launcher.agent.migration_queue import Slots
from launcher.errors import InvalidRequest, InvalidSpec
from launcher.host.config import Config, Migration, load
from launcher.migration.options import resolve
from launcher.units import MIB

POLICY = """
apiVersion: migrations.kubevirt.io/v1alpha1
kind: MigrationPolicy
metadata: {name: NAME}
spec: {allowPostCopy: true, maxDowntimeMs: 500, selectors: {virtualMachineInstanceSelector: {app: db}}}
"""


def configured(**options: Any) -> Config:
    return Config(migration=Migration(options=options))


def test_options_have_the_apis_names_and_units(tmp_path: Path) -> None:
    path = tmp_path / "launcherd.toml"
    path.write_text(
        "[migration.options]\n"
        'bandwidthPerMigration = "64Mi"\nallowPostCopy = true\nparallelOutboundMigrationsPerNode = 3\n'
        "[migration.options.experimental.stallDetector]\nstallMargin = 7\newmaAlpha = 0.25\n"
    )
    config = load(path)
    options = resolve(None, None, node_options(config))
    assert options.bandwidth_bps == 64 * MIB
    assert options.allow_workload_disruption, "it follows allowPostCopy"
    assert (options.stall.margin_percent, options.stall.ewma_alpha) == (7, 0.25)
    assert outbound_limit(config) == 3
    assert outbound_limit(Config()) == 2


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"maxDowntimeMs": 0}, "migration.options.maxDowntimeMs"),
        ({"maxDowntime": 10}, "migration.options.maxDowntime"),
        ({"maxDowntimeMs": "soon"}, "migration.options.maxDowntimeMs"),
        ({"maxDowntimeMs": datetime.date(2026, 1, 2)}, "migration.options"),
        (
            {"experimental": {"stallDetector": {"stallMargin": 101}}},
            "migration.options.experimental.stallDetector.stallMargin",
        ),
    ],
)
def test_what_is_wrong_is_named_by_its_path(options: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        node_options(configured(**options))
    assert [v.field for v in caught.value.violations] == [field]


def test_all_that_is_wrong_is_told_at_once() -> None:
    detector = {"stallMargin": True, "ewmaAlpha": 7, "patience": 1}
    with pytest.raises(InvalidRequest) as caught:
        node_options(
            configured(
                bandwidthPerMigration="much",
                allowPostCopy=1,
                progressTimeout=1.5,
                maxDowntimeMs=-5,
                network="eth9",
                bogus=0,
                experimental={"compression": "lz5", "stallDetector": detector},
            )
        )
    below = "experimental.stallDetector"
    names = ("allowPostCopy", "bandwidthPerMigration", "bogus", "experimental.compression")
    deeper = (f"{below}.ewmaAlpha", f"{below}.patience", f"{below}.stallMargin")
    last = ("maxDowntimeMs", "network", "progressTimeout")
    assert sorted(v.field for v in caught.value.violations) == [
        f"migration.options.{name}" for name in (*names, *deeper, *last)
    ]


def test_rules_are_one_of_those_there_are() -> None:
    assert check_rules(Config()) == "standard"
    with pytest.raises(InvalidRequest, match="classic-stall"):
        check_rules(Config(migration=Migration(rules="guess")))


def test_policies_are_read_from_a_folder(tmp_path: Path) -> None:
    assert read_policies("") == ()
    (tmp_path / "one.yaml").write_text(POLICY.replace("NAME", "b") + "---" + POLICY.replace("NAME", "a"))
    (tmp_path / "README").write_text("not a policy")
    found = read_policies(str(tmp_path))
    assert [p.metadata.name for p in found if p.metadata] == ["a", "b"]
    assert found[0].spec.max_downtime_ms == 500


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (POLICY.replace("500", "0"), "spec.maxDowntimeMs"),
        (POLICY.replace("name: NAME", "labels: {}"), "metadata.name"),
        (POLICY.replace("NAME", "a") + "---" + POLICY.replace("NAME", "a"), "already"),
        ('{"kind": "MigrationPolicy"', "one.yaml"),
    ],
)
def test_a_policy_that_is_wrong_stops_migrations_and_says_where(
    tmp_path: Path, text: str, error: str
) -> None:
    (tmp_path / "one.yaml").write_text(text)
    with pytest.raises((InvalidRequest, InvalidSpec)) as caught:
        read_policies(str(tmp_path))
    assert error in str(caught.value)
    assert "one.yaml" in str(caught.value)


def test_a_policys_mistakes_are_told_together(tmp_path: Path) -> None:
    """What does not fit the schema does not hide what is out of range."""
    (tmp_path / "one.yaml").write_text(
        POLICY.replace("NAME", "a").replace("true, max", "maybe, max").replace("500", "0")
    )
    with pytest.raises(InvalidSpec) as caught:
        read_policies(str(tmp_path))
    assert {v.field for v in caught.value.violations} == {"spec.allowPostCopy", "spec.maxDowntimeMs"}


def test_a_folder_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="policies_dir"):
        read_policies(str(tmp_path / "no"))


async def held(
    slots: Slots, log: list[str], name: str, priority: str, at_once: asyncio.Event, *, turns: int = 0
) -> None:
    async with slots.place(priority, at_once=at_once):
        log.append(name)
        for _ in range(turns):  # of the loop, so that others can come meanwhile
            await asyncio.sleep(0)


async def test_the_most_urgent_goes_first_then_the_oldest() -> None:
    slots, log, never = Slots(1), list[str](), asyncio.Event()
    asked = [
        ("first", "system-maintenance"),
        ("upkeep", "system-maintenance"),
        ("odd", "later"),
        ("user", ""),
        ("user2", "user-triggered"),
        ("drain", "system-critical"),
    ]
    tasks = []
    for name, priority in asked:
        tasks.append(asyncio.create_task(held(slots, log, name, priority, never, turns=10)))
        await asyncio.sleep(0)
    await asyncio.gather(*tasks)
    assert log == ["first", "drain", "user", "user2", "upkeep", "odd"]


async def test_whoever_is_called_off_gives_the_place_on() -> None:
    slots, log, never = Slots(1), list[str](), asyncio.Event()
    gate = asyncio.Event()

    async def holder() -> None:
        async with slots.place("", at_once=never):
            await gate.wait()

    tasks = [asyncio.create_task(holder())]
    await asyncio.sleep(0)
    tasks += [asyncio.create_task(held(slots, log, name, "", never)) for name in ("a", "b")]
    await asyncio.sleep(0)
    tasks[1].cancel()
    gate.set()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert log == ["b"]


async def test_one_that_hurries_takes_a_place_beyond_the_limit_and_no_more_follow() -> None:
    slots, log, never, hurry = Slots(1), list[str](), asyncio.Event(), asyncio.Event()
    gate = asyncio.Event()

    async def holder(name: str, at_once: asyncio.Event) -> None:
        async with slots.place("", at_once=at_once):
            log.append(name)
            await gate.wait()

    tasks = [asyncio.create_task(holder("first", never)), asyncio.create_task(holder("late", never))]
    tasks.append(asyncio.create_task(holder("hurried", hurry)))
    await asyncio.sleep(0)
    hurry.set()
    for _ in range(4):
        await asyncio.sleep(0)
    assert log == ["first", "hurried"]
    gate.set()
    await asyncio.gather(*tasks)
    assert log == ["first", "hurried", "late"]
