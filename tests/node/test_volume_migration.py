# SPDX-License-Identifier: Apache-2.0
"""Volumes of running guests go to other claims: with the guest to another node, and under it on its own."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from agent_world import (
    client,
    condition,
    eventually,
    leftovers,
    migrated,
    migration,
    running,
    until,
    until_gone,
)
from feature_guests import Object, Shell, guest, kernel_boot, shell
from storage_world import MIB, inside, remove_all

from launcher.cli.client import Client
from launcher.errors import InvalidSpec, MigrationRefused, WrongPhase
from launcher.lab.image import Image
from launcher.lab.lab import Lab
from launcher.lab.node import Node
from launcher.migration.recording import Resumed, read_recording
from launcher.v1 import migrations_pb2
from launcher.v1.types_pb2 import ClaimBinding, Companions

pytestmark = pytest.mark.node
Agents = tuple[Client, Client]
POLICIES = "/var/lib/launcher-lab/policies"
POLICY = """
apiVersion: migrations.kubevirt.io/v1alpha1
kind: MigrationPolicy
metadata: {name: slow}
spec: {bandwidthPerMigration: 512Ki, selectors: {virtualMachineInstanceSelector: {speed: slow}}}
"""
READ = "echo 3 >/proc/sys/vm/drop_caches; dd if=/dev/vda bs=4096 skip=%d count=1 2>/dev/null | head -c 6"


@pytest.fixture(scope="module")
def lab_with_agents(needs_nodes: None) -> Iterator[Lab]:
    """Nodes whose agents copy slowly what has the label for that."""
    with Lab(names=("a", "b")) as made:
        folder = made.shared / "policies"
        folder.mkdir()
        (folder / "slow.yaml").write_text(POLICY)
        for name in made.names:
            config = made.node(name).layout.agent_config
            text = config.read_text().replace('"policies_dir" = ""', f'"policies_dir" = "{POLICIES}"')
            assert POLICIES in text
            config.write_text(text)
        made.start_agents()
        yield made


@pytest.fixture
def agents(lab_with_agents: Lab) -> Iterator[Agents]:
    nodes = lab_with_agents.node("a"), lab_with_agents.node("b")
    with client(nodes[0]) as a, client(nodes[1]) as b:
        yield a, b
        for agent in (a, b):
            remove_all(agent)
        for node in nodes:
            assert leftovers(node) == []


@pytest.fixture
def shared(lab_with_agents: Lab) -> Iterator[Path]:
    """A folder of the test's own that all nodes see, at ``inside(folder)``."""
    folder: Path = lab_with_agents.shared / f"moves-{time.monotonic_ns()}"
    folder.mkdir()
    yield folder
    subprocess.run(["rm", "-r", folder], check=True)


@contextmanager
def device(image: Path) -> Iterator[str]:
    """A block device that is the file ``image``, for all nodes."""
    made = subprocess.run(["losetup", "-f", "--show", image], check=True, capture_output=True, text=True)
    path = made.stdout.strip()
    try:
        yield path
    finally:
        subprocess.run(["losetup", "-d", path], check=True)


def binding(claim: str, path: str, **more: object) -> ClaimBinding:
    return ClaimBinding(claim=claim, path=path, **more)  # type: ignore[arg-type]


def claimed(image: Image, name: str, claim: str) -> Object:
    """A guest with a shell and, as vda, a claim."""
    return guest(
        name,
        memory="128Mi",
        domain={"firmware": {"kernelBoot": kernel_boot(image)}},
        devices={"disks": [{"name": "data", "disk": {"bus": "virtio"}}]},
        volumes=[{"name": "data", "persistentVolumeClaim": {"claimName": claim}}],
    )


def ask(agent: Client, name: str, claim: str, *bound: ClaimBinding) -> Object:
    """Ask that the volume goes to ``claim``."""
    vmi = agent.instances.get(name, namespace="default")
    vmi["spec"]["volumes"][0]["persistentVolumeClaim"]["claimName"] = claim
    return agent.instances.update(vmi, Companions(claims=bound), volumes_strategy="Migration")


def told(vmi: Object, kind: str) -> Object:
    found = condition(vmi, kind)
    assert found is not None, f"the condition {kind} does not hold"
    return found


def claim_of(vmi: Object) -> str:
    return str(vmi["spec"]["volumes"][0]["persistentVolumeClaim"]["claimName"])


def write(within: Shell, text: str, block: int) -> None:
    """Put six letters at the beginning of a block of 4 KiB, and see them on the disk."""
    within.run(f"printf {text} | dd of=/dev/vda bs=4096 seek={block} conv=notrunc,fsync 2>/dev/null")


def same(one: Path, other: Path, size: int) -> bool:
    """Whether the first ``size`` bytes of two images are the same."""
    with one.open("rb") as left, other.open("rb") as right:
        return left.read(size) == right.read(size)


def test_a_claim_moves_with_its_guest_to_a_device_and_back_to_a_file(
    agents: Agents, shared: Path, guest_image: Image
) -> None:
    a, b = agents
    for folder in ("one", "two"):
        (shared / folder).mkdir()
    (shared / "device.img").write_bytes(b"\xff" * 12 * MIB)
    (shared / "small.img").write_bytes(bytes(4 * MIB))
    one = binding("one", inside(shared / "one"), capacity=8 * MIB)
    a.instances.create(claimed(guest_image, "vol", "one"), Companions(claims=[one]))
    running(a, "vol")
    with device(shared / "device.img") as block, device(shared / "small.img") as small:
        with shell(a, "vol") as within:
            write(within, "first!", 0)
            write(within, "middle", 1024)
        assert told(a.instances.get("vol", namespace="default"), "LiveMigratable")["status"] == "False"

        # A device that is too small is found before anything moves, and the request can be taken back.
        ask(a, "vol", "tiny", binding("tiny", small, block=True))
        a.migrations.create(migration("vol", "refused"), target="b")
        refused = migrated(a, "refused").report
        assert not refused.succeeded
        assert "spec.volumes[0].persistentVolumeClaim.claimName" in refused.reason
        assert "the disk 8.0 MiB" in refused.reason
        vmi = ask(a, "vol", "one")
        assert condition(vmi, "VolumesChange") is None
        with pytest.raises(MigrationRefused):
            a.migrations.create(migration("vol", "stays"), target="b")

        vmi = ask(a, "vol", "block", binding("block", block, block=True))
        assert claim_of(vmi) == "one"
        (wanted,) = vmi["status"]["migratedVolumes"]
        assert wanted["volumeName"] == "data"
        assert wanted["sourcePVCInfo"]["claimName"] == "one"
        assert wanted["destinationPVCInfo"] == {"claimName": "block", "volumeMode": "Block"}
        assert "with the next migration" in told(vmi, "VolumesChange")["message"]
        a.migrations.create(migration("vol", "out"), target="b")
        report = migrated(a, "out").report
        assert report.succeeded, report.reason
        assert report.disk_bytes >= 8 * MIB
        until_gone(a, "vol")
        vmi = running(b, "vol")
        assert claim_of(vmi) == "block"
        assert condition(vmi, "VolumesChange") is None
        assert "migratedVolumes" not in vmi["status"]
        with shell(b, "vol", up=True) as within:
            assert within.run("cat /sys/block/vda/size") == str(8 * MIB // 512), "as large as before"
            assert (within.run(READ % 0), within.run(READ % 1024)) == ("first!", "middle")
        assert same(shared / "device.img", shared / "one" / "disk.img", 8 * MIB)
        with shell(b, "vol", up=True) as within:
            write(within, "second", 7)

        # Back to a file, which is larger and then grows to what its claim has.
        with (shared / "two" / "disk.img").open("wb") as image:
            image.write(b"\xff" * 10 * MIB)
        ask(b, "vol", "two", binding("two", inside(shared / "two"), capacity=16 * MIB))
        b.migrations.create(migration("vol", "back"), target="a")
        report = migrated(b, "back").report
        assert report.succeeded, report.reason
        until_gone(b, "vol")
        vmi = until(a, "vol", lambda vmi: _size(vmi) == 16 * MIB)
        assert claim_of(vmi) == "two"
        with shell(a, "vol", up=True) as within:
            assert (within.run(READ % 7), within.run(READ % 1024)) == ("second", "middle")
            write(within, "beyond", 3000)
        assert same(shared / "two" / "disk.img", shared / "device.img", 8 * MIB)


def copying(agent: Client, name: str) -> migrations_pb2.Migration:
    """Wait until some of the disks is copied, and not all."""
    with closing(agent.migrations.watch(name, namespace="default", timeout_s=60)) as views:
        for view in views:
            assert not view.HasField("report"), view.report.reason
            if 0 < view.progress.disk_remaining_bytes < view.progress.disk_total_bytes:
                return view
    raise AssertionError("the watch ended")


def disks_first(agent: Client, name: str) -> None:
    """Wait until disks are copied to another node, and no memory yet. (QEMU counts what is on its way.)"""
    with closing(agent.migrations.watch(name, namespace="default", timeout_s=60)) as views:
        for view in views:
            assert not view.HasField("report"), view.report.reason
            if 0 < view.progress.disk_total_bytes == view.progress.total_bytes:
                return


def killed(node: Node, words: str, offset: int) -> None:
    """Kill the agent once its log says so, and start it again."""
    eventually(words, lambda: words in node.agent_log()[offset:])
    node.stop_agent(signal.SIGKILL)
    node.start_agent()


def test_a_claim_moves_under_its_guest_whatever_is_killed_meanwhile(
    agents: Agents, lab_with_agents: Lab, shared: Path, guest_image: Image
) -> None:
    a, node = agents[0], lab_with_agents.node("a")
    for folder in ("one", "two", "three"):
        (shared / folder).mkdir()
    one, two, three = (
        binding(name, inside(shared / name), capacity=32 * MIB) for name in ("one", "two", "three")
    )
    manifest = claimed(guest_image, "stay", "one")
    manifest["metadata"]["labels"] = {"speed": "slow"}
    a.instances.create(manifest, Companions(claims=[one]))
    running(a, "stay")
    with shell(a, "stay") as within:
        within.run(f"dd if=/dev/urandom of=/dev/vda bs={MIB} count=32 conv=fsync 2>/dev/null")
        write(within, "before", 0)
    ask(a, "stay", "two", two)
    offset = len(node.agent_log())
    a.migrations.create(migration("stay", "within"))
    killed(node, "copying a disk", offset)
    view = copying(a, "within")
    assert view.progress.disk_total_bytes == 32 * MIB
    assert told(a.instances.get("stay", namespace="default"), "VolumesChange")["message"].endswith("copied")
    node.stop_libvirtd(signal.SIGKILL)
    node.start_libvirtd()
    with shell(a, "stay", up=True) as within:
        write(within, "during", 9)
    node.run("virsh", "blockjob", "default_stay", "vda", "--bandwidth", "0")
    killed(node, "changing over to a copy", offset)
    report = migrated(a, "within").report
    assert report.succeeded, report.reason
    assert report.disk_bytes == 32 * MIB
    taped = read_recording(a.migrations.recording("within", namespace="default"))
    assert sum(isinstance(entry, Resumed) for entry in taped.entries) == 2, "three agents wrote it"
    assert {step.step for step in taped.steps if not step.error} <= {"copy", "pivot"}
    assert min(sample.disk_remaining or 0 for sample in taped.samples) < 32 * MIB
    assert taped.end is not None
    assert taped.end.phase == "Succeeded"
    vmi = until(a, "stay", lambda vmi: claim_of(vmi) == "two")
    assert condition(vmi, "VolumesChange") is None
    xml = node.run("virsh", "dumpxml", "default_stay") + node.run(
        "virsh", "dumpxml", "--inactive", "default_stay"
    )
    assert xml.count(f"{inside(shared / 'two')}/disk.img") == 2
    assert inside(shared / "one") not in xml
    assert "<mirror" not in xml
    assert same(shared / "one" / "disk.img", shared / "two" / "disk.img", 32 * MIB)
    with shell(a, "stay", up=True) as within:
        write(within, "after!", 9)
        assert (within.run(READ % 0), within.run(READ % 9)) == ("before", "after!")
    assert not same(shared / "one" / "disk.img", shared / "two" / "disk.img", 32 * MIB)

    # What is cancelled stays where it is, and nobody uses the other claim.
    ask(a, "stay", "three", three)
    a.migrations.create(migration("stay", "not"), target="a")
    copying(a, "not")
    with pytest.raises(WrongPhase, match="while it migrates"):
        ask(a, "stay", "two")
    a.migrations.cancel("not", namespace="default")
    report = migrated(a, "not").report
    assert (report.succeeded, report.reason) == (False, "cancelled")
    vmi = a.instances.get("stay", namespace="default")
    assert claim_of(vmi) == "two"
    change = told(vmi, "VolumesChange")
    assert (change["status"], change["reason"]) == ("False", "VolumesChangeCancellation")
    assert inside(shared / "three") not in node.run("virsh", "dumpxml", "default_stay")
    with shell(a, "stay", up=True) as within:
        write(within, "still!", 9)
    # A guest that ends meanwhile ends the copy.
    ask(a, "stay", "three", three)
    a.migrations.create(migration("stay", "ends"))
    copying(a, "ends")
    a.instances.delete("stay", namespace="default", grace_period_s=0)
    until_gone(a, "stay")
    assert (shared / "two" / "disk.img").exists()


def _size(vmi: Object) -> object:
    return next((v.get("size") for v in vmi["status"].get("volumeStatus", ()) if v["name"] == "data"), None)


def test_what_is_refused_or_cancelled_leaves_the_guest_where_it_was(
    agents: Agents, shared: Path, guest_image: Image
) -> None:
    a, b = agents
    for folder in ("one", "two"):
        (shared / folder).mkdir()
    one, two = (binding(name, inside(shared / name), capacity=16 * MIB) for name in ("one", "two"))
    manifest = claimed(guest_image, "held", "one")
    manifest["metadata"]["labels"] = {"speed": "slow"}
    a.instances.create(manifest, Companions(claims=[one]))
    running(a, "held")
    with pytest.raises(InvalidSpec, match="nobody said where claim 'two' lies"):
        ask(a, "held", "two")
    with shell(a, "held") as within:
        within.run(f"dd if=/dev/urandom of=/dev/vda bs={MIB} count=16 conv=fsync 2>/dev/null")
    ask(a, "held", "two", two)
    a.migrations.create(migration("held", "given-up"), target="b")
    disks_first(a, "given-up")
    a.migrations.cancel("given-up", namespace="default")
    report = migrated(a, "given-up").report
    assert not report.succeeded
    vmi = running(a, "held")
    assert claim_of(vmi) == "one"
    assert told(vmi, "VolumesChange")["reason"] == "VolumesChangeCancellation"
    assert (shared / "two" / "disk.img").exists(), "it stays, and nobody uses it"
    with shell(a, "held", up=True) as within:
        write(within, "still!", 3)
        assert within.run(READ % 3) == "still!"
    assert b.instances.list() == []
