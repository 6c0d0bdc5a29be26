# SPDX-License-Identifier: Apache-2.0
"""``launcherctl vnc``: a guest's screen on a local port, and a viewer that shows it."""

from __future__ import annotations

import json
import shutil
import subprocess
from functools import partial
from typing import Final

import click

from launcher.cli.forward import Forwarder, Listener, listen
from launcher.cli.resource import vmi_arguments
from launcher.cli.session import current, namespace_option
from launcher.errors import HostUnsupported

VIEWERS: Final = {
    "remote-viewer": "vnc://{host}:{port}",
    "xtigervncviewer": "{host}::{port}",
    "vncviewer": "{host}::{port}",
}
"""Programs that show a screen, the first that is there is taken, and how each is told where it is."""
LOOK_S: Final = 0.2


@click.command()
@vmi_arguments
@click.option("--proxy-only", is_flag=True, help="Start no viewer; print the port as JSON and serve it.")
@click.option(
    "--port", type=click.IntRange(0, 65535), default=0, help="Local port (default: any that is free)."
)
@click.option("--address", default="127.0.0.1", show_default=True, help="Where to listen.")
@namespace_option
def vnc(name: str, proxy_only: bool, port: int, address: str) -> None:
    """Show the screen of the instance NAME: with --proxy-only serve it on a local port until Ctrl+C."""
    session = current()
    viewer = None if proxy_only else next(filter(shutil.which, VIEWERS), None)
    if not proxy_only and viewer is None:
        raise HostUnsupported(
            "a VNC viewer",
            f"none of {', '.join(VIEWERS)} is on this machine",
            hint="install one, or use --proxy-only with a viewer of your own",
        )
    with session.client() as client:
        client.instances.get(name, namespace=session.namespace)
        opened = partial(client.streams.vnc, name, namespace=session.namespace)
        listeners = [
            Listener(local=local, open_stream=opened, remote="screen") for local in listen(address, port)
        ]
        forwarder = Forwarder(listeners)
        if viewer is None:
            click.echo(json.dumps({"port": listeners[0].port}))
            forwarder.run()
            return
        where = VIEWERS[viewer].format(host=address, port=listeners[0].port)
        with subprocess.Popen([viewer, where]) as process:
            try:
                forwarder.run(lambda: process.poll() is not None, look_s=LOOK_S)
            finally:
                process.terminate()
