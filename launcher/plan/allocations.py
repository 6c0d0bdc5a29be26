# SPDX-License-Identifier: Apache-2.0
"""What the agent chose outside of planning and hands in: random, counted, looked-up values. Plain data."""

from __future__ import annotations

import msgspec

from launcher.plan.steps import NodePort, VirtualFunction


class ClaimPlace(msgspec.Struct, frozen=True, kw_only=True):
    """Where a claim (PersistentVolumeClaim or DataVolume of that name) lies on this node.

    ``capacity`` in bytes, 0: not known. ``preallocated``: all its blocks are to be taken from the start.
    """

    path: str
    block: bool = False
    capacity: int = 0
    shared: bool = False
    preallocated: bool = False


class Route(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A way to ``destination`` (ADDRESS/PREFIX); without ``gateway`` it is on the link itself."""

    destination: str
    gateway: str = ""


class Attachment(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A link that somebody made for an interface, as a CNI plugin tells it: ``interface`` in the network
    namespace at ``namespace``. Link and namespace stay the caller's.

    ``mac``, ``mtu``, ``addresses`` (ADDRESS/PREFIX) and ``routes`` are what it is to have or, when nothing
    was said, what it was found with. ``forwards`` are the IP versions that the namespace passed on already.

    For SR-IOV it is instead the PCI address ``device`` of a virtual function, with the ``vlan`` (0: none) it
    is to be in; ``function`` is what was found.
    """

    namespace: str = ""
    interface: str = ""
    device: str = ""
    vlan: int = 0
    function: VirtualFunction | None = None
    mac: str = ""
    mtu: int = 0
    addresses: tuple[str, ...] = ()
    routes: tuple[Route, ...] = ()
    forwards: tuple[int, ...] = ()


class DevicePool(msgspec.Struct, frozen=True, kw_only=True):
    """Devices of the node of one resource, by address; ``migratable``: they can move their state to another
    of their kind."""

    addresses: tuple[str, ...]
    migratable: bool = False


class Allocations(msgspec.Struct, frozen=True, kw_only=True):
    """Values that must not be invented by a pure function.

    ``uid`` is the instance's, ``uuid`` the domain's. ``macs`` maps interface names to MAC addresses,
    ``taps`` interface names to device names (at most 15 characters). ``cpuset`` are the pCPUs that may be
    dedicated to this instance, ``claims`` the places of its claims. ``vsock_cid`` 0: none was allocated.
    ``devices`` are the host's devices by resource name (or ``CLAIM/REQUEST``): PCI addresses
    ``dddd:bb:ss.f``, UUIDs of mediated devices, or USB ``BUS:DEVICE``; those of ``migratable`` resources
    can move their state. ``virtual_functions`` maps the names
    of SR-IOV interfaces to PCI addresses. ``digests`` maps references of container images to what they stood
    for when the instance started, on whichever node that was. ``outer`` are the addresses of a masqueraded
    interface on this node, at most one of each family; ``node_ports`` are the node's ports that lead there.
    ``attachments`` are links that were handed in, by the names of networks. ``machine`` is the versioned
    board that the guest got when it first started (empty: what the manifest says).
    """

    uid: str
    uuid: str
    macs: dict[str, str] = {}
    taps: dict[str, str] = {}
    cpuset: tuple[int, ...] = ()
    claims: dict[str, ClaimPlace] = {}
    vsock_cid: int = 0
    devices: dict[str, tuple[str, ...]] = {}
    migratable: tuple[str, ...] = ()
    virtual_functions: dict[str, str] = {}
    outer: tuple[str, ...] = ()
    node_ports: tuple[NodePort, ...] = ()
    attachments: dict[str, Attachment] = {}
    digests: dict[str, str] = {}
    machine: str = ""
