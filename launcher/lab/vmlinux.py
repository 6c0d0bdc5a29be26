# SPDX-License-Identifier: Apache-2.0
"""Takes the kernel proper out of a bzImage, so that QEMU boots it by PVH without the slow steps before.

Under emulation the BIOS' loading and the kernel's own unpacking take longer than the kernel's start itself.
Offsets are those of the Linux/x86 boot protocol (Documentation/arch/x86/boot.rst).
"""

from __future__ import annotations

import lzma
import struct

from launcher.errors import HostUnsupported
from launcher.lab import command

_SETUP_SECTS = 0x1F1
_HEADER_MAGIC = 0x202
_PAYLOAD = 0x248
_SECTOR = 512
_LZ4_LEGACY = b"\x02\x21\x4c\x18"
_ZSTD = b"\x28\xb5\x2f\xfd"
_XZ = b"\xfd7zXZ\x00"
_GZIP = b"\x1f\x8b"


def payload(image: bytes) -> bytes:
    """The compressed kernel inside a bzImage.

    Raises:
        HostUnsupported: this is no bzImage.
    """
    if image[_HEADER_MAGIC : _HEADER_MAGIC + 4] != b"HdrS":
        raise HostUnsupported("a bootable kernel", "the kernel package holds no bzImage")
    # boot.rst: a setup_sects of 0 means 4; the boot sector itself comes on top.
    setup = ((image[_SETUP_SECTS] or 4) + 1) * _SECTOR
    offset, length = struct.unpack_from("<II", image, _PAYLOAD)
    return image[setup + offset : setup + offset + length]


def extract(image: bytes) -> bytes:
    """The ELF file inside a bzImage.

    Raises:
        HostUnsupported: it is packed in a way that is not known here.
        CommandFailed: the unpacking program refused.
    """
    packed = payload(image)
    # For all but gzip the kernel's build appends the unpacked size (4 bytes), which is no part of the stream.
    if packed.startswith(_LZ4_LEGACY):
        elf = command.run(["lz4", "-dc"], stdin=packed[:-4])
    elif packed.startswith(_ZSTD):
        elf = command.run(["zstd", "-dc"], stdin=packed[:-4])
    elif packed.startswith(_XZ):
        elf = lzma.LZMADecompressor(lzma.FORMAT_XZ).decompress(packed)
    elif packed.startswith(_GZIP):
        elf = command.run(["gzip", "-dc"], stdin=packed)
    else:
        raise HostUnsupported("a known kernel format", f"its payload begins with {packed[:6].hex()}")
    if not elf.startswith(b"\x7fELF"):
        raise HostUnsupported("a known kernel format", f"the unpacked payload begins with {elf[:4].hex()}")
    return elf
