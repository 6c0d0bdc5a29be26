# SPDX-License-Identifier: Apache-2.0
"""Two links joined to a wire by traffic control: what comes in at one goes out at the other. Blocking.

Frames never enter the node's own IP stack, no rule that somebody flushes has a part in it, and the
kernel forgets the wire with its links.
"""

from __future__ import annotations

import errno
from typing import Any, Final

from pyroute2 import IPRoute, protocols
from pyroute2.netlink.exceptions import NetlinkError

from launcher.errors import NetworkError
from launcher.network import link
from launcher.plan.steps import JoinLinks

INGRESS: Final = 0xFFFF0000
"""Linux, include/uapi/linux/pkt_sched.h: the handle of the ingress qdisc (its parent is TC_H_INGRESS)."""
WHATEVER: Final = "0x0/0x0+0"
"""u32: nothing of the packet is looked at."""
CLASS: Final = 0x10000
"""A class id, which u32 wants and nobody uses."""


def join_links(step: JoinLinks) -> None:
    """Join the links in both directions; where they are joined already, nothing is changed.

    Raises:
        NetworkError: a link is missing. HostUnsupported: the agent may not, or the kernel cannot.
    """
    with link.netlink(step.network, f"{step.first} and {step.second} cannot be joined") as ip:
        first, second = (_index(ip, step, name) for name in (step.first, step.second))
        _redirect(ip, first, second)
        _redirect(ip, second, first)


def _index(ip: IPRoute, step: JoinLinks, name: str) -> int:
    index = link.index_of(ip, name)
    if index is None:
        raise NetworkError(step.network, f"the link {name} vanished")
    return index


def _redirect(ip: IPRoute, source: int, target: int) -> None:
    try:
        ip.tc("add", "ingress", index=source)
    except NetlinkError as error:
        if error.code != errno.EEXIST:
            raise
        if _target(ip, source) == target:
            return
        ip.tc("del", "ingress", index=source)  # half made, or to a link that is no more
        ip.tc("add", "ingress", index=source)
    ip.tc(
        "add-filter",
        "u32",
        index=source,
        parent=INGRESS,
        prio=1,
        protocol=protocols.ETH_P_ALL,
        target=CLASS,
        keys=[WHATEVER],
        action={"kind": "mirred", "direction": "egress", "action": "redirect", "ifindex": target},
    )


def _target(ip: IPRoute, source: int) -> int | None:
    for one in ip.get_filters(index=source, parent=INGRESS):
        found = _find(one, "TCA_MIRRED_PARMS")
        if found is not None:
            return int(found["ifindex"])
    return None


def _find(message: Any, name: str) -> Any:
    """The first attribute ``name``, however deep it lies."""
    for attribute in message.get("attrs", ()) if isinstance(message, dict) else ():
        found = attribute[1] if attribute[0] == name else _find(attribute[1], name)
        if found is not None:
            return found
    return None
