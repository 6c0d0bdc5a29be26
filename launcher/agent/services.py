# SPDX-License-Identifier: Apache-2.0
"""What the machines of a node share, as one record. Does nothing itself."""

from __future__ import annotations

from dataclasses import dataclass

from launcher.agent.resources import Resources
from launcher.agent.store import Store
from launcher.agent.watch import Hub
from launcher.hypervisor.port import Hypervisor
from launcher.migration.clock import Clock
from launcher.plan.paths import kept_paths
from launcher.spec.model import VirtualMachineInstance


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """What machines share."""

    node: str
    hypervisor: Hypervisor
    store: Store
    resources: Resources
    hub: Hub[VirtualMachineInstance]
    clock: Clock
    state_dir: str = "/var/lib/launcher"

    def kept(self, namespace: str, name: str) -> str:
        """Where state that outlives the instances ``namespace/name`` is kept."""
        return kept_paths(self.state_dir, namespace, name).directory
