# SPDX-License-Identifier: Apache-2.0
"""Rules of migrations and migration policies: who goes where, and options within their ranges."""

from __future__ import annotations

import re
from collections.abc import Iterator
from fractions import Fraction
from typing import Final, TypeAlias

from launcher.errors import Violation
from launcher.spec.model import (
    DowntimeTuningOptions,
    ExperimentalMigrationOptions,
    MigrationConfiguration,
    MigrationPolicy,
    MigrationPolicySpec,
    Quantity,
    StallDetectorOptions,
    VirtualMachineInstanceMigration,
    VMIMConfigurationOptions,
)
from launcher.spec.rules.checks import dns_subdomain, in_range, labels, one_of
from launcher.spec.rules.finding import invalid, required
from launcher.spec.rules.metadata import object_names

MigrationOptions: TypeAlias = MigrationConfiguration | MigrationPolicySpec | VMIMConfigurationOptions

# The longest pause that QEMU's downtime-limit takes, in milliseconds.
LARGEST_DOWNTIME_MS: Final = 2_000_000
COMPRESSIONS: Final = ("zstd",)
# Factors of the stall detector are kept in thousandths.
_THOUSANDTHS: Final = 1000

_ID: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,251}[A-Za-z0-9])?")
_URL: Final = re.compile(r"(?:[a-z][a-z0-9+.-]*://)?[A-Za-z0-9.:\[\]_-]+(?:/[A-Za-z0-9._~/-]*)?")


def migration(vmim: VirtualMachineInstanceMigration) -> Iterator[Violation]:
    """A migration names an instance, and between clusters the two ends share an id."""
    yield from object_names(vmim.metadata, "a migration")
    spec = vmim.spec
    yield from dns_subdomain("spec.vmiName", spec.vmi_name, "the name of the instance to migrate")
    yield from labels("spec.addedNodeSelector", spec.added_node_selector)
    if spec.priority is not None and not spec.priority.isprintable():
        yield invalid("spec.priority", spec.priority, "must be one line of printable characters")
    if spec.send_to is not None:
        yield from _id("spec.sendTo.migrationID", spec.send_to.migration_id)
        url = spec.send_to.connect_url
        if not url:
            yield required("spec.sendTo.connectURL", "needs the address of the receiving side, as host:port")
        elif len(url) > 512 or _URL.fullmatch(url) is None:
            yield invalid("spec.sendTo.connectURL", url, "not an address; accepted is host:port")
    if spec.receive is not None:
        yield from _id("spec.receive.migrationID", spec.receive.migration_id)
    sent, received = spec.send_to, spec.receive
    if sent is not None and received is not None and sent.migration_id != received.migration_id:
        field = "spec.receive.migrationID"
        yield invalid(field, received.migration_id, f"must be that of sendTo, {sent.migration_id[:60]!r}")
    if (spec.send_to is not None or spec.receive is not None) and spec.added_node_selector:
        yield invalid(
            "spec.addedNodeSelector", None, "goes with neither sendTo nor receive: the other side places it"
        )


def policy(item: MigrationPolicy) -> Iterator[Violation]:
    """A policy selects by labels and sets options within their ranges."""
    yield from object_names(item.metadata, "a policy")
    selectors = item.spec.selectors
    yield from labels("spec.selectors.namespaceSelector", selectors.namespace_selector)
    yield from labels(
        "spec.selectors.virtualMachineInstanceSelector", selectors.virtual_machine_instance_selector
    )
    yield from options("spec", item.spec)
    # An object of options in force has both; a person chooses one of the two.
    chosen = item.spec.experimental
    if chosen is not None and chosen.downtime_tuning is not None and chosen.stall_detector is not None:
        field = "spec.experimental.stallDetector"
        yield invalid(field, None, "downtimeTuning and stallDetector exclude each other")


def options(path: str, given: MigrationOptions) -> Iterator[Violation]:
    """Options of a migration, wherever they are written, are within their ranges."""
    bandwidth = given.bandwidth_per_migration
    if bandwidth is not None and bandwidth < 0:
        yield invalid(f"{path}.bandwidthPerMigration", bandwidth, "must not be negative; 0 means no limit")
    yield from in_range(f"{path}.completionTimeoutPerGiB", given.completion_timeout_per_gi_b, 0)
    yield from in_range(f"{path}.maxDowntimeMs", given.max_downtime_ms, 1, LARGEST_DOWNTIME_MS)
    if not isinstance(given, MigrationPolicySpec):
        yield from in_range(f"{path}.progressTimeout", given.progress_timeout, 0)
        yield from in_range(f"{path}.utilityVolumesTimeout", given.utility_volumes_timeout, 0)
        yield from in_range(f"{path}.parallelMigrationsPerCluster", given.parallel_migrations_per_cluster, 1)
        yield from in_range(
            f"{path}.parallelOutboundMigrationsPerNode", given.parallel_outbound_migrations_per_node, 1
        )
    if not isinstance(given, MigrationConfiguration) and given.experimental is not None:
        yield from _experimental(f"{path}.experimental", given.experimental)


def _experimental(path: str, given: ExperimentalMigrationOptions) -> Iterator[Violation]:
    yield from one_of(f"{path}.compression", given.compression, COMPRESSIONS)
    if given.downtime_tuning is not None:
        yield from _tuning(f"{path}.downtimeTuning", given.downtime_tuning)
    if given.stall_detector is not None:
        yield from _stall(f"{path}.stallDetector", given.stall_detector)


def _tuning(path: str, given: DowntimeTuningOptions) -> Iterator[Violation]:
    yield from in_range(f"{path}.cooldownSeconds", given.cooldown_seconds, 1)
    yield from in_range(f"{path}.initialMs", given.initial_ms, 1, LARGEST_DOWNTIME_MS)
    yield from in_range(f"{path}.startAfterIteration", given.start_after_iteration, 0)
    yield from in_range(f"{path}.steps", given.steps, 1)


def _stall(path: str, given: StallDetectorOptions) -> Iterator[Violation]:
    yield from in_range(f"{path}.stallMargin", given.stall_margin, 0, 100)
    yield from in_range(f"{path}.stallProgressTimeout", given.stall_progress_timeout, 0)
    yield from in_range(f"{path}.switchoverTimeout", given.switchover_timeout, 0)
    yield from _factor(f"{path}.completionTimeoutFactor", given.completion_timeout_factor, least=1)
    yield from _factor(f"{path}.precopyPossibleFactor", given.precopy_possible_factor, least=1)
    yield from _factor(
        f"{path}.patienceWindowDecayFactor", given.patience_window_decay_factor, least=0, most=1
    )
    yield from _factor(f"{path}.ewmaAlpha", given.ewma_alpha, least=Fraction(1, _THOUSANDTHS), most=1)


def _factor(
    field: str, value: Quantity | None, *, least: Fraction | int, most: int | None = None
) -> Iterator[Violation]:
    if value is None:
        return
    if value < least or (most is not None and value > most):
        low = "0.001" if least == Fraction(1, _THOUSANDTHS) else str(least)
        yield invalid(
            field, value, f"out of range; accepted: {low} to {most}" if most else f"must be at least {low}"
        )
    elif (value.value * _THOUSANDTHS).denominator != 1:
        yield invalid(field, value, "accepted are at most three decimals")


def _id(field: str, value: str) -> Iterator[Violation]:
    if not value:
        yield required(field, "needs the id that both sides of the migration share")
    elif _ID.fullmatch(value) is None:
        yield invalid(field, value, "accepted are letters, digits, '-', '_' and '.'")
