# SPDX-License-Identifier: Apache-2.0
"""Follows the console logs of several nodes in a thread and notes when each piece appeared."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from launcher.errors import TimedOut
from launcher.lab.ticks import Chunk, Tick, parse

POLL_S = 0.02


class Follower:
    """What the files ``logs`` (node -> path, which need not exist yet) gain while it is open.

    A file that is removed is read to its end, and a new one in its place from the beginning.
    """

    def __init__(self, logs: Mapping[str, Path]) -> None:
        self._logs = dict(logs)
        self._files: dict[str, IO[bytes]] = {}
        self._chunks: list[Chunk] = []
        self._changed = threading.Condition()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="console-follower", daemon=True)

    def chunks(self) -> tuple[Chunk, ...]:
        """All so far, in order of time."""
        with self._changed:
            return tuple(self._chunks)

    def ticks(self) -> tuple[Tick, ...]:
        """All ticks so far."""
        return parse(self.chunks())

    def lines(self) -> list[str]:
        """All complete lines so far."""
        text = b"".join(chunk.data for chunk in self.chunks()).decode(errors="replace")
        return [line.rstrip("\r") for line in text.split("\n")[:-1]]

    def wait(self, condition: Callable[[], bool], *, timeout_s: float, what: str) -> None:
        """Wait until ``condition`` holds, looking again whenever something appeared.

        Raises:
            TimedOut: it did not; the message says ``what`` was awaited.
        """
        deadline = time.monotonic() + timeout_s
        with self._changed:
            while not condition():
                left = deadline - time.monotonic()
                if left <= 0 or not self._changed.wait(left):
                    last = "\n".join(self.lines()[-5:])
                    raise TimedOut(
                        f"{what} did not appear within {timeout_s:g} s; the console ends with: {last}"
                    )

    def _follow(self) -> None:
        while not self._stop.wait(POLL_S):
            for node, path in self._logs.items():
                self._look(node, path)

    def _look(self, node: str, path: Path) -> None:
        present = _identity(path)
        file = self._files.get(node)
        if file is not None:
            self._take(node, file)
            if present in (None, _identity(file)):
                return
            file.close()
            del self._files[node]
        if present is not None:
            try:
                self._files[node] = path.open("rb")
            except FileNotFoundError:
                return
            self._take(node, self._files[node])

    def _take(self, node: str, file: IO[bytes]) -> None:
        data = file.read()
        if data:
            with self._changed:
                self._chunks.append(Chunk(at=time.monotonic(), node=node, data=data))
                self._changed.notify_all()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()
        for file in self._files.values():
            file.close()


def _identity(file: Path | IO[bytes]) -> tuple[int, int] | None:
    """Which file it is, whatever its name; None: none. It stays open, so the number is not used again."""
    try:
        found = file.stat() if isinstance(file, Path) else os.fstat(file.fileno())
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino
