# SPDX-License-Identifier: Apache-2.0
"""launcherd: the composition root. Builds every part, runs until told to stop, shuts down in reverse order.

SIGTERM and SIGINT stop the agent and leave guests, their files and running migrations alone.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from pathlib import Path

import click

from launcher import __version__
from launcher.agent.landing import Landings, places
from launcher.agent.node import NodeAgent
from launcher.agent.store import Store
from launcher.api.server import ApiServer
from launcher.cli.exits import explain
from launcher.errors import InvalidRequest, LauncherError
from launcher.host import config as configuration
from launcher.host.config import Config
from launcher.host.logging import get, setup
from launcher.host.systemd import Notifier, notifier
from launcher.host.threads import widen
from launcher.hypervisor.driver import LibvirtHypervisor
from launcher.hypervisor.port import ConnectionEvent, Event, Hypervisor
from launcher.metrics.http import MetricsServer

log = get("launcher.daemon")

DEFAULT_CONFIG = Path("/etc/launcher/launcherd.toml")


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--config",
    "path",
    type=click.Path(path_type=Path),
    help=f"Configuration file [default: {DEFAULT_CONFIG} if it exists].",
)
@click.version_option(__version__, prog_name="launcherd")
def main(path: Path | None) -> None:
    """The agent that runs the virtual machines of this node."""
    if path is None and DEFAULT_CONFIG.exists():
        path = DEFAULT_CONFIG
    try:
        config = configuration.load(path)
        setup(config.log_format, config.log_level)
        _look_at_networks(config)
        asyncio.run(serve(config))
    except LauncherError as error:
        click.echo(explain(error), err=True)
        sys.exit(1)


def _look_at_networks(config: Config) -> None:
    """Say which migration networks this host has no part in; it may have later, when one is needed."""
    landings = Landings(config)
    for network, said in places(config).items():
        try:
            if said:
                landings.find(network)
        except InvalidRequest as error:
            log.warning("no migration can come in here now", network=network, why=error.message)


async def serve(config: Config) -> None:
    """Run the agent until a signal."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    widen(loop)
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)

    async with contextlib.AsyncExitStack() as stack:
        store = await Store.open(Path(config.state_dir) / "launcher.db")
        hypervisor = LibvirtHypervisor(config.libvirt.uri, call_timeout_s=config.libvirt.call_timeout_s)
        agent = NodeAgent(config, hypervisor, store)
        stack.push_async_callback(agent.stop)
        await agent.start()
        server = ApiServer(agent, config.listen, config.tls)
        await server.start()
        stack.push_async_callback(server.stop)
        notify = notifier(os.environ)
        if config.listen.metrics:
            stack.callback(MetricsServer(agent, config.listen.metrics).close)
        for work in (_feed_watchdog(notify), _tell_health(server, hypervisor)):
            stack.callback(asyncio.create_task(work).cancel)
        notify.ready(f"serving on {config.listen.socket}")
        log.info("ready", node=config.node_name, version=__version__)
        await stop.wait()
        notify.stopping()
        log.info("stopping; guests go on")


async def _tell_health(server: ApiServer, hypervisor: Hypervisor) -> None:
    changed = asyncio.Event()

    def on_event(event: Event) -> None:
        if isinstance(event, ConnectionEvent):
            changed.set()

    hypervisor.subscribe(on_event)
    while True:
        await server.set_ready(ready=hypervisor.connected)
        await changed.wait()
        changed.clear()


async def _feed_watchdog(notify: Notifier) -> None:
    # Fed from the event loop: a loop that hangs starves the watchdog and systemd restarts the agent.
    interval_s = notify.watchdog_interval_s
    while interval_s is not None:
        notify.watchdog()
        await asyncio.sleep(interval_s)
