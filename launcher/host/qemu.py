# SPDX-License-Identifier: Apache-2.0
"""QEMU processes of this host, by the UUID of their domain: the last means when libvirt does not answer."""

from __future__ import annotations

import contextlib

import psutil


def end_qemu(uuid: str) -> int:
    """Kill the QEMU that runs the domain ``uuid``; how many processes were killed. Blocking: reads /proc."""
    ended = 0
    for process in psutil.process_iter(["cmdline"]):
        words = process.info["cmdline"] or []
        if "-uuid" in words and words[words.index("-uuid") + 1 :][:1] == [uuid]:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
                ended += 1
    return ended
