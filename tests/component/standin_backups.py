# SPDX-License-Identifier: Apache-2.0
"""Copies of guests in memory, behind the real API server."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from launcher.agent.port import BackupRequest, CheckpointView, ClaimBinding, CopiedVolumeView, CopyView
from launcher.errors import NotFound
from launcher.spec.model import (
    Devices,
    DomainMemoryDumpInfo,
    DomainSpec,
    ObjectMeta,
    VirtualMachineInstance,
    VirtualMachineInstanceSpec,
    VirtualMachineInstanceStatus,
    VolumeStatus,
)

Key = tuple[str, str]


class StandInBackups:
    """BackupPort over a list: every snapshot is copied when it is looked at."""

    def __init__(self) -> None:
        self.frozen: dict[Key, float] = {}
        self.copies: list[CopyView] = []
        self.requests: list[BackupRequest] = []
        self.dumps: list[tuple[str, str, str, str]] = []

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

    async def begin_backup(self, namespace: str, vmi: str, request: BackupRequest) -> CopyView:
        self.requests.append(request)
        made = copy_view(
            "backup",
            namespace,
            vmi,
            request.name,
            mode=request.mode,
            incremental=request.incremental,
            checkpoint=f"{request.name}-cp",
            indications=("Online", "GuestAgent"),
            endpoint="/run/b.sock" if request.mode == "pull" else "",
            volumes=(CopiedVolumeView(volume="root", target="vda", file="/b/root.qcow2", export="root"),),
        )
        self.copies.append(made)
        return made

    async def list_backups(self, namespace: str | None, vmi: str) -> tuple[CopyView, ...]:
        return await self.list_snapshots(namespace, vmi)

    async def end_backup(self, namespace: str, vmi: str, name: str, *, abort: bool) -> CopyView:
        found = [c for c in self.copies if (c.namespace, c.vmi, c.name) == (namespace, vmi, name)]
        if not found:
            raise NotFound("backup", name)
        return replace(found[0], phase="Failed" if abort else "Succeeded", message="aborted" if abort else "")

    async def list_checkpoints(self, namespace: str | None, vmi: str) -> tuple[CheckpointView, ...]:
        return tuple(
            CheckpointView(
                name=c.checkpoint,
                namespace=c.namespace,
                vmi=c.vmi,
                created=c.created,
                volumes=("root",),
                invalid="",
            )
            for c in self.copies
            if c.checkpoint
        )

    async def delete_checkpoint(self, namespace: str, vmi: str, name: str) -> None:
        self.copies = [c for c in self.copies if c.checkpoint != name]

    async def dump_memory(
        self, namespace: str, vmi: str, *, claim: str, binding: ClaimBinding | None, volume: str = ""
    ) -> VirtualMachineInstance:
        path = binding.path if binding is not None else ""
        self.dumps.append((namespace, vmi, claim or volume, path))
        return self._dumped(namespace, vmi, claim)

    async def forget_memory_dump(self, namespace: str, vmi: str) -> VirtualMachineInstance:
        if not self.dumps:
            raise NotFound("memory dump", vmi)
        self.dumps.clear()
        return self._dumped(namespace, vmi, "")

    def _dumped(self, namespace: str, vmi: str, claim: str) -> VirtualMachineInstance:
        dump = DomainMemoryDumpInfo(claim_name=claim, target_file_name=f"{vmi}-{claim}.memory.dump")
        phase = "MemoryDumpFailed" if claim == "bad" else "MemoryDumpCompleted"
        volume = VolumeStatus(name=claim, target="", phase=phase, message="no", memory_dump_volume=dump)
        return VirtualMachineInstance(
            metadata=ObjectMeta(name=vmi, namespace=namespace),
            spec=VirtualMachineInstanceSpec(domain=DomainSpec(devices=Devices())),
            status=VirtualMachineInstanceStatus(volume_status=(volume,)),
        )


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
