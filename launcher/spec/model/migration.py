# SPDX-License-Identifier: Apache-2.0
"""Live migration: the migration object, its state, its options and the policies that select them."""

from __future__ import annotations

from msgspec import field

from launcher.spec.model.base import Model
from launcher.spec.model.meta import ObjectMeta
from launcher.spec.model.scalars import Int32, Int64, Time
from launcher.spec.quantity import Quantity


class DowntimeTuningOptions(Model, frozen=True, kw_only=True):
    """API type ``DowntimeTuningOptions``.

    The allowed downtime rises in steps to the maximum.

    cooldown_seconds: seconds between two steps
    initial_ms: milliseconds at the start
    start_after_iteration: iteration at which it begins to rise
    steps: number of steps
    """

    cooldown_seconds: Int32 | None = None
    initial_ms: Int64 | None = None
    start_after_iteration: Int64 | None = None
    steps: Int32 | None = None


class StallDetectorOptions(Model, frozen=True, kw_only=True):
    """API type ``StallDetectorOptions``.

    When a migration counts as stalled.

    completion_timeout_factor: factor on the time that the amount of data should take
    ewma_alpha: weight of the newest sample in the average, above 0, up to 1
    patience_window_decay_factor: factor by which patience shrinks
    precopy_possible_factor: how much faster than the writes the copying must be to converge
    search_local_minima: switch over where least remains instead of at the end of a pass
    stall_margin: percent that count as progress, 0 to 100
    stall_progress_timeout: seconds without progress that count as a stall
    switchover_timeout: seconds that the switch-over may take
    """

    completion_timeout_factor: Quantity | None = None
    ewma_alpha: Quantity | None = None
    patience_window_decay_factor: Quantity | None = None
    precopy_possible_factor: Quantity | None = None
    search_local_minima: bool | None = None
    stall_margin: Int64 | None = None
    stall_progress_timeout: Int64 | None = None
    switchover_timeout: Int64 | None = None


class ExperimentalMigrationOptions(Model, frozen=True, kw_only=True):
    """API type ``ExperimentalMigrationOptions``.

    Options that may change.

    compression: compression of the stream: none or zstd
    downtime_tuning: how the allowed downtime rises
    stall_detector: when a migration counts as stalled
    """

    compression: str | None = None
    downtime_tuning: DowntimeTuningOptions | None = None
    stall_detector: StallDetectorOptions | None = None


class MigrationConfiguration(Model, frozen=True, kw_only=True):
    """API type ``MigrationConfiguration``.

    ``bandwidth_per_migration`` is in bytes a second (0: no limit), ``completion_timeout_per_gi_b`` in
    seconds for each GiB to move, ``progress_timeout`` and ``utility_volumes_timeout`` in seconds,
    ``max_downtime_ms`` in milliseconds.
    """

    allow_auto_converge: bool | None = None
    allow_post_copy: bool | None = None
    allow_workload_disruption: bool | None = None
    bandwidth_per_migration: Quantity | None = None
    completion_timeout_per_gi_b: Int64 | None = None
    disable_tls: bool | None = field(name="disableTLS", default=None)
    match_selinux_level_on_migration: bool | None = field(name="matchSELinuxLevelOnMigration", default=None)
    max_downtime_ms: Int64 | None = None
    network: str | None = None
    node_drain_taint_key: str | None = None
    parallel_migrations_per_cluster: Int64 | None = None
    parallel_outbound_migrations_per_node: Int64 | None = None
    progress_timeout: Int64 | None = None
    unsafe_migration_override: bool | None = None
    utility_volumes_timeout: Int64 | None = None


class Selectors(Model, frozen=True, kw_only=True):
    """API type ``Selectors``.

    All that is given must match.

    namespace_selector: labels of the namespace
    virtual_machine_instance_selector: labels of the instance
    """

    namespace_selector: dict[str, str] = field(default_factory=dict)
    virtual_machine_instance_selector: dict[str, str] = field(default_factory=dict)


class MigrationPolicySpec(Model, frozen=True, kw_only=True):
    """API type ``MigrationPolicySpec``.

    Options of the migrations of those instances that the selectors match.

    selectors: which instances
    allow_auto_converge: slow the guest down when it writes faster than it is copied
    allow_post_copy: let the guest go on at the target before all memory is there, when time runs out
    allow_workload_disruption: pause the guest or switch to post-copy instead of giving up
    bandwidth_per_migration: bytes a second; 0 is no limit
    completion_timeout_per_gi_b: seconds for each GiB of guest memory and disk to move
    experimental: options that may change
    max_downtime_ms: milliseconds that the guest may stand still at the switch-over
    """

    selectors: Selectors
    allow_auto_converge: bool | None = None
    allow_post_copy: bool | None = None
    allow_workload_disruption: bool | None = None
    bandwidth_per_migration: Quantity | None = None
    completion_timeout_per_gi_b: Int64 | None = None
    experimental: ExperimentalMigrationOptions | None = None
    max_downtime_ms: Int64 | None = None


class MigrationPolicyStatus(Model, frozen=True, kw_only=True):
    """API type ``MigrationPolicyStatus``."""


class MigrationPolicy(Model, frozen=True, kw_only=True):
    """API type ``MigrationPolicy``."""

    spec: MigrationPolicySpec
    api_version: str | None = None
    kind: str | None = None
    metadata: ObjectMeta | None = None
    status: MigrationPolicyStatus | None = None


class VMIMConfigurationOptions(Model, frozen=True, kw_only=True):
    """API type ``VMIMConfigurationOptions``.

    The options one migration runs with, in the units of ``MigrationConfiguration``.
    """

    allow_auto_converge: bool | None = None
    allow_post_copy: bool | None = None
    allow_workload_disruption: bool | None = None
    bandwidth_per_migration: Quantity | None = None
    completion_timeout_per_gi_b: Int64 | None = None
    disable_tls: bool | None = field(name="disableTLS", default=None)
    experimental: ExperimentalMigrationOptions | None = None
    match_selinux_level_on_migration: bool | None = field(name="matchSELinuxLevelOnMigration", default=None)
    max_downtime_ms: Int64 | None = None
    network: str | None = None
    node_drain_taint_key: str | None = None
    parallel_migrations_per_cluster: Int64 | None = None
    parallel_outbound_migrations_per_node: Int64 | None = None
    progress_timeout: Int64 | None = None
    unsafe_migration_override: bool | None = None
    utility_volumes_timeout: Int64 | None = None


class VirtualMachineInstanceMigrationSource(Model, frozen=True, kw_only=True):
    """API type ``VirtualMachineInstanceMigrationSource``.

    Send to another cluster.

    connect_url: where the other cluster listens
    migration_id: what both sides call the migration
    """

    connect_url: str = field(name="connectURL")
    migration_id: str = field(name="migrationID")


class VirtualMachineInstanceMigrationTarget(Model, frozen=True, kw_only=True):
    """API type ``VirtualMachineInstanceMigrationTarget``.

    Receive from another cluster.

    migration_id: what both sides call the migration
    """

    migration_id: str = field(name="migrationID")


class VirtualMachineInstanceMigrationSpec(Model, frozen=True, kw_only=True):
    """API type ``VirtualMachineInstanceMigrationSpec``.

    Move an instance; at most one of sendTo and receive.

    added_node_selector: labels that narrow where to
    priority: urgency among the migrations that wait
    receive: receive it from another cluster
    send_to: send it to another cluster
    vmi_name: name of the instance, in the same namespace
    """

    added_node_selector: dict[str, str] = field(default_factory=dict)
    priority: str | None = None
    receive: VirtualMachineInstanceMigrationTarget | None = None
    send_to: VirtualMachineInstanceMigrationSource | None = None
    vmi_name: str | None = None


class VirtualMachineInstanceMigrationCondition(Model, frozen=True, kw_only=True):
    """API type ``VirtualMachineInstanceMigrationCondition``."""

    status: str
    type: str
    last_probe_time: Time | None = None
    last_transition_time: Time | None = None
    message: str | None = None
    reason: str | None = None


class VirtualMachineInstanceMigrationPhaseTransitionTimestamp(Model, frozen=True, kw_only=True):
    """API type ``VirtualMachineInstanceMigrationPhaseTransitionTimestamp``."""

    phase: str | None = None
    phase_transition_timestamp: Time | None = None


class VirtualMachineInstanceMigrationSourceState(Model, frozen=True, kw_only=True):
    """API type ``VirtualMachineInstanceMigrationSourceState``."""

    domain_name: str | None = None
    domain_namespace: str | None = None
    migration_uid: str | None = field(name="migrationUID", default=None)
    node: str | None = None
    node_selectors: dict[str, str] = field(default_factory=dict)
    persistent_state_pvc_name: str | None = field(name="persistentStatePVCName", default=None)
    pod: str | None = None
    selinux_context: str | None = None
    sync_address: str | None = None
    virtual_machine_instance_uid: str | None = field(name="virtualMachineInstanceUID", default=None)


class VirtualMachineInstanceMigrationTargetState(Model, frozen=True, kw_only=True):
    """API type ``VirtualMachineInstanceMigrationTargetState``."""

    attachment_pod_uid: str | None = field(name="attachmentPodUID", default=None)
    cpu_set: tuple[Int32, ...] = ()
    direct_migration_node_ports: dict[str, Int32] = field(default_factory=dict)
    domain_detected: bool | None = None
    domain_name: str | None = None
    domain_namespace: str | None = None
    domain_ready_timestamp: Time | None = None
    migration_uid: str | None = field(name="migrationUID", default=None)
    node: str | None = None
    node_address: str | None = None
    node_topology: str | None = None
    persistent_state_pvc_name: str | None = field(name="persistentStatePVCName", default=None)
    pod: str | None = None
    selinux_context: str | None = None
    sync_address: str | None = None
    virtual_machine_instance_uid: str | None = field(name="virtualMachineInstanceUID", default=None)


class VirtualMachineInstanceMigrationState(Model, frozen=True, kw_only=True):
    """API type ``VirtualMachineInstanceMigrationState``."""

    abort_requested: bool | None = None
    abort_status: str | None = None
    completed: bool | None = None
    end_timestamp: Time | None = None
    failed: bool | None = None
    failure_reason: str | None = None
    migration_configuration: VMIMConfigurationOptions | None = None
    migration_network_type: str | None = None
    migration_policy_name: str | None = None
    migration_uid: str | None = None
    mode: str | None = None
    source_node: str | None = None
    source_persistent_state_pvc_name: str | None = field(name="sourcePersistentStatePVCName", default=None)
    source_pod: str | None = None
    source_state: VirtualMachineInstanceMigrationSourceState | None = None
    start_timestamp: Time | None = None
    target_attachment_pod_uid: str | None = field(name="targetAttachmentPodUID", default=None)
    target_cpu_set: tuple[Int32, ...] = field(name="targetCPUSet", default=())
    target_direct_migration_node_ports: dict[str, Int32] = field(default_factory=dict)
    target_memory_overhead: Quantity | None = None
    target_node: str | None = None
    target_node_address: str | None = None
    target_node_domain_detected: bool | None = None
    target_node_domain_ready_timestamp: Time | None = None
    target_node_topology: str | None = None
    target_persistent_state_pvc_name: str | None = field(name="targetPersistentStatePVCName", default=None)
    target_pod: str | None = None
    target_state: VirtualMachineInstanceMigrationTargetState | None = None


class VirtualMachineInstanceMigrationStatus(Model, frozen=True, kw_only=True):
    """API type ``VirtualMachineInstanceMigrationStatus``."""

    conditions: tuple[VirtualMachineInstanceMigrationCondition, ...] = ()
    migration_state: VirtualMachineInstanceMigrationState | None = None
    phase: str | None = None
    phase_transition_timestamps: tuple[VirtualMachineInstanceMigrationPhaseTransitionTimestamp, ...] = ()
    synchronization_addresses: tuple[str, ...] = ()


class VirtualMachineInstanceMigration(Model, frozen=True, kw_only=True):
    """API type ``VirtualMachineInstanceMigration``."""

    spec: VirtualMachineInstanceMigrationSpec
    api_version: str | None = None
    kind: str | None = None
    metadata: ObjectMeta | None = None
    status: VirtualMachineInstanceMigrationStatus | None = None
