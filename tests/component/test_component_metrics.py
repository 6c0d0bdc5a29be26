# SPDX-License-Identifier: Apache-2.0
"""What Prometheus reads at ``/metrics``, over HTTP."""

from __future__ import annotations

import asyncio
import urllib.request

import pytest
from prometheus_client.parser import text_string_to_metric_families
from standin_agent import StandInAgent

from launcher.errors import InvalidRequest
from launcher.metrics.http import MetricsServer


async def test_a_scrape_tells_of_node_instances_traffic_and_migrations() -> None:
    server = MetricsServer(StandInAgent(), "127.0.0.1:0")
    try:
        url = f"http://127.0.0.1:{server.port}/metrics"
        text = await asyncio.to_thread(lambda: urllib.request.urlopen(url, timeout=10).read().decode())
    finally:
        await asyncio.to_thread(server.close)
    families = {family.name: family for family in text_string_to_metric_families(text)}
    assert {
        "launcher_libvirt_connected",
        "kubevirt_vmi_info",
        "kubevirt_vmi_network_receive_bytes",
        "kubevirt_vmi_migrations_in_running_phase",
        "launcher_migration_condition",
    } <= set(families)
    [running] = families["kubevirt_vmi_migrations_in_running_phase"].samples
    assert (running.labels["node"], running.value) == ("here", 0)


@pytest.mark.parametrize("address", ["127.0.0.1", "127.0.0.1:metrics"])
async def test_an_address_without_port_is_refused(address: str) -> None:
    with pytest.raises(InvalidRequest, match="accepted is ADDRESS:PORT"):
        MetricsServer(StandInAgent(), address)
