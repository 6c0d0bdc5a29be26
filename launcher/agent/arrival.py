# SPDX-License-Identifier: Apache-2.0
"""What of the host itself could make an incoming migration fail: machine, firmware, disks, TLS, clock.

Each check gives sentences and changes nothing. They look at the real XML; planning looks at the manifest.
"""

from __future__ import annotations

import asyncio
import datetime
import shutil
from collections.abc import Callable
from pathlib import Path

from launcher.agent.instances import Instances
from launcher.agent.landing import Landings
from launcher.domain.read import read_domain
from launcher.domain.reading import Parsed, attribute, parse, words
from launcher.errors import HostUnsupported, InvalidRequest, StorageError
from launcher.host.certificates import examine
from launcher.host.config import Config
from launcher.host.openers import writers
from launcher.hypervisor.port import Hypervisor
from launcher.migration.peer import PrepareRequest, SharedDisk
from launcher.migration.reservation import Check
from launcher.storage.capacity import virtual_size
from launcher.units import human_bytes

SKEW_S = 60.0
"""More than this between two hosts' clocks is no accident: certificates, logs and the guest's own time go
wrong with it. The way of the request takes a part of it."""
LEAST_TLS_S = 600.0
"""A certificate must live at least so long, however short the migration may be."""
_NETWORK = Path("/sys/class/net")


class ArrivalChecks:
    """The inventory for one node. ``now`` is the time of day in seconds since 1970."""

    def __init__(
        self,
        config: Config,
        hypervisor: Hypervisor,
        instances: Instances,
        landings: Landings,
        now: Callable[[], float],
    ) -> None:
        self._config = config
        self._hypervisor = hypervisor
        self._instances = instances
        self._landings = landings
        self._now = now

    def all(self) -> tuple[Check, ...]:
        """In the order in which their findings are told."""
        return (
            Check(name="the machine", run=self._machine),
            Check(name="firmware and devices", run=self._devices),
            Check(name="shared disks", run=self._disks),
            Check(name="space", run=self._space),
            Check(name="certificates", run=self._certificates),
            Check(name="the clock", run=self._clock),
        )

    async def _machine(self, request: PrepareRequest) -> tuple[str, ...]:
        root = _domain(request)
        arch, machine = attribute(root, "os/type", "arch"), attribute(root, "os/type", "machine")
        kind = root.get("type", "")
        texts = await self._hypervisor.domain_capabilities(arch, machine)
        if not texts:
            said = f" (it came from QEMU {_version(request.source_qemu_version)})"
            return (f"QEMU here does not know the machine {machine} for {arch}{said}",)
        offered = {
            words(parse(text, what="domain capabilities", tag="domainCapabilities"), "domain")
            for text in texts
        }
        if kind and kind not in offered:
            return (f"the guest runs by {kind}, this node offers {', '.join(sorted(offered))}",)
        return ()

    async def _devices(self, request: PrepareRequest) -> tuple[str, ...]:
        return await asyncio.to_thread(_host_findings, _domain(request), self._config.network.bridge)

    async def _disks(self, request: PrepareRequest) -> tuple[str, ...]:
        view = read_domain(request.domain_xml)
        moved = frozenset(disk.volume for disk in request.moved)  # what these were is not needed here
        stay = [disk for disk in view.disks if disk.alias not in moved]
        formats = {disk.source: disk.format for disk in stay}
        shareable = {disk.source for disk in stay if disk.shareable or disk.readonly}
        held = {
            disk.source.path: record.key
            for record in self._instances.records()
            if record.plan.identity.uuid != view.uuid and record.phase not in ("Succeeded", "Failed")
            for disk in record.plan.devices.disks
            if disk.source is not None
        }
        findings = [
            f"the disk {path} is in use on this node, by {held[path]}"
            for path in sorted(formats.keys() & held.keys() - shareable)
        ]
        sizes = await asyncio.to_thread(_wrong_sizes, request.disks, formats)
        shared = [disk.path for disk in request.disks if disk.path not in shareable and disk.path not in held]
        writing = await asyncio.to_thread(writers, shared)
        others = [
            f"the disk {path} is written on this node by {who}" for path, who in sorted(writing.items())
        ]
        return (*findings, *sizes, *others)

    async def _space(self, request: PrepareRequest) -> tuple[str, ...]:
        if not request.copied_bytes:
            return ()
        free = (await asyncio.to_thread(shutil.disk_usage, self._config.state_dir)).free
        if request.copied_bytes <= free:
            return ()
        wanted, left = human_bytes(request.copied_bytes), human_bytes(free)
        return (f"the disks to be copied take {wanted}, {self._config.state_dir} has {left} left",)

    async def _certificates(self, request: PrepareRequest) -> tuple[str, ...]:
        if not request.tls:
            return ()
        try:
            found = await asyncio.to_thread(examine, Path(self._config.migration.tls_dir))
        except HostUnsupported as error:
            return (str(error),)
        findings = []
        if found.server_until < self._now() + max(request.deadline_s, LEAST_TLS_S):
            findings.append(
                f"the certificate of QEMU here ends {_at(found.server_until)}, before the migration may"
            )
        try:
            landing = await asyncio.to_thread(self._landings.find, request.network)
            self._landings.server(found, landing)
        except HostUnsupported as error:
            findings.append(str(error))
        except InvalidRequest:
            pass  # Nobody can come in there; the check of the address says so.
        return tuple(findings)

    async def _clock(self, request: PrepareRequest) -> tuple[str, ...]:
        skew_s = abs(self._now() - request.source_time)
        if not request.source_time or skew_s <= SKEW_S:
            return ()
        return (f"the clocks of the two nodes are {skew_s:.0f} s apart; up to {SKEW_S:.0f} s are accepted",)


def _host_findings(root: Parsed, bridge: str) -> tuple[str, ...]:
    """Files, programs and links that the domain needs of this host."""
    findings = []
    for path in ("os/loader", "os/nvram[@template]"):
        node = root.find(path)
        needed = (node.text or "") if node is not None and path == "os/loader" else ""
        needed = needed or (node.get("template", "") if node is not None else "")
        if needed and not Path(needed).exists():
            findings.append(f"the firmware {needed} is not on this node")
    if root.find("devices/tpm/backend[@type='emulator']") is not None and shutil.which("swtpm") is None:
        findings.append("the guest has a TPM, and swtpm is not installed here")
    if root.find("devices/vsock") is not None and not Path("/dev/vhost-vsock").exists():
        findings.append("the guest has a vsock device, and there is no /dev/vhost-vsock here")
    taps = root.find("devices/interface[@type='ethernet']") is not None
    if taps and bridge and not (_NETWORK / bridge).exists():
        findings.append(f"there is no bridge {bridge} (network.bridge) on this node")
    return tuple(findings)


def _wrong_sizes(disks: tuple[SharedDisk, ...], formats: dict[str, str]) -> tuple[str, ...]:
    """Disks that are there and are not what the source has. Those that are missing are found elsewhere."""
    findings = []
    for disk in disks:
        path = Path(disk.path)
        if not path.exists():
            continue
        try:
            size = virtual_size(path, qcow2=formats.get(disk.path) == "qcow2")
        except StorageError as error:
            findings.append(str(error))
            continue
        if size != disk.bytes:
            findings.append(f"the disk {disk.path} has {size} bytes here and {disk.bytes} on the source")
    return tuple(findings)


def _domain(request: PrepareRequest) -> Parsed:
    return parse(request.domain_xml, what="domain XML", tag="domain")


def _version(number: int) -> str:
    return f"{number // 1_000_000}.{number // 1000 % 1000}.{number % 1000}" if number else "unknown"


def _at(seconds: float) -> str:
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
