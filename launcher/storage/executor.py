# SPDX-License-Identifier: Apache-2.0
"""Makes and releases the storage steps of a plan. Each can be made twice and released twice."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from launcher.errors import Bug
from launcher.host import vhostmd
from launcher.host.files import make_directory, remove_tree, remove_unfinished
from launcher.plan.devices.model import DevicesPlan
from launcher.plan.devices.observed import Observed
from launcher.plan.ignition import ignition_config
from launcher.plan.media.material import Material
from launcher.plan.media.volume import acpi_table, volume_files
from launcher.plan.steps import (
    AnyStep,
    CreateImage,
    FetchContainerDisk,
    FetchKernel,
    MakeDirectory,
    MakeFiles,
    MakeIso,
    MakeMetricsDisk,
    RequireFile,
    StartVirtiofsd,
    TrackChanges,
    UseState,
    WriteAcpiTable,
    WriteIgnition,
)
from launcher.storage.claims import require_file
from launcher.storage.container_image import ContainerImages
from launcher.storage.images import create_image, partial_path
from launcher.storage.iso import write_iso, write_private
from launcher.storage.kept import forget_state, put_away_state, take_state
from launcher.storage.limits import StorageSettings
from launcher.storage.observe import observe
from launcher.storage.share import write_files
from launcher.storage.tracking import track_changes
from launcher.storage.virtiofsd import Virtiofsd

STORAGE_STEPS = (
    MakeDirectory,
    CreateImage,
    TrackChanges,
    RequireFile,
    FetchContainerDisk,
    FetchKernel,
    MakeIso,
    MakeFiles,
    WriteAcpiTable,
    WriteIgnition,
    MakeMetricsDisk,
    StartVirtiofsd,
    UseState,
)
NO_METRICS = b"<metrics>\n</metrics>\n"


class StorageExecutor:
    """Storage of the node; ``settings`` say where it lies and how much it may take."""

    def __init__(self, settings: StorageSettings) -> None:
        self._images = ContainerImages(settings)
        self._virtiofsd = Virtiofsd()

    async def make(self, step: AnyStep, material: Material) -> AnyStep:
        """Bring ``step`` about, with content out of ``material``; returns it with what was found.

        Raises:
            StorageError, HostUnsupported: with the volume's name.
            InvalidRequest: content that did not come with the instance.
        """
        match step:
            case FetchContainerDisk():
                return await self._images.fetch_disk(step, material)
            case FetchKernel():
                return await self._images.fetch_kernel(step, material)
            case MakeDirectory():
                await asyncio.to_thread(_make_directory, step)
            case UseState():
                await asyncio.to_thread(take_state, step)
            case CreateImage():
                await create_image(step)
            case TrackChanges():
                await track_changes(step)
            case RequireFile():
                await asyncio.to_thread(require_file, step)
            case MakeIso():
                files = volume_files(material, step.volume)
                path = Path(step.path)
                await asyncio.to_thread(
                    write_iso, step.volume, path, step.label, files, uid=step.uid, gid=step.gid
                )
            case MakeFiles():
                files = volume_files(material, step.volume)
                await asyncio.to_thread(write_files, step.volume, Path(step.path), files)
            case WriteAcpiTable():
                data, path = acpi_table(material, step), Path(step.path)
                await asyncio.to_thread(write_private, step.volume, path, data, uid=step.uid, gid=step.gid)
            case WriteIgnition():
                data, path = _ignition(material), Path(step.path)
                await asyncio.to_thread(write_private, "", path, data, uid=step.uid, gid=step.gid)
            case MakeMetricsDisk():
                await asyncio.to_thread(vhostmd.create, step.volume, Path(step.path), NO_METRICS)
            case StartVirtiofsd():
                await self._virtiofsd.start(step)
            case _:
                raise Bug(f"{type(step).__name__} is not a storage step")
        return step

    async def release(self, step: AnyStep, *, discard_state: bool = False) -> None:
        """Undo ``step``; what is already gone is fine, what belongs to the user stays.

        ``discard_state``: firmware variables and TPM state that would be kept go, too.
        """
        match step:
            case MakeDirectory() | MakeFiles():
                await asyncio.to_thread(remove_tree, Path(step.path))
            case UseState():
                await asyncio.to_thread(put_away_state, step, discard=discard_state)
            case CreateImage():
                own = None if step.keep else step.path
                await asyncio.to_thread(_remove, own, str(partial_path(step)))
            case MakeIso() | WriteAcpiTable() | WriteIgnition() | MakeMetricsDisk():
                await asyncio.to_thread(_remove, step.path)
            case FetchContainerDisk():
                await asyncio.to_thread(_remove, step.path)
                await self._images.trim()
            case FetchKernel():
                await asyncio.to_thread(_remove, step.kernel_path, step.initrd_path)
                await self._images.trim()
            case StartVirtiofsd():
                await self._virtiofsd.stop(step)
            case _:
                return

    async def forget_state(self, directory: str) -> bool:
        """Remove the state that is kept in ``directory``; returns whether there was any."""
        return await asyncio.to_thread(forget_state, Path(directory))

    async def observe(self, devices: DevicesPlan) -> dict[str, Observed]:
        """What the finished files show, by volume; raises StorageError."""
        return await asyncio.to_thread(observe, devices)

    async def faults(self, steps: tuple[AnyStep, ...]) -> tuple[str, ...]:
        """Shares whose daemon has died, in sentences."""
        return await asyncio.to_thread(self._virtiofsd.faults, steps)

    async def sweep(self) -> None:
        """Remove what killed pulls left and nobody went on with."""
        await self._images.sweep()


def _ignition(material: Material) -> bytes:
    config = ignition_config(material.vmi.metadata.annotations if material.vmi.metadata else {})
    if config is None:
        raise Bug("the instance has no configuration for Ignition")
    return config.encode()


def _make_directory(step: MakeDirectory) -> None:
    path = Path(step.path)
    make_directory(path, mode=step.mode)
    if step.uid is not None or step.gid is not None:
        os.chown(path, -1 if step.uid is None else step.uid, -1 if step.gid is None else step.gid)


def _remove(*paths: str | None) -> None:
    for path in map(Path, filter(None, paths)):
        path.unlink(missing_ok=True)
        remove_unfinished(path)
