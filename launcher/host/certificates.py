# SPDX-License-Identifier: Apache-2.0
"""Looks at the certificates that QEMU uses for migrations: do they fit, for how long, for which names.

Both ends of a TLS connection are played in memory with the files themselves, so what would fail between two
nodes with the same authority fails here. Blocking; nothing is kept, no key is shown.
"""

from __future__ import annotations

import ipaddress
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from launcher.errors import HostUnsupported

FILES: Final = ("ca-cert.pem", "server-cert.pem", "server-key.pem", "client-cert.pem", "client-key.pem")
"""The names that QEMU's x509 credentials have in their directory."""
_ROUNDS: Final = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificates:
    """When the certificates of a folder end (seconds since 1970) and for whom the server's is."""

    server_until: float
    client_until: float
    names: tuple[str, ...]

    def serves(self, address: str) -> bool:
        """The server's certificate names ``address``, an IP address or a host name."""
        return _same(address) in {_same(name) for name in self.names}


def examine(folder: Path) -> Certificates:
    """Play a connection with the files of ``folder``.

    Raises:
        HostUnsupported: a file is missing or cannot be read, a key does not belong to its certificate, or
            the authority did not sign it, or one has ended.
    """
    missing = [name for name in FILES if not (folder / name).is_file()]
    if missing:
        raise HostUnsupported(
            "certificates for migrations",
            f"{folder} has no {', '.join(missing)}",
            hint="put them there, or set migration.options.disableTLS; see docs/migration.md",
        )
    try:
        server = _context(folder, "server", ssl.PROTOCOL_TLS_SERVER)
        client = _context(folder, "client", ssl.PROTOCOL_TLS_CLIENT)
        of_server, of_client = _meet(server, client)
    except (OSError, ssl.SSLError) as error:
        why = getattr(error, "verify_message", "") or getattr(error, "reason", "") or str(error)
        raise HostUnsupported(
            "certificates for migrations", f"those in {folder} do not work: {why}"
        ) from error
    return Certificates(
        server_until=ssl.cert_time_to_seconds(of_server["notAfter"]),
        client_until=ssl.cert_time_to_seconds(of_client["notAfter"]),
        names=tuple(value for _, value in of_server.get("subjectAltName", ())),
    )


def _context(folder: Path, side: str, protocol: Any) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(cafile=folder / "ca-cert.pem")
    context.load_cert_chain(folder / f"{side}-cert.pem", folder / f"{side}-key.pem")
    return context


def _meet(server: ssl.SSLContext, client: ssl.SSLContext) -> tuple[dict[str, Any], dict[str, Any]]:
    """The server's certificate as its client sees it, and the client's."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = (
        client.wrap_bio(to_client, to_server),
        server.wrap_bio(to_server, to_client, server_side=True),
    )
    waiting = set(ends)
    for _ in range(_ROUNDS):
        for end in ends:
            if end in waiting:
                try:
                    end.do_handshake()
                except ssl.SSLWantReadError:
                    continue
                waiting.discard(end)
        if not waiting:
            return ends[0].getpeercert() or {}, ends[1].getpeercert() or {}
    raise OSError("the two ends did not come to an agreement")


def _same(name: str) -> str:
    try:
        return ipaddress.ip_address(name.strip("[]")).compressed
    except ValueError:
        return name.lower()
