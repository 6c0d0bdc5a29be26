# SPDX-License-Identifier: Apache-2.0
"""Every kind of volume on a real node: one guest reads them all, and afterwards the node is as before."""

from __future__ import annotations

import base64
import json
import re
import sqlite3
import stat
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from agent_world import client, leftovers
from feature_guests import Object, Shell, guest, kernel_boot, monitor, shell
from storage_images import tar, write_layout
from storage_world import MIB, STATE, daemons, files, inside, ready, remove_all

from launcher.cli.client import Client
from launcher.lab.image import Image
from launcher.lab.lab import Lab
from launcher.lab.node import Node
from launcher.v1.types_pb2 import ClaimBinding, Companions, KeyedData

pytestmark = pytest.mark.node

SECRET = b"hunter2 \xff\x00"
USER_DATA = "#cloud-config\npassword: xyzzy\n"


@pytest.fixture(scope="module")
def lab(needs_nodes: None) -> Iterator[Lab]:
    with Lab(names=("a",)) as made:
        made.start_agents()
        yield made


@pytest.fixture(scope="module")
def node(lab: Lab) -> Node:
    return lab.node("a")


@pytest.fixture
def agent(node: Node) -> Iterator[Client]:
    before = files(node)
    with client(node) as agent:
        yield agent
        remove_all(agent)
        assert leftovers(node) == []
        assert files(node) == before
        assert daemons(node) == ""


@pytest.fixture
def shared(lab: Lab, request: pytest.FixtureRequest) -> Iterator[Path]:
    """A folder of the test's own that nodes see, at ``inside(folder)``."""
    folder: Path = lab.shared / re.sub(r"\W", "-", request.node.name)
    folder.mkdir()
    yield folder
    subprocess.run(["rm", "-r", folder], check=True)


@contextmanager
def loop_device(path: Path) -> Iterator[str]:
    """A block device of the file ``path``."""
    done = subprocess.run(["losetup", "-f", "--show", path], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"no loop devices here: {done.stderr.strip()}")
    device = done.stdout.strip()
    try:
        yield device
    finally:
        subprocess.run(["losetup", "-d", device], check=True)


def keyed(**data: bytes) -> KeyedData:
    return KeyedData(data={key.replace("__", "."): value for key, value in data.items()})


def companions(**claims: ClaimBinding) -> Companions:
    return Companions(
        secrets={
            "login": keyed(userData=USER_DATA.encode(), networkData=b"version: 2\n"),
            "token": keyed(key=SECRET),
            "table": KeyedData(data={"slic.bin": slic()}),
        },
        config_maps={
            "settings": KeyedData(data={"app.conf": b"a=1\n", "ä".encode().hex(): b"2"}),
            "answers": KeyedData(data={"Unattend.xml": b"<unattend/>"}),
        },
        service_accounts={"builder": keyed(token=b"jwt")},
        claims=[ClaimBinding(claim=name, **fields) for name, fields in _fields(claims)],
    )


def _fields(claims: dict[str, ClaimBinding]) -> Iterator[tuple[str, dict[str, Any]]]:
    for name, claim in claims.items():
        yield name, {field.name: value for field, value in claim.ListFields()}


def slic() -> bytes:
    """A small ACPI table: signature, length, revision, checksum, names (ACPI 6.5, 5.2.6)."""
    body = bytearray(b"SLIC" + (44).to_bytes(4, "little") + bytes([1, 0]) + b"LAUNCH" + b"TESTTABL")
    body += bytes(12) + b"product!"
    body[9] = -sum(body) % 256
    return bytes(body)


def volumes(shared: Path, image: str) -> dict[str, tuple[Object, Object]]:
    """Disks by name: how each is attached, and what it is."""
    virtio: Object = {"disk": {"bus": "virtio"}}
    reader: Object = {"disk": {"bus": "virtio", "readonly": True}}
    login, at = {"name": "login"}, inside(shared)
    script = base64.b64encode(b"#!/bin/sh\n").decode()
    return {
        "nocloud": (virtio, {"cloudInitNoCloud": {"secretRef": login, "networkDataSecretRef": login}}),
        "drive": (reader, {"cloudInitConfigDrive": {"userDataBase64": script}}),
        "conf": (virtio, {"configMap": {"name": "settings"}}),
        "sec": (reader, {"secret": {"secretName": "token", "volumeLabel": "mine"}}),
        "acct": (virtio, {"serviceAccount": {"serviceAccountName": "builder"}}),
        "down": (virtio, {"downwardAPI": {"fields": [
            {"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}},
            {"path": "sub/mem", "resourceFieldRef": {"resource": "requests.memory", "divisor": "1Mi"}},
        ]}}),
        "sys": ({"cdrom": {"bus": "scsi"}}, {"sysprep": {"configMap": {"name": "answers"}}}),
        "image": (virtio, {"containerDisk": {"image": image}}),
        "empty": (virtio, {"emptyDisk": {"capacity": "3Mi"}}),
        "host": (virtio, {"hostDisk": {"path": f"{at}/host.img", "type": "Disk"}}),
        "made": (virtio, {"hostDisk": {"path": f"{at}/made.img", "type": "DiskOrCreate", "capacity": "2Mi"}}),
        "claim": (virtio, {"persistentVolumeClaim": {"claimName": "folder"}}),
        "data": (virtio, {"dataVolume": {"name": "file"}}),
        "block": (virtio, {"persistentVolumeClaim": {"claimName": "device"}}),
        "over": (virtio, {"ephemeral": {"persistentVolumeClaim": {"claimName": "base"}}}),
        "metrics": (virtio, {"downwardMetrics": {}}),
    }  # fmt: skip


def test_one_guest_reads_every_kind_of_volume(
    agent: Client, node: Node, shared: Path, guest_image: Image
) -> None:
    (shared / "host.img").write_bytes(b"host".ljust(MIB, b"\0"))
    (shared / "file.img").write_bytes(b"file".ljust(MIB, b"\0"))
    (shared / "base.img").write_bytes(b"base".ljust(MIB, b"\0"))
    (shared / "device.img").write_bytes(b"device".ljust(4 * MIB, b"\0"))
    (shared / "folder").mkdir()
    (shared / "tree").mkdir()
    (shared / "tree" / "hello").write_text("from the node\n")
    write_layout(shared / "image", tar(("disk/any.img", b"image".ljust(MIB, b"\0"))))
    with loop_device(shared / "device.img") as device:
        found = volumes(shared, f"oci:{inside(shared)}/image:latest")
        manifest = guest(
            "all",
            memory="256Mi",
            domain={
                "firmware": {"kernelBoot": kernel_boot(guest_image), "acpi": {"slicNameRef": "slic"}},
                "resources": {"requests": {"memory": "300Mi"}},
            },
            devices={
                "disks": [
                    {"name": name, **how, **({"serial": name} if "disk" in how else {})}
                    for name, (how, _) in found.items()
                ],
                "filesystems": [{"name": "tree", "virtiofs": {}}, {"name": "settings", "virtiofs": {}}],
            },
        )
        manifest["metadata"]["labels"] = {"app": "all"}
        manifest["spec"]["volumes"] = [
            *({"name": name, **source} for name, (_, source) in found.items()),
            {"name": "tree", "persistentVolumeClaim": {"claimName": "tree"}},
            {"name": "settings", "configMap": {"name": "settings"}},
            {"name": "slic", "secret": {"secretName": "table"}},
            {"name": "dump", "memoryDump": {"claimName": "dumps"}},
        ]
        beside = companions(
            folder=ClaimBinding(path=f"{inside(shared)}/folder", capacity=5 * MIB),
            file=ClaimBinding(path=f"{inside(shared)}/file.img"),
            base=ClaimBinding(path=f"{inside(shared)}/base.img"),
            device=ClaimBinding(path=device, block=True, capacity=4 * MIB),
            tree=ClaimBinding(path=f"{inside(shared)}/tree"),
            dumps=ClaimBinding(path=f"{inside(shared)}/tree"),
        )
        agent.instances.create(manifest, beside)
        vmi = ready(agent, "all")
        assert_private(node, vmi)
        with shell(agent, "all") as within:
            look_at_everything(within)
        assert "iso" in monitor(node, "all", "info block")
        remove_all(agent)
    assert (shared / "folder" / "disk.img").read_bytes() == b"written".ljust(5 * MIB, b"\0")
    assert (shared / "device.img").read_bytes()[:7] == b"written"
    assert (shared / "base.img").read_bytes() == b"base".ljust(MIB, b"\0"), "an overlay keeps its base"
    assert (shared / "made.img").stat().st_size == 2 * MIB
    assert (shared / "tree" / "answer").read_text() == "from the guest\n"


def assert_private(node: Node, vmi: Object) -> None:
    """Generated content is in files of QEMU's user alone, and neither in the log nor in the journal."""
    own = node.layout.outside(f"{STATE}/instances/{vmi['metadata']['uid']}")
    generated = [path for path in own.glob("disks/*.iso") if path.stem != "metrics"]
    assert len(generated) == 8
    for path in (*generated, own / "acpi" / "slic.bin"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path
    with closing(sqlite3.connect(node.layout.outside(f"{STATE}/launcher.db"))) as database:
        steps = [row[0] for row in database.execute("SELECT step FROM journal")]
    assert sum("MakeIso" in step for step in steps) == 8
    for told in (*steps, node.agent_log()):
        assert not re.search(r"xyzzy|hunter2|jwt|product!", told)


def look_at_everything(within: Shell) -> None:
    """Each volume by its serial: label, files, size, whether it can be written."""
    within.run(
        "mkdir -p /m; cd /sys/block; for d in vd*; do ln -s /dev/$d /dev/by-$(cat $d/serial); done; ls /dev"
    )

    def mounted(device: str, look: str) -> str:
        return within.run(f"mount -t iso9660 -o ro {device} /m && cd /m && {look}; cd /; umount /m")

    def label(device: str) -> str:
        return within.run(f"(dd if={device} bs=1 skip=32808 count=32 2>/dev/null)").strip()

    def attribute(name: str, which: str) -> str:
        return within.run(f"cat /sys/block/$(basename $(readlink /dev/by-{name}))/{which}")

    def head(name: str) -> str:
        return within.run(f"head -c 8 /dev/by-{name} | tr -d '\\0'")

    labels = {name: label(f"/dev/by-{name}") for name in ("nocloud", "drive", "conf", "sec", "acct", "down")}
    assert labels == {
        "nocloud": "cidata", "drive": "config-2", "conf": "cfgdata", "sec": "mine", "acct": "cfgdata",
        "down": "cfgdata",
    }  # fmt: skip
    assert label("/dev/sr0") == "unattendCD"
    assert mounted("/dev/by-nocloud", "ls").split() == ["meta-data", "network-config", "user-data"]
    assert mounted("/dev/by-nocloud", "cat user-data network-config") == f"{USER_DATA}version: 2"
    assert json.loads(mounted("/dev/by-nocloud", "cat meta-data"))["local-hostname"] == "all"
    drive = json.loads(mounted("/dev/by-drive", "cat openstack/latest/meta_data.json"))
    assert drive["instance_id"] == "all.default"
    assert mounted("/dev/by-drive", "cat openstack/latest/user_data") == "#!/bin/sh"
    assert mounted("/dev/by-conf", "cat app.conf") == "a=1"
    assert mounted("/dev/by-sec", "hexdump -v -e '1/1 \"%02x\"' key") == SECRET.hex()
    assert mounted("/dev/by-acct", "cat token; echo; cat namespace") == "jwt\ndefault"
    assert mounted("/dev/by-down", "cat labels; echo; cat sub/mem") == 'app="all"\n300'
    assert mounted("/dev/sr0", "cat Unattend.xml") == "<unattend/>"
    heads = {name: head(name) for name in ("image", "host", "data", "block", "over", "claim")}
    assert heads == {
        "image": "image", "host": "host", "data": "file", "block": "device", "over": "base", "claim": "",
    }  # fmt: skip
    assert head("metrics").startswith("mvbd") or "metrics" in within.run("strings /dev/by-metrics | head")
    sizes = {
        name: int(attribute(name, "size")) * 512 for name in ("empty", "made", "claim", "block", "image")
    }
    assert sizes == {"empty": 3 * MIB, "made": 2 * MIB, "claim": 5 * MIB, "block": 4 * MIB, "image": MIB}
    readonly = {
        name for name in (*labels, *heads, "empty", "made", "metrics") if attribute(name, "ro") == "1"
    }
    assert readonly == {"drive", "sec", "metrics"}
    for name in ("claim", "block", "over", "image", "empty"):
        within.run(f"printf written | dd of=/dev/by-{name} conv=notrunc,fsync 2>/dev/null")
        assert head(name) == "written"
    assert "SLIC" in within.run("ls /sys/firmware/acpi/tables")
    within.run(
        "mount -t virtiofs tree /m && cat /m/hello >/tmp/hello && echo from the guest >/m/answer; umount /m"
    )
    assert within.run("cat /tmp/hello") == "from the node"
    assert within.run("mount -t virtiofs settings /m && cat /m/app.conf; umount /m") == "a=1"
