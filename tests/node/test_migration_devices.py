# SPDX-License-Identifier: Apache-2.0
"""A device that a Linux guest gives back before it moves, and has again wherever it is afterwards.

There is no SR-IOV card here: a virtio device stands in for the virtual function, which the engine knows by
its alias only.
"""

from __future__ import annotations

import asyncio
import json
import re
import tarfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest
from hypervisor_guests import connected, dirtying_xml, guest, new_uuid
from migration_pair import Hooks, Pair

from launcher.domain.reading import parse, printed
from launcher.hypervisor.port import DomainState
from launcher.lab.image import INITRD_PATH, KERNEL_PATH, Image
from launcher.lab.node import Node
from launcher.migration.attempt import Cause, Phase
from launcher.migration.options import Options
from launcher.migration.peer import PrepareRequest
from launcher.migration.reservation import Reservation
from launcher.units import MIB

pytestmark = pytest.mark.node

ALIAS = "sriov-fast"
DEVICE = f"""
<rng model='virtio'><backend model='random'>/dev/urandom</backend><alias name='ua-{ALIAS}'/>
<address type='pci' domain='0x0000' bus='0x01' slot='0x00' function='0x0'/></rng>"""
PORTS = """
<controller type='pci' index='0' model='pcie-root'/>
<controller type='pci' index='1' model='pcie-root-port'/>"""
BOOT_S = 120
SLOW = Options(bandwidth_bps=2 * MIB, max_downtime_ms=20)


def unpacked(image: Image, folder: Path) -> tuple[Path, Path]:
    """Kernel and initial root of the image."""

    def document(digest: str) -> Path:
        return image.folder / "blobs" / digest.replace(":", "/")

    index = json.loads((image.folder / "index.json").read_text())
    manifest = json.loads(document(index["manifests"][0]["digest"]).read_text())
    for layer in manifest["layers"]:
        with tarfile.open(document(layer["digest"])) as tar:
            tar.extractall(folder, filter="data")
    return folder / KERNEL_PATH.lstrip("/"), folder / INITRD_PATH.lstrip("/")


def linux_xml(image: Image, folder: Path) -> str:
    """A Linux guest with the device on a port of its own; it says ``tick`` for ever."""
    kernel, initrd = unpacked(image, folder)
    return f"""
      <domain type='qemu'>
        <name>unplug</name><uuid>{new_uuid()}</uuid>
        <memory unit='MiB'>128</memory><vcpu>1</vcpu>
        <os><type arch='x86_64' machine='q35'>hvm</type><kernel>{kernel}</kernel><initrd>{initrd}</initrd>
          <cmdline>console=ttyS0 quiet panic=1 tick=100</cmdline></os>
        <features><acpi/></features>
        <cpu mode='custom' match='exact' check='none'><model fallback='forbid'>qemu64</model></cpu>
        <devices><controller type='usb' model='none'/><memballoon model='none'/>
          <serial type='file'><source path='{folder}/serial.log' append='on'/></serial>
          {PORTS}{DEVICE}</devices>
      </domain>"""


class WithoutDevice(Hooks):
    """A target that begins the guest without the device, as the agent does."""

    async def reserve(self, request: PrepareRequest) -> Reservation:
        root = parse(request.domain_xml, what="domain XML", tag="domain")
        devices = root.find("devices")
        assert devices is not None
        for device in devices.findall("rng"):
            devices.remove(device)
        xml = printed(root)
        return Reservation(uuid=self._uuid, destination_xml=xml, persistent_xml=xml)


class Unplugged(Pair):
    """The pair of a guest with the device."""

    def prepare(self, node: Node) -> None:
        self.hooks = WithoutDevice(self.uuid, node)
        self._side = self.make_side(self.hooks, node)
        self._outgoing = msgspec.structs.replace(self._outgoing, unplug=(ALIAS,))

    def hurry(self) -> None:
        self._outgoing = msgspec.structs.replace(self._outgoing, options=Options())


@asynccontextmanager
async def moving(a: Node, b: Node, xml: str, folder: Path, options: Options) -> AsyncIterator[Unplugged]:
    """The guest on ``a``, up and saying so, and both ends of its migration to ``b``."""
    async with (
        connected(a.libvirt_uri) as (source, _),
        connected(b.libvirt_uri) as (target, _),
        guest(source, xml, paused=False) as uuid,
    ):
        log = folder / "serial.log"
        async with asyncio.timeout(BOOT_S):
            while not log.exists() or not re.search("tick|UU", log.read_text(errors="replace")):
                await asyncio.sleep(0.1)
        pair = Unplugged(source, target, b, uuid, options, folder)
        pair.prepare(b)
        try:
            yield pair
        finally:
            await target.destroy(uuid, graceful=False)
            await target.undefine(uuid)


async def test_a_device_is_given_back_and_plugged_again_on_either_side(
    node_a: Node, node_b: Node, guest_image: Image, tmp_path: Path
) -> None:
    async with moving(node_a, node_b, linux_xml(guest_image, tmp_path), tmp_path, SLOW) as pair:
        engine = pair.engine()
        task = asyncio.create_task(engine.run())
        await pair.until_data()
        assert await pair.source.plugged(pair.uuid, (ALIAS,)) == (), "the guest gave it back"
        await engine.cancel()
        record = await asyncio.wait_for(task, 60)
        assert (record.phase, record.cause) == (Phase.FAILED, Cause.CANCELLED), record.reason
        await pair.source.attach_device(pair.uuid, DEVICE)
        assert await pair.source.plugged(pair.uuid, (ALIAS,)) == (ALIAS,)
        assert await pair.writes_on()

        pair.hurry()
        record = await asyncio.wait_for(pair.engine().run(), 120)
        assert record.phase is Phase.SUCCEEDED, record.reason
        assert await pair.states() == (None, DomainState.RUNNING)
        assert await pair.target.plugged(pair.uuid, (ALIAS,)) == ()
        await pair.target.attach_device(pair.uuid, DEVICE)
        assert await pair.target.plugged(pair.uuid, (ALIAS,)) == (ALIAS,)
        assert await pair.writes_on()


@pytest.mark.slow
async def test_a_guest_that_does_not_listen_stays(node_a: Node, node_b: Node, tmp_path: Path) -> None:
    xml = dirtying_xml(tmp_path).replace("</devices>", f"{PORTS}{DEVICE}</devices>")
    async with moving(node_a, node_b, xml, tmp_path, Options()) as pair:
        for _ in range(2):  # What it was asked for once does not matter the second time.
            record = await asyncio.wait_for(pair.engine().run(), 90)
            assert (record.phase, record.cause) == (Phase.FAILED, Cause.HOST_DEVICE), record.reason
            assert f"did not give {ALIAS} back" in record.reason
        assert await pair.states() == (DomainState.RUNNING, None)
        assert await pair.source.plugged(pair.uuid, (ALIAS,)) == (ALIAS,)
        assert pair.hooks.released == 2
        assert await pair.writes_on()
