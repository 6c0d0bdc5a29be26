# SPDX-License-Identifier: Apache-2.0
"""``launcherctl sev``: attestation of AMD SEV guests. Secrets come from files, not from the command line."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import click

from launcher.cli.resource import vmi_arguments
from launcher.cli.session import current, namespace_option
from launcher.cli.table import to_yaml

_output = click.option(
    "-o", "--output", type=click.Choice(["yaml", "json"]), default="yaml", show_default=True
)


class _Base64File(click.ParamType[str]):
    name = "file"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """What is in the file; line ends do not matter."""
        try:
            with click.open_file(str(value), "rb") as file:
                return "".join(file.read().decode("ascii").split())
        except UnicodeDecodeError:
            self.fail(f"{value} is not base64 text", param, ctx)
        except OSError as error:
            self.fail(f"{value}: {error.strerror}", param, ctx)


def _blob(option: str, text: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    return click.option(option, type=_Base64File(), required=True, help=text)


@click.group(short_help="Attest a guest whose memory SEV encrypts.")
def sev() -> None:
    """Attest a guest whose memory AMD SEV encrypts, before it runs and gets its secret.

    \b
    The owner of the guest
      1. fetches the host's certificates:         fetch-cert-chain
      2. makes a session for them (sevctl session), creates the instance with
         launchSecurity.sev.attestation and startStrategy Paused, and starts it:  setup
      3. checks what was measured of it:          query-measurement
      4. gives it its secret, and lets it run:    inject-secret, then launcherctl unpause
    """


@sev.command("fetch-cert-chain")
@_output
def fetch_cert_chain(output: str) -> None:
    """Show what identifies the SEV firmware of the node: its Diffie-Hellman key and its certificates."""
    with current().client() as client:
        found = client.launch_security.platform()
    shown: dict[str, Any] = {"pdh": found.pdh, "certChain": found.cert_chain}
    if found.cpu0_id:
        shown["cpu0Id"] = found.cpu0_id
    shown |= {"cbitpos": found.cbitpos, "reducedPhysBits": found.reduced_phys_bits}
    shown |= {"maxGuests": found.max_guests, "maxESGuests": found.max_es_guests}
    _print(shown, output)


@sev.command()
@vmi_arguments
@namespace_option
@_blob("--session", "File with the session, base64; - reads standard input.")
@_blob("--dh-cert", "File with the owner's Diffie-Hellman certificate, base64.")
def setup(name: str, session: str, dh_cert: str) -> None:
    """Hand over the session that the instance NAME waits for; it is started in it, paused."""
    at = current()
    with at.client() as client:
        client.launch_security.set_up(name, session=session, dh_cert=dh_cert, namespace=at.namespace)
    click.echo(f"virtualmachineinstance.kubevirt.io/{name} got its session")


@sev.command("query-measurement")
@vmi_arguments
@namespace_option
@_output
def query_measurement(name: str, output: str) -> None:
    """Show what the firmware measured of the instance NAME when it was started."""
    at = current()
    with at.client() as client:
        found = client.launch_security.measurement(name, namespace=at.namespace)
    shown = {
        "measurement": found.measurement,
        "apiMajor": found.api_major,
        "apiMinor": found.api_minor,
        "buildID": found.build_id,
        "policy": found.policy,
        "loaderSHA": found.loader_sha256,
    }
    _print(shown, output)


@sev.command("inject-secret")
@vmi_arguments
@namespace_option
@_blob("--header", "File with the header of the secret's packet, base64.")
@_blob("--secret", "File with the encrypted secret, base64; - reads standard input.")
def inject_secret(name: str, header: str, secret: str) -> None:
    """Give the paused instance NAME a secret, such as the key of its disk, before it runs."""
    at = current()
    with at.client() as client:
        client.launch_security.inject_secret(name, header=header, secret=secret, namespace=at.namespace)
    click.echo(f"virtualmachineinstance.kubevirt.io/{name} got its secret")


def _print(value: dict[str, Any], output: str) -> None:
    click.echo(json.dumps(value, indent=4) if output == "json" else to_yaml(value))
