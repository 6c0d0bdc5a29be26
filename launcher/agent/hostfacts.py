# SPDX-License-Identifier: Apache-2.0
"""The facts of this host, read once per connection to libvirt and kept until the next one."""

from __future__ import annotations

import asyncio

from launcher.domain.caps import node_facts
from launcher.host import kvm
from launcher.host.config import Config
from launcher.host.logging import get
from launcher.hypervisor.port import HostTexts, Hypervisor
from launcher.plan.facts import NodeFacts

log = get(__name__)


class HostFacts:
    """``get`` reads them when they are not known; ``forget`` after libvirt came back: it may be another."""

    def __init__(self, config: Config, hypervisor: Hypervisor) -> None:
        self._config = config
        self._hypervisor = hypervisor
        self._facts: NodeFacts | None = None
        self._texts: HostTexts | None = None
        self._lock = asyncio.Lock()

    def forget(self) -> None:
        """Read anew at the next ``get``."""
        self._facts = None

    async def get(self) -> NodeFacts:
        """The facts; raises HypervisorUnavailable while there is no connection and nothing is known."""
        async with self._lock:
            if self._facts is None:
                self._texts = await self._hypervisor.host_texts()
                usable = await asyncio.to_thread(kvm.probe)
                if not usable.usable:
                    log.info("KVM is not usable", why=usable.reason)
                self._facts = node_facts(
                    self._texts.capabilities,
                    self._texts.domain_capabilities.values(),
                    node=self._config.node_name,
                    libvirt_version=self._texts.libvirt_version,
                    qemu_version=self._texts.hypervisor_version,
                    kvm_usable=usable.usable,
                )
            return self._facts
