# SPDX-License-Identifier: Apache-2.0
"""What must hold between the fields of an object that decodes: small rules, all of them run. Asks no node.

``check`` takes the object as the user wrote it, without defaults. Rules that depend on a default look at a
defaulted copy, and findings name the places of the manifest. A rule is a function from a ``Context`` to its
violations; each module lists its own in ``RULES``. What only this node can say (is there KVM, are there huge
pages) is not decided here.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain, islice
from typing import Final

from launcher.errors import Violation
from launcher.spec.defaults import DefaultsSettings, apply_defaults
from launcher.spec.findings import MAX_REPORTED
from launcher.spec.model import MigrationPolicy, VirtualMachineInstance, VirtualMachineInstanceMigration
from launcher.spec.rules import (
    clock,
    cloud_init,
    compute,
    config_volumes,
    cpu,
    credentials,
    devices,
    disks,
    features,
    filesystems,
    firmware,
    host_devices,
    images,
    interfaces,
    launch_security,
    lifecycle,
    memory,
    metadata,
    migration,
    networks,
    places,
    ports,
    probes,
    scheduling,
    volumes,
)
from launcher.spec.rules.context import Rule, context
from launcher.spec.rules.migration import MigrationOptions

__all__ = ["RULES", "check", "check_migration", "check_options", "check_policy"]

# In the order of the fields of a manifest, as far as one can say so.
RULES: Final[tuple[Rule, ...]] = (
    *metadata.RULES,
    *lifecycle.RULES,
    *scheduling.RULES,
    *compute.RULES,
    *cpu.RULES,
    *memory.RULES,
    *firmware.RULES,
    *features.RULES,
    *clock.RULES,
    *launch_security.RULES,
    *disks.RULES,
    *filesystems.RULES,
    *volumes.RULES,
    *images.RULES,
    *cloud_init.RULES,
    *config_volumes.RULES,
    *interfaces.RULES,
    *ports.RULES,
    *networks.RULES,
    *places.RULES,
    *devices.RULES,
    *host_devices.RULES,
    *probes.RULES,
    *credentials.RULES,
)

_SETTINGS: Final = DefaultsSettings()


def check(
    vmi: VirtualMachineInstance,
    *,
    settings: DefaultsSettings = _SETTINGS,
    defaulted: VirtualMachineInstance | None = None,
    creating: bool = True,
) -> tuple[Violation, ...]:
    """Everything that is wrong with an instance; nothing means that it is right.

    ``vmi`` is the manifest as written. ``defaulted`` is the same with its defaults, for callers who have it
    already. ``creating`` is false for an instance that runs, such as one that another node sends. After
    1000 findings the rest is left out. Raises nothing, whatever the object says.
    """
    full = apply_defaults(vmi, settings) if defaulted is None else defaulted
    ctx = context(vmi, full, settings, creating=creating)
    return _collected(chain.from_iterable([rule(ctx) for rule in RULES]))


def check_migration(vmim: VirtualMachineInstanceMigration) -> tuple[Violation, ...]:
    """Everything that is wrong with a migration."""
    return _collected(migration.migration(vmim))


def check_policy(policy: MigrationPolicy) -> tuple[Violation, ...]:
    """Everything that is wrong with a migration policy."""
    return _collected(migration.policy(policy))


def check_options(options: MigrationOptions, path: str) -> tuple[Violation, ...]:
    """Everything that is wrong with options of a migration that stand at ``path``."""
    return _collected(migration.options(path, options))


def _collected(violations: Iterable[Violation]) -> tuple[Violation, ...]:
    return tuple(islice(violations, MAX_REPORTED))
