# SPDX-License-Identifier: Apache-2.0
"""Certificates for migrations: what works, what does not and why, with files made by openssl."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from launcher.errors import HostUnsupported
from launcher.host.certificates import FILES, examine
from launcher.lab import command, pki

DAY_S = 86400.0


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    folder = tmp_path_factory.mktemp("pki") / "one"
    pki.create(folder, {"a": "10.99.0.1"})
    pki.create(folder.with_name("other"), {"a": "10.99.0.1"})
    return folder


@pytest.fixture
def folder(made: Path, tmp_path: Path) -> Path:
    shutil.copytree(pki.qemu_folder(made, "a"), tmp_path / "qemu")
    return tmp_path / "qemu"


def test_files_that_fit_tell_until_when_and_for_whom(folder: Path) -> None:
    found = examine(folder)
    left_s = found.server_until - time.time()
    assert DAY_S < left_s <= pki.DAYS * DAY_S
    assert found.client_until == found.server_until
    assert found.serves("10.99.0.1")
    assert found.serves("A")
    assert not found.serves("10.99.0.2")


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_is_missing_is_named(folder: Path, name: str) -> None:
    (folder / name).unlink()
    with pytest.raises(HostUnsupported, match=name):
        examine(folder)


def _other_authority(folder: Path, made: Path) -> None:
    shutil.copy(made.with_name("other") / "ca.crt", folder / "ca-cert.pem")


def _other_key(folder: Path, made: Path) -> None:
    shutil.copy(made / "ca.key", folder / "server-key.pem")


def _garbage(folder: Path, made: Path) -> None:
    (folder / "client-cert.pem").write_text("not a certificate")


def _ended(folder: Path, made: Path) -> None:
    # fmt: off
    command.run([
        "openssl", "x509", "-new", "-force_pubkey", _public(folder), "-subj", "/CN=a",
        "-CA", made / "ca.crt", "-CAkey", made / "ca.key", "-days", "-1", "-out", folder / "server-cert.pem",
    ])
    # fmt: on


def _public(folder: Path) -> Path:
    public = folder / "public.pem"
    command.run(["openssl", "pkey", "-in", folder / "server-key.pem", "-pubout", "-out", public])
    return public


@pytest.mark.parametrize("spoil", [_other_authority, _other_key, _garbage, _ended])
def test_what_would_fail_between_two_nodes_fails_here(
    folder: Path, made: Path, spoil: Callable[[Path, Path], None]
) -> None:
    spoil(folder, made)
    with pytest.raises(HostUnsupported, match="do not work"):
        examine(folder)
