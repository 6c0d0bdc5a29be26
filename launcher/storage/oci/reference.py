# SPDX-License-Identifier: Apache-2.0
"""Image references as users write them. Pure parsing; nothing is opened.

``oci:DIR[:TAG]`` and ``oci-archive:FILE[:TAG]`` name local images as skopeo does; ``docker://REF`` or a bare
``REF`` (``[HOST[:PORT]/]NAME[:TAG][@DIGEST]``) names one in a registry.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}\Z")  # the tag grammar of the distribution spec
_NAME = re.compile(r"[A-Za-z0-9.:_/\[\]-]+\Z")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}\Z")
_DEFAULT_REGISTRY = "docker.io"
"""What a name without a host stands for, to every client of registries."""


@dataclass(frozen=True, slots=True)
class ImageReference:
    """Where an image lies. ``tag`` is empty when none was given (a layout with one image needs none).

    In a registry, ``location`` is ``[HOST[:PORT]/]NAME``, and ``digest`` may pin the image.
    """

    transport: Literal["oci", "oci-archive", "docker"]
    location: str
    tag: str = ""
    digest: str = ""

    @property
    def registry(self) -> str:
        """``HOST[:PORT]`` of an image in a registry."""
        first, slash, _ = self.location.partition("/")
        named = bool(slash) and ("." in first or ":" in first or first == "localhost")
        return first if named else _DEFAULT_REGISTRY

    def at(self, digest: str = "") -> str:
        """The reference for skopeo, of the image with ``digest`` or, without one, of the tag."""
        if digest:
            return f"docker://{self.location}@{digest}"
        return f"docker://{self.location}:{self.tag or 'latest'}"


def parse_reference(text: str) -> ImageReference:
    """Read a reference.

    Raises:
        ValueError: the text fits no form; the message says which are accepted.
    """
    for transport in ("oci", "oci-archive"):
        prefix = f"{transport}:"
        if text.startswith(prefix):
            location, tag = _split_tag(text.removeprefix(prefix))
            if not location.startswith("/"):
                raise ValueError(f"{text!r}: the path after {prefix!r} must be absolute")
            return ImageReference("oci" if transport == "oci" else "oci-archive", location, tag)
    name, at, digest = text.removeprefix("docker://").partition("@")
    location, tag = _split_tag(name)
    if "/" in tag or not _NAME.match(location) or location.startswith("-"):
        raise ValueError(
            f"{text!r}: expected REGISTRY/NAME[:TAG|@DIGEST], oci:/DIR[:TAG] or oci-archive:/FILE[:TAG]"
        )
    if at and not _DIGEST.match(digest):
        raise ValueError(f"{text!r}: after '@' comes sha256: and 64 hexadecimal digits")
    return ImageReference("docker", location, tag, digest)


def _split_tag(rest: str) -> tuple[str, str]:
    location, colon, tag = rest.rpartition(":")
    if colon and location and _TAG.match(tag):
        return location, tag
    return rest, ""
