# SPDX-License-Identifier: Apache-2.0
"""Whether an instance can be migrated live, every reason against, and which disks must be copied. Pure.

Reasons are those of the API's LiveMigratable condition.
"""

from __future__ import annotations

from collections.abc import Iterator

from launcher.agent.disks import unsettled
from launcher.agent.functions import functions_of
from launcher.agent.host_devices import staying
from launcher.agent.records import InstanceRecord
from launcher.plan.devices.model import DiskPlan, HostdevPlan
from launcher.plan.model import VMPlan
from launcher.plan.steps import CreateImage, FetchContainerDisk, MakeIso, MakeMetricsDisk

Finding = tuple[str, str]
HOST_DEVICE = "HostDeviceNotLiveMigratable"

_MAKERS = (CreateImage, FetchContainerDisk, MakeIso, MakeMetricsDisk)


def migration_findings(record: InstanceRecord) -> tuple[Finding, ...]:
    """(reason, message) of everything that forbids a live migration; empty: it can be migrated."""
    plan = record.plan
    findings: list[Finding] = []
    findings.extend(_host_devices(record))
    if plan.launch_security is not None:
        kind = plan.launch_security.type
        reason = "TDXNotLiveMigratable" if kind == "tdx" else "SEVNotLiveMigratable"
        findings.append((reason, f"guests under {kind} launch security cannot be migrated"))
    if plan.features.hyperv_mode == "passthrough":
        findings.append(("HypervPassthroughNotLiveMigratable", "hypervPassthrough depends on this host"))
    if _has_tsc_of_its_host(plan):
        message = "CPU feature invtsc promises the frequency of this host, and none is fixed"
        findings.append(("NoTSCFrequencyNotLiveMigratable", message))
    changing = unsettled(record)
    if changing:
        names = ", ".join(changing)
        findings.append(("DisksNotLiveMigratable", f"volumes that are being plugged or unplugged: {names}"))
    moving = frozenset(move.name for move in record.moving)
    local = [disk.name for disk in plan.devices.disks if disk.name not in moving and _stays(record, disk)]
    if local:
        findings.append(
            ("DisksNotLiveMigratable", f"volumes that only this node reaches: {', '.join(local)}")
        )
    tracked = [disk.name for disk in plan.devices.disks if disk.tracking is not None]
    if tracked:
        names = ", ".join(tracked)
        findings.append(("ChangedBlockTrackingNotLiveMigratable", f"what tracks changes stays here: {names}"))
    if plan.devices.filesystems:
        names = ", ".join(filesystem.name for filesystem in plan.devices.filesystems)
        findings.append(("VirtIOFSNotLiveMigratable", f"virtiofs shares stay on their host: {names}"))
    given = [name for name, one in record.allocations.attachments.items() if not one.device]
    if given:
        names = ", ".join(sorted(given))
        findings.append(
            ("InterfaceNotLiveMigratable", f"links that were handed in stay on their host: {names}")
        )
    fixed = [plugin.name for plugin in plan.devices.plugins if not plugin.migrate]
    if fixed:
        findings.append(("InterfaceNotLiveMigratable", f"bindings that do not move: {', '.join(fixed)}"))
    return tuple(findings)


def disks_to_copy(record: InstanceRecord) -> tuple[str, ...]:
    """Targets (``vda`` …) of the writable disks whose file the agent made on this node alone, and of those
    that go to another claim."""
    moving = frozenset(move.name for move in record.moving)
    own = {s.path for s in record.plan.steps if isinstance(s, CreateImage | MakeIso) and not _kept(s)}
    return tuple(
        disk.target
        for disk in record.plan.devices.disks
        if disk.source is not None
        and (disk.name in moving or (disk.source.path in own and not disk.readonly))
    )


def _host_devices(record: InstanceRecord) -> Iterator[Finding]:
    """Those that move do so by themselves; virtual functions are given back, if they can be."""
    stays = staying(record)
    if stays:
        yield HOST_DEVICE, "; ".join(stays)
    fixed = [one.name for one in functions_of(record) if on_root_complex(record.plan, one)]
    if fixed:
        message = f"virtual functions on the root complex cannot be unplugged: {', '.join(fixed)}"
        yield "SRIOVNotLiveMigratable", message


def on_root_complex(plan: VMPlan, device: HostdevPlan) -> bool:
    """PCI Express has no hotplug there, conventional PCI has."""
    express = any(one.model == "pcie-root-port" for one in plan.devices.controllers)
    machine = plan.boot.machine.removeprefix("pc-")
    seat = device.address
    return seat is not None and seat.bus == 0 and (express or machine.startswith(("q35", "virt")))


def _has_tsc_of_its_host(plan: VMPlan) -> bool:
    """QEMU does not let such a guest go: its clock would run at another pace."""
    fixed = any(timer.frequency for timer in plan.clock.timers) if plan.clock is not None else False
    asked = any(f.name == "invtsc" and f.policy in ("require", "force") for f in plan.cpu.features)
    return asked and not fixed and plan.identity.virt == "kvm"


def _stays(record: InstanceRecord, disk: DiskPlan) -> bool:
    """A user's file or device (hostDisk, claim) that was not said to be shared."""
    if disk.source is None:
        return False
    made = (s.path for s in record.plan.steps if isinstance(s, _MAKERS) and not _kept(s))
    if disk.source.path in made:
        return False
    volume = next((v for v in record.defaulted.spec.volumes if v.name == disk.name), None)
    if volume is None:
        return False
    if volume.host_disk is not None:
        return not volume.host_disk.shared
    claim = None
    if volume.persistent_volume_claim is not None:
        claim = volume.persistent_volume_claim.claim_name
    elif volume.data_volume is not None:
        claim = volume.data_volume.name
    place = record.allocations.claims.get(claim) if claim is not None else None
    return place is None or not place.shared


def _kept(step: CreateImage | FetchContainerDisk | MakeIso | MakeMetricsDisk) -> bool:
    return isinstance(step, CreateImage) and step.keep
