# SPDX-License-Identifier: Apache-2.0
"""What somebody took away of networks that were made: links, and namespaces. Blocking; it only looks."""

from __future__ import annotations

import socket
from collections.abc import Iterable
from pathlib import Path
from typing import Final, TypeGuard

from launcher.network.namespace import is_kept
from launcher.plan.steps import AnyStep, CreateMacvtap, CreateNetworkNamespace, CreateTap, CreateVeth

HELD: Final = (CreateTap, CreateMacvtap)
"""Links that QEMU holds open: another one of the name is not the guest's."""

Losable = CreateTap | CreateMacvtap | CreateVeth | CreateNetworkNamespace


def lost(steps: Iterable[AnyStep]) -> tuple[Losable, ...]:
    """Those of ``steps``, which all were made, whose link or namespace is not there."""
    return tuple(step for step in steps if _can_be_lost(step) and not _is_there(step))


def _can_be_lost(step: AnyStep) -> TypeGuard[Losable]:
    return isinstance(step, Losable)


def _is_there(step: Losable) -> bool:
    if isinstance(step, CreateNetworkNamespace):
        return is_kept(Path(step.path))
    try:
        return socket.if_nametoindex(step.name) > 0
    except OSError:
        return False
