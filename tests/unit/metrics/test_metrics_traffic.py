# SPDX-License-Identifier: Apache-2.0
"""Counters of interfaces under the names that KubeVirt's have."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from launcher.agent.port import InterfaceTraffic
from launcher.metrics.traffic import traffic_families


class _Once(Collector):
    def __init__(self, *traffic: InterfaceTraffic) -> None:
        self._traffic = traffic

    def collect(self) -> Iterator[Metric]:
        yield from traffic_families("here", self._traffic)


def test_names_and_labels() -> None:
    registry = CollectorRegistry()
    one = InterfaceTraffic(
        namespace="lab",
        instance="web",
        interface="default",
        rx_bytes=1,
        rx_packets=2,
        rx_errors=3,
        rx_dropped=4,
        tx_bytes=5,
        tx_packets=6,
        tx_errors=7,
        tx_dropped=8,
    )
    registry.register(_Once(one))
    lines = [line for line in generate_latest(registry).decode().splitlines() if not line.startswith("#")]
    labels = 'interface="default",name="web",namespace="lab",node="here"'
    assert lines == [
        f"kubevirt_vmi_network_receive_bytes_total{{{labels}}} 1.0",
        f"kubevirt_vmi_network_receive_packets_total{{{labels}}} 2.0",
        f"kubevirt_vmi_network_receive_errors_total{{{labels}}} 3.0",
        f"kubevirt_vmi_network_receive_packets_dropped_total{{{labels}}} 4.0",
        f"kubevirt_vmi_network_transmit_bytes_total{{{labels}}} 5.0",
        f"kubevirt_vmi_network_transmit_packets_total{{{labels}}} 6.0",
        f"kubevirt_vmi_network_transmit_errors_total{{{labels}}} 7.0",
        f"kubevirt_vmi_network_transmit_packets_dropped_total{{{labels}}} 8.0",
    ]


def test_without_interfaces_there_are_no_samples() -> None:
    assert all(not family.samples for family in traffic_families("here", ()))
