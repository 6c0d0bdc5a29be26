# SPDX-License-Identifier: Apache-2.0
"""Reads a tar stream that a stranger wrote: forward only, in bounded memory, and nothing is ever unpacked.

The formats are those of POSIX.1-2001 (ustar, pax) and GNU tar's long names. The standard library's reader is
not used: it holds extended headers and sparse maps of any size in memory, and a few compressed kilobytes can
spell gigabytes of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from launcher.errors import StorageError

MAX_MEMBERS = 1_000_000
MAX_HEADER = 1 << 20
"""Bytes of an extended header; names and a few attributes are all that belongs there."""
MAX_PATH = 4096
"""Linux' PATH_MAX."""

_BLOCK = 512
_CHUNK = 1 << 20
_PAX, _PAX_GLOBAL, _GNU_NAME, _GNU_LINK = b"x", b"g", b"L", b"K"


class Readable(Protocol):
    """What is read from: a file, a decompressor, a pipe."""

    def read(self, size: int, /) -> bytes: ...


class Member:
    """One member. ``regular``: a plain file; ``read`` gives its ``size`` bytes until the next comes."""

    __slots__ = ("_left", "_stream", "path", "regular", "size")

    def __init__(self, stream: _Counted, path: str, size: int, *, regular: bool) -> None:
        self._stream = stream
        self._left = size
        self.path = path
        self.size = size
        self.regular = regular

    def read(self, count: int) -> bytes:
        """Up to ``count`` bytes; empty at the end."""
        data = self._stream.exactly(min(count, self._left))
        self._left -= len(data)
        return data

    def skip(self) -> None:
        """Pass over the rest, and over the padding behind it."""
        while self._left:
            self.read(_CHUNK)
        self._stream.exactly(-self.size % _BLOCK)


class _Counted:
    """The stream, of which at most ``limit`` bytes are read."""

    def __init__(self, stream: Readable, limit: int) -> None:
        self._stream = stream
        self._left = limit

    def exactly(self, count: int) -> bytes:
        parts = []
        while count:
            part = self._stream.read(min(count, _CHUNK))
            if not part:
                raise StorageError("", "the archive ends in the middle of a member")
            self._left -= len(part)
            if self._left < 0:
                raise StorageError("", "the archive unpacks to more than is taken")
            count -= len(part)
            parts.append(part)
        return b"".join(parts)

    def block(self) -> bytes:
        """The next header; empty where the stream ends without the two blocks of zeros."""
        first = self._stream.read(_BLOCK)
        if not first:
            return b""
        self._left -= len(first)
        return first + self.exactly(_BLOCK - len(first))


def members(stream: Readable, *, limit: int) -> Iterator[Member]:
    """The members of the archive, of which at most ``limit`` bytes are read.

    Raises:
        StorageError: no tar, broken, or too much of anything.
    """
    counted = _Counted(stream, limit)
    name, attributes, seen = "", dict[str, str](), 0
    while (header := counted.block()) and header != bytes(_BLOCK):
        seen += 1
        if seen > MAX_MEMBERS:
            raise StorageError("", f"the archive has more than {MAX_MEMBERS} members")
        kind, size = header[156:157], _number(header[124:136])
        _check(header)
        if kind in (_PAX, _PAX_GLOBAL, _GNU_NAME, _GNU_LINK):
            data = _extended(counted, size)
            if kind == _PAX:
                attributes = _pax(data)
            elif kind == _GNU_NAME:
                name = _text(data.rstrip(b"\0"))
            continue
        path = attributes.get("path") or name or _path(header)
        if len(path) > MAX_PATH:
            raise StorageError("", f"a name in the archive is longer than {MAX_PATH} characters")
        if "size" in attributes:
            size = _decimal(attributes["size"])
        sparse = any(key.startswith("GNU.sparse") for key in attributes)
        plain = kind in (b"0", b"\0", b"7") and not sparse
        # Only regular files (and the unknown, which POSIX says to treat so) have content behind them.
        stored = size if kind not in (b"1", b"2", b"3", b"4", b"5", b"6") else 0
        member = Member(counted, path, stored, regular=plain)
        name, attributes = "", {}
        yield member
        member.skip()


def _check(header: bytes) -> None:
    expected = _number(header[148:156])
    if sum(header) - sum(header[148:156]) + 8 * 0x20 != expected:
        raise StorageError("", "this is no tar archive: the checksum of a header is wrong")


def _extended(counted: _Counted, size: int) -> bytes:
    if size > MAX_HEADER:
        raise StorageError("", f"an extended header has {size} bytes; at most {MAX_HEADER} are taken")
    return counted.exactly(size + -size % _BLOCK)[:size]


def _pax(data: bytes) -> dict[str, str]:
    """Records ``LENGTH KEY=VALUE\\n`` (POSIX.1-2001, pax)."""
    found: dict[str, str] = {}
    while data:
        length = _decimal(_text(data[:20].partition(b" ")[0]))
        record, data = data[:length], data[length:]
        key, equals, value = record.partition(b" ")[2].partition(b"=")
        if length < 5 or not equals:
            raise StorageError("", "an extended header of the archive cannot be read")
        found[_text(key)] = _text(value.removesuffix(b"\n"))
    return found


def _path(header: bytes) -> str:
    name, prefix = header[:100], header[345:500]
    if header[257:263] != b"ustar\0":  # GNU's old format keeps times where ustar has a prefix
        prefix = b""
    parts = [_text(part.partition(b"\0")[0]) for part in (prefix, name)]
    return "/".join(part for part in parts if part)


def _number(field: bytes) -> int:
    """Octal digits, or base 256 when the first bit is set (GNU)."""
    if field[0] & 0x80:
        value = int.from_bytes(field, "big") & ~(0x80 << 8 * (len(field) - 1))
        if value >> 62:
            raise StorageError("", "a number in the archive is out of range")
        return value
    digits = field.strip(b" \0")
    if not digits:
        return 0
    try:
        return int(digits, 8)
    except ValueError as error:
        raise StorageError("", "this is no tar archive: a number in a header cannot be read") from error


def _decimal(text: str) -> int:
    if not text.isascii() or not text.isdecimal() or len(text) > 18:
        raise StorageError("", "a number in an extended header of the archive cannot be read")
    return int(text)


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")
