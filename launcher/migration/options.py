# SPDX-License-Identifier: Apache-2.0
"""The options of one migration, resolved once before it starts. Pure; no host is asked here.

Order of precedence: the migration's own configuration, then the MigrationPolicy that selected the
instance, then the node's defaults, then the API's defaults (``MigrationConfiguration`` of the KubeVirt API).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import msgspec

from launcher.errors import InvalidSpec
from launcher.spec.model import (
    DowntimeTuningOptions,
    ExperimentalMigrationOptions,
    MigrationPolicySpec,
    StallDetectorOptions,
    VMIMConfigurationOptions,
)
from launcher.spec.quantity import Quantity
from launcher.spec.rules import check_options
from launcher.units import GIB, MIB, ceil_div

T = TypeVar("T")

QEMU_MAX_DOWNTIME_MS = 2_000_000
"""QEMU refuses a larger downtime-limit (migration parameters, MAX_MIGRATE_DOWNTIME)."""
QEMU_DEFAULT_DOWNTIME_MS = 300
"""What QEMU uses until it is told otherwise (DEFAULT_MIGRATE_SET_DOWNTIME)."""


class RampOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The max_downtime ramp; the API's ``downtimeTuning``."""

    initial_ms: int = 150
    steps: int = 7
    start_iteration: int = 3
    cooldown_s: int = 10


class StallOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The stall detector: ``window_s`` is the API's ``stallProgressTimeout``, ``tolerated_factor`` its
    ``precopyPossibleFactor``.
    """

    margin_percent: int = 4
    window_s: int = 40
    switchover_s: int = 60
    ewma_alpha: float = 0.4
    tolerated_factor: float = 1.5
    patience_decay: float = 0.5
    completion_factor: float = 2.0
    search_local_minima: bool = True


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that shapes a migration, complete. Times in seconds unless the name says otherwise.

    ``bandwidth_bps`` 0: no limit. ``switchover_bps`` is what the link carries without that limit, which QEMU
    lifts for the last part; 0: not known. ``completion_timeout_per_gib_s`` and ``progress_timeout_s`` 0:
    never.
    ``ramp_asked`` and ``stall_asked`` tell whether the manifest named the section (the classic
    compositions run the ramp only then).
    """

    bandwidth_bps: int = 0
    completion_timeout_per_gib_s: int = 150
    progress_timeout_s: int = 150
    max_downtime_ms: int = 900
    allow_auto_converge: bool = False
    allow_post_copy: bool = False
    allow_workload_disruption: bool = False
    unsafe: bool = False
    switchover_bps: int = 0
    disable_tls: bool = False
    compression: str = ""
    network: str = ""
    match_selinux_level: bool = False
    node_drain_taint_key: str = ""
    parallel_migrations_per_cluster: int = 5
    parallel_outbound_per_node: int = 2
    utility_volumes_timeout_s: int = 150
    ramp: RampOptions = RampOptions()
    ramp_asked: bool = False
    stall: StallOptions = StallOptions()
    stall_asked: bool = False

    @property
    def bandwidth_mib(self) -> int:
        """The cap in libvirt's unit; a cap below 1 MiB/s is 1, because 0 would lift it."""
        return max(self.bandwidth_bps // MIB, 1) if self.bandwidth_bps else 0


class Workload(msgspec.Struct, frozen=True, kw_only=True):
    """The facts of the guest that timeouts and flags depend on. Sizes in bytes.

    ``disk_bytes`` counts what the migration itself copies; ``vfio`` that a host device stays attached.
    """

    memory_bytes: int
    disk_bytes: int = 0
    vfio: bool = False

    @property
    def started_gib(self) -> int:
        """The data in whole GiB (2^30), rounded up, at least 1."""
        return max(ceil_div(self.memory_bytes + self.disk_bytes, GIB), 1)

    @property
    def classic_gb(self) -> int:
        """The data as KubeVirt counts it: decimal gigabytes, rounded up."""
        return ceil_div(self.memory_bytes + self.disk_bytes, 10**9)


def resolve(
    configuration: VMIMConfigurationOptions | None = None,
    policy: MigrationPolicySpec | None = None,
    node: VMIMConfigurationOptions | None = None,
) -> Options:
    """Merge the three layers over the API's defaults.

    ``allowWorkloadDisruption`` follows ``allowPostCopy`` where no layer names it, as the API says.

    Raises:
        InvalidSpec: values out of the API's ranges, those of all layers together. Fields are named below
            ``configuration``, ``spec`` (of the policy) and ``node``.
    """
    _check(configuration, policy, node)
    layers: tuple[VMIMConfigurationOptions, ...] = tuple(
        layer for layer in (configuration, _policy_layer(policy), node) if layer is not None
    )
    defaults = Options()
    post_copy = _first([x.allow_post_copy for x in layers], defaults.allow_post_copy)
    bandwidth = _first([x.bandwidth_per_migration for x in layers], None)
    experiments = [x.experimental for x in layers if x.experimental is not None]
    tunings = [x.downtime_tuning for x in experiments if x.downtime_tuning is not None]
    detectors = [x.stall_detector for x in experiments if x.stall_detector is not None]
    return Options(
        bandwidth_bps=int(bandwidth.value) if bandwidth is not None else 0,
        completion_timeout_per_gib_s=_first(
            [x.completion_timeout_per_gi_b for x in layers], defaults.completion_timeout_per_gib_s
        ),
        progress_timeout_s=_first([x.progress_timeout for x in layers], defaults.progress_timeout_s),
        max_downtime_ms=_first([x.max_downtime_ms for x in layers], defaults.max_downtime_ms),
        allow_auto_converge=_first([x.allow_auto_converge for x in layers], defaults.allow_auto_converge),
        allow_post_copy=post_copy,
        allow_workload_disruption=_first([x.allow_workload_disruption for x in layers], post_copy),
        unsafe=_first([x.unsafe_migration_override for x in layers], defaults.unsafe),
        disable_tls=_first([x.disable_tls for x in layers], defaults.disable_tls),
        compression=_first([x.compression for x in experiments], defaults.compression),
        network=_first([x.network for x in layers], defaults.network),
        match_selinux_level=_first(
            [x.match_selinux_level_on_migration for x in layers], defaults.match_selinux_level
        ),
        node_drain_taint_key=_first([x.node_drain_taint_key for x in layers], defaults.node_drain_taint_key),
        parallel_migrations_per_cluster=_first(
            [x.parallel_migrations_per_cluster for x in layers], defaults.parallel_migrations_per_cluster
        ),
        parallel_outbound_per_node=_first(
            [x.parallel_outbound_migrations_per_node for x in layers], defaults.parallel_outbound_per_node
        ),
        utility_volumes_timeout_s=_first(
            [x.utility_volumes_timeout for x in layers], defaults.utility_volumes_timeout_s
        ),
        ramp=_ramp(tunings),
        ramp_asked=bool(tunings),
        stall=_stall(detectors),
        stall_asked=bool(detectors),
    )


def to_migration_configuration(options: Options) -> VMIMConfigurationOptions:
    """All options as in force, for ``status.migrationState.migrationConfiguration``."""
    ramp, stall = options.ramp, options.stall
    return VMIMConfigurationOptions(
        allow_auto_converge=options.allow_auto_converge,
        allow_post_copy=options.allow_post_copy,
        allow_workload_disruption=options.allow_workload_disruption,
        bandwidth_per_migration=Quantity(str(options.bandwidth_bps)),
        completion_timeout_per_gi_b=options.completion_timeout_per_gib_s,
        disable_tls=options.disable_tls,
        experimental=ExperimentalMigrationOptions(
            compression=options.compression or None,
            downtime_tuning=DowntimeTuningOptions(
                cooldown_seconds=ramp.cooldown_s,
                initial_ms=ramp.initial_ms,
                start_after_iteration=ramp.start_iteration,
                steps=ramp.steps,
            ),
            stall_detector=StallDetectorOptions(
                completion_timeout_factor=_decimal(stall.completion_factor),
                ewma_alpha=_decimal(stall.ewma_alpha),
                patience_window_decay_factor=_decimal(stall.patience_decay),
                precopy_possible_factor=_decimal(stall.tolerated_factor),
                search_local_minima=stall.search_local_minima,
                stall_margin=stall.margin_percent,
                stall_progress_timeout=stall.window_s,
                switchover_timeout=stall.switchover_s,
            ),
        ),
        match_selinux_level_on_migration=options.match_selinux_level,
        max_downtime_ms=options.max_downtime_ms,
        network=options.network or None,
        node_drain_taint_key=options.node_drain_taint_key or None,
        parallel_migrations_per_cluster=options.parallel_migrations_per_cluster,
        parallel_outbound_migrations_per_node=options.parallel_outbound_per_node,
        progress_timeout=options.progress_timeout_s,
        unsafe_migration_override=options.unsafe,
        utility_volumes_timeout=options.utility_volumes_timeout_s,
    )


def _check(
    configuration: VMIMConfigurationOptions | None,
    policy: MigrationPolicySpec | None,
    node: VMIMConfigurationOptions | None,
) -> None:
    violations = [
        violation
        for path, layer in (("configuration", configuration), ("spec", policy), ("node", node))
        if layer is not None
        for violation in check_options(layer, path)
    ]
    if violations:
        raise InvalidSpec(violations)


def _first(values: Sequence[T | None], default: T) -> T:
    return next((value for value in values if value is not None), default)


def _policy_layer(policy: MigrationPolicySpec | None) -> VMIMConfigurationOptions | None:
    if policy is None:
        return None
    return VMIMConfigurationOptions(
        allow_auto_converge=policy.allow_auto_converge,
        allow_post_copy=policy.allow_post_copy,
        allow_workload_disruption=policy.allow_workload_disruption,
        bandwidth_per_migration=policy.bandwidth_per_migration,
        completion_timeout_per_gi_b=policy.completion_timeout_per_gi_b,
        experimental=policy.experimental,
        max_downtime_ms=policy.max_downtime_ms,
    )


def _ramp(layers: Sequence[DowntimeTuningOptions]) -> RampOptions:
    defaults = RampOptions()
    return RampOptions(
        initial_ms=_first([x.initial_ms for x in layers], defaults.initial_ms),
        steps=_first([x.steps for x in layers], defaults.steps),
        start_iteration=_first([x.start_after_iteration for x in layers], defaults.start_iteration),
        cooldown_s=_first([x.cooldown_seconds for x in layers], defaults.cooldown_s),
    )


def _stall(layers: Sequence[StallDetectorOptions]) -> StallOptions:
    defaults = StallOptions()
    return StallOptions(
        margin_percent=_first([x.stall_margin for x in layers], defaults.margin_percent),
        window_s=_first([x.stall_progress_timeout for x in layers], defaults.window_s),
        switchover_s=_first([x.switchover_timeout for x in layers], defaults.switchover_s),
        ewma_alpha=_number([x.ewma_alpha for x in layers], defaults.ewma_alpha),
        tolerated_factor=_number([x.precopy_possible_factor for x in layers], defaults.tolerated_factor),
        patience_decay=_number([x.patience_window_decay_factor for x in layers], defaults.patience_decay),
        completion_factor=_number([x.completion_timeout_factor for x in layers], defaults.completion_factor),
        search_local_minima=_first([x.search_local_minima for x in layers], defaults.search_local_minima),
    )


def _number(values: Sequence[Quantity | None], default: float) -> float:
    found = _first(values, None)
    return default if found is None else float(found.value)


def _decimal(value: float) -> Quantity:
    return Quantity(f"{value:.3f}".rstrip("0").rstrip("."))
