# SPDX-License-Identifier: Apache-2.0
"""The directories under which all instances lie. Made when the agent starts."""

from __future__ import annotations

from pathlib import Path

from launcher.host.config import Config


def make_roots(config: Config) -> None:
    """Make the directories of all instances, unless they are there."""
    # QEMU runs as another user: it must be able to pass through, and to see nothing but its own.
    for path in (
        Path(config.state_dir),
        Path(config.state_dir, "instances"),
        Path(config.run_dir, "i"),
        Path(config.run_dir, "n"),
    ):
        path.mkdir(parents=True, exist_ok=True)
        path.chmod(0o711)
    Path(config.run_dir).chmod(0o711)
