# SPDX-License-Identifier: Apache-2.0
"""A lab: a private switch and its nodes, in one folder, owned by the process that made it.

    with Lab() as lab:
        a = lab.node("a")
        a.run("virsh", "list")

Everything ends with the owner, also when it is killed; then only the folder stays, for the next lab to sweep.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from launcher.errors import Conflict, HostUnsupported, InvalidRequest, Violation
from launcher.lab import capabilities_cache, conf, emulator, pki, switch
from launcher.lab.image import Image
from launcher.lab.layout import SHARED_MOUNT, LabLayout
from launcher.lab.namespaces import Holder
from launcher.lab.node import Node, NodePlan
from launcher.lab.process import ProcessId

FOLDER_PREFIX = "launcher-lab-"
MAX_NODES = 100
_NAME = re.compile(r"[a-z]([a-z0-9-]{0,13}[a-z0-9])?")
_RESERVED = frozenset({"hosts", "pki", "pki-qemu", "shared", "switch", "localhost"})


class Lab:
    """A private switch with up to 100 nodes.

    Args:
        folder: where everything lies; without one, a new folder in the system's temporary directory.
        names: the nodes there can be. Each starts when ``node`` first asks for it.
        kvm: let guests use the machine's KVM. Without, nodes see none and guests run emulated anywhere.
        systems: for a node of another Debian release, its root folder (see ``system.debian``).
        cache: what survives the lab (guest images, libvirt's knowledge of QEMU).

    Raises:
        HostUnsupported: not root, or no libvirtd, or the namespaces cannot be made.
        InvalidRequest: a bad name, or a folder whose path is too long for sockets.
        Conflict: another process that still runs owns the folder.
    """

    def __init__(
        self,
        folder: Path | None = None,
        *,
        names: Sequence[str] = ("a", "b"),
        kvm: bool = False,
        systems: Mapping[str, Path] | None = None,
        cache: Path | None = None,
    ) -> None:
        reason = missing()
        if reason:
            raise HostUnsupported("what the playground needs", reason, hint="run as root after `make deps`")
        check_names(names)
        sweep(Path(tempfile.gettempdir()), FOLDER_PREFIX)
        root = folder if folder is not None else Path(tempfile.mkdtemp(prefix=FOLDER_PREFIX))
        self.layout = LabLayout(root)
        self.dir = root
        self.names = tuple(names)
        self.nodes: dict[str, Node] = {}
        self._kvm = kvm
        self._systems = dict(systems or {})
        self._cache = cache or capabilities_cache.default_folder()
        self._stand_in = None if kvm else emulator.stand_in(self._cache, self._systems.values())
        self.layout.node(max(names, key=len)).check()
        _claim(self.layout)
        self.layout.shared.mkdir(exist_ok=True)
        self.layout.hosts.write_text(conf.hosts(self.addresses))
        with ExitStack() as undo:
            undo.callback(shutil.rmtree, root, ignore_errors=True)
            self._holder = undo.enter_context(closing(Holder()))
            self.switch = switch.build(self._holder)
            undo.pop_all()

    @property
    def addresses(self) -> dict[str, str]:
        """Node name -> address, of all nodes there can be."""
        return {name: switch.address(index) for index, name in enumerate(self.names, 1)}

    @property
    def holder(self) -> ProcessId:
        """The process that holds the switch."""
        return self._holder.process_id

    @property
    def shared(self) -> Path:
        """A folder for images that every node sees under the same path."""
        return self.layout.shared

    def node(self, name: str) -> Node:
        """The node ``name``, started (with libvirtd, without agent) when it is not yet running."""
        if name not in self.nodes:
            if name not in self.names:
                raise InvalidRequest([_bad("name", name, f"this lab's nodes are {', '.join(self.names)}")])
            plan = NodePlan(
                name=name,
                index=self.names.index(name) + 1,
                addresses=self.addresses,
                layout=self.layout.node(name),
                lab=self.layout,
                cache=self._cache,
                kvm=self._kvm,
                system=self._systems.get(name),
                stand_in=self._stand_in,
            )
            self.nodes[name] = Node(plan, self.switch)
        return self.nodes[name]

    def install(self, image: Image, name: str) -> Image:
        """Copy ``image`` where every node sees it as ``oci:/var/lib/launcher-lab/NAME:latest``."""
        target = self.shared / name
        if not target.exists():
            shutil.copytree(image.folder, target)
        return Image(folder=Path(SHARED_MOUNT) / name)

    def start_agents(self) -> None:
        """Start every node and its agent, and wait until all answer and have libvirt."""
        self.create_pki()
        nodes = [self.node(name) for name in self.names]
        waiting = [node for node in nodes if node.agent_pid is None]
        for node in waiting:
            node.start_agent(wait=False)
        for node in waiting:
            node.wait_agent()
        for node in waiting:
            node.wait_serving()

    def create_pki(self) -> None:
        """Make the agents' certificates unless they exist."""
        if not self.layout.pki.exists():
            pki.create(self.layout.pki, self.addresses)

    def close(self, *, keep_folder: bool = False) -> None:
        """End everything at once and remove the folder. Closing twice is fine."""
        for node in self.nodes.values():
            node.close()
        self.nodes.clear()
        self._holder.close()
        if keep_folder:
            self.layout.owner.unlink(missing_ok=True)
        else:
            shutil.rmtree(self.dir, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def missing() -> str:
    """Why no lab can run here; empty when it can."""
    if os.geteuid() != 0:
        return "it is not run as root"
    absent = [
        program
        for program in ("libvirtd", "virsh", "qemu-system-x86_64", "unshare", "nsenter", "ip", "openssl")
        if shutil.which(program, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin") is None
    ]
    return f"these programs are missing: {', '.join(absent)}" if absent else ""


def sweep(parent: Path, prefix: str = "") -> list[Path]:
    """Remove the folders in ``parent`` whose owner has ended; returns them."""
    removed = []
    for owner in parent.glob(f"{prefix}*/{LabLayout(parent).owner.name}"):
        if owner_of(owner.parent) is None:
            shutil.rmtree(owner.parent, ignore_errors=True)
            removed.append(owner.parent)
    return removed


def owner_of(folder: Path) -> ProcessId | None:
    """The running process that owns the lab in ``folder``; None when there is none."""
    try:
        found = msgspec.json.decode(LabLayout(folder).owner.read_bytes(), type=ProcessId)
    except (OSError, msgspec.DecodeError):
        return None
    return found if found.alive() else None


def _claim(layout: LabLayout) -> None:
    owner = owner_of(layout.root)
    if owner is not None:
        raise Conflict(f"a lab runs in {layout.root} already (process {owner.pid})")
    if layout.owner.exists():
        shutil.rmtree(layout.root)
    layout.root.mkdir(mode=0o700, parents=True, exist_ok=True)
    layout.owner.write_bytes(msgspec.json.encode(ProcessId.own()))


def check_names(names: Sequence[str]) -> None:
    """Refuse names that cannot be a folder, a host name and a word of a command line.

    Raises:
        InvalidRequest: naming each bad one.
    """
    found = [
        _bad("names", name, "a node's name is 1 to 15 lower-case letters, digits and hyphens")
        for name in names
        if not _NAME.fullmatch(name) or name in _RESERVED or names.count(name) > 1
    ]
    if not 1 <= len(names) <= MAX_NODES:
        found.append(_bad("names", str(len(names)), f"a lab has 1 to {MAX_NODES} nodes"))
    if found:
        raise InvalidRequest(found)


def _bad(field: str, value: str, message: str) -> Violation:
    return Violation(field=field, type="FieldValueInvalid", value=value, message=message)
