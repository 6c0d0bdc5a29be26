# SPDX-License-Identifier: Apache-2.0
"""Whether a plan may be run or is only good for reading. Pure."""

from __future__ import annotations

from launcher.errors import HostUnsupported
from launcher.plan.devices.model import DevicesPlan
from launcher.plan.devices.versions import PASST
from launcher.plan.facts import NodeFacts

_WHAT = {
    "claim": "a place of the claim",
    "device": "a device of the resource",
    "vf": "a virtual function for the interface",
    "binding": "the network binding",
    "network": "a bridge for the network",
}

_HINTS = {
    "device": "name free ones in the agent's configuration (devices.RESOURCE)",
    "network": "name its bridge in the agent's configuration (networks, or network.bridge)",
    "vf": "name the card of its network in the agent's configuration (networks), or hand in a function",
}


def require_runnable(devices: DevicesPlan, facts: NodeFacts | None = None) -> None:
    """Refuse a plan with parts that nobody provides, or that libvirt of the node ``facts`` cannot run.

    Raises:
        HostUnsupported: a claim, host device or binding has no place here, or a share no directory.
    """
    for missing in devices.unbound:
        raise HostUnsupported(
            f"{_WHAT[missing.kind]} {missing.name!r}",
            f"{missing.field} needs it",
            hint=_HINTS.get(missing.kind, "hand in where it is when creating the instance"),
        )
    if facts is not None and facts.libvirt_version < PASST and any(nic.passt for nic in devices.interfaces):
        raise HostUnsupported(
            "passt", "libvirt before 9.1 refuses it", hint="use masquerade, or a newer libvirt"
        )
    for filesystem in devices.filesystems:
        if filesystem.directory is None:
            raise HostUnsupported(
                f"a directory for volumes of kind {filesystem.kind or 'none'}",
                f"filesystem {filesystem.name!r} shares one",
                hint="share a claim in filesystem mode, a configMap, secret, serviceAccount or downwardAPI",
            )
