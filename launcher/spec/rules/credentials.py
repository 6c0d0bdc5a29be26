# SPDX-License-Identifier: Apache-2.0
"""Rules of ``spec.accessCredentials``: what is given, where it comes from, and a way into the guest."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from launcher.errors import Violation
from launcher.spec.model import (
    AccessCredentialSecretSource,
    SSHPublicKeyAccessCredential,
    UserPasswordAccessCredential,
)
from launcher.spec.rules.checks import at_most, dns_subdomain, unique
from launcher.spec.rules.context import Context, Rule
from launcher.spec.rules.disks import MOST
from launcher.spec.rules.finding import invalid, required
from launcher.spec.rules.volumes import sources

CREDENTIALS: Final = "spec.accessCredentials"

_METHODS: Final = (
    ("config_drive", "configDrive"),
    ("no_cloud", "noCloud"),
    ("qemu_guest_agent", "qemuGuestAgent"),
)
_DRIVES: Final = ("cloud_init_no_cloud", "cloud_init_config_drive")
# Login names of Linux and Windows guests, never a path and never an option.
_USER: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@$-]{0,255}")


def credentials(ctx: Context) -> Iterator[Violation]:
    """A credential is a key or a password, comes from a secret, and goes one way."""
    if not ctx.spec.access_credentials:
        return
    yield from at_most(CREDENTIALS, ctx.spec.access_credentials, MOST)
    drives = {name for _, volume in ctx.volumes for name, _ in sources(volume)} & {*_DRIVES}
    for index, credential in enumerate(ctx.spec.access_credentials):
        path = f"{CREDENTIALS}[{index}]"
        key, password = credential.ssh_public_key, credential.user_password
        if key is None and password is None:
            yield required(path, "needs sshPublicKey or userPassword")
        if key is not None and password is not None:
            yield invalid(f"{path}.userPassword", None, "sshPublicKey and userPassword exclude each other")
        if key is not None:
            yield from _ssh_key(f"{path}.sshPublicKey", key, drives)
        if password is not None:
            yield from _password(f"{path}.userPassword", password)


def _ssh_key(path: str, key: SSHPublicKeyAccessCredential, drives: set[str]) -> Iterator[Violation]:
    yield from _secret(f"{path}.source.secret", key.source.secret)
    path += ".propagationMethod"
    method = key.propagation_method
    given = [written for name, written in _METHODS if getattr(method, name) is not None]
    if not given:
        yield required(path, f"needs one of {', '.join(written for _, written in _METHODS)}")
    elif len(given) > 1:
        yield invalid(f"{path}.{given[1]}", None, f"a key goes one way, not {', '.join(given)}")
    if method.no_cloud is not None and "cloud_init_no_cloud" not in drives:
        yield invalid(f"{path}.noCloud", None, "needs a volume cloudInitNoCloud")
    if method.config_drive is not None and "cloud_init_config_drive" not in drives:
        yield invalid(f"{path}.configDrive", None, "needs a volume cloudInitConfigDrive")
    agent = method.qemu_guest_agent
    if agent is None:
        return
    field = f"{path}.qemuGuestAgent.users"
    if not agent.users:
        yield required(field, "needs at least one user of the guest")
    yield from unique((f"{field}[{number}]", user) for number, user in enumerate(agent.users))
    for number, user in enumerate(agent.users):
        if _USER.fullmatch(user) is None:
            yield invalid(f"{field}[{number}]", user, "not a login name such as root")


def _password(path: str, password: UserPasswordAccessCredential) -> Iterator[Violation]:
    yield from _secret(f"{path}.source.secret", password.source.secret)
    if password.propagation_method.qemu_guest_agent is None:
        yield required(f"{path}.propagationMethod", "needs qemuGuestAgent")


def _secret(path: str, secret: AccessCredentialSecretSource | None) -> Iterator[Violation]:
    if secret is None:
        yield required(path, "needs a secret")
    else:
        yield from dns_subdomain(f"{path}.secretName", secret.secret_name, "the name of a secret")


RULES: tuple[Rule, ...] = (credentials,)
