# SPDX-License-Identifier: Apache-2.0
"""How a client reaches an agent: addresses, mutual TLS, keep-alive and sizes. Opens files, calls nothing."""

from __future__ import annotations

import json
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import grpc

from launcher.errors import InvalidRequest, Violation
from launcher.rpc.status import LIMIT_KEY
from launcher.units import KIB, MIB

MAX_MESSAGE = 16 * MIB
"""A manifest has at most 4 MiB; Secrets, a listing of hundreds of instances or a screenshot need more."""

MAX_METADATA = 256 * KIB
"""What we accept of a status, so that a manifest with hundreds of errors shows them all."""

METADATA: tuple[tuple[str, str | bytes], ...] = ((LIMIT_KEY, str(MAX_METADATA - 16 * KIB)),)
"""Request metadata of all our calls."""

KEEPALIVE_MS = 20_000
KEEPALIVE_TIMEOUT_MS = 10_000

CONNECT_TIMEOUT_MS = 5_000
"""How long a node is tried that does not answer at all; gRPC itself would wait 20 s."""

# Every call of the API may be repeated, so the channel does it: at most 3 times, only for UNAVAILABLE
# (https://github.com/grpc/proposal/blob/master/A6-client-retries.md).
_RETRY = {
    "methodConfig": [
        {
            "name": [{"service": "launcher.v1.PeerService"}],
            "retryPolicy": {
                "maxAttempts": 3,
                "initialBackoff": "0.2s",
                "maxBackoff": "1s",
                "backoffMultiplier": 2,
                "retryableStatusCodes": ["UNAVAILABLE"],
            },
        }
    ]
}

OPTIONS: Sequence[tuple[str, int | str]] = (
    ("grpc.min_reconnect_backoff_ms", CONNECT_TIMEOUT_MS),
    ("grpc.keepalive_time_ms", KEEPALIVE_MS),
    ("grpc.keepalive_timeout_ms", KEEPALIVE_TIMEOUT_MS),
    ("grpc.max_receive_message_length", MAX_MESSAGE),
    ("grpc.max_send_message_length", MAX_MESSAGE),
    ("grpc.max_metadata_size", MAX_METADATA),
    ("grpc.absolute_max_metadata_size", MAX_METADATA),
    ("grpc.service_config", json.dumps(_RETRY)),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsFiles:
    """PEM files of a client: its certificate and key, and the CA that signed the server's.

    ``server_name`` is the name in the server's certificate when it is not the address.
    """

    certificate: str = ""
    key: str = ""
    ca: str = ""
    server_name: str = ""

    @property
    def complete(self) -> bool:
        return bool(self.certificate and self.key and self.ca)


def is_local(target: str) -> bool:
    """``target`` is a unix socket."""
    return target.startswith("unix:")


def check_target(target: str) -> str:
    """``target`` if it reads as ``unix:PATH`` or ``ADDRESS:PORT``.

    Raises:
        InvalidRequest: it does not.
    """
    host, _, port = target.rpartition(":")
    if is_local(target) or (host and "/" not in target and port.isdigit() and 0 < int(port) < 65536):
        return target
    finding = Violation(
        field="target", type="FieldValueInvalid", value=target, message="must be unix:PATH or ADDRESS:PORT"
    )
    raise InvalidRequest([finding])


def credentials(target: str, tls: TlsFiles) -> grpc.ChannelCredentials | None:
    """Credentials for ``target``: none for a unix socket (its file mode guards it), else mutual TLS.

    Raises:
        InvalidRequest: TLS files are missing or cannot be read.
    """
    if is_local(check_target(target)):
        return None
    if not tls.complete:
        finding = Violation(
            field="tls",
            type="FieldValueRequired",
            message=f"{target} is reached over TCP, which needs certificate, key and CA",
        )
        raise InvalidRequest([finding], hint="name all three files, or use unix:PATH")
    ca, key, certificate = (_read(path) for path in (tls.ca, tls.key, tls.certificate))
    return grpc.ssl_channel_credentials(root_certificates=ca, private_key=key, certificate_chain=certificate)


def modified(tls: TlsFiles) -> tuple[int, ...]:
    """When each of the files last changed (ns; 0: it is not there), to see that they were renewed."""
    stamps = []
    for path in (tls.certificate, tls.key, tls.ca):
        try:
            stamps.append(Path(path).stat().st_mtime_ns if path else 0)
        except OSError:
            stamps.append(0)
    return tuple(stamps)


def whole(tls: TlsFiles) -> bool:
    """The files can be read, and the key belongs to the certificate: nobody is renewing them just now."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        context.load_cert_chain(tls.certificate, tls.key)
        context.load_verify_locations(tls.ca)
    except (OSError, ssl.SSLError):
        return False
    return True


def options(tls: TlsFiles) -> list[tuple[str, int | str]]:
    """Channel options, with the server's name when TLS is told one."""
    named = [("grpc.ssl_target_name_override", tls.server_name)] if tls.server_name else []
    return [*OPTIONS, *named]


def _read(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        finding = Violation(
            field="tls", type="FieldValueInvalid", value=path, message=error.strerror or str(error)
        )
        raise InvalidRequest([finding]) from error
