# SPDX-License-Identifier: Apache-2.0
"""Checkpoints of running domains: known to libvirt when they are needed, and not too many of them.

libvirt may have forgotten one that is in our records, with its bitmaps still in the images: it is told again.
When they are not, or are broken, the checkpoint is marked, and only a full backup can follow.
"""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from launcher.agent.backup_records import CheckpointRecord, CopyRecord
from launcher.agent.backup_rules import require_covers
from launcher.agent.backup_runs import CopyRuns
from launcher.agent.machine import Services
from launcher.errors import Conflict, HypervisorUnavailable, LauncherError, NotFound, TimedOut
from launcher.host.logging import get

log = get(__name__)

KIND: Final = "checkpoint"


class Checkpoints:
    """The checkpoints of one node."""

    def __init__(self, services: Services, runs: CopyRuns) -> None:
        self._services = services
        self._runs = runs

    async def require(self, copy: CopyRecord) -> None:
        """See that ``copy`` can go on from its checkpoint.

        Raises:
            NotFound: there is none. Conflict: it is broken. InvalidRequest: it has not all volumes.
        """
        wanted = self._find(copy.uid, copy.job.incremental)
        require_covers(wanted, copy)
        known = await self._services.hypervisor.checkpoints(copy.uuid)
        if wanted.name in known:
            return
        for checkpoint in self._of(copy.uid):  # a parent before its children
            if checkpoint.name not in known and not checkpoint.invalid:
                await self._tell(copy.uuid, checkpoint)
        require_covers(self._find(copy.uid, wanted.name), copy)

    async def delete(self, uid: str, name: str) -> None:
        """Forget a checkpoint: an earlier one takes over what it knows. Raises NotFound."""
        checkpoint = self._find(uid, name)
        uuid = self._runs.domain_of(checkpoint)
        if uuid:
            await self._services.hypervisor.delete_checkpoint(uuid, name)
        await self._runs.forget_checkpoint(checkpoint)

    async def _tell(self, uuid: str, checkpoint: CheckpointRecord) -> None:
        try:
            await self._services.hypervisor.redefine_checkpoint(uuid, checkpoint.xml)
        except (HypervisorUnavailable, TimedOut, Conflict):
            raise
        except LauncherError as error:
            log.warning(f"checkpoint {checkpoint.name} is broken: {error}", uid=checkpoint.uid)
            await self._runs.save_checkpoint(replace(checkpoint, invalid=error.message))

    def _find(self, uid: str, name: str) -> CheckpointRecord:
        for checkpoint in self._of(uid):
            if checkpoint.name == name:
                return checkpoint
        raise NotFound(KIND, name, hint="make a full backup")

    def _of(self, uid: str) -> tuple[CheckpointRecord, ...]:
        return tuple(found for found in self._runs.checkpoints() if found.uid == uid)
