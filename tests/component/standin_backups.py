# SPDX-License-Identifier: Apache-2.0
"""Copies of guests in memory, behind the real API server."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from launcher.agent.port import CopiedVolumeView, CopyView
from launcher.errors import NotFound

Key = tuple[str, str]


class StandInBackups:
    """BackupPort over a list: every snapshot is copied when it is looked at."""

    def __init__(self) -> None:
        self.frozen: dict[Key, float] = {}
        self.copies: list[CopyView] = []

    async def freeze(self, namespace: str, name: str, *, unfreeze_after_s: float) -> None:
        self.frozen[namespace, name] = unfreeze_after_s

    async def unfreeze(self, namespace: str, name: str) -> None:
        self.frozen.pop((namespace, name), None)

    async def create_snapshot(
        self, namespace: str, vmi: str, *, name: str, volumes: tuple[str, ...], quiesce: bool
    ) -> CopyView:
        quiet = ("Online", "GuestAgent") if quiesce else ("Online",)
        copied = tuple(CopiedVolumeView(volume=v, target="vda", file=f"/s/{v}.qcow2") for v in volumes)
        made = copy_view("snapshot", namespace, vmi, name, indications=quiet, volumes=copied)
        self.copies.append(made)
        return made

    async def list_snapshots(self, namespace: str | None, vmi: str) -> tuple[CopyView, ...]:
        found = [c for c in self.copies if namespace in (None, c.namespace) and vmi in ("", c.vmi)]
        message = "no space left"
        return tuple(
            replace(c, phase="Failed", message=message)
            if c.name.startswith("bad")
            else replace(c, phase="Succeeded")
            for c in found
        )

    async def delete_snapshot(self, namespace: str, vmi: str, name: str) -> None:
        kept = [c for c in self.copies if (c.namespace, c.vmi, c.name) != (namespace, vmi, name)]
        if len(kept) == len(self.copies):
            raise NotFound("snapshot", name)
        self.copies = kept


def copy_view(kind: str, namespace: str, vmi: str, name: str, **fields: Any) -> CopyView:
    """A copy that is under way."""
    plain: dict[str, Any] = {
        "phase": "InProgress",
        "message": "",
        "mode": "push",
        "incremental": "",
        "checkpoint": "",
        "endpoint": "",
        "ended": "",
        "processed": 0,
        "total": 0,
    }
    return CopyView(
        kind=kind,
        namespace=namespace,
        vmi=vmi,
        name=name,
        vmi_uid="u",
        created="2026-03-01T12:00:00Z",
        **{**plain, **fields},
    )
