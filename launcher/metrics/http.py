# SPDX-License-Identifier: Apache-2.0
"""Serve metrics over HTTP: ``/metrics`` in a thread of its own. A scrape never waits for a guest."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Iterator
from wsgiref.simple_server import WSGIServer

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.exposition import start_http_server
from prometheus_client.registry import Collector

from launcher.agent.port import AgentPort, InterfaceTraffic
from launcher.errors import InvalidRequest, LauncherError, Unavailable, Violation
from launcher.metrics.collect import families
from launcher.metrics.migrations import migration_families
from launcher.metrics.outcomes import Outcomes
from launcher.metrics.traffic import traffic_families

SCRAPE_TIMEOUT_S = 5.0


class MetricsServer:
    """Listens on ``ADDRESS:PORT`` until closed."""

    def __init__(self, agent: AgentPort, address: str) -> None:
        host, colon, port = address.rpartition(":")
        if not colon or not port.isdecimal():
            finding = Violation(
                field="listen.metrics",
                type="FieldValueInvalid",
                value=address,
                message="accepted is ADDRESS:PORT, such as 127.0.0.1:9090",
            )
            raise InvalidRequest([finding])
        registry = CollectorRegistry()
        collector = _Agent(agent, asyncio.get_running_loop())
        self._following = asyncio.create_task(collector.follow(), name="metrics of migrations")
        registry.register(collector)
        self._server: WSGIServer
        self._thread: threading.Thread
        self._server, self._thread = start_http_server(int(port), addr=host.strip("[]"), registry=registry)

    @property
    def port(self) -> int:
        """Where it listens; the one that was found when 0 was asked for."""
        return self._server.server_port

    def close(self) -> None:
        """Stop listening."""
        self._following.cancel()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(SCRAPE_TIMEOUT_S)


class _Agent(Collector):
    def __init__(self, agent: AgentPort, loop: asyncio.AbstractEventLoop) -> None:
        self._agent = agent
        self._loop = loop
        self._outcomes: Outcomes | None = None

    async def follow(self) -> None:
        """Count the ends of migrations, whenever anybody scrapes."""
        self._outcomes = outcomes = Outcomes((await self._agent.node()).name)
        while True:
            with contextlib.suppress(Unavailable):  # It fell behind, and begins again.
                async for event in self._agent.watch_migrations(None):
                    outcomes.observe(event)
                return  # The agent ends.

    def collect(self) -> Iterator[Metric]:
        future = asyncio.run_coroutine_threadsafe(self._read(), self._loop)
        yield from future.result(SCRAPE_TIMEOUT_S)

    def describe(self) -> Iterator[Metric]:
        """Nothing is asked when the collector is registered."""
        return iter(())

    async def _read(self) -> list[Metric]:
        node = await self._agent.node()
        return [
            *families(
                node=node.name,
                version=node.version,
                libvirt_connected=node.libvirt_connected,
                instances=await self._agent.list_instances(None),
            ),
            *traffic_families(node.name, await self._traffic()),
            *migration_families(node.name, await self._agent.list_migrations(None)),
            *(self._outcomes.families() if self._outcomes is not None else ()),
        ]

    async def _traffic(self) -> tuple[InterfaceTraffic, ...]:
        try:
            return await self._agent.traffic(None, None)
        except LauncherError:
            return ()  # without libvirt nothing is counted; that it is away has a metric of its own
