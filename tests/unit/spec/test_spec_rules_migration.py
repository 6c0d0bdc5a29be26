# SPDX-License-Identifier: Apache-2.0
"""Rules of migrations and migration policies."""

from __future__ import annotations

import pytest
import yaml

from launcher.spec.load import decode_object
from launcher.spec.model import (
    MigrationPolicy,
    Quantity,
    VirtualMachineInstanceMigration,
    VMIMConfigurationOptions,
)
from launcher.spec.rules import check_migration, check_options, check_policy


def migration(spec: str, metadata: str = "{name: m, namespace: lab}") -> VirtualMachineInstanceMigration:
    raw = {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachineInstanceMigration",
        "metadata": yaml.safe_load(metadata),
        "spec": yaml.safe_load(spec),
    }
    loaded = decode_object(raw).obj
    assert isinstance(loaded, VirtualMachineInstanceMigration)
    return loaded


def policy(spec: str) -> MigrationPolicy:
    raw = {
        "apiVersion": "migrations.kubevirt.io/v1alpha1",
        "kind": "MigrationPolicy",
        "metadata": {"name": "p"},
        "spec": {"selectors": {}} | yaml.safe_load(spec),
    }
    loaded = decode_object(raw).obj
    assert isinstance(loaded, MigrationPolicy)
    return loaded


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("{}", {"spec.vmiName"}),
        ("{vmiName: A}", {"spec.vmiName"}),
        ("{vmiName: a, addedNodeSelector: {'a b': c}}", {"spec.addedNodeSelector[a b]"}),
        ('{vmiName: a, priority: "x\\ty"}', {"spec.priority"}),
        ("{vmiName: a, sendTo: {connectURL: '', migrationID: m}}", {"spec.sendTo.connectURL"}),
        ("{vmiName: a, sendTo: {connectURL: 'a b', migrationID: m}}", {"spec.sendTo.connectURL"}),
        ("{vmiName: a, sendTo: {connectURL: 'h:1', migrationID: ''}}", {"spec.sendTo.migrationID"}),
        ("{vmiName: a, receive: {migrationID: 'm/../x'}}", {"spec.receive.migrationID"}),
        (
            "{vmiName: a, sendTo: {connectURL: 'h:1', migrationID: m}, receive: {migrationID: n}}",
            {"spec.receive.migrationID"},
        ),
        ("{vmiName: a, receive: {migrationID: m}, addedNodeSelector: {a: b}}", {"spec.addedNodeSelector"}),
    ],
)
def test_refuses_migrations(spec: str, expected: set[str]) -> None:
    assert {violation.field for violation in check_migration(migration(spec))} == expected


@pytest.mark.parametrize(
    "spec",
    [
        "{vmiName: a.b}",
        "{vmiName: a, addedNodeSelector: {kubernetes.io/hostname: b}, priority: system-maintenance}",
        "{vmiName: a, sendTo: {connectURL: 'https://[fd00::1]:9185/x', migrationID: m-1}}",
        "{vmiName: a, receive: {migrationID: m-1}}",
    ],
)
def test_accepts_migrations(spec: str) -> None:
    assert check_migration(migration(spec)) == ()


def test_a_migration_may_leave_its_name_to_be_made() -> None:
    assert check_migration(migration("{vmiName: a}", "{generateName: move-}")) == ()
    (violation,) = check_migration(migration("{vmiName: a}", "{name: Move}"))
    assert violation.field == "metadata.name"


STALL = "spec.experimental.stallDetector"
TUNING = "spec.experimental.downtimeTuning"


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("{bandwidthPerMigration: -1}", {"spec.bandwidthPerMigration"}),
        ("{completionTimeoutPerGiB: -1}", {"spec.completionTimeoutPerGiB"}),
        ("{maxDowntimeMs: 0}", {"spec.maxDowntimeMs"}),
        ("{maxDowntimeMs: 2000001}", {"spec.maxDowntimeMs"}),
        ("{selectors: {namespaceSelector: {a: b c}}}", {"spec.selectors.namespaceSelector[a]"}),
        (
            "{selectors: {virtualMachineInstanceSelector: {a: b c}}}",
            {"spec.selectors.virtualMachineInstanceSelector[a]"},
        ),
        ("{experimental: {compression: gzip}}", {"spec.experimental.compression"}),
        ("{experimental: {downtimeTuning: {}, stallDetector: {}}}", {STALL}),
        (
            "{experimental: {downtimeTuning: "
            "{cooldownSeconds: 0, initialMs: 0, startAfterIteration: -1, steps: 0}}}",
            {f"{TUNING}.{name}" for name in ("cooldownSeconds", "initialMs", "startAfterIteration", "steps")},
        ),
        (
            "{experimental: {stallDetector: "
            "{stallMargin: 101, stallProgressTimeout: -1, switchoverTimeout: -1}}}",
            {f"{STALL}.{name}" for name in ("stallMargin", "stallProgressTimeout", "switchoverTimeout")},
        ),
        ("{experimental: {stallDetector: {ewmaAlpha: 0}}}", {f"{STALL}.ewmaAlpha"}),
        ("{experimental: {stallDetector: {ewmaAlpha: 0.4567}}}", {f"{STALL}.ewmaAlpha"}),
        ("{experimental: {stallDetector: {precopyPossibleFactor: 0.9}}}", {f"{STALL}.precopyPossibleFactor"}),
        (
            "{experimental: {stallDetector: {completionTimeoutFactor: 0}}}",
            {f"{STALL}.completionTimeoutFactor"},
        ),
        (
            "{experimental: {stallDetector: {patienceWindowDecayFactor: 1.1}}}",
            {f"{STALL}.patienceWindowDecayFactor"},
        ),
    ],
)
def test_refuses_policies(spec: str, expected: set[str]) -> None:
    assert {violation.field for violation in check_policy(policy(spec))} == expected


@pytest.mark.parametrize(
    "spec",
    [
        "{}",
        "{selectors: {namespaceSelector: {a: b}, virtualMachineInstanceSelector: {c: ''}}}",
        "{bandwidthPerMigration: 64Mi, completionTimeoutPerGiB: 0, maxDowntimeMs: 2000000}",
        "{experimental: {compression: zstd, downtimeTuning: {cooldownSeconds: 1, initialMs: 1, steps: 1}}}",
        "{experimental: {stallDetector: {ewmaAlpha: 0.001, patienceWindowDecayFactor: 0, stallMargin: 0, "
        "completionTimeoutFactor: 1.125}}}",
    ],
)
def test_accepts_policies(spec: str) -> None:
    assert check_policy(policy(spec)) == ()


def test_options_are_checked_where_they_stand() -> None:
    options = VMIMConfigurationOptions(
        progress_timeout=-1,
        utility_volumes_timeout=-1,
        parallel_migrations_per_cluster=0,
        parallel_outbound_migrations_per_node=0,
        bandwidth_per_migration=Quantity("1Gi"),
    )

    assert {violation.field for violation in check_options(options, "options")} == {
        "options.progressTimeout",
        "options.utilityVolumesTimeout",
        "options.parallelMigrationsPerCluster",
        "options.parallelOutboundMigrationsPerNode",
    }
