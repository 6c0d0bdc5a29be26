# SPDX-License-Identifier: Apache-2.0
"""A manifest and certificates for the component tests."""

from __future__ import annotations

import subprocess
from pathlib import Path

VMI_YAML = """\
apiVersion: kubevirt.io/v1
kind: VirtualMachineInstance
metadata:
  name: demo
spec:
  domain:
    cpu:
      cores: 2
    devices:
      disks:
      - name: root
        disk:
          bus: virtio
    memory:
      guest: 256Mi
  volumes:
  - name: root
    emptyDisk:
      capacity: 1Gi
"""


def issue(root: Path, name: str, ca: str) -> None:
    """Make ``name``.key and ``name``.pem, signed by ``ca``, good for 127.0.0.1 and localhost."""
    (root / "ext").write_text("subjectAltName=IP:127.0.0.1,DNS:localhost\n")
    openssl(
        root, "req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
        "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}",
    )  # fmt: skip
    openssl(
        root, "x509", "-req", "-in", f"{name}.csr", "-CA", f"{ca}.pem", "-CAkey", f"{ca}.key",
        "-CAcreateserial", "-out", f"{name}.pem", "-days", "2", "-extfile", "ext",
    )  # fmt: skip


def openssl(root: Path, *arguments: str) -> None:
    """Run openssl in ``root``."""
    subprocess.run(["openssl", *arguments], cwd=root, check=True, capture_output=True)
