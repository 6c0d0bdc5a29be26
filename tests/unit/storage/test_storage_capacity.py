# SPDX-License-Identifier: Apache-2.0
"""What a guest sees of an image, read from the image."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from launcher.errors import StorageError
from launcher.storage.capacity import virtual_size

MIB = 1 << 20


def test_a_raw_image_is_as_large_as_its_file(tmp_path: Path) -> None:
    image = tmp_path / "disk.img"
    image.write_bytes(b"QFI\xfb")
    with image.open("r+b") as file:
        file.truncate(3 * MIB)
    assert virtual_size(image, qcow2=False) == 3 * MIB, "a guest's header changes nothing"


def test_a_qcow2_image_says_it_in_its_header(tmp_path: Path) -> None:
    if shutil.which("qemu-img") is None:
        pytest.skip("qemu-img is not installed")
    image = tmp_path / "disk.qcow2"
    subprocess.run(["qemu-img", "create", "-q", "-f", "qcow2", image, "5M"], check=True)
    assert virtual_size(image, qcow2=True) == 5 * MIB


@pytest.mark.parametrize("content", [b"", b"QFI\xfb", b"x" * 100])
def test_what_is_no_qcow2_image_is_refused(tmp_path: Path, content: bytes) -> None:
    image = tmp_path / "disk"
    image.write_bytes(content)
    with pytest.raises(StorageError, match="no qcow2 image"):
        virtual_size(image, qcow2=True)


def test_a_missing_image_is_an_error_of_ours(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="cannot be read"):
        virtual_size(tmp_path / "no", qcow2=False)
