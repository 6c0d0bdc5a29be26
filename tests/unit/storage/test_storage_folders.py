# SPDX-License-Identifier: Apache-2.0
"""Directories of the user's that dumps and backups go to: what is said of one that cannot be used."""

from __future__ import annotations

from pathlib import Path

import pytest

from launcher.errors import StorageError
from launcher.storage.folders import require_folder


def test_a_folder_must_be_there_and_be_one(tmp_path: Path) -> None:
    require_folder("store", str(tmp_path), writes=True)
    (tmp_path / "file").touch()
    for name, problem in (
        ("gone", "VolumeNotFound"),
        ("file", "VolumeInvalid"),
        ("file/x", "VolumeNotFound"),
    ):
        with pytest.raises(StorageError, match="volume 'store': ") as caught:
            require_folder("store", str(tmp_path / name), writes=False)
        assert caught.value.problem == problem
