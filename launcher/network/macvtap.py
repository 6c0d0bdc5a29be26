# SPDX-License-Identifier: Apache-2.0
"""Macvtaps in the network namespace that libvirtd and the agent share. Blocking; call it in a thread.

A guest on a macvtap is on the network of the link below, with a MAC address of its own, and without a bridge.
libvirt opens one that is there by its character device, /dev/tapINDEX.
"""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Final

from launcher.errors import HostUnsupported, NetworkError
from launcher.network import link
from launcher.network.tap import stay_silent
from launcher.plan.steps import CreateMacvtap

KIND: Final = "macvtap"


def create_macvtap(step: CreateMacvtap) -> None:
    """Make the macvtap and set it up; what exists already is brought to that state.

    Raises:
        NetworkError: a foreign device has the name, or the link below is missing.
        HostUnsupported: the agent may not, the kernel cannot, or its character device is missing.
    """
    with link.netlink(step.network, f"macvtap {step.name} cannot be made") as ip:
        below = link.index_of(ip, step.link)
        if below is None:
            hint = "create it, or change bindings in the agent's configuration"
            raise NetworkError(step.network, f"the node has no link {step.link!r}", hint=hint)
        index = link.index_of(ip, step.name)
        if index is None:
            ip.link("add", ifname=step.name, kind=KIND, link=below, macvtap_mode=step.mode)
            index = link.index_of(ip, step.name)
            if index is None:
                raise NetworkError(step.network, f"{step.name} vanished right after it was made")
        else:
            link.require_ours(ip, index, network=step.network, name=step.name, owner=step.owner, kind=KIND)
        ip.link("set", index=index, ifalias=f"{link.ALIAS_PREFIX}{step.owner}")
        stay_silent(step.name)
        if step.mac is not None:
            ip.link("set", index=index, address=step.mac)
        if step.mtu is not None:
            ip.link("set", index=index, mtu=step.mtu)
        ip.link("set", index=index, state="up")
    _require_device(index)


def delete_macvtap(step: CreateMacvtap) -> None:
    """Remove the macvtap if it is there and ours."""
    link.delete(step.network, step.name, step.owner, KIND)


def _require_device(index: int) -> None:
    path = Path(f"/dev/tap{index}")
    try:
        found = path.stat()
    except OSError as error:
        raise HostUnsupported(
            f"{path}",
            f"a macvtap has it as its character device: {error.strerror}",
            hint="libvirtd and the agent need the host's /dev (devtmpfs) and its network namespace",
        ) from error
    if not stat.S_ISCHR(found.st_mode):
        raise HostUnsupported(f"{path}", "it is no character device", hint="remove it")
