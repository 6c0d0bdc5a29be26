# SPDX-License-Identifier: Apache-2.0
"""What must exist on the node before a domain starts, as plain data. Pure: nothing is made here.

The plan lists steps; the agent journals each one, hands it to its executor (``storage``, ``network``)
and, in reverse order, releases it again. Every step can be made twice and released twice. A step is the
whole truth for its release: an agent that restarted needs nothing else. It never holds the content of a
Secret or of user data: what is made of those names its volume, and ``launcher.plan.media`` finds the content.
"""

from __future__ import annotations

from typing import Literal

import msgspec


class Step(msgspec.Struct, frozen=True, kw_only=True, tag_field="step", omit_defaults=True, gc=False):
    """Base of all steps; ``owner`` is the uid of the instance (it goes into names and aliases)."""

    owner: str


class MakeDirectory(Step, frozen=True, kw_only=True, tag="MakeDirectory"):
    """A directory of the instance's own. Release removes it with all that is in it.

    ``uid`` and ``gid`` are its owner when that is not the agent: QEMU makes its sockets itself.
    """

    path: str
    mode: int = 0o711
    uid: int | None = None
    gid: int | None = None


class UseState(Step, frozen=True, kw_only=True, tag="UseState"):
    """What the firmware or the TPM remembers, at ``path`` while the instance is here.

    Making it moves there what an earlier instance of the name left at ``kept``; release puts it back for the
    next one. Without ``kept`` it ends with the instance. QEMU and swtpm make it when there is none.
    """

    path: str
    kept: str | None = None


class CreateImage(Step, frozen=True, kw_only=True, tag="CreateImage"):
    """A disk image made by qemu-img, if it is not there yet.

    ``size`` in bytes may be absent only with a backing file. With ``keep`` the file belongs to the
    user (a hostDisk, a claim): release never deletes it. ``grow``: one that is there and smaller is made
    larger. ``fit``: take what the file system has when that is a little less than ``size``.
    ``preallocate``: its blocks are taken at once.
    """

    volume: str
    path: str
    format: Literal["raw", "qcow2"]
    size: int | None = None
    backing_path: str | None = None
    backing_format: Literal["raw", "qcow2"] | None = None
    keep: bool = False
    grow: bool = False
    fit: bool = False
    preallocate: bool = False


class TrackChanges(Step, frozen=True, kw_only=True, tag="TrackChanges"):
    """A qcow2 file at ``path`` that remembers which blocks of the raw image ``data_path`` change.

    It has that image as its data file: no data of the guest is in it. Release removes it and leaves the image
    alone. ``uid`` must be able to write the image (None: libvirt sees to that).
    """

    volume: str
    path: str
    data_path: str
    uid: int | None = None


class RequireFile(Step, frozen=True, kw_only=True, tag="RequireFile"):
    """A file or block device that the user says exists; making it only checks.

    It must hold ``min_size`` bytes, and at least one. ``link``: it may be a link. Inside a directory that the
    user named it may not: a guest that shares the directory could put one there, to any file of the node.
    """

    volume: str
    path: str
    block: bool = False
    min_size: int = 0
    link: bool = True


class FetchContainerDisk(Step, frozen=True, kw_only=True, tag="FetchContainerDisk"):
    """The disk file of an OCI image, exposed read-only at ``path``.

    ``image`` is a registry reference or, as skopeo spells local ones, ``oci:DIR[:TAG]`` or
    ``oci-archive:FILE[:TAG]``. ``disk`` is the path inside the image, by default the one file in ``/disk``.
    ``digest`` is that of the image that must be taken, when a node resolved the reference already: an overlay
    that moves to another node needs the same base there. ``pull_secret`` names the Secret for the registry.
    """

    volume: str
    image: str
    path: str
    disk: str | None = None
    pull_policy: Literal["Always", "IfNotPresent", "Never"] = "IfNotPresent"
    pull_secret: str | None = None
    digest: str | None = None


class FetchKernel(Step, frozen=True, kw_only=True, tag="FetchKernel"):
    """Kernel and initrd out of an OCI image, for direct boot, exposed read-only at the given paths.

    The image is named as in ``FetchContainerDisk``.
    """

    image: str
    pull_policy: Literal["Always", "IfNotPresent", "Never"] = "IfNotPresent"
    pull_secret: str | None = None
    digest: str | None = None
    kernel: str | None = None
    kernel_path: str | None = None
    initrd: str | None = None
    initrd_path: str | None = None


class MakeIso(Step, frozen=True, kw_only=True, tag="MakeIso"):
    """An ISO 9660 image of the files that the volume ``volume`` consists of; ``uid`` and ``gid`` own it."""

    volume: str
    path: str
    label: str
    uid: int | None = None
    gid: int | None = None


class MakeFiles(Step, frozen=True, kw_only=True, tag="MakeFiles"):
    """A directory with the files that the volume ``volume`` consists of, for sharing it."""

    volume: str
    path: str


class MakeMetricsDisk(Step, frozen=True, kw_only=True, tag="MakeMetricsDisk"):
    """A disk in vhostmd's format, with nothing in it yet: the agent fills it again and again."""

    volume: str
    path: str


class WriteAcpiTable(Step, frozen=True, kw_only=True, tag="WriteAcpiTable"):
    """An ACPI table out of the Secret behind ``volume``; ``uid`` and ``gid`` own the file."""

    volume: str
    table: Literal["slic", "msdm"]
    path: str
    uid: int | None = None
    gid: int | None = None


class WriteIgnition(Step, frozen=True, kw_only=True, tag="WriteIgnition"):
    """Ignition's configuration out of the instance's annotation; ``uid`` and ``gid`` own the file."""

    path: str
    uid: int | None = None
    gid: int | None = None


class StartVirtiofsd(Step, frozen=True, kw_only=True, tag="StartVirtiofsd"):
    """A virtiofsd that serves ``directory`` on ``socket``; ``uid`` and ``gid`` may connect to it.

    What it says goes to the file ``log``. Release ends it.
    """

    volume: str
    program: str
    directory: str
    socket: str
    log: str
    readonly: bool = False
    uid: int | None = None
    gid: int | None = None


class CreateTap(Step, frozen=True, kw_only=True, tag="CreateTap"):
    """A persistent tap device in libvirt's network namespace, attached to ``bridge`` when one is given.

    ``vlan`` is the VLAN that the bridge puts its untagged frames into. Without ``mtu`` it gets the bridge's.
    """

    network: str
    name: str
    bridge: str | None = None
    mtu: int | None = None
    queues: int = 1
    vlan: int | None = None


class CreateMacvtap(Step, frozen=True, kw_only=True, tag="CreateMacvtap"):
    """A macvtap in libvirt's network namespace on top of ``link``, with the guest's address ``mac``."""

    network: str
    name: str
    link: str
    mode: str
    mac: str | None = None
    mtu: int | None = None


class VirtualFunction(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A virtual function as it was found: number ``number`` of the card ``link``, with what is programmed
    there (``mac``, ``vlan``; empty and 0: nothing) and the ``driver`` that it is bound to (empty: none)."""

    link: str
    number: int
    mac: str = ""
    vlan: int = 0
    driver: str = ""


class LendFunction(Step, frozen=True, kw_only=True, tag="LendFunction"):
    """The virtual function ``device`` (number ``number`` of the card ``link``) gets ``mac`` and ``vlan`` (0:
    none) there and the driver that lends it to guests; release puts back what it ``was``."""

    network: str
    device: str
    link: str
    number: int
    mac: str
    vlan: int
    was: VirtualFunction


class CreateNetworkNamespace(Step, frozen=True, kw_only=True, tag="CreateNetworkNamespace"):
    """A network namespace of the instance's own that forwards packets, kept by a mount at ``path``."""

    network: str
    path: str


class CreateVeth(Step, frozen=True, kw_only=True, tag="CreateVeth"):
    """A pair of links: ``name`` in libvirt's network namespace, ``peer`` in ``namespace``.

    Addresses are written ADDRESS/PREFIX. ``routes`` are what libvirt's side reaches through ``name``;
    ``gateways`` are the namespace's default routes through ``peer``. A pair whose own end has no address is
    a mere wire: nothing of libvirt's side may speak on it. A ``lent`` namespace is somebody else's.
    """

    network: str
    name: str
    namespace: str
    peer: str
    peer_mac: str | None = None
    mtu: int | None = None
    addresses: tuple[str, ...] = ()
    peer_addresses: tuple[str, ...] = ()
    routes: tuple[str, ...] = ()
    gateways: tuple[str, ...] = ()
    lent: bool = False


class JoinLinks(Step, frozen=True, kw_only=True, tag="JoinLinks"):
    """A wire between two links: what comes in at one goes out at the other. No bridge and no rule is needed.

    In libvirt's network namespace both links are ours, and the wire goes with them. In ``namespace``, which
    is somebody else's, ``second`` is, too: release leaves it as it was. ``answers_dhcp``: what ``first`` says
    to DHCP servers stays here.
    """

    network: str
    first: str
    second: str
    namespace: str | None = None
    answers_dhcp: bool = False


class ForwardPackets(Step, frozen=True, kw_only=True, tag="ForwardPackets"):
    """The namespace, which is somebody else's, becomes a router in the IP ``versions``, until release."""

    network: str
    namespace: str
    versions: tuple[int, ...]


class GuardLink(Step, frozen=True, kw_only=True, tag="GuardLink"):
    """What may come in at the link that a guest is behind, in ``namespace`` or in libvirt's own (None).

    Only frames of ``mac`` pass and, when ``addresses`` are given, only theirs; nothing that a router or a
    DHCP server would say. A ``lent`` namespace is somebody else's.
    """

    network: str
    link: str
    mac: str
    addresses: tuple[str, ...] = ()
    namespace: str | None = None
    lent: bool = False


class ForwardedPorts(msgspec.Struct, frozen=True, kw_only=True):
    """Ports from ``start`` to ``end``, both included, of ``protocol``."""

    protocol: Literal["tcp", "udp"]
    start: int
    end: int


class TranslateAddresses(Step, frozen=True, kw_only=True, tag="TranslateAddresses"):
    """NAT in the instance's namespace between ``inside`` (the guest's link) and ``outside``.

    ``guests`` and ``outer`` are addresses without a prefix, at most one of each family, each guest's with
    the outer one of its family. ``ports`` reach the guest at the outer addresses; without any, everything.
    A ``lent`` namespace is somebody else's.
    """

    network: str
    namespace: str
    inside: str
    outside: str
    guests: tuple[str, ...]
    outer: tuple[str, ...]
    ports: tuple[ForwardedPorts, ...] = ()
    lent: bool = False


class NodePort(msgspec.Struct, frozen=True, kw_only=True):
    """The port ``node`` of the node leads to the port ``guest`` of a guest."""

    protocol: Literal["tcp", "udp"]
    node: int
    guest: int


class ForwardNodePorts(Step, frozen=True, kw_only=True, tag="ForwardNodePorts"):
    """What comes to ``ports`` of the node goes to the guest's ``outer`` addresses."""

    network: str
    outer: tuple[str, ...]
    ports: tuple[NodePort, ...]


class SharePool(Step, frozen=True, kw_only=True, tag="SharePool"):
    """NAT of the node for the outer addresses of all its instances (``pools``, as ADDRESS/PREFIX).

    It goes with the last instance that has one.
    """

    network: str
    pools: tuple[str, ...]


class ServeAddresses(Step, frozen=True, kw_only=True, tag="ServeAddresses"):
    """DHCP, DHCPv6 and router advertisements for one guest, on ``interface`` of ``namespace``.

    ``guests`` are its addresses as ADDRESS/PREFIX, ``gateways`` those of ``interface``. Without gateways the
    interface is in no network of the guest's, and ``routes`` (destination, gateway or "") are all it is told.
    The server's files lie in ``directory``. ``node_nameservers`` and ``node_search`` put before the others
    what the node uses itself. ``private`` are options by number with their text.
    """

    network: str
    namespace: str
    interface: str
    directory: str
    mac: str
    guests: tuple[str, ...]
    gateways: tuple[str, ...]
    hostname: str
    subdomain: str | None = None
    nameservers: tuple[str, ...] = ()
    search: tuple[str, ...] = ()
    node_nameservers: bool = False
    node_search: bool = False
    mtu: int | None = None
    ntp_servers: tuple[str, ...] = ()
    tftp_server: str | None = None
    boot_file: str | None = None
    private: tuple[tuple[int, str], ...] = ()
    routes: tuple[tuple[str, str], ...] = ()


AnyStep = (
    MakeDirectory
    | UseState
    | CreateImage
    | TrackChanges
    | RequireFile
    | FetchContainerDisk
    | FetchKernel
    | MakeIso
    | MakeFiles
    | MakeMetricsDisk
    | WriteAcpiTable
    | WriteIgnition
    | StartVirtiofsd
    | CreateTap
    | CreateMacvtap
    | LendFunction
    | CreateNetworkNamespace
    | CreateVeth
    | JoinLinks
    | ForwardPackets
    | GuardLink
    | TranslateAddresses
    | ForwardNodePorts
    | SharePool
    | ServeAddresses
)


def encode(step: AnyStep) -> str:
    """Serialise a step for the journal."""
    return msgspec.json.encode(step).decode()


def decode(text: str) -> AnyStep:
    """Read a step back from the journal."""
    return msgspec.json.decode(text, type=AnyStep)
