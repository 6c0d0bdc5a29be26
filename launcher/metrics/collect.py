# SPDX-License-Identifier: Apache-2.0
"""What is known of the node and its instances -> metric families. Pure: objects in, families out.

Names and labels are those of KubeVirt's metrics where one exists, so that dashboards go on working; our own
begin with ``launcher_``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from prometheus_client.core import GaugeMetricFamily, Metric

from launcher.spec.model import VirtualMachineInstance

_INFO_LABELS = ("node", "namespace", "name", "phase", "guest_os_arch")


def families(
    *, node: str, version: str, libvirt_connected: bool, instances: Iterable[VirtualMachineInstance]
) -> Iterator[Metric]:
    """One scrape."""
    up = GaugeMetricFamily("launcher_libvirt_connected", "1 while the agent is connected to libvirt")
    up.add_metric((), int(libvirt_connected))
    yield up

    build = GaugeMetricFamily("launcher_build_info", "The agent's version", labels=("version", "node"))
    build.add_metric((version, node), 1)
    yield build

    info = GaugeMetricFamily("kubevirt_vmi_info", "Instances of this node", labels=_INFO_LABELS)
    memory = GaugeMetricFamily(
        "kubevirt_vmi_memory_domain_bytes", "Memory of the domain", labels=("node", "namespace", "name")
    )
    phases: Counter[str] = Counter()
    for instance in instances:
        status, metadata = instance.status, instance.metadata
        namespace = (metadata.namespace if metadata else None) or ""
        name = (metadata.name if metadata else None) or ""
        phase = (status.phase if status else None) or "Unknown"
        phases[phase] += 1
        info.add_metric((node, namespace, name, phase.lower(), instance.spec.architecture or ""), 1)
        if status is not None and status.memory is not None and status.memory.guest_current is not None:
            memory.add_metric((node, namespace, name), float(status.memory.guest_current.value))
    yield info
    yield memory

    count = GaugeMetricFamily("kubevirt_vmi_phase_count", "Instances by phase", labels=("node", "phase"))
    for phase, number in sorted(phases.items()):
        count.add_metric((node, phase.lower()), number)
    yield count
