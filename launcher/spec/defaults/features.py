# SPDX-License-Identifier: Apache-2.0
"""Defaults of features and timers: what is named is on, and what Hyper-V flags need comes with them."""

from __future__ import annotations

from typing import Any, TypeVar

from msgspec.structs import replace

from launcher.spec.defaults.architectures import architecture
from launcher.spec.defaults.rebuild import with_domain
from launcher.spec.defaults.settings import DefaultsSettings
from launcher.spec.model import (
    CPU,
    CPUFeature,
    FeatureHyperv,
    Features,
    FeatureState,
    SyNICTimer,
    TLBFlush,
    VirtualMachineInstance,
)

# Retries of a spinlock when none are given: what KubeVirt uses; QEMU accepts no fewer than 4095.
SPINLOCK_RETRIES = 4096

# (flag, what it needs), in an order in which one pass is enough: synictimer needs synic, which needs vpindex.
HYPERV_DEPENDENCIES = (
    ("evmcs", "vapic"),
    ("ipi", "vpindex"),
    ("tlbflush", "vpindex"),
    ("synictimer", "synic"),
    ("synic", "vpindex"),
)

HYPERV_FLAGS = tuple(FeatureHyperv.__struct_fields__)
_SWITCHES = ("acpi", "apic", "hyperv_passthrough", "pvspinlock", "smm")
_TIMERS = ("hpet", "hyperv", "kvm", "pit", "rtc")

_State = TypeVar("_State", bound=Any)


def acpi(vmi: VirtualMachineInstance, _: DefaultsSettings) -> VirtualMachineInstance:
    """ACPI is on for amd64 and arm64, off for s390x."""
    features = vmi.spec.domain.features or Features()
    if features.acpi is not None:
        return vmi
    state = FeatureState(enabled=architecture(vmi.spec.architecture).acpi)
    return with_domain(vmi, features=replace(features, acpi=state))


def feature_states(vmi: VirtualMachineInstance, _: DefaultsSettings) -> VirtualMachineInstance:
    """A feature that is named is enabled unless it says otherwise; spinlocks get their retries."""
    features = vmi.spec.domain.features
    if features is None:
        return vmi
    changes: dict[str, Any] = {}
    for name in _SWITCHES:
        state = getattr(features, name)
        if state is not None and state.enabled is None:
            changes[name] = replace(state, enabled=True)
    if features.hyperv is not None:
        hyperv = _hyperv_states(features.hyperv)
        if hyperv is not features.hyperv:
            changes["hyperv"] = hyperv
    return with_domain(vmi, features=replace(features, **changes)) if changes else vmi


def hyperv_dependencies(vmi: VirtualMachineInstance, _: DefaultsSettings) -> VirtualMachineInstance:
    """A Hyper-V flag that is on turns on what it needs and is absent; evmcs also requires the CPU's vmx."""
    features = vmi.spec.domain.features
    if features is None or features.hyperv is None:
        return vmi
    hyperv = features.hyperv
    for flag, needed in HYPERV_DEPENDENCIES:
        state = getattr(hyperv, flag)
        if state is not None and state.enabled and getattr(hyperv, needed) is None:
            hyperv = replace(hyperv, **{needed: FeatureState(enabled=True)})
    if hyperv is not features.hyperv:
        vmi = with_domain(vmi, features=replace(features, hyperv=hyperv))
    return _require_vmx(vmi) if hyperv.evmcs is not None and hyperv.evmcs.enabled else vmi


def timers(vmi: VirtualMachineInstance, _: DefaultsSettings) -> VirtualMachineInstance:
    """A timer that is named is present unless it says otherwise."""
    clock = vmi.spec.domain.clock
    if clock is None or clock.timer is None:
        return vmi
    changes: dict[str, Any] = {}
    for name in _TIMERS:
        timer = getattr(clock.timer, name)
        if timer is not None and timer.present is None:
            changes[name] = replace(timer, present=True)
    if not changes:
        return vmi
    return with_domain(vmi, clock=replace(clock, timer=replace(clock.timer, **changes)))


def _hyperv_states(hyperv: FeatureHyperv) -> FeatureHyperv:
    changes: dict[str, Any] = {}
    for name in HYPERV_FLAGS:
        before = getattr(hyperv, name)
        if before is None:
            continue
        state = _on(before)
        if isinstance(state, SyNICTimer | TLBFlush) and state.direct is not None:
            state = _with(state, "direct", _on(state.direct))
        if isinstance(state, TLBFlush) and state.extended is not None:
            state = _with(state, "extended", _on(state.extended))
        if name == "spinlocks" and state.enabled and state.spinlocks is None:
            state = replace(state, spinlocks=SPINLOCK_RETRIES)
        if state is not before:
            changes[name] = state
    return replace(hyperv, **changes) if changes else hyperv


def _on(state: _State) -> _State:
    return replace(state, enabled=True) if state.enabled is None else state


def _with(state: _State, name: str, value: object) -> _State:
    return state if getattr(state, name) is value else replace(state, **{name: value})


def _require_vmx(vmi: VirtualMachineInstance) -> VirtualMachineInstance:
    cpu = vmi.spec.domain.cpu or CPU()
    vmx = CPUFeature(name="vmx", policy="require")
    features = tuple(vmx if feature.name == "vmx" else feature for feature in cpu.features)
    if vmx not in features:
        features += (vmx,)
    return vmi if features == cpu.features else with_domain(vmi, cpu=replace(cpu, features=features))
