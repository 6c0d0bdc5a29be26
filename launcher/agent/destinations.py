# SPDX-License-Identifier: Apache-2.0
"""Where a node's instances may be sent: names of peers and addresses as people write them. Asks nobody."""

from __future__ import annotations

from launcher.errors import InvalidRequest, Violation
from launcher.host.config import Config
from launcher.rpc.channel import check_target, is_local

_SHOWN = 80


def destination(config: Config, wanted: str, *, field: str) -> str:
    """The address of the node ``wanted``: a peer's name, ``ADDRESS:PORT`` or ``unix:PATH``.

    Raises:
        InvalidRequest: there is no such peer, or what it stands for is no address that can be spoken to.
    """
    if wanted not in config.peers and ":" not in wanted:
        known = ", ".join(sorted(config.peers)) or "none is configured"
        message = f"no such peer; accepted are ADDRESS:PORT and the peers of this node: {known}"
        raise _wrong(field, "FieldValueNotFound", wanted, message)
    address = config.peers.get(wanted, wanted)
    if wanted in config.peers:
        field = f"peers.{wanted}"
    try:
        check_target(address)
    except InvalidRequest as error:
        raise _wrong(field, "FieldValueInvalid", address, error.violations[0].message) from error
    tls = config.tls
    if not is_local(address) and not (tls.certificate and tls.key and tls.ca):
        message = f"{address[:_SHOWN]} is reached over TCP, which needs certificate, key and ca of this node"
        raise _wrong("tls", "FieldValueRequired", "", message)
    return address


def _wrong(field: str, kind: str, value: str, message: str) -> InvalidRequest:
    return InvalidRequest([Violation(field=field, type=kind, value=value[:_SHOWN], message=message)])
