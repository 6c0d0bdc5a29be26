# SPDX-License-Identifier: Apache-2.0
"""Images out of a real registry, through skopeo and the node's cache: once, checked, and within limits."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from base64 import b64encode
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest
from storage_images import (
    MIB,
    PASSWORD,
    USER,
    RegistryServer,
    registry,
    tar,
    write_large_layout,
    write_layout,
)

from launcher.errors import InvalidRequest, StorageError
from launcher.plan.media.material import Material
from launcher.plan.steps import FetchContainerDisk
from launcher.spec.model import Devices, DomainSpec, VirtualMachineInstance, VirtualMachineInstanceSpec
from launcher.storage.executor import StorageExecutor
from launcher.storage.limits import ROOM_BYTES, StorageSettings

pytestmark = pytest.mark.node

GIB = 1 << 30
VMI = VirtualMachineInstance(spec=VirtualMachineInstanceSpec(domain=DomainSpec(devices=Devices())))
DISK = bytes(range(256)) * 4096


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RegistryServer]:
    with registry(tmp_path_factory.mktemp("registry")) as made:
        yield made


@pytest.fixture
def settings(tmp_path: Path, server: RegistryServer) -> StorageSettings:
    return StorageSettings(
        state_dir=tmp_path / "state", run_dir=tmp_path / "run", insecure_registries=(server.address,)
    )


def step(settings: StorageSettings, image: str, instance: str = "vm", **more: Any) -> FetchContainerDisk:
    path = settings.state_dir / "instances" / instance / "v.base"
    return FetchContainerDisk(owner=instance, volume="v", image=image, path=str(path), **more)


async def fetch(
    settings: StorageSettings,
    asked: FetchContainerDisk,
    executor: StorageExecutor | None = None,
    **beside: Any,
) -> FetchContainerDisk:
    storage = executor or StorageExecutor(settings)
    made = await storage.make(asked, Material(vmi=VMI, uuid="u", **beside))
    assert isinstance(made, FetchContainerDisk)
    return made


def leftovers(settings: StorageSettings) -> list[str]:
    """Files of pulls, logins and unfinished images."""
    roots = [settings.pulls, settings.logins]
    found = [str(path) for root in roots if root.exists() for path in root.rglob("*")]
    return found + [str(path) for path in settings.images.rglob("*.partial")]


def layer_of(layout: Path) -> str:
    """The digest of a layout's only layer."""
    index = json.loads((layout / "index.json").read_text())
    name = index["manifests"][0]["digest"].removeprefix("sha256:")
    manifest = json.loads((layout / "blobs" / "sha256" / name).read_text())
    return str(manifest["layers"][0]["digest"])


# --- the right file, once ---------------------------------------------------------------------------------


@pytest.mark.parametrize("packing", ["gzip", "zstd", ""])
async def test_the_disk_comes_out_of_the_image(
    settings: StorageSettings, server: RegistryServer, tmp_path: Path, packing: str
) -> None:
    layout = write_layout(tmp_path / "layout", tar(("disk/disk.img", DISK)), packing=packing)
    image = server.push(layout, f"disk-{packing or 'plain'}:1")
    made = await fetch(settings, step(settings, image))
    assert Path(made.path).read_bytes() == DISK
    assert Path(made.path).stat().st_mode & 0o777 == 0o444
    assert (made.digest or "").startswith("sha256:")
    assert leftovers(settings) == []


async def test_ten_instances_cause_one_download_and_share_one_file(
    settings: StorageSettings, server: RegistryServer, tmp_path: Path
) -> None:
    layout = write_layout(tmp_path / "layout", tar(("disk/ten.img", DISK + b"ten")))
    image = server.push(layout, "ten")  # no tag: looked up each time
    layer = layer_of(tmp_path / "layout")
    before = server.downloads(layer)
    storage = StorageExecutor(settings)
    asked = [step(settings, image, f"vm{number}", pull_policy="Always") for number in range(10)]
    made = await asyncio.gather(*(fetch(settings, one, storage) for one in asked))
    assert len({Path(one.path).stat().st_ino for one in made}) == 1
    assert server.downloads(layer) - before == 1


async def test_what_is_there_needs_no_registry(settings: StorageSettings, tmp_path: Path) -> None:
    layout = write_layout(tmp_path / "layout", tar(("disk/disk.img", DISK)))
    with registry(tmp_path / "registry") as server:
        near = StorageSettings(
            state_dir=settings.state_dir, run_dir=settings.run_dir, insecure_registries=(server.address,)
        )
        image = server.push(layout, "gone:1")
        with pytest.raises(StorageError, match="imagePullPolicy is Never"):
            await fetch(near, step(near, image, pull_policy="Never"))
        first = await fetch(near, step(near, image))
    for policy in ("IfNotPresent", "Never"):
        again = await fetch(near, step(near, image, policy, pull_policy=policy))
        assert again.digest == first.digest
    pinned = step(near, image, "pinned", pull_policy="Always", digest=first.digest)
    assert Path((await fetch(near, pinned)).path).read_bytes() == DISK
    with pytest.raises(StorageError, match=r"volume 'v': cannot get .* from 127\.0\.0\.1:\d+"):
        await fetch(near, step(near, image, "always", pull_policy="Always"))


async def test_a_tag_that_moves_is_followed_unless_the_digest_is_given(
    settings: StorageSettings, server: RegistryServer, tmp_path: Path
) -> None:
    image = server.push(write_layout(tmp_path / "a", tar(("disk/d", b"one" * 512))), "moving:1")
    first = await fetch(settings, step(settings, image, "a", pull_policy="Always"))
    server.push(write_layout(tmp_path / "b", tar(("disk/d", b"two" * 512))), "moving:1")
    second = await fetch(settings, step(settings, image, "b", pull_policy="Always"))
    assert Path(second.path).read_bytes() == b"two" * 512
    # A migration brings an overlay of the first: its base must be the same, here on a node without a cache.
    other = StorageSettings(
        state_dir=tmp_path / "other", run_dir=tmp_path / "run", insecure_registries=(server.address,)
    )
    moved = await fetch(other, step(other, image, pull_policy="Always", digest=first.digest))
    assert Path(moved.path).read_bytes() == b"one" * 512


async def test_made_again_it_is_the_same(
    settings: StorageSettings, server: RegistryServer, tmp_path: Path
) -> None:
    image = server.push(write_layout(tmp_path / "a", tar(("disk/d", b"one" * 512))), "again:1")
    first = await fetch(settings, step(settings, image, pull_policy="Always"))
    server.push(write_layout(tmp_path / "b", tar(("disk/d", b"two" * 512))), "again:1")
    again = await fetch(settings, step(settings, image, pull_policy="Always"))
    assert again == first
    assert Path(again.path).read_bytes() == b"one" * 512


# --- logins -----------------------------------------------------------------------------------------------


async def test_a_protected_registry_wants_the_pull_secret(settings: StorageSettings, tmp_path: Path) -> None:
    layout = write_layout(tmp_path / "layout", tar(("disk/disk.img", DISK)))
    with registry(tmp_path / "registry", protected=True) as server:
        near = StorageSettings(
            state_dir=settings.state_dir, run_dir=settings.run_dir, insecure_registries=(server.address,)
        )
        image = server.push(layout, "secret/disk:1")
        with pytest.raises(StorageError, match="imagePullSecret"):
            await fetch(near, step(near, image))
        with pytest.raises(InvalidRequest, match=r"companions\.secrets\[login\]"):
            await fetch(near, step(near, image, pull_secret="login"))
        wrong = {"login": {".dockerconfigjson": login(server, "wrong")}}
        with pytest.raises(StorageError, match="imagePullSecret") as caught:
            await fetch(near, step(near, image, pull_secret="login"), secrets=wrong)
        assert "wrong" not in str(caught.value)
        right = {"login": {".dockerconfigjson": login(server, PASSWORD)}}
        made = await fetch(near, step(near, image, pull_secret="login"), secrets=right)
        old = {"login": {".dockercfg": json.dumps(json.loads(login(server, PASSWORD))["auths"]).encode()}}
        await fetch(near, step(near, image, "old", pull_policy="Always", pull_secret="login"), secrets=old)
    assert Path(made.path).read_bytes() == DISK
    assert leftovers(near) == []


async def test_a_private_image_in_the_cache_is_for_those_whom_its_registry_lets(
    settings: StorageSettings, tmp_path: Path
) -> None:
    layout = write_layout(tmp_path / "layout", tar(("disk/disk.img", DISK)))
    with registry(tmp_path / "registry", protected=True) as server:
        near = StorageSettings(
            state_dir=settings.state_dir, run_dir=settings.run_dir, insecure_registries=(server.address,)
        )
        image = server.push(layout, "private/disk:1")
        secrets = {
            "right": {".dockerconfigjson": login(server, PASSWORD)},
            "wrong": {".dockerconfigjson": login(server, "wrong")},
            "same": {".dockercfg": json.dumps(json.loads(login(server, PASSWORD))["auths"]).encode()},
        }

        async def ask(instance: str, image: str = image, **more: Any) -> FetchContainerDisk:
            return await fetch(near, step(near, image, instance, **more), secrets=secrets)

        first = await ask("first", pull_secret="right")
        pinned = f"{server.address}/private/disk@{first.digest}"
        for number, (name, policy, secret) in enumerate(
            (name, policy, secret)
            for name in (image, pinned, f"{server.address}/other/disk@{first.digest}")
            for policy in ("IfNotPresent", "Never")
            for secret in (None, "wrong")
        ):
            with pytest.raises(StorageError, match=r"volume 'v': .*(imagePullSecret|imagePullPolicy)"):
                await ask(f"refused{number}", name, pull_policy=policy, pull_secret=secret)
        assert not list(near.state_dir.glob("instances/refused*/*"))
        with pytest.raises(StorageError, match=r"cannot get .*/other/disk"):
            await ask("elsewhere", f"{server.address}/other/disk@{first.digest}", pull_secret="right")
        await ask("same", pull_secret="same")  # another Secret, which the registry is asked about
    for number, (name, policy) in enumerate(((image, "IfNotPresent"), (image, "Never"), (pinned, "Never"))):
        for secret in ("right", "same"):  # it is not there any more, and has said that they may
            made = await ask(f"later{number}{secret}", name, pull_policy=policy, pull_secret=secret)
            assert made.digest == first.digest
    with pytest.raises(StorageError, match="cannot get"):
        await ask("unknown")
    kept = [path.read_bytes() for path in near.access.rglob("*") if path.is_file()]
    assert not any(PASSWORD.encode() in data for data in kept)
    assert {path.stat().st_mode & 0o777 for path in near.access.rglob("*") if path.is_file()} == {0o600}


def login(server: RegistryServer, password: str) -> bytes:
    """What ``kubectl create secret docker-registry`` writes."""
    auth = b64encode(f"{USER}:{password}".encode()).decode()
    return json.dumps({"auths": {server.address: {"auth": auth}}}).encode()


# --- what goes wrong --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("nothing:1", "volume 'v': cannot get .*/nothing from"),
        (f"ten@sha256:{'0' * 64}", "volume 'v': cannot get .*/ten from"),
    ],
)
async def test_an_image_that_is_not_there(
    settings: StorageSettings, server: RegistryServer, name: str, says: str
) -> None:
    with pytest.raises(StorageError, match=says):
        await fetch(settings, step(settings, f"{server.address}/{name}"))


async def test_a_blob_that_does_not_match_its_digest_is_refused(
    settings: StorageSettings, server: RegistryServer, tmp_path: Path
) -> None:
    image = server.push(write_layout(tmp_path / "layout", tar(("disk/d", DISK + b"evil"))), "evil:1")
    name = layer_of(tmp_path / "layout").removeprefix("sha256:")
    blob = next(server.root.rglob(f"{name}/data"))
    data = bytearray(blob.read_bytes())
    data[len(data) // 2] ^= 1
    blob.write_bytes(data)
    with pytest.raises(StorageError, match="Digest did not match"):
        await fetch(settings, step(settings, image))
    assert not list(settings.images.glob("[0-9a-f]*/*"))


# --- killed, large, many ----------------------------------------------------------------------------------

CHILD = """
import asyncio, json, resource, sys
from pathlib import Path
sys.path.insert(0, {tests!r})
from test_storage_registry import fetch, step
from launcher.storage.limits import StorageSettings

settings = StorageSettings(
    state_dir=Path({state!r}), run_dir=Path({run!r}), insecure_registries=({registry!r},)
)
made = asyncio.run(fetch(settings, step(settings, {image!r})))
# Not ru_maxrss: that begins with what the parent had when it forked.
own = int(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0])
children = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
print(json.dumps({{"own": own, "children": children, "digest": made.digest}}))
"""


def child(settings: StorageSettings, server: RegistryServer, image: str) -> subprocess.Popen[str]:
    """A process that does nothing but fetch ``image``."""
    text = CHILD.format(
        tests=str(Path(__file__).parent),
        state=str(settings.state_dir),
        run=str(settings.run_dir),
        registry=server.address,
        image=image,
    )
    return subprocess.Popen([sys.executable, "-c", textwrap.dedent(text)], stdout=subprocess.PIPE, text=True)


def until(what: str, look: Any, *, timeout_s: float = 60.0) -> None:
    end = time.monotonic() + timeout_s
    while not look():
        assert time.monotonic() < end, what
        time.sleep(0.01)


def skopeos(settings: StorageSettings) -> list[psutil.Process]:
    """skopeo processes that work for these settings."""
    return [
        process
        for process in psutil.process_iter(["cmdline"])
        if any(str(settings.pulls) in word for word in process.info["cmdline"] or ())
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Large:
    """An image in the registry whose disk has ``size`` bytes."""

    reference: str
    size: int


# The smaller one already is more than the memory that a pull may take.
@pytest.fixture(scope="module", params=[256 * MIB, pytest.param(GIB, marks=pytest.mark.slow)])
def large(
    server: RegistryServer, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Large:
    folder = tmp_path_factory.mktemp("large")
    reference = server.push(write_large_layout(folder / "layout", request.param), f"large{request.param}:1")
    subprocess.run(["rm", "-r", folder], check=True)
    return Large(reference=reference, size=request.param)


async def test_a_large_image_passes_through_little_memory(
    settings: StorageSettings, server: RegistryServer, large: Large
) -> None:
    with child(settings, server, large.reference) as process:
        out, _ = process.communicate(timeout=400)
    assert process.returncode == 0
    told = json.loads(out)
    assert told["own"] + told["children"] < 200 * 1024, "KiB of our process and of skopeo together"
    (disk,) = settings.state_dir.glob("instances/*/v.base")
    assert disk.stat().st_size == large.size
    assert leftovers(settings) == []


async def test_what_is_too_large_is_not_even_pulled(
    settings: StorageSettings, server: RegistryServer, tmp_path: Path
) -> None:
    """The manifest tells; a registry that tells less than it sends meets skopeo's limit."""
    layout = write_layout(tmp_path / "layout", tar(("disk/d", os.urandom(MIB))))
    image = server.push(layout, "heavy:1")
    layer = layer_of(tmp_path / "layout")
    small = StorageSettings(
        state_dir=settings.state_dir,
        run_dir=settings.run_dir,
        insecure_registries=(server.address,),
        max_image=MIB // 2 - ROOM_BYTES,
    )
    with pytest.raises(StorageError, match=r"volume 'v': the image has 1\.0 MiB; at most 512\.0 KiB"):
        await fetch(small, step(small, image))
    assert server.downloads(layer) == 0


async def test_a_killed_pull_goes_on_and_leaves_nothing(
    settings: StorageSettings, server: RegistryServer, large: Large
) -> None:
    with child(settings, server, large.reference) as process:
        until("the blob arrives", lambda: any(size > MIB for size in _sizes(settings.pulls)))
        os.kill(process.pid, signal.SIGKILL)
        process.communicate(timeout=10)
    until("skopeo went with the agent", lambda: not skopeos(settings), timeout_s=10)
    assert not list(settings.state_dir.glob("instances/*/v.base"))
    made = await fetch(settings, step(settings, large.reference))
    assert Path(made.path).stat().st_size == large.size
    assert leftovers(settings) == []


def _sizes(folder: Path) -> list[int]:
    found = []
    for path in folder.rglob("*") if folder.exists() else ():
        try:
            found.append(path.stat().st_size)
        except FileNotFoundError:
            continue  # it was renamed meanwhile
    return found


async def test_a_pull_that_nobody_goes_on_with_is_swept(settings: StorageSettings) -> None:
    stale, fresh = settings.pulls / ("a" * 64), settings.pulls / ("b" * 64)
    for folder in (stale, fresh):
        (folder / "blobs").mkdir(parents=True)
    partial = settings.images / ("c" * 64) / "default.dead.partial"
    partial.parent.mkdir(parents=True)
    partial.touch()
    os.utime(stale, (1, 1))
    settings.logins.mkdir(parents=True)
    (settings.logins / "0123456789abcdef.json").write_text("{}")
    await StorageExecutor(settings).sweep()
    assert (stale.exists(), fresh.exists(), partial.exists()) == (False, True, False)
    assert list(settings.logins.iterdir()) == [], "a login that a killed agent left"


async def test_the_cache_keeps_to_its_limit_and_never_takes_what_is_in_use(
    settings: StorageSettings, server: RegistryServer, tmp_path: Path
) -> None:
    small = StorageSettings(
        state_dir=settings.state_dir,
        run_dir=settings.run_dir,
        insecure_registries=(server.address,),
        cache_limit=5 * MIB,
    )
    storage = StorageExecutor(small)
    steps = []
    for number in range(4):
        disk = bytes([number + 1]) * (2 * MIB)
        image = server.push(write_layout(tmp_path / str(number), tar(("disk/d", disk))), f"evict{number}:1")
        steps.append(await fetch(small, step(small, image, f"vm{number}"), storage))
        if number != 1:
            await storage.release(steps[-1])  # only the second instance lives on
    kept = {path.stat().st_size for path in small.images.glob("[0-9a-f]*/*")}
    assert kept == {2 * MIB}
    assert len(list(small.images.glob("[0-9a-f]*/*"))) == 2, "the one in use and the last"
    assert Path(steps[1].path).read_bytes() == bytes([2]) * (2 * MIB)
    assert Path(steps[1].path).stat().st_nlink == 2


async def test_what_is_given_back_makes_room(
    settings: StorageSettings, server: RegistryServer, tmp_path: Path
) -> None:
    """Instances may have more than the limit; it holds again as soon as one of them goes."""
    small = StorageSettings(
        state_dir=settings.state_dir,
        run_dir=settings.run_dir,
        insecure_registries=(server.address,),
        cache_limit=3 * MIB,
    )
    storage = StorageExecutor(small)
    steps = []
    for number in range(2):
        layout = write_layout(tmp_path / str(number), tar(("disk/d", bytes([number + 65]) * (2 * MIB))))
        image = server.push(layout, f"back{number}:1")
        steps.append(await fetch(small, step(small, image, f"vm{number}"), storage))
    assert len(list(small.images.glob("[0-9a-f]*/*"))) == 2
    assert len(list(small.access.glob("[0-9a-f]*"))) == 2
    await storage.release(steps[0])
    (left,) = small.images.glob("[0-9a-f]*/*")
    assert left.stat().st_ino == Path(steps[1].path).stat().st_ino
    assert len(list(small.access.glob("[0-9a-f]*/*"))) == 1, "what is not there needs no record"
