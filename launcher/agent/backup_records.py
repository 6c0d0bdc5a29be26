# SPDX-License-Identifier: Apache-2.0
"""What the agent remembers of snapshots, backups and checkpoints. Plain data; the store keeps it as JSON.

A record is written before anything is made for it, so that an agent that was killed finds what there may be.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from launcher.domain.backup import BackupJob

CopyKind = Literal["snapshot", "backup"]
CopyPhase = Literal["Pending", "InProgress", "Succeeded", "Failed"]
ENDED: frozenset[str] = frozenset({"Succeeded", "Failed"})


class CopiedVolume(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A volume of the copy, and the file (push) or the NBD export (pull) that has it."""

    volume: str
    target: str
    file: str = ""
    export: str = ""
    bitmap: str = ""


class CopyRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One snapshot or backup of the instance ``uid``.

    ``directory`` holds its files. ``own``: we made it and remove it with the copy; else it is the user's, and
    only the files of a copy that failed are removed. ``destination`` is the utility volume that it is
    written to, if it is to one. ``indications`` tell how quiet the guest was, in
    KubeVirt's words. ``checkpoint`` is the moment of the copy, from which a later one can go on;
    ``incremental`` the one that this copy goes on from.
    ``processed`` and ``total`` are bytes. ``deadline_s`` is how long the job may take.
    """

    uid: str
    uuid: str
    namespace: str
    vmi: str
    name: str
    kind: CopyKind
    created: str
    job: BackupJob
    volumes: tuple[CopiedVolume, ...]
    directory: str
    destination: str = ""
    own: bool = False
    deadline_s: int = 0
    phase: CopyPhase = "Pending"
    message: str = ""
    indications: tuple[str, ...] = ()
    checkpoint: str = ""
    ended: str = ""
    processed: int = 0
    total: int = 0
    ending: Literal["", "done", "abort"] = ""

    @property
    def key(self) -> str:
        """Its key in the store: unique on the node."""
        return f"{self.uid}/{self.kind}/{self.name}"

    @property
    def instance(self) -> str:
        """``namespace/name`` of the instance."""
        return f"{self.namespace}/{self.vmi}"


class CheckpointRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A moment from which an incremental backup can go on, as long as its bitmaps are good.

    ``xml`` is libvirt's, for making it known again. ``invalid`` is why it cannot be used any more.
    """

    uid: str
    namespace: str
    vmi: str
    name: str
    created: str
    volumes: tuple[str, ...]
    xml: str
    invalid: str = ""

    @property
    def key(self) -> str:
        """Its key in the store."""
        return f"{self.uid}/{self.name}"
