# SPDX-License-Identifier: Apache-2.0
"""What all our links have in common: an owner in their alias, and how they are found. Blocking.

A link is ours when its alias says so; a link of the same name without our alias is never touched.
"""

from __future__ import annotations

import errno
import socket
from collections.abc import Iterator
from contextlib import contextmanager

from pyroute2 import IPRoute
from pyroute2.netlink.exceptions import NetlinkError

from launcher.errors import HostUnsupported, NetworkError

ALIAS_PREFIX = "launcher:"


@contextmanager
def netlink(network: str, what: str) -> Iterator[IPRoute]:
    """A netlink socket of the calling thread's namespace; the kernel's refusals become our errors.

    Raises:
        HostUnsupported: the agent lacks the privileges, or the kernel the feature.
        NetworkError: any other refusal, with ``what`` was tried.
    """
    try:
        with IPRoute() as ip:
            yield ip
    except (NetlinkError, OSError) as error:
        number = error.code if isinstance(error, NetlinkError) else error.errno
        text = f"network {network!r}: {what}: {error}" if network else f"{what}: {error}"
        if number in (errno.EPERM, errno.EACCES):
            raise HostUnsupported(
                "the right to change links", text, hint="the agent needs root with CAP_NET_ADMIN"
            ) from error
        if number == errno.EOPNOTSUPP:
            raise HostUnsupported("a kernel with the feature", text) from error
        raise NetworkError(network, f"{what}: {error}") from error


def index_of(ip: IPRoute, name: str) -> int | None:
    """The index of the link ``name``."""
    found = ip.link_lookup(ifname=name)
    return int(found[0]) if found else None


def is_ours(ip: IPRoute, index: int, owner: str, kind: str) -> bool:
    """Whether the link is ``owner``'s.

    An agent killed between making and marking leaves a link without an alias: under a name that only we
    make, one of the same kind (``tun``, ``veth``) is ours.
    """
    link = ip.get_links(index)[0]
    alias = link.get_attr("IFLA_IFALIAS")
    if alias:
        return bool(alias == f"{ALIAS_PREFIX}{owner}")
    info = link.get_attr("IFLA_LINKINFO")
    return info is not None and info.get_attr("IFLA_INFO_KIND") == kind


def require_ours(ip: IPRoute, index: int, *, network: str, name: str, owner: str, kind: str) -> None:
    """Refuse to touch a foreign link; raises NetworkError."""
    if not is_ours(ip, index, owner, kind):
        raise NetworkError(
            network,
            f"a link named {name} exists and is not this instance's",
            hint="remove it, or let the instance have another name",
        )


def delete(network: str, name: str, owner: str, kind: str) -> None:
    """Remove the link if it is there and ``owner``'s."""
    with netlink(network, f"cannot remove {name}") as ip:
        index = index_of(ip, name)
        if index is None or not is_ours(ip, index, owner, kind):
            return
        try:
            ip.link("del", index=index)
        except NetlinkError as error:
            if error.code != errno.ENODEV:
                raise


def any_marked(prefix: str) -> bool:
    """Whether a link whose name begins with ``prefix`` is ours, of whichever instance."""
    names = [name for _, name in socket.if_nameindex() if name.startswith(prefix)]
    with netlink("", "cannot look for links") as ip:
        return any(_has_alias(ip, name) for name in names)


def _has_alias(ip: IPRoute, name: str) -> bool:
    index = index_of(ip, name)
    if index is None:
        return False
    return str(ip.get_links(index)[0].get_attr("IFLA_IFALIAS") or "").startswith(ALIAS_PREFIX)
