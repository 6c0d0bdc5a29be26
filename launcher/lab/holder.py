# SPDX-License-Identifier: Apache-2.0
"""The program that is PID 1 of a lab namespace: says ``ready``, reaps orphans and waits for the end of stdin.

Its stdin is a pipe whose other end only the owner of the lab holds. When the owner ends, in whatever way,
this program ends; the kernel then kills everything in the namespace, and mounts, links and addresses go
with the last process. It must import nothing but the standard library and never start anything itself.
"""

from __future__ import annotations

import os
import signal


def main() -> None:
    # With SIGCHLD ignored the kernel reaps our children at once. Daemons re-parent to PID 1 (QEMU, swtpm);
    # one that stayed a zombie would make libvirtd wait 40 s for a QEMU it has killed.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.write(1, b"ready\n")
    while os.read(0, 4096):
        pass
    os._exit(0)


if __name__ == "__main__":
    main()
