# SPDX-License-Identifier: Apache-2.0
"""Keeps recordings of migrations as files, one for each attempt, few and small. Decides nothing about them.

While a migration runs its file grows (``ATTEMPT.jsonl``); what was noted since the last flush is lost with
the process, and nothing else is. At the end it is compressed (``ATTEMPT.jsonl.gz``). A disk that cannot be
written costs the recording, never the migration.
"""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import hashlib
import re
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path

from launcher.agent.migration_status import OutgoingEntry
from launcher.errors import NotFound, StorageError
from launcher.host.files import make_directory, write_atomic
from launcher.host.logging import get
from launcher.migration.recording import VERSION, Bound, Ended, Entry, Header, encode
from launcher.units import MIB

log = get(__name__)

MOST_BYTES = 64 * MIB
"""All recordings together; the oldest go first. A compressed one takes about a tenth of its lines."""
_RUNNING = ".jsonl"
_ENDED = ".jsonl.gz"
_PLAIN = re.compile(r"[0-9A-Za-z-]{1,64}")


class FileRecorder:
    """Implements ``migration.recording.Recorder`` for one attempt."""

    def __init__(self, path: Path, header: Header) -> None:
        self._path = path
        self._header = header
        self._bound = Bound()
        self._lines: list[bytes] = []
        self._opened = False
        self._lost = False
        self._lock = asyncio.Lock()

    def note(self, entry: Entry) -> None:
        """See ``Recorder``."""
        if not self._lost:
            self._lines.append(self._bound.lines(entry))

    async def open(self) -> None:
        """Begin, or go on with what an older process wrote."""
        async with self._lock:
            try:
                self._bound = Bound(await asyncio.to_thread(_begin, self._path, self._header))
            except (OSError, StorageError) as error:
                self._fail(error)

    async def flush(self) -> None:
        """See ``Recorder``."""
        async with self._lock:
            lines, self._lines = b"".join(self._lines), []
            if not lines or self._lost:
                return
            try:
                await asyncio.to_thread(_append, self._path, lines)
            except OSError as error:
                self._fail(error)

    def _fail(self, error: Exception) -> None:
        self._lost = True
        log.warning("a migration is not recorded any more", migration=self._header.migration, why=str(error))


class Recordings:
    """The recordings of a node, in ``folder``."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._open: dict[str, FileRecorder] = {}
        self._wanted: list[Callable[[], Iterable[str]]] = []
        self._turn = asyncio.Lock()  # Nothing is pruned while a file is made: it looks like nobody's.

    def keep(self, attempts: Callable[[], Iterable[str]]) -> None:
        """Keep the recordings of ``attempts()``; those that nobody keeps are pruned."""
        self._wanted.append(attempts)

    async def recorder(self, header: Header) -> FileRecorder:
        """Where the entries of an attempt go; the same one until it ends."""
        async with self._turn:
            found = self._open.get(header.attempt)
            if found is None:
                found = FileRecorder(self._folder / f"{_stem(header.attempt)}{_RUNNING}", header)
                self._open[header.attempt] = found
                await found.open()
            return found

    async def end(self, entry: OutgoingEntry) -> None:
        """Write the last line and compress. Ended ones stay as they are."""
        recorder = self._open.pop(entry.attempt.token, None)
        if recorder is not None:
            await recorder.flush()
        try:
            async with self._turn:
                await asyncio.to_thread(_end, self._folder, _stem(entry.attempt.token), encode(_ended(entry)))
        except (OSError, StorageError) as error:
            log.warning("a recording stays as it is", migration=entry.key, why=str(error))

    async def read(self, attempt: str) -> bytes:
        """The lines of a recording so far.

        Raises:
            NotFound: there is none (any more).
        """
        if attempt in self._open:
            await self._open[attempt].flush()
        text = await asyncio.to_thread(_read, self._folder, _stem(attempt))
        if text is None:
            raise NotFound("recording", attempt, hint="only the newest migrations of a node are kept")
        return text

    async def drop(self, attempt: str) -> None:
        """Forget a recording; absent is fine."""
        self._open.pop(attempt, None)
        await asyncio.to_thread(_drop, self._folder, _stem(attempt))

    async def prune(self) -> None:
        """Forget the recordings that nobody keeps, and the oldest when there are too many bytes."""
        try:
            async with self._turn:
                stems = frozenset(_stem(attempt) for attempts in self._wanted for attempt in attempts())
                running = frozenset(map(_stem, self._open))
                await asyncio.to_thread(_prune, self._folder, stems, running)
        except OSError as error:
            log.warning("old recordings cannot be removed", why=str(error))


def header_of(entry: OutgoingEntry, at: str) -> Header:
    """The first line of a migration's recording."""
    outgoing = entry.attempt.outgoing
    namespace = entry.key.partition("/")[0]
    return Header(
        version=VERSION,
        migration=entry.key,
        instance=f"{namespace}/{entry.manifest.spec.vmi_name or ''}",
        attempt=entry.attempt.token,
        source_node=outgoing.source_node,
        target_node=outgoing.target_node,
        rules=outgoing.policy,
        options=outgoing.options,
        workload=outgoing.workload,
        at=at,
    )


def _ended(entry: OutgoingEntry) -> Ended:
    attempt = entry.attempt
    return Ended(
        at=attempt.transitions[-1].at if attempt.transitions else "",
        phase=attempt.phase.value,
        cause=attempt.cause.value,
        reason=attempt.reason,
        report=attempt.report,
    )


def _stem(attempt: str) -> str:
    """The file's name; an attempt is named by its user, who may have had other things in mind."""
    return attempt if _PLAIN.fullmatch(attempt) else hashlib.sha256(attempt.encode()).hexdigest()


def _begin(path: Path, header: Header) -> int:
    """Make the file, or find it; its length in bytes."""
    make_directory(path.parent)
    ended = path.with_name(path.name + ".gz")
    if not path.exists() and ended.exists():  # It is tried again after its end.
        write_atomic(path, _unpacked(ended))
        ended.unlink()
    if path.exists():
        text = path.read_bytes()
        whole = text.rfind(b"\n") + 1  # A line that was cut would spoil the next one.
        if whole:
            with path.open("r+b") as file:
                file.truncate(whole)
            return whole
    line = encode(header)
    write_atomic(path, line)
    return len(line)


def _append(path: Path, lines: bytes) -> None:
    with path.open("ab") as file:
        file.write(lines)


def _end(folder: Path, stem: str, line: bytes) -> None:
    path = folder / f"{stem}{_RUNNING}"
    if path.exists():
        write_atomic(folder / f"{stem}{_ENDED}", gzip.compress(path.read_bytes() + line))
        path.unlink()


def _read(folder: Path, stem: str) -> bytes | None:
    with contextlib.suppress(FileNotFoundError):
        return (folder / f"{stem}{_RUNNING}").read_bytes()
    with contextlib.suppress(FileNotFoundError):
        return _unpacked(folder / f"{stem}{_ENDED}")
    return None


def _unpacked(path: Path) -> bytes:
    try:
        return gzip.decompress(path.read_bytes())
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise StorageError(str(path), f"the recording {path} is damaged: {error}") from error


def _drop(folder: Path, stem: str) -> None:
    for ending in (_RUNNING, _ENDED):
        (folder / f"{stem}{ending}").unlink(missing_ok=True)


def _prune(folder: Path, stems: frozenset[str], running: frozenset[str]) -> None:
    if not folder.exists():
        return
    kept = []
    for path in folder.iterdir():
        stem = path.name.removesuffix(".gz").removesuffix(_RUNNING)
        if stem not in stems and stem not in running:
            path.unlink(missing_ok=True)
        elif stem not in running:
            found = path.stat()
            kept.append((found.st_mtime, found.st_size, path))
    total = sum(size for _, size, _ in kept)
    for _, size, path in sorted(kept):
        if total <= MOST_BYTES:
            break
        path.unlink(missing_ok=True)
        total -= size
