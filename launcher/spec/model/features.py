# SPDX-License-Identifier: Apache-2.0
"""Hypervisor features, Hyper-V enlightenments among them."""

from __future__ import annotations

from launcher.spec.model.base import Model
from launcher.spec.model.scalars import Int64


class FeatureAPIC(Model, frozen=True, kw_only=True):
    """API type ``FeatureAPIC``.

    The interrupt controller of x86.

    enabled: whether it is on; on when the feature is named
    end_of_interrupt: the guest can signal the end of an interrupt without leaving to the host
    """

    enabled: bool | None = None
    end_of_interrupt: bool | None = None


class FeatureSpinlocks(Model, frozen=True, kw_only=True):
    """API type ``FeatureSpinlocks``.

    Spin lock notification.

    enabled: whether it is on; a switch that is named without it is on
    spinlocks: retries before the hypervisor is told
    """

    enabled: bool | None = None
    spinlocks: Int64 | None = None


class FeatureState(Model, frozen=True, kw_only=True):
    """API type ``FeatureState``.

    A switch.

    enabled: whether it is on; a switch that is named without it is on
    """

    enabled: bool | None = None


class FeatureVendorID(Model, frozen=True, kw_only=True):
    """API type ``FeatureVendorID``.

    The vendor that the guest reads.

    enabled: whether it is on; a switch that is named without it is on
    vendorid: the text, at most 12 characters
    """

    enabled: bool | None = None
    vendorid: str | None = None


class SyNICTimer(Model, frozen=True, kw_only=True):
    """API type ``SyNICTimer``.

    Synthetic timers.

    direct: expiry is delivered as an interrupt instead of a message
    enabled: whether it is on; a switch that is named without it is on
    """

    direct: FeatureState | None = None
    enabled: bool | None = None


class TLBFlush(Model, frozen=True, kw_only=True):
    """API type ``TLBFlush``.

    Paravirtual TLB flushes.

    direct: also for guests nested in the guest
    enabled: whether it is on; a switch that is named without it is on
    extended: also for single address ranges
    """

    direct: FeatureState | None = None
    enabled: bool | None = None
    extended: FeatureState | None = None


class FeatureHyperv(Model, frozen=True, kw_only=True):
    """API type ``FeatureHyperv``.

    Hyper-V enlightenments; one that needs another turns it on.

    evmcs: faster nested virtualization (enlightened VMCS); also requires the CPU flag vmx
    frequencies: registers with the frequencies of TSC and APIC
    ipi: paravirtual interrupts between CPUs
    reenlightenment: notification when the TSC's frequency changes by a migration
    relaxed: no watchdog timeouts on an overcommitted host
    reset: a register that resets the machine
    runtime: a register with the time that a CPU really ran
    spinlocks: the guest tells when it spins on a lock for long
    synic: the synthetic interrupt controller
    synictimer: synthetic timers
    tlbflush: paravirtual TLB flushes
    vapic: paravirtual APIC access
    vendorid: the vendor that the guest reads
    vpindex: a register with the CPU's index
    """

    evmcs: FeatureState | None = None
    frequencies: FeatureState | None = None
    ipi: FeatureState | None = None
    reenlightenment: FeatureState | None = None
    relaxed: FeatureState | None = None
    reset: FeatureState | None = None
    runtime: FeatureState | None = None
    spinlocks: FeatureSpinlocks | None = None
    synic: FeatureState | None = None
    synictimer: SyNICTimer | None = None
    tlbflush: TLBFlush | None = None
    vapic: FeatureState | None = None
    vendorid: FeatureVendorID | None = None
    vpindex: FeatureState | None = None


class FeatureKVM(Model, frozen=True, kw_only=True):
    """API type ``FeatureKVM``.

    What the guest sees of KVM.

    hidden: the guest does not see that it runs on KVM
    """

    hidden: bool | None = None


class HyperVPassthrough(Model, frozen=True, kw_only=True):
    """API type ``HyperVPassthrough``.

    All of Hyper-V that the host offers.

    enabled: whether it is on; a switch that is named without it is on
    """

    enabled: bool | None = None


class Features(Model, frozen=True, kw_only=True):
    """API type ``Features``.

    Hypervisor features. hyperv and hypervPassthrough exclude each other.

    acpi: ACPI tables: power button, hotplug
    apic: the interrupt controller of x86
    hyperv: single Hyper-V enlightenments, mostly for Windows
    hyperv_passthrough: all Hyper-V enlightenments that the host offers
    kvm: what the guest sees of KVM
    pvspinlock: paravirtual spin locks
    smm: system management mode, which secure boot needs
    """

    acpi: FeatureState | None = None
    apic: FeatureAPIC | None = None
    hyperv: FeatureHyperv | None = None
    hyperv_passthrough: HyperVPassthrough | None = None
    kvm: FeatureKVM | None = None
    pvspinlock: FeatureState | None = None
    smm: FeatureState | None = None
