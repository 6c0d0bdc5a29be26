# SPDX-License-Identifier: Apache-2.0
"""Images whose author means harm: each is refused, soon, with a reason, and nothing outside is touched."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import struct
import subprocess
import tarfile
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from launcher.errors import StorageError
from launcher.plan.media.material import Material
from launcher.plan.steps import FetchContainerDisk
from launcher.spec.model import Devices, DomainSpec, VirtualMachineInstance, VirtualMachineInstanceSpec
from launcher.storage.executor import StorageExecutor
from launcher.storage.limits import StorageSettings
from launcher.storage.oci import archive
from launcher.storage.oci.tar import MAX_HEADER, members

MIB = 1 << 20
VMI = VirtualMachineInstance(spec=VirtualMachineInstanceSpec(domain=DomainSpec(devices=Devices())))


def layout(
    folder: Path, layer: bytes, *, pack: Callable[[bytes], bytes] = gzip.compress, layers: int = 1
) -> str:
    """A local image with one packed layer, which it may name several times."""
    blobs = folder / "blobs" / "sha256"
    blobs.mkdir(parents=True)

    def blob(data: bytes) -> dict[str, object]:
        digest = hashlib.sha256(data).hexdigest()
        (blobs / digest).write_bytes(data)
        return {"digest": f"sha256:{digest}", "size": len(data)}

    manifest = {"layers": [blob(pack(layer))] * layers}
    entry = blob(json.dumps(manifest).encode())
    (folder / "index.json").write_text(json.dumps({"manifests": [entry]}))
    (folder / "oci-layout").write_text("{}")
    return f"oci:{folder}"


def tar(*entries: tuple[tarfile.TarInfo, bytes]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as made:
        for info, data in entries:
            info.size = len(data)
            made.addfile(info, io.BytesIO(data))
    return out.getvalue()


def file(name: str, data: bytes) -> bytes:
    return tar((tarfile.TarInfo(name), data))


def qemu_img(tmp_path: Path, *words: str) -> bytes:
    path = tmp_path / "made.qcow2"
    argv = ["qemu-img", "create", "-q", "-f", "qcow2", *words[:-1], str(path), *words[-1:]]
    subprocess.run(argv, check=True, capture_output=True)
    data = path.read_bytes()
    path.unlink()
    return data


def with_backing(tmp_path: Path) -> bytes:
    return file("disk/d", qemu_img(tmp_path, "-u", "-b", "/etc/shadow", "-F", "raw", "1M"))


def with_json_backing(tmp_path: Path) -> bytes:
    name = 'json:{"driver": "raw", "file": {"driver": "file", "filename": "/etc/shadow"}}'
    return file("disk/d", qemu_img(tmp_path, "-u", "-b", name, "-F", "raw", "1M"))


def with_data_file(tmp_path: Path) -> bytes:
    outside = tmp_path / "outside"
    return file("disk/d", qemu_img(tmp_path, "-o", f"data_file={outside}", "1M"))


def with_huge_disk(tmp_path: Path) -> bytes:
    return file("disk/d", qemu_img(tmp_path, "-o", "cluster_size=2M", "64T"))


def with_broken_tables(tmp_path: Path) -> bytes:
    data = bytearray(qemu_img(tmp_path, "1G"))
    struct.pack_into(">I", data, 36, 0x7FFFFFFF)  # entries of the first table
    return file("disk/d", bytes(data))


def with_many_counters(tmp_path: Path) -> bytes:
    data = bytearray(qemu_img(tmp_path, "1G"))
    struct.pack_into(">I", data, 56, 0x7FFFFFFF)  # clusters of the table of reference counts
    return file("disk/d", bytes(data))


def with_many_snapshots(tmp_path: Path) -> bytes:
    data = bytearray(qemu_img(tmp_path, "1M"))
    struct.pack_into(">IQ", data, 60, 0xFFFF_FFFF, 512)  # how many, and where
    return file("disk/d", bytes(data))


def with_a_short_header(tmp_path: Path) -> bytes:
    return file("disk/d", b"QFI\xfb\x00\x00\x00\x03".ljust(512, b"\0"))


def with_the_first_qcow(tmp_path: Path) -> bytes:
    return file("disk/d", b"QFI\xfb\x00\x00\x00\x01".ljust(4096, b"\0"))


def with_vmdk_descriptor(tmp_path: Path) -> bytes:
    text = '# Disk DescriptorFile\nversion=1\ncreateType="monolithicFlat"\nRW 2048 FLAT "/etc/shadow" 0\n'
    return file("disk/d", text.encode().ljust(MIB, b"\0"))


def with_vmdk(tmp_path: Path) -> bytes:
    return file("disk/d", made_as(tmp_path, "vmdk"))


def with_vdi(tmp_path: Path) -> bytes:
    return file("disk/d", made_as(tmp_path, "vdi"))


def with_vhdx(tmp_path: Path) -> bytes:
    return file("disk/d", made_as(tmp_path, "vhdx"))


def with_vhd(tmp_path: Path) -> bytes:
    return file("disk/d", made_as(tmp_path, "vpc"))


def with_qed(tmp_path: Path) -> bytes:
    return file("disk/d", made_as(tmp_path, "qed"))


def made_as(tmp_path: Path, kind: str) -> bytes:
    path = tmp_path / "made"
    subprocess.run(["qemu-img", "create", "-q", "-f", kind, path, "1M"], check=True, capture_output=True)
    data = path.read_bytes()
    path.unlink()
    return data


def with_encryption(tmp_path: Path) -> bytes:
    data = bytearray(qemu_img(tmp_path, "1M"))
    struct.pack_into(">I", data, 32, 1)
    return file("disk/d", bytes(data))


def with_traversal(tmp_path: Path) -> bytes:
    return file(f"disk/../../../..{tmp_path}/outside", b"x" * 512)


def with_absolute_path(tmp_path: Path) -> bytes:
    return file(f"{tmp_path}/outside", b"x" * 512)


def with_link(tmp_path: Path) -> bytes:
    info = tarfile.TarInfo("disk/d")
    info.type, info.linkname = tarfile.SYMTYPE, "/etc/shadow"
    return tar((info, b""))


def with_hard_link(tmp_path: Path) -> bytes:
    info = tarfile.TarInfo("disk/d")
    info.type, info.linkname = tarfile.LNKTYPE, "etc/shadow"
    return tar((info, b""))


def with_link_to_folder(tmp_path: Path) -> bytes:
    """``disk`` is a link to ``/``, and a file lies behind it."""
    info = tarfile.TarInfo("disk")
    info.type, info.linkname = tarfile.SYMTYPE, "/"
    return tar((info, b""), (tarfile.TarInfo(f"disk{tmp_path}/outside"), b"x" * 512))


def with_device(tmp_path: Path) -> bytes:
    info = tarfile.TarInfo("disk/d")
    info.type, info.devmajor, info.devminor = tarfile.BLKTYPE, 8, 0
    return tar((info, b""))


def with_many_zeros(tmp_path: Path) -> bytes:
    return file("disk/d", bytes(40 * MIB))


def with_nothing(tmp_path: Path) -> bytes:
    return file("disk/d", b"")


def with_two_disks(tmp_path: Path) -> bytes:
    return tar((tarfile.TarInfo("disk/a"), b"a" * 512), (tarfile.TarInfo("disk/b"), b"b" * 512))


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (with_backing, "names a backing file"),
        (with_json_backing, "names a backing file"),
        (with_data_file, "names an external data file"),
        (with_huge_disk, r"a disk of 64\.0 TiB; at most 16\.0 TiB"),
        (with_broken_tables, "qemu-img cannot read"),
        (with_many_counters, "qemu-img cannot read"),
        (with_many_snapshots, "qemu-img cannot read"),
        (with_a_short_header, "qemu-img cannot read"),
        (with_the_first_qcow, "qemu-img cannot read"),
        (with_vmdk_descriptor, "a VMDK descriptor; raw and qcow2 are accepted"),
        (with_vmdk, "a VMDK image"),
        (with_vdi, "a VDI image"),
        (with_vhdx, "a VHDX image"),
        (with_vhd, "a VHD image"),
        (with_qed, "a QED image"),
        (with_encryption, "encrypted"),
        (with_traversal, "expected one file in /disk, found none"),
        (with_absolute_path, "expected one file in /disk, found none"),
        (with_link, "expected one file in /disk, found none"),
        (with_hard_link, "expected one file in /disk, found none"),
        (with_link_to_folder, "expected one file in /disk, found none"),
        (with_device, "expected one file in /disk, found none"),
        (with_many_zeros, "has 41943040 bytes; at most 33554432"),
        (with_nothing, "no size"),
        (with_two_disks, "found /disk/a, /disk/b"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
async def test_it_is_refused(tmp_path: Path, make: Callable[[Path], bytes], says: str) -> None:
    settings = StorageSettings(state_dir=tmp_path / "state", run_dir=tmp_path / "run", max_image=32 * MIB)
    image = layout(tmp_path / "layout", make(tmp_path))
    outside = tmp_path / "outside"
    outside.unlink(missing_ok=True)  # qemu-img made it for the image with the data file
    target = settings.state_dir / "v.base"
    step = FetchContainerDisk(owner="u", volume="v", image=image, path=str(target))
    with pytest.raises(StorageError, match=f"volume 'v': .*{says}"):
        await StorageExecutor(settings).make(step, Material(vmi=VMI, uuid="u"))
    assert not target.exists()
    assert not outside.exists()
    assert [path for path in settings.state_dir.rglob("*") if path.is_file()] == []


def gzip_bomb() -> bytes:
    """1.25 GiB of zeros in 1.2 MB, in a file that nobody asks for, before the disk."""
    piece = gzip.compress(bytes(64 * MIB))
    return gzip.compress(header_of(20 * 64 * MIB)) + piece * 20


def zstd_bomb() -> bytes:
    """The same in a tenth of that."""
    return zstd(header_of(20 * 64 * MIB)) + zstd(bytes(64 * MIB)) * 20


def zstd_with_a_large_window() -> bytes:
    """A frame that asks for 2 GiB of memory before it gives the first byte (RFC 8878, 3.1.1.1.2)."""
    return b"\x28\xb5\x2f\xfd" + bytes((0x00, 21 << 3)) + bytes((0x01, 0x00, 0x00))


def cut_off() -> bytes:
    return gzip.compress(file("disk/d", os.urandom(MIB)))[: MIB // 2]


def cut_off_zstd() -> bytes:
    return zstd(file("disk/d", os.urandom(MIB)))[: MIB // 2]


def zstd(data: bytes) -> bytes:
    return subprocess.run(["zstd", "-q", "-c"], input=data, capture_output=True, check=True).stdout


def header_of(size: int) -> bytes:
    info = tarfile.TarInfo("opt/any")
    info.size = size
    return info.tobuf(tarfile.GNU_FORMAT)


@pytest.mark.parametrize(
    ("layer", "says"),
    [
        (gzip_bomb, "the archive unpacks to more than is taken"),
        (zstd_bomb, "the archive unpacks to more than is taken"),
        (zstd_with_a_large_window, "it gave up on its input|ends in the middle"),
        (cut_off, "cannot be read|ends in the middle"),
        (cut_off_zstd, "it gave up on its input|ends in the middle"),
    ],
)
async def test_a_layer_that_is_a_bomb_or_cut_off(
    tmp_path: Path, layer: Callable[[], bytes], says: str
) -> None:
    settings = StorageSettings(state_dir=tmp_path / "state", run_dir=tmp_path / "run", max_image=32 * MIB)
    image = layout(tmp_path / "layout", layer(), pack=bytes)
    step = FetchContainerDisk(owner="u", volume="v", image=image, path=str(settings.state_dir / "v.base"))
    with traced() as peak, pytest.raises(StorageError, match=f"volume 'v': layer sha256:.*(?:{says})"):
        await StorageExecutor(settings).make(step, Material(vmi=VMI, uuid="u"))
    assert peak() < 16 * MIB
    assert [path for path in settings.state_dir.rglob("*") if path.is_file()] == []


async def test_more_layers_than_anybody_needs(tmp_path: Path) -> None:
    settings = StorageSettings(state_dir=tmp_path / "state", run_dir=tmp_path / "run")
    image = layout(tmp_path / "layout", file("disk/d", b"x" * 512), layers=513)
    step = FetchContainerDisk(owner="u", volume="v", image=image, path=str(tmp_path / "base"))
    with pytest.raises(StorageError, match="the image has 513 layers; at most 512"):
        await StorageExecutor(settings).make(step, Material(vmi=VMI, uuid="u"))


@pytest.mark.parametrize("name", ["disk/link", "/disk/link"])
async def test_a_path_that_is_asked_for_must_be_a_file(tmp_path: Path, name: str) -> None:
    info = tarfile.TarInfo("disk/link")
    info.type, info.linkname = tarfile.SYMTYPE, "/etc/shadow"
    settings = StorageSettings(state_dir=tmp_path / "state", run_dir=tmp_path / "run")
    image = layout(tmp_path / "layout", tar((info, b"")))
    step = FetchContainerDisk(owner="u", volume="v", image=image, path=str(tmp_path / "base"), disk=name)
    with pytest.raises(StorageError, match="not a regular file"):
        await StorageExecutor(settings).make(step, Material(vmi=VMI, uuid="u"))


def pax_bomb() -> bytes:
    header = tarfile.TarInfo("x")
    header.type, header.size = tarfile.XHDTYPE, 1 << 40
    return header.tobuf(tarfile.GNU_FORMAT)


def long_name_bomb() -> bytes:
    header = tarfile.TarInfo("././@LongLink")
    header.type, header.size = tarfile.GNUTYPE_LONGNAME, MAX_HEADER + 1
    return header.tobuf(tarfile.GNU_FORMAT) + bytes(4 * MIB)


def sparse_bomb() -> bytes:
    """A sparse file whose map would be a list of millions of numbers."""
    records = b"".join(
        b"%d %s=%s\n" % (len(key) + len(value) + 5, key, value)
        for key, value in ((b"GNU.sparse.major", b"1"), (b"GNU.sparse.minor", b"0"))
    )
    header = tarfile.TarInfo("x")
    header.type, header.size = tarfile.XHDTYPE, len(records)
    data = b"9999999\n" + b"0\n" * (8 * MIB)
    member = tarfile.TarInfo("disk/d")
    member.size = len(data)
    padded = records.ljust(512, b"\0") if len(records) <= 512 else records
    return (
        header.tobuf(tarfile.USTAR_FORMAT) + padded + member.tobuf(tarfile.USTAR_FORMAT) + data + bytes(2048)
    )


def cut_short() -> bytes:
    return file("a", b"x" * 600)[:700]


def noise() -> bytes:
    return b"\xff" * 1024


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (pax_bomb, "an extended header has 1099511627776 bytes"),
        (long_name_bomb, "an extended header has 1048577 bytes"),
        (noise, "no tar archive|out of range"),
        (cut_short, "ends in the middle"),
    ],
)
def test_a_hostile_archive_is_refused_in_little_memory(make: Callable[[], bytes], says: str) -> None:
    data = make()
    with traced() as peak, pytest.raises(StorageError, match=says):
        list(members(io.BytesIO(data), limit=1 << 40))
    assert peak() < 8 * MIB


def test_a_sparse_member_is_passed_over_and_its_map_never_read() -> None:
    data = sparse_bomb()
    with traced() as peak:
        assert [member.regular for member in members(io.BytesIO(data), limit=1 << 40)] == [False]
    assert peak() < 8 * MIB


@contextmanager
def traced() -> Iterator[Callable[[], int]]:
    """The most memory that Python objects took within the block, in bytes."""
    peaks: list[int] = []
    tracemalloc.start()
    try:
        yield lambda: peaks[0]
    finally:
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()


def test_more_than_the_limit_is_not_unpacked() -> None:
    with pytest.raises(StorageError, match="unpacks to more"):
        list(members(gzip.GzipFile(fileobj=io.BytesIO(gzip.compress(file("a", bytes(64 * MIB))))), limit=MIB))


def test_names_of_every_format_are_read() -> None:
    long = "/".join(["folder" * 10] * 3)
    for style in (tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT):
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode="w", format=style) as made:
            for name in ("disk/ä.img", f"{long}/d", "./disk/x"):
                info = tarfile.TarInfo(name)
                info.size = 5
                made.addfile(info, io.BytesIO(b"12345"))
        out.seek(0)
        found = [(member.path, member.read(10)) for member in members(out, limit=MIB)]
        assert found == [("disk/ä.img", b"12345"), (f"{long}/d", b"12345"), ("./disk/x", b"12345")]


def test_of_an_archive_only_a_layout_is_taken(tmp_path: Path) -> None:
    evil = tmp_path / "evil"
    digest = "a" * 64
    path = tmp_path / "a.tar"
    path.write_bytes(
        tar(
            (tarfile.TarInfo("../evil"), b"x"),
            (tarfile.TarInfo(str(evil)), b"x"),
            (tarfile.TarInfo(f"blobs/sha256/../../../evil/{digest}"), b"x"),
            (tarfile.TarInfo(f"./blobs/sha256/{digest}"), b"blob"),
            (tarfile.TarInfo("index.json"), b"{}"),
        )
    )
    folder = tmp_path / "out"
    archive.unpack(path, folder, limit=MIB)
    assert sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file()) == [
        f"blobs/sha256/{digest}",
        "index.json",
    ]
    assert not os.path.lexists(evil)
