# SPDX-License-Identifier: Apache-2.0
"""Hypervisor features, Hyper-V enlightenments among them."""

from __future__ import annotations

from launcher.spec.model.base import Model
from launcher.spec.model.scalars import Int64


class FeatureAPIC(Model, frozen=True, kw_only=True):
    """API type ``FeatureAPIC``."""

    enabled: bool | None = None
    end_of_interrupt: bool | None = None


class FeatureSpinlocks(Model, frozen=True, kw_only=True):
    """API type ``FeatureSpinlocks``.

    ``spinlocks`` is the number of retries before the hypervisor is told (4096 when absent).
    """

    enabled: bool | None = None
    spinlocks: Int64 | None = None


class FeatureState(Model, frozen=True, kw_only=True):
    """API type ``FeatureState``."""

    enabled: bool | None = None


class FeatureVendorID(Model, frozen=True, kw_only=True):
    """API type ``FeatureVendorID``.

    ``vendorid`` is what the guest sees as the hypervisor's vendor: at most 12 characters.
    """

    enabled: bool | None = None
    vendorid: str | None = None


class SyNICTimer(Model, frozen=True, kw_only=True):
    """API type ``SyNICTimer``."""

    direct: FeatureState | None = None
    enabled: bool | None = None


class TLBFlush(Model, frozen=True, kw_only=True):
    """API type ``TLBFlush``."""

    direct: FeatureState | None = None
    enabled: bool | None = None
    extended: FeatureState | None = None


class FeatureHyperv(Model, frozen=True, kw_only=True):
    """API type ``FeatureHyperv``."""

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
    """API type ``FeatureKVM``."""

    hidden: bool | None = None


class HyperVPassthrough(Model, frozen=True, kw_only=True):
    """API type ``HyperVPassthrough``."""

    enabled: bool | None = None


class Features(Model, frozen=True, kw_only=True):
    """API type ``Features``."""

    acpi: FeatureState | None = None
    apic: FeatureAPIC | None = None
    hyperv: FeatureHyperv | None = None
    hyperv_passthrough: HyperVPassthrough | None = None
    kvm: FeatureKVM | None = None
    pvspinlock: FeatureState | None = None
    smm: FeatureState | None = None
