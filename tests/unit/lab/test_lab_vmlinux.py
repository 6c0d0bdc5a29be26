# SPDX-License-Identifier: Apache-2.0
"""The kernel is taken out of a bzImage whichever way its payload is packed."""

from __future__ import annotations

import gzip
import lzma
import struct
import subprocess

import pytest

from launcher.errors import HostUnsupported
from launcher.lab import vmlinux

ELF = b"\x7fELF" + bytes(range(256)) * 64


def _image(packed: bytes, *, setup_sectors: int = 2, before: int = 100) -> bytes:
    image = bytearray((setup_sectors or 4) * 512 + 512)
    image[0x1F1] = setup_sectors
    image[0x202:0x206] = b"HdrS"
    struct.pack_into("<II", image, 0x248, before, len(packed))
    return bytes(image) + b"\x90" * before + packed + b"\x90" * 50


def _program(*argv: str) -> bytes:
    size = struct.pack("<I", len(ELF))  # the kernel's build appends it
    return subprocess.run(argv, input=ELF, capture_output=True, check=True).stdout + size


@pytest.mark.parametrize("setup_sectors", [0, 2, 30])
def test_the_payload_lies_behind_the_setup_sectors(setup_sectors: int) -> None:
    assert vmlinux.payload(_image(b"packed", setup_sectors=setup_sectors)) == b"packed"


@pytest.mark.parametrize(
    "packed",
    [
        pytest.param(gzip.compress(ELF), id="gzip"),
        pytest.param(lzma.compress(ELF, check=lzma.CHECK_CRC32) + b"size", id="xz"),
        pytest.param(_program("lz4", "-l", "-c"), id="lz4"),
        pytest.param(_program("zstd", "-c"), id="zstd"),
    ],
)
def test_every_packing_of_debians_kernels_is_unpacked(packed: bytes) -> None:
    assert vmlinux.extract(_image(packed)) == ELF


def test_other_files_are_refused() -> None:
    with pytest.raises(HostUnsupported, match="no bzImage"):
        vmlinux.extract(bytes(4096))
    with pytest.raises(HostUnsupported, match="begins with 425a68"):
        vmlinux.extract(_image(b"BZh91AY&"))
    with pytest.raises(HostUnsupported, match="unpacked payload"):
        vmlinux.extract(_image(gzip.compress(b"text")))
