# SPDX-License-Identifier: Apache-2.0
"""Directories of generated files that virtiofs shares. Blocking.

The files are the agent's; the guest sees a copy that lives as long as the instance.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from launcher.errors import StorageError
from launcher.host.files import make_directory, remove_tree
from launcher.plan.media.material import MediaFile

# Only virtiofsd, which runs as the agent's user, looks into it; inside, the guest sees what follows.
_OUTER_MODE = 0o700


def write_files(volume: str, path: Path, files: Sequence[MediaFile]) -> None:
    """Put ``files`` into the directory ``path``, in place of what is there.

    Raises:
        StorageError: they could not be written.
    """
    try:
        make_directory(path.parent, mode=_OUTER_MODE)
        scratch = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent))
        try:
            scratch.chmod(0o755)
            for file in files:
                target = scratch / file.path
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(file.data)
                target.chmod(file.mode)
            remove_tree(path)
            scratch.rename(path)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
    except StorageError as error:
        raise StorageError(volume, error.message) from error
    except OSError as error:
        raise StorageError(volume, f"cannot write its files: {error.strerror}") from error
