# SPDX-License-Identifier: Apache-2.0
"""``launcherctl usbredir``: a USB device of this machine, lent to a guest by the program usbredirect."""

from __future__ import annotations

import re
import shutil
import subprocess
from functools import partial
from typing import Final

import click

from launcher.cli.forward import Forwarder, Listener, listen
from launcher.cli.resource import placed_instance
from launcher.cli.session import current, namespace_option
from launcher.errors import HostUnsupported

PROGRAM: Final = "usbredirect"
LOOK_S: Final = 0.2
_DEVICE = re.compile(r"[0-9A-Fa-f]{4}:[0-9A-Fa-f]{4}|[0-9]{1,3}-[0-9]{1,3}")


@click.command()
@click.argument("device", metavar="VENDOR:PRODUCT|BUS-DEVICE")
@click.argument("instance", metavar="[vmi/]NAME")
@namespace_option
def usbredir(device: str, instance: str) -> None:
    """Lend a USB device of this machine to a guest with clientPassthrough, until Ctrl+C."""
    session = current()
    name, namespace = placed_instance(instance)
    namespace = namespace or session.namespace
    if _DEVICE.fullmatch(device) is None:
        raise click.UsageError(f"{device!r} is no USB device: use VENDOR:PRODUCT (in hex) or BUS-DEVICE")
    if shutil.which(PROGRAM) is None:
        raise HostUnsupported(PROGRAM, "it is not on this machine", hint="install usbredirect (usbredir)")
    with session.client() as client:
        client.instances.get(name, namespace=namespace)
        opened = partial(client.streams.usb_redirect, name, namespace=namespace)
        listener = Listener(local=listen("127.0.0.1", 0)[0], open_stream=opened, remote="USB slot")
        command = [PROGRAM, "--device", device, "--to", f"127.0.0.1:{listener.port}"]
        with subprocess.Popen(command) as process:
            try:
                Forwarder([listener]).run(lambda: process.poll() is not None, look_s=LOOK_S)
            finally:
                process.terminate()
        if process.returncode > 0:
            raise click.ClickException(f"{PROGRAM} ended with status {process.returncode}")
