# SPDX-License-Identifier: Apache-2.0
"""What firmware and TPM remember is moved whole, kept, discarded, and never taken from two places."""

from __future__ import annotations

from pathlib import Path

import pytest

from launcher.plan.steps import UseState
from launcher.storage.kept import forget_state, put_away_state, take_state


@pytest.fixture(params=["rename", "copy"])
def step(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> UseState:
    """A TPM's state; ``copy``: as on two file systems."""
    if request.param == "copy":
        rename = Path.rename

        def other_device(self: Path, target: Path) -> Path:
            if self.parent != target.parent:
                raise OSError(18, "Invalid cross-device link")
            return rename(self, target)

        monkeypatch.setattr(Path, "rename", other_device)
    kept = tmp_path / "kept" / "default" / "web" / "tpm"
    return UseState(owner="u1", path=str(tmp_path / "swtpm" / "u1"), kept=str(kept))


def write(path: str, text: str) -> None:
    state = Path(path, "tpm2")
    state.mkdir(parents=True)
    state.chmod(0o711)
    (state / "permall").write_text(text)
    (state / "permall").chmod(0o640)


def read(path: str | None) -> str:
    return Path(path or "", "tpm2", "permall").read_text()


def test_state_waits_for_the_next_instance(step: UseState) -> None:
    take_state(step)
    assert not Path(step.path).exists()
    write(step.path, "one")
    put_away_state(step, discard=False)
    assert not Path(step.path).exists()
    assert read(step.kept) == "one"
    put_away_state(step, discard=False)  # as after a crash
    assert read(step.kept) == "one"
    take_state(step)
    take_state(step)
    assert read(step.path) == "one"
    assert not Path(step.kept or "").exists(), "it is at one place"
    assert Path(step.path, "tpm2").stat().st_mode & 0o777 == 0o711
    assert Path(step.path, "tpm2", "permall").stat().st_mode & 0o777 == 0o640


def test_the_newer_state_wins(step: UseState) -> None:
    write(step.kept or "", "old")
    write(step.path, "new")
    take_state(step)
    assert read(step.path) == "new"
    put_away_state(step, discard=False)
    assert read(step.kept) == "new"


def test_discarded_state_is_gone_and_kept_state_stays(step: UseState) -> None:
    write(step.path, "left behind")
    write(step.kept or "", "kept")
    put_away_state(step, discard=True)
    assert not Path(step.path).exists()
    assert read(step.kept) == "kept"
    directory = Path(step.kept or "").parent
    assert forget_state(directory)
    assert not directory.parent.exists()
    assert not forget_state(directory)


def test_without_a_place_to_be_kept_it_ends(step: UseState) -> None:
    mortal = UseState(owner="u1", path=step.path)
    write(mortal.path, "one")
    take_state(mortal)
    assert read(mortal.path) == "one"
    put_away_state(mortal, discard=False)
    assert not Path(mortal.path).exists()


def test_links_are_not_followed(step: UseState, tmp_path: Path) -> None:
    write(step.path, "one")
    secret = tmp_path / "secret"
    secret.write_text("theirs")
    Path(step.path, "tpm2", "link").symlink_to(secret)
    put_away_state(step, discard=False)
    take_state(step)
    link = Path(step.path, "tpm2", "link")
    assert link.is_symlink() or not link.exists()
    assert secret.read_text() == "theirs"
