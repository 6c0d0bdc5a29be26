# SPDX-License-Identifier: Apache-2.0
"""QEMU's firmware descriptors (docs/interop/firmware.json) -> facts. Pure: the texts are read elsewhere."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from launcher.plan.facts import Firmware, FirmwareTarget


class _File(msgspec.Struct, frozen=True):
    filename: str
    format: str = "raw"


class _Mapping(msgspec.Struct, frozen=True, rename="kebab"):
    device: str
    executable: _File | None = None
    nvram_template: _File | None = None
    filename: str = ""
    mode: str = "split"


class _Target(msgspec.Struct, frozen=True):
    architecture: str
    machines: tuple[str, ...] = ()


class _Descriptor(msgspec.Struct, frozen=True, rename="kebab"):
    mapping: _Mapping
    interface_types: tuple[str, ...] = ()
    targets: tuple[_Target, ...] = ()
    features: tuple[str, ...] = ()


def parse_descriptors(texts: Mapping[str, str]) -> tuple[Firmware, ...]:
    """Descriptors by file name, the best first: files are ranked by name. Unreadable ones are left out, as
    libvirt does, and so are empty ones, by which an administrator hides a packaged file of the same name."""
    found = (_parse(texts[name]) for name in sorted(texts))
    return tuple(firmware for firmware in found if firmware is not None)


def _parse(text: str) -> Firmware | None:
    try:
        descriptor = msgspec.json.decode(text, type=_Descriptor)
    except msgspec.DecodeError:
        return None
    mapping = descriptor.mapping
    template = mapping.nvram_template
    executable = mapping.executable or _File(filename=mapping.filename)
    return Firmware(
        executable=executable.filename,
        format=executable.format,
        device=mapping.device,
        mode=mapping.mode,
        nvram_template=template.filename if template is not None else "",
        nvram_format=template.format if template is not None else "raw",
        targets=tuple(FirmwareTarget(arch=t.architecture, machines=t.machines) for t in descriptor.targets),
        features=descriptor.features,
        interfaces=descriptor.interface_types,
    )
