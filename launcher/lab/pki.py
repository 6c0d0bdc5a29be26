# SPDX-License-Identifier: Apache-2.0
"""Certificates for the nodes of one lab: an authority and a certificate a node, made by openssl(1).

Agents and QEMU use the same ones; QEMU wants a folder with names of its own.

They are good for two days and for nothing else; the authority's key stays in the lab's folder.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

from launcher.lab import command

DAYS = 2
_CONFIG = """\
[req]
distinguished_name = subject
prompt = no
[subject]
O = launcher lab
CN = {name}
[authority]
basicConstraints = critical, CA:TRUE
keyUsage = critical, keyCertSign, cRLSign
subjectKeyIdentifier = hash
[node]
basicConstraints = critical, CA:FALSE
keyUsage = critical, digitalSignature, keyEncipherment
extendedKeyUsage = serverAuth, clientAuth
subjectAltName = DNS:{name}, IP:{ip}
"""


def create(folder: Path, addresses: Mapping[str, str]) -> None:
    """Write ``ca.crt`` and for each node ``NAME.crt`` and ``NAME.key`` (PEM, EC P-256) into ``folder``.

    ``qemu_folder`` of each node has them under QEMU's names.

    Raises:
        CommandFailed: openssl(1) refused.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    _issue(folder, "ca", "127.0.0.1", section="authority", signer=[])
    signer: list[str | Path] = ["-CA", folder / "ca.crt", "-CAkey", folder / "ca.key"]
    for name, ip in addresses.items():
        _issue(folder, name, ip, section="node", signer=signer)
        _for_qemu(folder, name)


def qemu_folder(folder: Path, name: str) -> Path:
    """Where QEMU of node ``name`` finds its certificates (``migrate_tls_x509_cert_dir``)."""
    return folder.with_name(f"{folder.name}-qemu") / name


def _for_qemu(folder: Path, name: str) -> None:
    own = qemu_folder(folder, name)
    own.mkdir(parents=True, exist_ok=True)
    shutil.copy(folder / "ca.crt", own / "ca-cert.pem")
    for side in ("server", "client"):
        shutil.copy(folder / f"{name}.crt", own / f"{side}-cert.pem")
        shutil.copy(folder / f"{name}.key", own / f"{side}-key.pem")


def _issue(folder: Path, name: str, ip: str, *, section: str, signer: list[str | Path]) -> None:
    config = folder / f"{name}.cnf"
    config.write_text(_CONFIG.format(name=name, ip=ip))
    # fmt: off
    command.run([
        "openssl", "req", "-x509", "-config", config, "-extensions", section, *signer,
        "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-noenc",
        "-days", str(DAYS), "-keyout", folder / f"{name}.key", "-out", folder / f"{name}.crt",
    ])
    # fmt: on
