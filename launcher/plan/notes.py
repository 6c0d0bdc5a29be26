# SPDX-License-Identifier: Apache-2.0
"""Where a plan falls short of the manifest because of the node, in sentences for people. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from launcher.plan import versions
from launcher.plan.context import PlanContext, vcpu_topology
from launcher.plan.features import hyperv_left_out
from launcher.plan.volumes import is_read_only


def notes(context: PlanContext) -> tuple[str, ...]:
    """One sentence for each thing that is done otherwise than asked, with the field it is about."""
    return (
        *_sockets(context),
        *_emulated_model(context),
        *_tlbflush(context),
        *_hyperv(context),
        *_writable(context),
    )


def _sockets(context: PlanContext) -> Iterator[str]:
    asked, got = vcpu_topology(context.vmi).max_sockets, context.topology.max_sockets
    if asked > got:
        why = "more vCPUs than this host allows" if got else f"no CPU hotplug on {context.arch.name}"
        yield f"spec.domain.cpu.maxSockets: {got} instead of {asked}: {why}"


def _emulated_model(context: PlanContext) -> Iterator[str]:
    cpu = context.domain.cpu
    if context.emulated and cpu is not None and cpu.model == "host-passthrough":
        yield "spec.domain.cpu.model: the emulator's maximum; without KVM there is no host CPU"


def _tlbflush(context: PlanContext) -> Iterator[str]:
    features = context.domain.features
    asked = features.hyperv.tlbflush if features is not None and features.hyperv is not None else None
    if asked is None or (asked.direct is None and asked.extended is None):
        return
    if context.facts.libvirt_version < versions.TLBFLUSH_CHILDREN:
        yield "spec.domain.features.hyperv.tlbflush: direct and extended need libvirt 11.0 and are left out"


def _hyperv(context: PlanContext) -> Iterator[str]:
    left_out = hyperv_left_out(context)
    if left_out:
        yield (
            f"spec.domain.features.hyperv: {', '.join(left_out)} left out; without KVM they have no effect, "
            "and QEMU does not start with all of them"
        )


def _writable(context: PlanContext) -> Iterator[str]:
    volumes = {volume.name: volume for volume in context.vmi.spec.volumes}
    for index, disk in enumerate(context.devices.disks):
        volume = volumes.get(disk.name)
        if volume is None or not is_read_only(volume) or disk.disk is None or disk.disk.bus != "sata":
            continue
        yield (
            f"spec.domain.devices.disks[{index}].disk.bus: a disk on sata can be written to, "
            f"though the claim of volume {disk.name} is for reading only"
        )
