# SPDX-License-Identifier: Apache-2.0
"""Gives guests of QEMU before 9.0 a memory that it copies whole when it emulates. It must not start guests.

Such a QEMU forgets writes: when it takes over which pages are dirty it looks at 64 pages at a time and leaves
the emulated CPU its cached permission to write without being noticed (mended by "physmem: Fix migration dirty
bitmap coherency with TCG memory access"). What was written since is missing at the target: ticks come twice,
kernels crash. An idle guest has little that empties that cache. A block of memory that is no multiple of 64
pages is looked at page by page, which does it right, but libvirt rounds memory to MiB. So nodes see, in the
place of QEMU, a script that asks for two pages more. KVM has no such fault.
"""

from __future__ import annotations

import hashlib
import re
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from launcher.lab import command

PROGRAM: Final = "/usr/bin/qemu-system-x86_64"
REAL: Final = "/var/lib/libvirt/emulator/bin/qemu-system-x86_64"
"""Where a node sees QEMU itself. QEMU looks for its files in ``../share`` and ``../lib`` of its folder."""
MENDED: Final = (9, 0)
EXTRA_BYTES: Final = 8192
"""QEMU rounds a machine's memory to this."""

_VERSION = re.compile(r"version (\d+)\.(\d+)")
_SCRIPT = """#!/bin/sh
# In place of: {version}
blocks=0
resized() {{
  case $1 in
    *'"hugetlb":true'*|*'"mem-path":'*) return 1 ;;
    '{{"qom-type":"memory-backend-'*'"id":"pc.ram"'*'"size":'*) return 0 ;;
    '{{"qom-type":"memory-backend-'*'"id":"ram-node'*'"size":'*) return 0 ;;
    *) return 1 ;;
  esac
}}
for word; do
  if resized "$word"; then blocks=$((blocks + 1)); fi
done
if [ "$blocks" -gt 0 ]; then
  before=
  for word; do
    shift
    changed=$word
    if [ "$before" = -m ]; then
      size=${{word#size=}} number=${{word#size=}}
      number=${{number%%[!0-9]*}}
      rest=${{size#"$number"}}
      case $rest in
        k*) rest=${{rest#k}} ;;
        *) number=$((number * 1024)) ;;
      esac
      more=$((blocks * {extra} / 1024))
      case $rest in
        *,maxmem=*k)  # What can be plugged stays as much.
          most=${{rest##*,maxmem=}}
          rest="${{rest%,maxmem=*}},maxmem=$((${{most%k}} + more))k" ;;
      esac
      changed="size=$((number + more))k$rest"
    elif resized "$word"; then
      size=${{word#*'"size":'}}
      number=${{size%%[!0-9]*}}
      changed="${{word%%'"size":'*}}\\"size\\":$((number + {extra}))${{size#"$number"}}"
    fi
    set -- "$@" "$changed"
    before=$word
  done
fi
exec {real} "$@"
"""


def script(version: str, real: str = REAL) -> str:
    """What stands in the place of the QEMU ``real``, which calls itself ``version``. Huge pages stay."""
    return _SCRIPT.format(version=version, real=real, extra=EXTRA_BYTES)


def forgets(version: str) -> bool:
    """Whether a QEMU that says this of itself forgets writes."""
    found = _VERSION.search(version)
    return found is not None and (int(found[1]), int(found[2])) < MENDED


def stand_in(cache: Path, systems: Iterable[Path]) -> Path | None:
    """The script for all nodes of a lab; None when no QEMU of theirs needs it.

    All have it or none: both ends of a migration must give a guest the same memory. It is kept in ``cache``,
    for libvirtd asks a QEMU anew for all that it can do when its file is a new one.
    """
    own = [[PROGRAM]] if Path(PROGRAM).exists() else []
    found = [_version(argv) for argv in [*own, *(["chroot", str(system), PROGRAM] for system in systems)]]
    if not any(forgets(version) for version in found):
        return None
    text = script(" and ".join(sorted(set(found))))
    kept = cache / f"emulator-{hashlib.sha256(text.encode()).hexdigest()[:16]}"
    if not kept.exists():
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=cache, prefix=".new-", delete=False) as partial:
            partial.write(text)
        made = Path(partial.name)
        made.chmod(0o755)
        made.rename(kept)
    return kept


def _version(argv: list[str]) -> str:
    return command.run([*argv, "--version"]).decode(errors="replace").partition("\n")[0]
