# SPDX-License-Identifier: Apache-2.0
"""Image references as users write them. Pure parsing; nothing is opened.

``oci:DIR[:TAG]`` and ``oci-archive:FILE[:TAG]`` name local images as skopeo does; ``docker://REF`` or a bare
``REF`` names one in a registry.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}\Z")  # the tag grammar of the distribution spec


@dataclass(frozen=True, slots=True)
class ImageReference:
    """Where an image lies. ``tag`` is empty when none was given (a layout with one image needs none)."""

    transport: Literal["oci", "oci-archive", "docker"]
    location: str
    tag: str = ""


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
    reference = text.removeprefix("docker://")
    if not reference or reference != reference.strip() or any(c.isspace() for c in reference):
        raise ValueError(
            f"{text!r}: expected REGISTRY/NAME[:TAG|@DIGEST], oci:/DIR[:TAG] or oci-archive:/FILE[:TAG]"
        )
    return ImageReference("docker", reference)


def _split_tag(rest: str) -> tuple[str, str]:
    location, colon, tag = rest.rpartition(":")
    if colon and _TAG.match(tag):
        return location, tag
    return rest, ""
