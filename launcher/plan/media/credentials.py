# SPDX-License-Identifier: Apache-2.0
"""Access credentials -> the keys and passwords of users of the guest. Pure; values never reach a log."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from launcher.errors import InvalidRequest, Violation
from launcher.plan.media.material import Keyed, Material
from launcher.spec.model import AccessCredential, VirtualMachineInstance

FIELD = "spec.accessCredentials"
# As in the manifest: never a path, never an option.
_USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@$-]{0,255}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Login:
    """What a user of the guest gets by the guest agent: keys (None: they stay as they are), a password."""

    user: str
    keys: tuple[str, ...] | None = None
    password: bytes | None = field(default=None, repr=False)


def by_agent(vmi: VirtualMachineInstance) -> tuple[AccessCredential, ...]:
    """The credentials that the guest agent takes into the guest."""
    return tuple(filter(_goes_by_agent, vmi.spec.access_credentials))


def logins(material: Material) -> tuple[Login, ...]:
    """All that the guest agent is to be told, by user; keys of several credentials come together.

    Raises:
        InvalidRequest: a Secret did not come with the instance, or a key in it is no user.
    """
    keys: dict[str, list[str]] = {}
    passwords: dict[str, bytes] = {}
    for credential in by_agent(material.vmi):
        ssh, password = credential.ssh_public_key, credential.user_password
        if ssh is not None and ssh.source.secret is not None:
            agent = ssh.propagation_method.qemu_guest_agent
            found = list(public_keys(material.secret(ssh.source.secret.secret_name, field=FIELD)))
            for user in agent.users if agent is not None else ():
                keys.setdefault(user, []).extend(found)
        if password is not None and password.source.secret is not None:
            name = password.source.secret.secret_name
            for user, value in material.secret(name, field=FIELD).items():
                _require_user(name, user)
                passwords[user] = value.strip()
    return tuple(
        Login(
            user=user,
            keys=tuple(dict.fromkeys(keys[user])) if user in keys else None,
            password=passwords.get(user),
        )
        for user in sorted(keys.keys() | passwords.keys())
    )


def public_keys(data: Keyed) -> Iterator[str]:
    """Each value of a Secret is a key, or several in lines."""
    for _, value in sorted(data.items()):
        yield from (line.strip() for line in value.decode(errors="replace").splitlines() if line.strip())


def _goes_by_agent(credential: AccessCredential) -> bool:
    ssh, password = credential.ssh_public_key, credential.user_password
    return (ssh is not None and ssh.propagation_method.qemu_guest_agent is not None) or (
        password is not None and password.propagation_method.qemu_guest_agent is not None
    )


def _require_user(secret: str, user: str) -> None:
    if _USER.fullmatch(user) is None:
        message = "a key of this Secret is the name of a user, such as root"
        place = f"companions.secrets[{secret}]"
        raise InvalidRequest(
            [Violation(field=place, type="FieldValueInvalid", value=user[:80], message=message)]
        )
