# SPDX-License-Identifier: Apache-2.0
"""Every kind of volume on a real node: one guest reads them all, and afterwards the node is as before."""

from __future__ import annotations

import json
import re
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
import yaml
from agent_world import client, leftovers
from feature_guests import Object, Shell, monitor, shell
from storage_images import tar, write_layout
from storage_world import MIB, RUN, STATE, daemons, files, inside, ready, remove_all

from launcher.cli.client import Client
from launcher.lab.image import Image
from launcher.lab.lab import Lab
from launcher.lab.node import Node

pytestmark = pytest.mark.node

CTL = Path(sys.executable).parent / "launcherctl"
EXAMPLE = Path(__file__).parents[2] / "examples" / "volumes.yaml"
SECRET = b"hunter2 \xff\x00"
USER_DATA = "#cloud-config\npassword: xyzzy\n"
VMI = [*yaml.safe_load_all(EXAMPLE.read_text())][-1]
DISKS = [disk["name"] for disk in VMI["spec"]["domain"]["devices"]["disks"]]


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
def folder(lab: Lab) -> Iterator[Path]:
    """The folder that the example names; nodes see it at ``inside(folder)``."""
    made = lab.shared / "volumes"
    made.mkdir()
    yield made
    subprocess.run(["rm", "-r", made], check=True)


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


def create(agent_target: str, **claims: str) -> None:
    """Create the instance of the example, as a user does."""
    words = [word for name, place in claims.items() for word in ("--claim", f"{name}={place}")]
    argv = [str(CTL), "--server", agent_target, "create", "-f", str(EXAMPLE), *words]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_one_guest_reads_every_kind_of_volume(
    agent: Client, node: Node, lab: Lab, folder: Path, guest_image: Image
) -> None:
    lab.install(guest_image, "guest")
    (folder / "host.img").write_bytes(b"host".ljust(MIB, b"\0"))
    (folder / "file.img").write_bytes(b"file".ljust(MIB, b"\0"))
    (folder / "base.img").write_bytes(b"base".ljust(MIB, b"\0"))
    (folder / "device.img").write_bytes(b"device".ljust(4 * MIB, b"\0"))
    (folder / "folder").mkdir()
    (folder / "tree").mkdir()
    (folder / "tree" / "hello").write_text("from the node\n")
    (folder / "tree" / "parser").write_text(SEED_PARSER)
    write_layout(folder / "image", tar(("disk/any.img", b"image".ljust(MIB, b"\0"))))
    at, before = inside(folder), tree(node)
    with loop_device(folder / "device.img") as device:
        create(
            node.agent_target,
            folder=f"{at}/folder,capacity=5Mi",
            file=f"{at}/file.img",
            base=f"{at}/base.img",
            tree=f"{at}/tree",
            device=f"{device},block,capacity=4Mi",
        )
        vmi = ready(agent, "volumes")
        assert sorted(status["name"] for status in vmi["status"]["volumeStatus"]) == sorted(
            [*DISKS, "slic", "dump"]
        )
        assert_private(node, vmi)
        with shell(agent, "volumes") as within:
            look_at_everything(within)
            parse_seeds(within)
        assert "iso" in monitor(node, "volumes", "info block")
        remove_all(agent)
    assert tree(node) == before
    assert (folder / "folder" / "disk.img").read_bytes() == b"written".ljust(5 * MIB, b"\0")
    assert (folder / "device.img").read_bytes()[:7] == b"written"
    assert (folder / "base.img").read_bytes() == b"base".ljust(MIB, b"\0"), "an overlay keeps its base"
    assert (folder / "made.img").stat().st_size == 2 * MIB
    assert (folder / "tree" / "answer").read_text() == "from the guest\n"


def tree(node: Node) -> str:
    """The agent's folders: kind, mode, owner and path of all but the database and the cache of images."""
    look = "find {} {} -not -path '*/cache*' -not -name 'launcher.db*' -printf '%y %m %U:%G %p\\n' | sort"
    return node.run("sh", "-c", look.format(STATE, RUN))


# What cloud-init does, in little: find its source by the label, and take from it what it is told.
SEED_PARSER = r"""
value() { sed -n 's/.*"'"$1"'":"\([^"]*\)".*/\1/p' "$2"; }
for disk in /dev/vd*; do
  case "$(dd if=$disk bs=1 skip=32808 count=32 2>/dev/null)" in
    "cidata "*) meta=meta-data user=user-data network=network-config name=local-hostname keys=public-keys ;;
    "config-2 "*) dir=openstack/latest name=hostname keys=public_keys
      meta=$dir/meta_data.json user=$dir/user_data network=$dir/network_data.json ;;
    *) continue ;;
  esac
  mount -t iso9660 -o ro $disk /m && cd /m || continue
  key=$(sed -n 's/.*"'$keys'":{"0":"\([^"]*\)"}.*/\1/p' $meta)
  echo "$meta|$(value $name $meta)|$key|$(head -n 1 $user)|$(head -n 1 $network)"
  cd /; umount /m
done
"""
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJkVfP0Cq7m1mVbzP0bq2cZ5JpQ2m1S3o0d4k9yqVd3T tester"


def parse_seeds(within: Shell) -> None:
    """Both sources tell host name, key, user data and network."""
    within.run("mkdir -p /tree; mount -t virtiofs tree /tree")
    assert within.run("sh /tree/parser").splitlines() == [
        f"meta-data|volumes|{KEY}|#cloud-config|version: 2",
        f"openstack/latest/meta_data.json|volumes|{KEY}|#!/bin/sh|"
        '{"links": [], "networks": [], "services": []}',
    ]


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
    assert json.loads(mounted("/dev/by-nocloud", "cat meta-data"))["local-hostname"] == "volumes"
    drive = json.loads(mounted("/dev/by-drive", "cat openstack/latest/meta_data.json"))
    assert drive["instance_id"] == "volumes.default"
    assert mounted("/dev/by-drive", "cat openstack/latest/user_data") == "#!/bin/sh"
    assert mounted("/dev/by-conf", "cat app.conf") == "a=1"
    assert mounted("/dev/by-sec", "hexdump -v -e '1/1 \"%02x\"' key") == SECRET.hex()
    assert mounted("/dev/by-acct", "cat token; echo; cat namespace") == "jwt\ndefault"
    assert mounted("/dev/by-down", "cat labels; echo; cat sub/mem") == 'app="volumes"\n300'
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
    assert within.run("mount -t virtiofs about /m && cat /m/name; umount /m") == "volumes"
    key = within.run("mount -t virtiofs keys /m && hexdump -v -e '1/1 \"%02x\"' /m/key; umount /m")
    assert key == SECRET.hex()
