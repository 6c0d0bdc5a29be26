# SPDX-License-Identifier: Apache-2.0
"""Two links joined to a wire by traffic control: what comes in at one goes out at the other. Blocking.

Frames never enter the node's own IP stack, no rule that somebody flushes has a part in it, and the
kernel forgets the wire with its links. It acts on the calling thread's namespace.
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
"""Linux, include/uapi/linux/pkt_sched.h: the handle of the ingress qdisc."""
PRIORITIES: Final = range(0x4C41, 0x4C43)
"""Preferences of our filters; those of anybody else's are others."""
CLASS: Final = 0x10000
"""A class id, which u32 wants and nobody uses."""
WHATEVER: Final = ("0x0/0x0+0",)
TO_DHCP_SERVER: Final = ("0x00110000/0x00ff0000+8", "0x00000043/0x0000ffff+20")
"""Words of an IPv4 packet without options for u32: the protocol UDP, the destination port 67."""


def join_links(step: JoinLinks) -> None:
    """Join the links in both directions; where they are joined already, nothing is changed.

    Raises:
        NetworkError: a link is missing, or somebody else filters what comes in there.
        HostUnsupported: the agent may not, or the kernel cannot.
    """
    with link.netlink(step.network, f"{step.first} and {step.second} cannot be joined") as ip:
        first, second = (_index(ip, step, name) for name in (step.first, step.second))
        _redirect(ip, step, first, second, step.answers_dhcp)
        _redirect(ip, step, second, first, False)


def part_links(step: JoinLinks) -> None:
    """Take our filters from the link that is not ours; the other one goes with all that it has."""
    with link.netlink(step.network, f"{step.second} cannot be parted") as ip:
        index = link.index_of(ip, step.second)
        if index is not None and _has_only_ours(ip, index):
            _drop(ip, index)


def _index(ip: IPRoute, step: JoinLinks, name: str) -> int:
    index = link.index_of(ip, name)
    if index is None:
        raise NetworkError(step.network, f"there is no link {name}")
    return index


def _redirect(ip: IPRoute, step: JoinLinks, source: int, target: int, answers_dhcp: bool) -> None:
    try:
        ip.tc("add", "ingress", index=source)
    except NetlinkError as error:
        if error.code != errno.EEXIST:
            raise
        if _target(ip, source) == target:
            return
        if not _has_only_ours(ip, source):
            raise NetworkError(
                step.network,
                f"somebody else filters what comes in at {step.first} or {step.second}",
                hint="tc filter show dev LINK ingress tells what it is",
            ) from error
        _drop(ip, source)  # half made, or to a link that is no more
        ip.tc("add", "ingress", index=source)
    first, last = PRIORITIES
    if answers_dhcp:
        # A filter without an action lets pass, here to the servers of this namespace.
        _filter(ip, source, first, protocols.ETH_P_IP, TO_DHCP_SERVER)
    onward = {"kind": "mirred", "direction": "egress", "action": "redirect", "ifindex": target}
    _filter(ip, source, last, protocols.ETH_P_ALL, WHATEVER, action=onward)


def _filter(
    ip: IPRoute, index: int, priority: int, protocol: int, keys: tuple[str, ...], **action: object
) -> None:
    ip.tc(
        "add-filter",
        "u32",
        index=index,
        parent=INGRESS,
        prio=priority,
        protocol=protocol,
        target=CLASS,
        keys=list(keys),
        **action,
    )


def _drop(ip: IPRoute, index: int) -> None:
    try:
        ip.tc("del", "ingress", index=index)
    except NetlinkError as error:
        if error.code not in (errno.ENOENT, errno.EINVAL):  # there is none
            raise


def _has_only_ours(ip: IPRoute, index: int) -> bool:
    return all(one["info"] >> 16 in PRIORITIES for one in ip.get_filters(index=index, parent=INGRESS))


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
