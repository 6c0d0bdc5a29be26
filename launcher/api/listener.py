# SPDX-License-Identifier: Apache-2.0
"""Where the API is served: the unix socket's file, and mutual TLS for TCP. Knows no service."""

from __future__ import annotations

import errno
import grp
import os
import socket
import ssl
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import grpc

from launcher.errors import Conflict, InvalidRequest, Violation
from launcher.host.config import Listen, Tls

# sizeof(sockaddr_un.sun_path) is 108 with the closing zero: unix(7).
_MAX_SOCKET_PATH = 107


def remove_stale_socket(path: Path) -> None:
    """Remove a socket that nobody listens on; a directory for it is made when missing.

    Raises:
        InvalidRequest: the path is too long, or something that is no socket lies there.
        Conflict: somebody listens on it.
    """
    if len(os.fsencode(path)) > _MAX_SOCKET_PATH:
        message = f"must have at most {_MAX_SOCKET_PATH} bytes"
        raise _invalid("listen.socket", str(path), message)
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        path.parent.mkdir(parents=True, exist_ok=True)
        return
    if not stat.S_ISSOCK(mode):
        raise _invalid("listen.socket", str(path), "exists and is no socket; it is left alone")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        answer = probe.connect_ex(str(path))
    if answer not in (errno.ECONNREFUSED, errno.ENOENT):
        raise Conflict(f"{path} is in use", hint="does another launcherd run with the same configuration?")
    path.unlink(missing_ok=True)


@contextmanager
def private_files() -> Iterator[None]:
    """Files made inside are for their owner only: a socket must not be open to all before its mode is set."""
    before = os.umask(0o177)
    try:
        yield
    finally:
        os.umask(before)


def open_socket(path: Path, listen: Listen) -> None:
    """Give the bound socket its group and mode.

    Raises:
        InvalidRequest: the group does not exist.
    """
    if listen.socket_group:
        try:
            group = grp.getgrnam(listen.socket_group).gr_gid
        except KeyError as error:
            raise _invalid("listen.socket_group", listen.socket_group, "no such group") from error
        os.chown(path, -1, group)
    path.chmod(listen.socket_mode)


def server_credentials(tls: Tls) -> grpc.ServerCredentials:
    """Mutual TLS; renewed files are used for the next connection without a restart.

    Raises:
        InvalidRequest: a file is missing or is not what it should be.
    """
    _check(tls)
    return grpc.dynamic_ssl_server_credentials(
        _configuration(tls),
        _renewed(tls),  # type: ignore[arg-type]  # gRPC documents None, its stubs do not
        require_client_authentication=True,
    )


def _check(tls: Tls) -> None:
    missing = [name for name in ("certificate", "key", "ca") if not getattr(tls, name)]
    if missing:
        raise InvalidRequest(
            [
                Violation(
                    field=f"tls.{name}",
                    type="FieldValueRequired",
                    message="listening on TCP needs mutual TLS: certificate, key and ca",
                )
                for name in missing
            ],
            hint="name the files, or leave listen.tcp empty to serve only the unix socket",
        )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(tls.certificate, tls.key)
    except (OSError, ssl.SSLError) as error:
        raise _invalid("tls.certificate", f"{tls.certificate}, {tls.key}", str(error)) from error
    try:
        context.load_verify_locations(tls.ca)
    except (OSError, ssl.SSLError) as error:
        raise _invalid("tls.ca", tls.ca, str(error)) from error


def _configuration(tls: Tls) -> grpc.ServerCertificateConfiguration:
    key, certificate, ca = (Path(path).read_bytes() for path in (tls.key, tls.certificate, tls.ca))
    return grpc.ssl_server_certificate_configuration([(key, certificate)], root_certificates=ca)


def _renewed(tls: Tls) -> Callable[[], grpc.ServerCertificateConfiguration | None]:
    """gRPC asks at each connection; None means: as before, and so does a pair that does not fit (yet)."""
    paths = [Path(path) for path in (tls.certificate, tls.key, tls.ca)]
    seen = [path.stat().st_mtime_ns for path in paths]

    def fetch() -> grpc.ServerCertificateConfiguration | None:
        nonlocal seen
        try:
            now = [path.stat().st_mtime_ns for path in paths]
            if now == seen:
                return None
            _check(tls)
            configuration = _configuration(tls)
        except (OSError, InvalidRequest):
            return None
        seen = now
        return configuration

    return fetch


def _invalid(field: str, value: str, message: str) -> InvalidRequest:
    return InvalidRequest([Violation(field=field, type="FieldValueInvalid", value=value, message=message)])
