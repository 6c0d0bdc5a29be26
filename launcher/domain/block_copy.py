# SPDX-License-Identifier: Apache-2.0
"""``<disk>`` as libvirt takes it for where a disk of a running domain is copied to. Pure."""

from __future__ import annotations

from launcher.domain.element import E, Element, to_text


def copy_xml(path: str, *, block: bool, size: int = 0) -> str:
    """The raw file or device ``path``; ``size`` are the bytes of a larger device to use, 0: all of it."""
    return to_text(
        E(
            "disk",
            E("driver", name="qemu", type="raw"),
            source_element(path, block=block, size=size),
            type="block" if block else "file",
        )
    )


def source_element(path: str, *, block: bool, size: int = 0) -> Element:
    """``<source>`` of a file or device, of which ``size`` bytes are used; 0: all of them."""
    slices = E("slices", E("slice", type="storage", offset=0, size=size)) if size else None
    return E("source", slices, dev=path) if block else E("source", slices, file=path)
