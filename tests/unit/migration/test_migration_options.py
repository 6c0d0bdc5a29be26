# SPDX-License-Identifier: Apache-2.0
"""Options: which layer wins, what is refused, and what the status shows."""

from __future__ import annotations

import msgspec
import pytest

from launcher.errors import Bug, InvalidSpec
from launcher.hypervisor.port import MigrateFlag
from launcher.migration.attempt import Outgoing
from launcher.migration.compose import POLICIES, make_policy
from launcher.migration.flags import migrate_params
from launcher.migration.options import Options, Workload, resolve, to_migration_configuration
from launcher.migration.peer import PrepareReply
from launcher.spec.model import (
    DowntimeTuningOptions,
    ExperimentalMigrationOptions,
    MigrationPolicySpec,
    Selectors,
    StallDetectorOptions,
    VMIMConfigurationOptions,
)
from launcher.spec.quantity import Quantity
from launcher.units import MIB


def policy(**fields: object) -> MigrationPolicySpec:
    return MigrationPolicySpec(selectors=Selectors(), **fields)  # type: ignore[arg-type]


def tuning(**fields: int) -> ExperimentalMigrationOptions:
    return ExperimentalMigrationOptions(downtime_tuning=DowntimeTuningOptions(**fields))


def test_without_any_layer_the_apis_defaults_hold() -> None:
    options = resolve()
    assert options == Options()
    assert (options.completion_timeout_per_gib_s, options.progress_timeout_s) == (150, 150)
    assert (options.max_downtime_ms, options.bandwidth_mib) == (900, 0)
    assert (options.ramp.initial_ms, options.ramp.steps) == (150, 7)


def test_the_migration_wins_over_the_policy_and_that_over_the_node() -> None:
    options = resolve(
        VMIMConfigurationOptions(max_downtime_ms=100),
        policy(max_downtime_ms=200, allow_auto_converge=True, completion_timeout_per_gi_b=20),
        VMIMConfigurationOptions(
            max_downtime_ms=300,
            allow_auto_converge=False,
            completion_timeout_per_gi_b=30,
            progress_timeout=40,
        ),
    )
    assert options.max_downtime_ms == 100
    assert options.allow_auto_converge
    assert (options.completion_timeout_per_gib_s, options.progress_timeout_s) == (20, 40)


def test_experiments_are_merged_field_by_field() -> None:
    options = resolve(
        VMIMConfigurationOptions(experimental=tuning(steps=3)),
        policy(experimental=tuning(steps=5, initial_ms=70)),
    )
    assert (options.ramp.steps, options.ramp.initial_ms, options.ramp.cooldown_s) == (3, 70, 10)
    assert (options.ramp_asked, options.stall_asked) == (True, False)


@pytest.mark.parametrize(
    ("post_copy", "disruption", "result"),
    [(True, None, True), (True, False, False), (False, None, False), (None, True, True)],
)
def test_disruption_follows_post_copy_unless_it_is_named(
    post_copy: bool | None, disruption: bool | None, result: bool
) -> None:
    layer = VMIMConfigurationOptions(allow_post_copy=post_copy, allow_workload_disruption=disruption)
    assert resolve(layer).allow_workload_disruption is result


@pytest.mark.parametrize(("cap", "mib"), [("64Mi", 64), ("65Mi", 65), ("1", 1), ("100M", 95), ("0", 0)])
def test_a_bandwidth_cap_is_never_rounded_to_none(cap: str, mib: int) -> None:
    assert resolve(VMIMConfigurationOptions(bandwidth_per_migration=Quantity(cap))).bandwidth_mib == mib


def test_all_numbers_out_of_range_are_told_together() -> None:
    layer = VMIMConfigurationOptions(
        max_downtime_ms=2_000_001,
        progress_timeout=-1,
        experimental=ExperimentalMigrationOptions(
            compression="lz4",
            downtime_tuning=DowntimeTuningOptions(initial_ms=0),
            stall_detector=StallDetectorOptions(ewma_alpha=Quantity("1.5")),
        ),
    )
    with pytest.raises(InvalidSpec) as caught:
        resolve(layer)
    assert {v.field for v in caught.value.violations} == {
        "configuration.progressTimeout",
        "configuration.maxDowntimeMs",
        "configuration.experimental.downtimeTuning.initialMs",
        "configuration.experimental.stallDetector.ewmaAlpha",
        "configuration.experimental.compression",
    }


def test_every_layer_is_checked_and_named() -> None:
    late = VMIMConfigurationOptions(progress_timeout=-1)
    with pytest.raises(InvalidSpec) as caught:
        resolve(late, policy(max_downtime_ms=0), late)
    fields = [v.field for v in caught.value.violations]
    assert fields == ["configuration.progressTimeout", "spec.maxDowntimeMs", "node.progressTimeout"]


def test_the_status_shows_all_options_and_reads_back_the_same() -> None:
    options = resolve(
        VMIMConfigurationOptions(
            bandwidth_per_migration=Quantity("64Mi"),
            allow_post_copy=True,
            experimental=tuning(steps=3),
        )
    )
    shown = to_migration_configuration(options)
    assert shown.bandwidth_per_migration == Quantity("64Mi")
    assert shown.experimental is not None
    assert shown.experimental.stall_detector is not None
    assert shown.experimental.stall_detector.ewma_alpha == Quantity("0.4")
    again = resolve(shown)
    assert (again.ramp, again.stall, again.bandwidth_bps) == (options.ramp, options.stall, 64 * MIB)
    assert again.allow_workload_disruption


def outgoing(options: Options, **fields: object) -> Outgoing:
    return Outgoing(
        attempt="x",
        namespace="default",
        name="vm",
        uuid="u",
        source_node="a",
        target_node="b",
        options=options,
        workload=fields.pop("workload", Workload(memory_bytes=1)),  # type: ignore[arg-type]
        **fields,  # type: ignore[arg-type]
    )


REPLY = PrepareReply(
    node="b",
    destination_uri="qemu://b",
    migrate_uri="tcp://b:1",
    disks_uri="tcp://b:2",
    destination_xml="<x/>",
)
POST_COPY = Options(allow_post_copy=True, allow_workload_disruption=True)


@pytest.mark.parametrize(
    ("given", "flag", "there"),
    [
        (outgoing(POST_COPY), MigrateFlag.POSTCOPY, True),
        (outgoing(POST_COPY, workload=Workload(memory_bytes=1, vfio=True)), MigrateFlag.POSTCOPY, False),
        (outgoing(POST_COPY, user_paused=True), MigrateFlag.POSTCOPY, False),
        (outgoing(POST_COPY, user_paused=True), MigrateFlag.PAUSED, True),
        (outgoing(Options(), parallel=4), MigrateFlag.PARALLEL, True),
        (outgoing(POST_COPY, parallel=4), MigrateFlag.PARALLEL, False),
        (outgoing(Options(compression="zstd")), MigrateFlag.COMPRESSED, False),
        (outgoing(Options(compression="zstd"), parallel=4), MigrateFlag.COMPRESSED, True),
        (outgoing(Options(), tls=True), MigrateFlag.TLS, True),
        (outgoing(Options(disable_tls=True), tls=True), MigrateFlag.TLS, False),
        (outgoing(Options(unsafe=True)), MigrateFlag.UNSAFE, True),
        (outgoing(Options(), migrate_disks=("vda",)), MigrateFlag.NON_SHARED_INC, True),
        (outgoing(Options()), MigrateFlag.NON_SHARED_INC, False),
    ],
)
def test_flags(given: Outgoing, flag: MigrateFlag, there: bool) -> None:
    assert (flag in migrate_params(given, REPLY).flags) is there


def test_disks_are_named_only_when_they_are_copied() -> None:
    copied = migrate_params(outgoing(Options(), migrate_disks=("vda", "vdb")), REPLY)
    assert (copied.migrate_disks, copied.disks_uri) == (("vda", "vdb"), "tcp://b:2")
    shared = migrate_params(outgoing(Options()), REPLY)
    assert (shared.migrate_disks, shared.disks_uri) == ((), "")


@pytest.mark.parametrize(
    ("here", "there", "known"),
    [
        (10_009_000, 11_003_000, True),
        (11_003_000, 10_008_000, False),
        (9_000_000, 11_003_000, False),
        (0, 0, False),
    ],
)
def test_zeroes_are_looked_for_when_both_sides_know_how(here: int, there: int, known: bool) -> None:
    reply = msgspec.structs.replace(REPLY, libvirt_version=there)
    copied = migrate_params(outgoing(Options(), migrate_disks=("vda",)), reply, libvirt_version=here)
    assert copied.detect_zeroes == (("vda",) if known else ())
    assert migrate_params(outgoing(Options()), reply, libvirt_version=here).detect_zeroes == ()


@pytest.mark.parametrize("name", POLICIES)
def test_every_policy_writes_its_state_down_and_reads_it_back(name: str) -> None:
    rules = make_policy(name, Options(ramp_asked=True), Workload(memory_bytes=1))
    state = rules.initial()
    assert rules.name == name
    assert rules.decode(rules.encode(state)) == state


def test_an_unknown_policy_is_a_bug() -> None:
    with pytest.raises(Bug, match="standard"):
        make_policy("no such", Options(), Workload(memory_bytes=1))
