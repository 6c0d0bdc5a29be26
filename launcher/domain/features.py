# SPDX-License-Identifier: Apache-2.0
"""``<features>``. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from launcher.domain.element import E, Element, on_off
from launcher.plan.model import FeaturesPlan, HypervFlag, VMPlan


def features(plan: VMPlan) -> Iterator[Element]:
    """Hypervisor features; the element is there even when it is empty."""
    yield _features(plan.features)


# The same few in all domains, as are the other cached parts of a domain.
@lru_cache(maxsize=256)
def _features(asked: FeaturesPlan) -> Element:
    return E(
        "features",
        E("acpi") if asked.acpi else None,
        E("apic", eoi=None if asked.apic_eoi is None else on_off(asked.apic_eoi)) if asked.apic else None,
        _hyperv(asked),
        _kvm(asked),
        _state("pvspinlock", asked.pvspinlock),
        _state("pmu", asked.pmu),
        _state("vmport", asked.vmport),
        E("smm") if asked.smm else None,
    )


def _state(tag: str, value: bool | None) -> Element | None:
    return None if value is None else E(tag, state=on_off(value))


def _hyperv(asked: FeaturesPlan) -> Element | None:
    if asked.hyperv_mode is not None:
        return E("hyperv", mode=asked.hyperv_mode)
    if asked.hyperv is None:
        return None
    return E("hyperv", *map(_flag, asked.hyperv))


def _flag(flag: HypervFlag) -> Element:
    return E(
        flag.name,
        _state("direct", flag.direct),
        _state("extended", flag.extended),
        state=on_off(flag.enabled),
        retries=flag.retries,
        value=flag.value,
    )


def _kvm(asked: FeaturesPlan) -> Element | None:
    hidden, dedicated = _state("hidden", asked.kvm_hidden), _state("hint-dedicated", asked.kvm_hint_dedicated)
    return None if hidden is None and dedicated is None else E("kvm", hidden, dedicated)
