# SPDX-License-Identifier: Apache-2.0
"""Tap devices in the network namespace that libvirtd and the agent share. Blocking; call it in a thread.

A tap is ours when its alias says so; a device of the same name without our alias is never touched.
"""

from __future__ import annotations

import errno

from pyroute2 import IPRoute
from pyroute2.netlink.exceptions import NetlinkError

from launcher.errors import NetworkError
from launcher.plan.steps import CreateTap

ALIAS_PREFIX = "launcher:"


def create_tap(step: CreateTap) -> None:
    """Make the tap, attach it to its bridge and set it up; what exists already is brought to that state.

    Raises:
        NetworkError: a foreign device has the name, or the bridge is missing.
    """
    with IPRoute() as ip:
        index = _index(ip, step.name)
        if index is None:
            _add(ip, step)
            index = _index(ip, step.name)
            if index is None:
                raise NetworkError(step.network, f"tap {step.name} vanished right after it was made")
        elif not _ours(ip, index, step.owner):
            raise NetworkError(
                step.network,
                f"a device named {step.name} exists and is not this instance's",
                hint="remove it, or let the instance have another name",
            )
        ip.link("set", index=index, ifalias=f"{ALIAS_PREFIX}{step.owner}")
        if step.mtu is not None:
            ip.link("set", index=index, mtu=step.mtu)
        if step.bridge is not None:
            bridge = _index(ip, step.bridge)
            if bridge is None:
                raise NetworkError(
                    step.network,
                    f"the node has no bridge {step.bridge!r}",
                    hint="create it, or change network.bridge in the agent's configuration",
                )
            ip.link("set", index=index, master=bridge)
        ip.link("set", index=index, state="up")


def delete_tap(step: CreateTap) -> None:
    """Remove the tap if it is there and ours."""
    with IPRoute() as ip:
        index = _index(ip, step.name)
        if index is None or not _ours(ip, index, step.owner):
            return
        try:
            ip.link("del", index=index)
        except NetlinkError as error:
            if error.code != errno.ENODEV:
                raise NetworkError(step.network, f"tap {step.name} cannot be removed: {error}") from error


def _add(ip: IPRoute, step: CreateTap) -> None:
    try:
        flags = {"no_pi": 1, "one_queue": 0, "vnet_hdr": 1, "multi_queue": int(step.queues > 1)}
        ip.link("add", ifname=step.name, kind="tuntap", mode="tap", ifr=flags)
    except (NetlinkError, OSError) as error:
        raise NetworkError(
            step.network, f"tap {step.name} cannot be made: {error}", hint="is /dev/net/tun there?"
        ) from error


def _index(ip: IPRoute, name: str) -> int | None:
    found = ip.link_lookup(ifname=name)
    return int(found[0]) if found else None


def _ours(ip: IPRoute, index: int, owner: str) -> bool:
    link = ip.get_links(index)[0]
    alias = link.get_attr("IFLA_IFALIAS")
    if alias:
        return bool(alias == f"{ALIAS_PREFIX}{owner}")
    # An agent killed between making and marking leaves a tap without an alias under a name only we make.
    info = link.get_attr("IFLA_LINKINFO")
    return info is not None and info.get_attr("IFLA_INFO_KIND") == "tun"
