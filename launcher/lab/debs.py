# SPDX-License-Identifier: Apache-2.0
"""Fetches Debian packages by apt and unpacks them into a folder. Nothing is installed on the machine."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from launcher.errors import CommandFailed, HostUnsupported
from launcher.lab import command

DOWNLOAD_TIMEOUT_S = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Package:
    """A package in the version that apt would install."""

    name: str
    version: str


def candidates(*names: str) -> tuple[Package, ...]:
    """What apt would install as ``names``.

    Raises:
        HostUnsupported: no configured source has one of them.
    """
    policy = _apt_cache("policy", *names)
    versions = dict(re.findall(r"^(\S+):\n  Installed: .*\n  Candidate: (\S+)$", policy, re.MULTILINE))
    for name in names:
        if versions.get(name, "(none)") == "(none)":
            raise HostUnsupported(f"the Debian package {name}", "no configured apt source has it")
    return tuple(Package(name=name, version=versions[name]) for name in names)


def dependency(name: str, prefix: str) -> str:
    """The package beginning with ``prefix`` that the metapackage ``name`` depends on.

    The package lists are fetched when they do not know ``name``.

    Raises:
        HostUnsupported: no configured source has it.
    """
    wanted = re.compile(rf"^  Depends: ({re.escape(prefix)}\S+)$", re.MULTILINE)
    found = wanted.search(_apt_cache("depends", name))
    if not found:
        command.run(["apt-get", "update", "-q"], timeout_s=DOWNLOAD_TIMEOUT_S)
        found = wanted.search(_apt_cache("depends", name))
    if not found:
        raise HostUnsupported(f"the Debian package {name}", "no configured apt source has it")
    return found[1]


def unpack(package: Package, scratch: Path) -> Path:
    """Download the package and unpack it into a new folder below ``scratch``, which is returned.

    Raises:
        CommandFailed: the download or the unpacking failed.
    """
    root = scratch / package.name
    root.mkdir(parents=True)
    wanted = f"{package.name}={package.version}"
    try:
        _download(wanted, scratch)
    except CommandFailed:  # the mirror has dropped the version that the lists still name
        command.run(["apt-get", "update", "-q"], timeout_s=DOWNLOAD_TIMEOUT_S)
        _download(package.name, scratch)
    archive = next(scratch.glob(f"{package.name}_*.deb"))
    command.run(["dpkg-deb", "-x", archive, root])
    archive.unlink()
    return root


def _download(wanted: str, folder: Path) -> None:
    # apt's download user could not write into a folder of root's.
    options = ("-q", "-o", "APT::Sandbox::User=root")
    command.run(["apt-get", "download", *options, wanted], cwd=folder, timeout_s=DOWNLOAD_TIMEOUT_S)


def _apt_cache(*arguments: str) -> str:
    # The words read here ("Candidate", "Depends") are translated in other locales.
    try:
        return command.run(["env", "LC_ALL=C", "apt-cache", *arguments]).decode()
    except CommandFailed:  # it has never heard of the package
        return ""
