# SPDX-License-Identifier: Apache-2.0
"""Where migrations to this node come in: the migration networks of its configuration, or sockets in a folder.

Addresses are looked up for each migration: an interface may come later than the agent, or get another one.
"""

from __future__ import annotations

import errno
import hashlib
import os
import socket
from collections.abc import Iterable
from pathlib import Path

from launcher.errors import HostUnsupported, InvalidRequest, Violation
from launcher.host.addresses import own_address
from launcher.host.certificates import Certificates, examine
from launcher.host.config import Config
from launcher.migration.peer import PrepareRequest
from launcher.migration.ports import PortPool, disks_owner
from launcher.migration.reservation import Endpoints, Landing, bracketed, tcp_uri

UNIX = "unix:"
MAX_SOCKET_PATH = 107
"""sizeof(sockaddr_un.sun_path) is 108 with the closing zero: unix(7)."""


_WRONG = "FieldValueInvalid"


class Landings:
    """The places by the names of their networks; the usual one has the empty name. Blocking: reads files."""

    def __init__(self, config: Config) -> None:
        self._uri = config.libvirt.migration_uri
        self._places = places(config)
        self._tls_dir = Path(config.migration.tls_dir)
        self._names = (config.node_name, socket.gethostname())

    def find(self, network: str) -> Landing:
        """The place of ``network`` now, without a name for certificates.

        Raises:
            InvalidRequest: this node has no such network, or no address in it.
        """
        said = self._places.get(network)
        if said is None:
            named = ", ".join(sorted(filter(None, self._places))) or "none"
            message = f"this node has no migration network {network!r}; it has (migration.networks) {named}"
            raise InvalidRequest([_bad("network", network, message)])
        if not said:
            message = "this node takes no migrations: migration.address is not configured"
            raise InvalidRequest([_bad("migration.address", "", message)])
        if said.startswith(UNIX):
            return Landing(folder=said.removeprefix(UNIX))
        field = f"migration.networks.{network}" if network else "migration.address"
        return Landing(address=own_address(said, field=field))

    def findings(self, request: PrepareRequest) -> tuple[str, ...]:
        """What keeps the stream of ``request`` from coming in here."""
        try:
            landing = self.find(request.network)
        except InvalidRequest as error:
            return tuple(_sentence(found) for found in error.violations)
        folder = landing.folder
        if folder and request.tls and request.copied_bytes:
            return (
                "libvirt copies no disks over sockets when it encrypts, and migration.address is a folder; "
                "set disableTLS at the source: nothing leaves the machine",
            )
        if folder and not os.access(folder, os.W_OK | os.X_OK):
            return (f"{folder} (migration.address) is no folder that sockets can be made in",)
        if folder and len(os.fsencode(_socket(folder, request.attempt, "disks"))) > MAX_SOCKET_PATH:
            return (f"{folder} (migration.address) is too long: a socket's path has {MAX_SOCKET_PATH} bytes",)
        if folder and "{address}" in self._uri:
            return (
                f"libvirt.migration_uri is {self._uri}, and over sockets nothing comes in by an "
                "address (migration.address); accepted is one without {address}, as qemu+unix:///system?socket=PATH",
            )
        return ()

    def reserve(self, request: PrepareRequest) -> Landing:
        """The place for ``request``, with the name for certificates; old sockets of the attempt are removed.

        Raises:
            InvalidRequest: as ``find``. HostUnsupported: the certificate is for another.
        """
        landing = self.find(request.network)
        self.clear(landing, request.attempt)
        if not request.tls:
            return landing
        server = self.server(examine(self._tls_dir), landing)
        return Landing(address=landing.address, folder=landing.folder, server=server)

    def server(self, found: Certificates, landing: Landing) -> str:
        """The name that the source has to expect in the certificate; empty: the address, which is in it.

        Raises:
            HostUnsupported: it is neither for the address nor for this host's name.
        """
        if landing.address and found.serves(landing.address):
            return ""
        own = next((name for name in self._names if name and found.serves(name)), "")
        if own:
            return own
        names = ", ".join(found.names) or "nobody"
        wanted = " nor ".join(filter(None, (landing.address, self._names[0])))
        message = f"the certificate of QEMU here is for {names}, not for {wanted}"
        raise HostUnsupported("certificates for migrations", message)

    def clear(self, landing: Landing, attempt: str) -> None:
        """Remove the sockets of an attempt: QEMU does not listen where there is one."""
        if landing.folder:
            for what in ("memory", "disks"):
                Path(_socket(landing.folder, attempt, what)).unlink(missing_ok=True)

    def endpoints(self, ports: PortPool, attempt: str, port: int, landing: Landing) -> Endpoints:
        """Where the source connects to. Disks get a port of ours too: libvirt would pick one without knowing
        which we handed out."""
        if not landing.address and not landing.folder:
            landing = self.find("")  # Reserved by an agent that knew of no other.
        if landing.folder:
            return Endpoints(
                destination_uri=self._uri.format(address=""),
                migrate_uri=f"unix://{_socket(landing.folder, attempt, 'memory')}",
                disks_uri=f"unix://{_socket(landing.folder, attempt, 'disks')}",
            )
        disks_port = landing.disks_port or ports.allocate(disks_owner(attempt))
        return Endpoints(
            destination_uri=self._uri.format(address=bracketed(landing.address)),
            migrate_uri=tcp_uri(landing.address, port),
            disks_uri=tcp_uri(landing.address, disks_port),
        )

    def is_free(self, port: int) -> bool:
        """Nobody listens on ``port`` at any address that migrations may come in by."""
        return all(_is_free(address, port) for address in self._addresses())

    def _addresses(self) -> Iterable[str]:
        for network in self._places:
            try:
                landing = self.find(network)
            except InvalidRequest:
                continue
            if landing.address:
                yield landing.address


def places(config: Config) -> dict[str, str]:
    """What the configuration says of each network; the usual one first, by the empty name."""
    return {"": config.migration.address, **config.migration.networks}


def _socket(folder: str, attempt: str, what: str) -> str:
    # An attempt is named by its user, who may have had other things in mind than a path.
    return str(Path(folder, f"m-{hashlib.sha256(attempt.encode()).hexdigest()[:16]}.{what}"))


def _is_free(address: str, port: int) -> bool:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        # As QEMU does: what a connection leaves for a minute when it ended (TIME_WAIT) is in nobody's way.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
        except OSError as error:
            return error.errno != errno.EADDRINUSE  # QEMU says better what else is wrong with the address.
    return True


def _sentence(found: Violation) -> str:
    return f"{found.field} is {found.value!r}: {found.message}" if found.type == _WRONG else found.message


def _bad(field: str, value: str, message: str) -> Violation:
    return Violation(field=field, type="FieldValueNotFound", value=value[:80], message=message)
