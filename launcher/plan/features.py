# SPDX-License-Identifier: Apache-2.0
"""Hypervisor features, Hyper-V enlightenments among them. Pure."""

from __future__ import annotations

from launcher.plan import versions
from launcher.plan.context import PlanContext
from launcher.plan.model import FeaturesPlan, HypervFlag
from launcher.spec.model import FeatureHyperv, Features, FeatureState, TLBFlush

# Retries that hypervisors recommend to Windows; libvirt accepts 4095 and more.
SPINLOCK_RETRIES = 4096


def features(context: PlanContext) -> FeaturesPlan:
    """All of ``<features>``."""
    asked = context.domain.features or Features()
    return FeaturesPlan(
        acpi=_acpi(context, asked),
        apic=asked.apic is not None and asked.apic.enabled is not False,
        apic_eoi=_end_of_interrupt(asked),
        smm=_enabled(asked.smm) is True,
        hyperv=_hyperv(context, asked.hyperv),
        hyperv_mode=_hyperv_mode(asked),
        kvm_hidden=bool(asked.kvm.hidden) if asked.kvm is not None else None,
        kvm_hint_dedicated=True if context.arch.hint_dedicated and context.dedicated else None,
        pvspinlock=_enabled(asked.pvspinlock),
        pmu=False if _without_pmu(context) else None,
        vmport=False if context.arch.vmport else None,
    )


def _acpi(context: PlanContext, asked: Features) -> bool:
    if asked.acpi is None or asked.acpi.enabled is None:
        return context.arch.name != "s390x"
    return asked.acpi.enabled


def _end_of_interrupt(asked: Features) -> bool | None:
    return True if asked.apic is not None and asked.apic.end_of_interrupt else None


def _without_pmu(context: PlanContext) -> bool:
    security = context.domain.launch_security
    return (security is not None and security.tdx is not None) or (context.realtime and context.dedicated)


def _hyperv_mode(asked: Features) -> str | None:
    passthrough = asked.hyperv_passthrough
    if asked.hyperv is not None or passthrough is None or passthrough.enabled is False:
        return None
    return "passthrough"


def hyperv_left_out(context: PlanContext) -> tuple[str, ...]:
    """The enlightenments of the manifest that are not in the plan: without KVM there is nobody to provide
    them, and QEMU does not start with some (vpindex and all that need it, evmcs)."""
    asked = context.domain.features
    if asked is None or asked.hyperv is None:
        return ()
    return tuple(flag.name for flag in _asked_flags(context, asked.hyperv) if _is_left_out(context, flag))


def _hyperv(context: PlanContext, asked: FeatureHyperv | None) -> tuple[HypervFlag, ...] | None:
    if asked is None:
        return None
    flags = _asked_flags(context, asked)
    kept = tuple(flag for flag in flags if not _is_left_out(context, flag))
    return kept if kept or not flags else None


def _is_left_out(context: PlanContext, flag: HypervFlag) -> bool:
    if not context.emulated or not flag.enabled:
        return False
    caps = context.facts.caps(context.arch, context.virt)
    return caps is not None and bool(caps.hyperv) and flag.name not in caps.hyperv


def _asked_flags(context: PlanContext, asked: FeatureHyperv) -> tuple[HypervFlag, ...]:
    flags = (
        _flag("relaxed", asked.relaxed),
        _flag("vapic", asked.vapic),
        _spinlocks(asked),
        _flag("vpindex", asked.vpindex),
        _flag("runtime", asked.runtime),
        _flag("synic", asked.synic),
        _stimer(asked),
        _flag("reset", asked.reset),
        _vendor_id(asked),
        _flag("frequencies", asked.frequencies),
        _flag("reenlightenment", asked.reenlightenment),
        _tlbflush(context, asked.tlbflush),
        _flag("ipi", asked.ipi),
        _flag("evmcs", asked.evmcs),
    )
    return tuple(flag for flag in flags if flag is not None)


def _enabled(state: FeatureState | None) -> bool | None:
    """None when absent; an empty struct means on."""
    return None if state is None else state.enabled is not False


def _flag(name: str, state: FeatureState | None) -> HypervFlag | None:
    return None if state is None else HypervFlag(name=name, enabled=state.enabled is not False)


def _spinlocks(asked: FeatureHyperv) -> HypervFlag | None:
    if asked.spinlocks is None:
        return None
    enabled = asked.spinlocks.enabled is not False
    retries = asked.spinlocks.spinlocks
    return HypervFlag(
        name="spinlocks",
        enabled=enabled,
        retries=SPINLOCK_RETRIES if enabled and retries is None else retries,
    )


def _stimer(asked: FeatureHyperv) -> HypervFlag | None:
    if asked.synictimer is None:
        return None
    return HypervFlag(
        name="stimer", enabled=asked.synictimer.enabled is not False, direct=_enabled(asked.synictimer.direct)
    )


def _vendor_id(asked: FeatureHyperv) -> HypervFlag | None:
    if asked.vendorid is None:
        return None
    return HypervFlag(
        name="vendor_id", enabled=asked.vendorid.enabled is not False, value=asked.vendorid.vendorid
    )


def _tlbflush(context: PlanContext, asked: TLBFlush | None) -> HypervFlag | None:
    if asked is None:
        return None
    enabled = asked.enabled is not False
    if context.facts.libvirt_version < versions.TLBFLUSH_CHILDREN:
        return HypervFlag(name="tlbflush", enabled=enabled)
    return HypervFlag(
        name="tlbflush",
        enabled=enabled,
        direct=_enabled(asked.direct),
        extended=_enabled(asked.extended),
    )
