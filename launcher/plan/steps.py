# SPDX-License-Identifier: Apache-2.0
"""What must exist on the node before a domain starts, as plain data. Pure: nothing is made here.

The plan lists steps; the agent journals each one, hands it to its executor (``storage``, ``network``)
and, in reverse order, releases it again. Every step can be made twice and released twice. A step is the
whole truth for its release: an agent that restarted needs nothing else.
"""

from __future__ import annotations

from typing import Literal

import msgspec


class Step(msgspec.Struct, frozen=True, kw_only=True, tag_field="step", omit_defaults=True):
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


class CreateImage(Step, frozen=True, kw_only=True, tag="CreateImage"):
    """A disk image made by qemu-img, if it is not there yet.

    ``size`` in bytes may be absent only with a backing file. With ``keep`` the file belongs to the
    user (a hostDisk): release never deletes it.
    """

    volume: str
    path: str
    format: Literal["raw", "qcow2"]
    size: int | None = None
    backing_path: str | None = None
    backing_format: Literal["raw", "qcow2"] | None = None
    keep: bool = False


class RequireFile(Step, frozen=True, kw_only=True, tag="RequireFile"):
    """A file or block device that the user says exists; making it only checks."""

    volume: str
    path: str
    block: bool = False


class FetchContainerDisk(Step, frozen=True, kw_only=True, tag="FetchContainerDisk"):
    """The disk file of an OCI image, exposed read-only at ``path``.

    ``image`` is a registry reference or, as skopeo spells local ones, ``oci:DIR[:TAG]`` or
    ``oci-archive:FILE[:TAG]``. ``disk`` is the path inside the image, by default the one file in ``/disk``.
    """

    volume: str
    image: str
    path: str
    disk: str | None = None
    pull_policy: Literal["Always", "IfNotPresent", "Never"] = "IfNotPresent"


class FetchKernel(Step, frozen=True, kw_only=True, tag="FetchKernel"):
    """Kernel and initrd out of an OCI image, for direct boot, exposed read-only at the given paths."""

    image: str
    pull_policy: Literal["Always", "IfNotPresent", "Never"] = "IfNotPresent"
    kernel: str | None = None
    kernel_path: str | None = None
    initrd: str | None = None
    initrd_path: str | None = None


class CreateTap(Step, frozen=True, kw_only=True, tag="CreateTap"):
    """A persistent tap device in libvirt's network namespace, attached to ``bridge`` when one is given."""

    network: str
    name: str
    bridge: str | None = None
    mtu: int | None = None
    queues: int = 1


AnyStep = MakeDirectory | CreateImage | RequireFile | FetchContainerDisk | FetchKernel | CreateTap


def encode(step: AnyStep) -> str:
    """Serialise a step for the journal."""
    return msgspec.json.encode(step).decode()


def decode(text: str) -> AnyStep:
    """Read a step back from the journal."""
    return msgspec.json.decode(text, type=AnyStep)
