# SPDX-License-Identifier: Apache-2.0
"""What goes over interfaces -> metric families with KubeVirt's names and labels. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from operator import attrgetter
from typing import Final

from prometheus_client.core import CounterMetricFamily, Metric

from launcher.agent.port import InterfaceTraffic

LABELS: Final = ("node", "namespace", "name", "interface")
COUNTERS: Final = {
    "receive_bytes": ("rx_bytes", "Bytes received"),
    "receive_packets": ("rx_packets", "Packets received"),
    "receive_errors": ("rx_errors", "Packets received with errors"),
    "receive_packets_dropped": ("rx_dropped", "Packets dropped on their way to the guest"),
    "transmit_bytes": ("tx_bytes", "Bytes transmitted"),
    "transmit_packets": ("tx_packets", "Packets transmitted"),
    "transmit_errors": ("tx_errors", "Packets transmitted with errors"),
    "transmit_packets_dropped": ("tx_dropped", "Packets dropped on their way from the guest"),
}
"""The middle of each name, between ``kubevirt_vmi_network_`` and ``_total``."""


def traffic_families(node: str, traffic: Iterable[InterfaceTraffic]) -> Iterator[Metric]:
    """A counter of each kind, with a sample for each interface."""
    interfaces = tuple(traffic)
    for name, (field, text) in COUNTERS.items():
        family = CounterMetricFamily(f"kubevirt_vmi_network_{name}", text, labels=LABELS)
        value = attrgetter(field)
        for one in interfaces:
            family.add_metric((node, one.namespace, one.instance, one.interface), value(one))
        yield family
