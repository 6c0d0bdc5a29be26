# SPDX-License-Identifier: Apache-2.0
"""Where everything of a lab lies, and what a node sees mounted over what. Spells paths, touches nothing."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from launcher.errors import InvalidRequest, Violation

SUN_PATH_MAX = 107
"""Bytes of a unix socket's path without the closing NUL (unix(7): sun_path holds 108)."""

BINDS: tuple[tuple[str, str], ...] = (
    ("etc", "/etc/libvirt"),
    ("lib", "/var/lib/libvirt"),
    ("log", "/var/log/libvirt"),
    ("cache", "/var/cache/libvirt"),
    ("run", "/run/libvirt"),
    ("swtpm-log", "/var/log/swtpm"),
    ("swtpm-lib", "/var/lib/swtpm-localca"),
    ("state", "/var/lib/launcher"),
    ("agent-run", "/run/launcher"),
)
"""Folder of a node -> where the node sees it. Only these: the rest of the file system is shared."""

SHARED_MOUNT = "/var/lib/launcher-lab"
"""Where every node sees the lab's shared folder: manifests name the lab's images by this path."""

SYSTEM_ROOT = "/run/launcher-lab-system/root"
"""Where a node of another release sees that release's root; only its libvirtd and guests run from there."""

OWNER_FILE = "owner.json"
STATE_FILE = "state.json"


@dataclass(frozen=True, slots=True)
class LabLayout:
    """The folder of one lab. Keep its path short: sockets lie below it."""

    root: Path

    @property
    def owner(self) -> Path:
        """The process whose end ends the lab."""
        return self.root / OWNER_FILE

    @property
    def state(self) -> Path:
        """What ``lab status`` reads."""
        return self.root / STATE_FILE

    @property
    def supervisor_log(self) -> Path:
        """The last words of a detached lab's supervisor."""
        return self.root / "supervisor.log"

    @property
    def hosts(self) -> Path:
        """/etc/hosts of all nodes."""
        return self.root / "hosts"

    @property
    def pki(self) -> Path:
        """Certificates of the agents."""
        return self.root / "pki"

    @property
    def shared(self) -> Path:
        """A folder for images and disks that every node sees, under this path and under SHARED_MOUNT."""
        return self.root / "shared"

    def node(self, name: str) -> NodeLayout:
        """The folder of the node ``name``."""
        return NodeLayout(self.root / name)


@dataclass(frozen=True, slots=True)
class NodeLayout:
    """The folder of one node."""

    root: Path

    @property
    def libvirt_socket(self) -> Path:
        """libvirtd's read-write socket; inside the node it is at the usual place, too."""
        return self.root / "run" / "libvirt-sock"

    @property
    def libvirt_uri(self) -> str:
        """Reaches libvirtd from inside and outside the node."""
        return f"qemu+unix:///system?socket={self.libvirt_socket}"

    @property
    def agent_socket(self) -> Path:
        """The agent's API, the same path inside and outside the node."""
        return self.root / "launcherd.sock"

    @property
    def agent_config(self) -> Path:
        """The agent's configuration."""
        return self.root / "launcherd.toml"

    @property
    def agent_log(self) -> Path:
        """What the agent printed."""
        return self.root / "log" / "launcherd.log"

    @property
    def libvirtd_log(self) -> Path:
        """libvirtd's log; what it printed before logging began is beside it."""
        return self.root / "log" / "libvirtd.log"

    @property
    def libvirtd_output(self) -> Path:
        """What libvirtd printed."""
        return self.root / "log" / "libvirtd.out"

    @property
    def hugepages(self) -> Path:
        """Mount point of hugetlbfs."""
        return self.root / "huge"

    @property
    def no_kvm(self) -> Path:
        """The file that hides /dev/kvm."""
        return self.root / "no-kvm"

    @property
    def folders(self) -> tuple[Path, ...]:
        """Everything that must exist before the node starts."""
        extra = ("etc/qemu", "log/qemu", "cache/qemu/capabilities", "huge", "cgroup")
        return tuple(self.root / name for name in (*(folder for folder, _ in BINDS), *extra))

    def outside(self, path: str | PurePosixPath) -> Path:
        """Where a path of the node's own view lies for everybody else (unchanged when it is shared)."""
        inside = PurePosixPath(path)
        for folder, target in BINDS:
            if inside.is_relative_to(target):
                return self.root / folder / inside.relative_to(target)
        return Path(inside)

    def check(self) -> None:
        """Refuse a folder in which a socket's path would be too long.

        Raises:
            InvalidRequest: naming the longest socket.
        """
        longest = self.root / "run" / "libvirt-admin-sock"
        length = len(bytes(longest))
        if length > SUN_PATH_MAX:
            raise InvalidRequest(
                [
                    Violation(
                        field="dir",
                        type="FieldValueInvalid",
                        value=str(self.root),
                        message=f"too long: {longest} has {length} bytes, a socket takes {SUN_PATH_MAX}",
                    )
                ],
                hint="choose a shorter folder, such as /tmp/lab",
            )
