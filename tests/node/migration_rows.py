# SPDX-License-Identifier: Apache-2.0
"""Rows of the failure matrix share a lab and a guest, but never a fault.

A row that fails shows what the daemons said while it ran, and the next one gets a new lab.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Self

import pytest
from migration_matrix import Subject, matrix
from outcome import failed

from launcher.lab.node import Node

LINES = 150
"""As many of each log are shown."""


class RowFailed(Exception):
    """Ends a lab without any of the looks that a good end has."""


class World:
    """The lab of the rows, made when the first needs it and again after one failed."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._subject: Subject | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @contextmanager
    def row(self, item: pytest.Item) -> Iterator[Subject]:
        """The guest, ready for one row."""
        if self._subject is None:
            self._subject = self._stack.enter_context(matrix())
        subject = self._subject
        nodes = tuple(subject.nodes.values())
        began = {log: size(log) for node in nodes for log in logs_of(node)}
        good = False
        try:
            subject.ready()
            yield subject
            good = not failed(item)
        finally:
            if not good:
                for log in [log for node in nodes for log in logs_of(node)]:
                    tell(log, began.get(log, 0))
                self._drop()

    def _drop(self) -> None:
        self._subject = None
        with suppress(RowFailed), self._stack.pop_all():
            raise RowFailed


def logs_of(node: Node) -> list[Path]:
    """What a node's daemons and its guest's QEMU write."""
    qemu = node.layout.libvirtd_log.parent / "qemu"
    return [node.layout.agent_log, node.layout.libvirtd_log, *sorted(qemu.glob("*.log"))]


def size(log: Path) -> int:
    """How much is in a log; nothing when it is not there."""
    return log.stat().st_size if log.exists() else 0


def tell(log: Path, start: int) -> None:
    """Show the end of what was written since."""
    if not log.exists():
        return
    lines = log.read_bytes()[start:].decode(errors="replace").splitlines()
    print(f"--- {log} ({len(lines)} lines)", *lines[-LINES:], sep="\n")
