# SPDX-License-Identifier: Apache-2.0
"""Manifest, host facts and allocations in, the plan of this node out: the one entry of planning. Pure."""

from __future__ import annotations

from launcher.errors import Bug
from launcher.plan import cpu as cpus
from launcher.plan import memory as memories
from launcher.plan.allocations import Allocations
from launcher.plan.capabilities import dedicated_findings, host_findings
from launcher.plan.clock import clock
from launcher.plan.context import PlanContext, plan_context
from launcher.plan.devices.assembly import plan_devices
from launcher.plan.devices.model import DevicesPlan
from launcher.plan.facts import NodeFacts
from launcher.plan.features import features
from launcher.plan.firmware import boot, boot_steps, machine_type
from launcher.plan.ignition import firmware_files, ignition_steps
from launcher.plan.kept import state_steps
from launcher.plan.launch_security import launch_security
from launcher.plan.model import BootPlan, CPUTune, Identity, LifecyclePlan, VMPlan
from launcher.plan.notes import notes
from launcher.plan.numa import guest_numa
from launcher.plan.pinning import cputune
from launcher.plan.refusals import Refusals
from launcher.plan.settings import PlanSettings
from launcher.plan.sysinfo import sysinfo
from launcher.plan.volume_steps import plan_steps
from launcher.spec.model import VirtualMachineInstance

_ON_REBOOT = {"Terminate": "destroy", "Reboot": "restart"}


def make_plan(
    vmi: VirtualMachineInstance, facts: NodeFacts, allocations: Allocations, settings: PlanSettings
) -> VMPlan:
    """Plan a validated and defaulted ``vmi``. The same arguments always give the same plan.

    Raises:
        HostUnsupported: the node lacks something the manifest needs; the error names all of it.
        Exhausted: the CPUs or pages that were allocated do not suffice.
        InvalidSpec: a value can only be judged here, and is wrong.
    """
    context = plan_context(vmi, facts, allocations, settings)
    refusals = Refusals()
    tune = _tune(context, refusals)
    size = memories.page_size(context)
    numa = guest_numa(context, tune, size) if size is not None and tune.vcpus else None
    memory = memories.memory(context)
    identity = _identity(context)
    devices = refusals.attempt(lambda: plan_devices(context), DevicesPlan())
    booting = refusals.attempt(lambda: boot(context), BootPlan(machine=machine_type(context)))
    plan = VMPlan(
        identity=identity,
        vcpus=cpus.vcpus(context),
        cpu=cpus.cpu(context, numa.cells if numa is not None else memories.single_cell(context, memory)),
        cputune=tune,
        iothreads=context.iothreads,
        numatune=numa.tune if numa is not None else None,
        memory=memory,
        backing=memories.backing(context, numa),
        boot=booting,
        sysinfo=sysinfo(context, identity.uuid),
        features=features(context),
        clock=clock(context),
        launch_security=refusals.attempt(lambda: launch_security(context), None),
        firmware_files=refusals.attempt(lambda: firmware_files(context), ()),
        rescue_monitor=context.paths.rescue_monitor if context.settings.rescue_monitor else "",
        lifecycle=_lifecycle(context),
        devices=devices,
        steps=(
            *plan_steps(context, devices),
            *state_steps(context, booting, devices),
            *boot_steps(context),
            *ignition_steps(context),
        ),
        notes=notes(context),
    )
    refusals.add(host_findings(context, plan))
    refusals.require_none()
    return plan


def _tune(context: PlanContext, refusals: Refusals) -> CPUTune:
    """Pins. CPUs that the node does not have at all are another matter than those that others use."""
    missing = tuple(dedicated_findings(context))
    refusals.add(missing)
    return CPUTune() if missing else refusals.attempt(lambda: cputune(context), CPUTune())


def _identity(context: PlanContext) -> Identity:
    firmware = context.domain.firmware
    uuid = context.allocations.uuid.lower()
    asked = (firmware.uuid if firmware is not None else None) or uuid
    if asked.lower() != uuid:
        raise Bug(f"the domain's UUID {uuid} is not the firmware's {asked}")
    return Identity(
        uid=context.allocations.uid,
        uuid=uuid,
        namespace=context.namespace,
        name=context.name,
        domain_name=f"{context.namespace}_{context.name}",
        virt=context.virt,
        arch=context.arch.libvirt,
        emulator=_emulator(context),
    )


def _emulator(context: PlanContext) -> str:
    """Named only for a foreign architecture: for its own, libvirt knows best."""
    if context.arch.name == context.facts.arch or not context.emulated:
        return ""
    guest = context.facts.guest(context.arch)
    return (guest.emulator if guest is not None else "") or f"/usr/bin/{context.arch.emulator}"


def _lifecycle(context: PlanContext) -> LifecyclePlan:
    return LifecyclePlan(
        on_reboot=_ON_REBOOT.get(context.domain.reboot_policy or ""),
        paused=context.vmi.spec.start_strategy == "Paused",
    )
