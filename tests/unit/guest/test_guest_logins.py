# SPDX-License-Identifier: Apache-2.0
"""Keys and passwords by guest agent: its own commands, the way without them, refusals that tell nothing."""

from __future__ import annotations

import base64
import json
import subprocess
from pathlib import Path
from typing import cast

import pytest

from launcher.errors import GuestAgentError
from launcher.guest import logins
from launcher.guest.agent import GuestAgent
from launcher.guest.logins import Logins
from launcher.hypervisor.port import Hypervisor

KEYS = ("ssh-ed25519 AAAA one", "ssh-rsa BBBB two")
PASSWORD = b"correct horse"


class Agent:
    """libvirt's side of a guest agent that answers each command as it is told to."""

    def __init__(self, **answers: object) -> None:
        self.answers = {name.replace("_", "-"): answer for name, answer in answers.items()}
        self.asked: list[tuple[str, dict[str, object]]] = []

    async def agent_command(self, uuid: str, command: str, *, timeout_s: int) -> str:
        asked = json.loads(command)
        self.asked.append((asked["execute"], asked.get("arguments", {})))
        answer = self.answers[asked["execute"]]
        if isinstance(answer, list):
            answer = answer.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return json.dumps({"return": answer})


def users(agent: Agent) -> Logins:
    return Logins(GuestAgent(cast("Hypervisor", agent), "uuid"))


def info(*names: str, enabled: bool = True) -> object:
    listed = [{"name": name, "enabled": enabled, "success-response": True} for name in names]
    return {"version": "7.2.0", "supported_commands": listed}


async def test_keys_replace_those_that_are_there() -> None:
    agent = Agent(guest_info=info("guest-ssh-add-authorized-keys"), guest_ssh_add_authorized_keys={})
    await users(agent).set_keys("root", KEYS)
    expected = {"username": "root", "keys": list(KEYS), "reset": True}
    assert agent.asked[1:] == [("guest-ssh-add-authorized-keys", expected)]


def ended(code: int, output: str = "") -> dict[str, object]:
    return {"exited": True, "exitcode": code, "out-data": base64.b64encode(output.encode()).decode()}


@pytest.mark.parametrize("enabled", [True, False])
async def test_an_agent_without_the_command_writes_the_file(enabled: bool) -> None:
    names = ("guest-exec",) if enabled else ("guest-ssh-add-authorized-keys",)
    agent = Agent(
        guest_info=info(*names, enabled=enabled),
        guest_exec=[{"pid": 1}, {"pid": 2}],
        guest_exec_status=[ended(0, "ann:x:1000:1001:Ann:/home/ann:/bin/sh\n"), ended(0)],
    )
    await users(agent).set_keys("ann", KEYS)
    started = [arguments for name, arguments in agent.asked if name == "guest-exec"]
    assert (started[0]["path"], started[0]["arg"]) == ("getent", ["passwd", "ann"])
    assert cast("list[str]", started[1]["arg"])[2:] == ["sh", "/home/ann", "1000", "1001"]
    assert base64.b64decode(str(started[1]["input-data"])).decode().splitlines() == list(KEYS)


@pytest.mark.parametrize(
    "entry",
    [ended(2), ended(0, "nonsense"), ended(0, "a:x:-1:0::/root:/bin/sh"), ended(0, "a:x:0:0::r:/bin/sh")],
)
async def test_a_user_that_is_not_there(entry: dict[str, object]) -> None:
    agent = Agent(guest_info=info(), guest_exec=[{"pid": 1}], guest_exec_status=[entry])
    with pytest.raises(GuestAgentError, match="keys of 'a' cannot be set"):
        await users(agent).set_keys("a", KEYS)


async def test_a_password_is_set_and_never_told() -> None:
    agent = Agent(guest_set_user_password={})
    await users(agent).set_password("root", PASSWORD)
    ((_, arguments),) = agent.asked
    assert base64.b64decode(str(arguments["password"])) == PASSWORD
    encoded = str(arguments["password"])
    agent = Agent(guest_set_user_password=GuestAgentError(f"bad password {encoded} {PASSWORD.decode()}"))
    with pytest.raises(GuestAgentError) as caught:
        await users(agent).set_password("root", PASSWORD)
    assert str(caught.value).endswith("the guest agent did not set the password of 'root'")
    assert caught.value.__cause__ is None


def write_keys(home: Path) -> subprocess.CompletedProcess[bytes]:
    """What runs in the guest, run here on a directory of its own."""
    owner = home.stat()
    script = logins._WRITE_KEYS
    return subprocess.run(
        ["/bin/sh", "-c", script, "sh", str(home), str(owner.st_uid), str(owner.st_gid)],
        input=b"key one\nkey two\n",
        capture_output=True,
        timeout=20,
        check=False,
    )


def test_the_file_in_the_guest(tmp_path: Path) -> None:
    for _ in range(2):
        done = write_keys(tmp_path)
        assert (done.returncode, done.stderr) == (0, b"")
    folder = tmp_path / ".ssh"
    assert [path.name for path in folder.iterdir()] == ["authorized_keys"]
    assert (folder / "authorized_keys").read_text() == "key one\nkey two\n"
    assert folder.stat().st_mode & 0o777 == 0o700
    assert (folder / "authorized_keys").stat().st_mode & 0o777 == 0o600


def test_links_in_the_guest_are_not_followed(tmp_path: Path) -> None:
    home, other = tmp_path / "home", tmp_path / "shadow"
    (home / ".ssh").mkdir(parents=True)
    other.write_text("theirs")
    (home / ".ssh" / "authorized_keys").symlink_to(other)
    assert write_keys(home).returncode == 0
    assert other.read_text() == "theirs"
    assert not (home / ".ssh" / "authorized_keys").is_symlink()
    elsewhere = tmp_path / "elsewhere"
    (home / ".ssh").rename(elsewhere)
    (home / ".ssh").symlink_to(elsewhere)
    assert write_keys(home).returncode != 0
