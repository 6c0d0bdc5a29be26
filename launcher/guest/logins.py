# SPDX-License-Identifier: Apache-2.0
"""Brings keys and passwords of users into a guest by its agent. What they are appears in no error.

Keys replace those in the user's ``authorized_keys``. Agents older than QEMU 5.2 have no command for that;
there a program in the guest writes the file.
"""

from __future__ import annotations

import base64
from typing import Final

from launcher.errors import GuestAgentError, LauncherError
from launcher.guest.agent import GuestAgent

TIMEOUT_S: Final = 10.0

_SET_KEYS: Final = "guest-ssh-add-authorized-keys"
_SET_USER: Final = "guest-set-user-password"
_PASSWD_FIELDS: Final = 7  # passwd(5)
# The new file takes the place of the old one: a link at its place is replaced, never followed.
_WRITE_KEYS: Final = """set -e; umask 077; d=$1/.ssh
[ ! -L "$d" ] || { echo "$d is a link" >&2; exit 1; }
[ -d "$d" ] || { mkdir "$d"; chown "$2:$3" "$d"; }
t=$d/.authorized_keys.$$; cat >"$t"; chown "$2:$3" "$t"; mv -f "$t" "$d/authorized_keys"
if command -v restorecon >/dev/null; then restorecon -R "$d"; fi"""


class Logins:
    """Users of the guest behind ``agent``. All calls raise GuestAgentError, naming the user."""

    def __init__(self, agent: GuestAgent) -> None:
        self._agent = agent

    async def set_keys(self, user: str, keys: tuple[str, ...]) -> None:
        """Let exactly ``keys`` log in as ``user``."""
        try:
            if _SET_KEYS in await self._agent.commands(timeout_s=TIMEOUT_S):
                arguments = {"username": user, "keys": list(keys), "reset": True}
                await self._agent.command(_SET_KEYS, arguments, timeout_s=TIMEOUT_S)
            else:
                await self._write_keys(user, keys)
        except LauncherError as error:
            raise GuestAgentError(f"the keys of {user!r} cannot be set: {error}") from error

    async def set_password(self, user: str, password: bytes) -> None:
        """Give ``user`` a password. What the guest says of a failure may hold it, and is not told."""
        encoded = base64.b64encode(password).decode()
        arguments = {"username": user, "password": encoded, "crypted": False}
        try:
            await self._agent.command(_SET_USER, arguments, timeout_s=TIMEOUT_S)
        except LauncherError:
            raise GuestAgentError(f"the guest agent did not set the password of {user!r}") from None

    async def _write_keys(self, user: str, keys: tuple[str, ...]) -> None:
        entry = await self._agent.execute(("getent", "passwd", user), timeout_s=TIMEOUT_S)
        parts = entry.output.strip().split(":")
        if entry.exit_code != 0 or len(parts) != _PASSWD_FIELDS:
            raise GuestAgentError("the guest has no such user")
        uid, gid, home = parts[2], parts[3], parts[5]
        if not (uid.isdecimal() and gid.isdecimal() and home.startswith("/")):
            raise GuestAgentError("the guest's entry of the user cannot be read")
        text = "".join(f"{key}\n" for key in keys)
        command = ("/bin/sh", "-c", _WRITE_KEYS, "sh", home, uid, gid)
        written = await self._agent.execute(command, stdin=text.encode(), timeout_s=TIMEOUT_S)
        if written.exit_code != 0:
            raise GuestAgentError(f"writing authorized_keys failed with exit code {written.exit_code}")
