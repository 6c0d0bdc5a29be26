# SPDX-License-Identifier: Apache-2.0
"""Features and the clock."""

from __future__ import annotations

import pytest
from plan_manifest import context

from launcher.plan.clock import clock
from launcher.plan.facts import NodeFacts, version
from launcher.plan.features import features
from launcher.plan.model import ClockPlan, FeaturesPlan, HypervFlag, Timer
from launcher.plan.notes import notes


def planned(asked: str, **more: str) -> FeaturesPlan:
    return features(context(f"{{features: {{{asked}}}, memory: {{guest: 1Gi}}}}", **more))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("asked", "arch", "acpi"),
    [
        ("", "amd64", True),
        ("", "arm64", True),
        ("", "s390x", False),
        ("acpi: {}", "s390x", False),
        ("acpi: {enabled: true}", "s390x", True),
        ("acpi: {enabled: false}", "amd64", False),
    ],
)
def test_acpi_depends_on_the_architecture(asked: str, arch: str, acpi: bool) -> None:
    assert planned(asked, architecture=arch).acpi is acpi


def test_vmport_is_an_x86_matter() -> None:
    assert planned("").vmport is False
    assert planned("", architecture="arm64").vmport is None


def test_an_empty_struct_means_on() -> None:
    found = planned("apic: {}, smm: {}, pvspinlock: {}, kvm: {}, hypervPassthrough: {}")
    assert (found.apic, found.smm, found.pvspinlock, found.kvm_hidden) == (True, True, True, False)
    assert found.hyperv_mode == "passthrough"
    assert found.apic_eoi is None


def test_disabled_passthrough_is_nothing() -> None:
    found = planned("hypervPassthrough: {enabled: false}")
    assert (found.hyperv_mode, found.hyperv) == (None, None)


@pytest.mark.parametrize(
    ("asked", "flag"),
    [
        ("spinlocks: {}", HypervFlag(name="spinlocks", enabled=True, retries=4096)),
        ("spinlocks: {spinlocks: 8191}", HypervFlag(name="spinlocks", enabled=True, retries=8191)),
        ("spinlocks: {enabled: false}", HypervFlag(name="spinlocks", enabled=False)),
        ("synictimer: {direct: {}}", HypervFlag(name="stimer", enabled=True, direct=True)),
        ("vendorid: {vendorid: me}", HypervFlag(name="vendor_id", enabled=True, value="me")),
        ("tlbflush: {extended: {}}", HypervFlag(name="tlbflush", enabled=True, extended=True)),
    ],
)
def test_flags_of_hyperv(asked: str, flag: HypervFlag) -> None:
    assert planned(f"hyperv: {{{asked}}}").hyperv == (flag,)


def test_old_releases_have_no_kinds_of_tlbflush() -> None:
    domain = "{features: {hyperv: {tlbflush: {direct: {}}}}, memory: {guest: 1Gi}}"
    old = context(domain, facts=NodeFacts(libvirt_version=version(10, 10)))
    assert features(old).hyperv == (HypervFlag(name="tlbflush", enabled=True),)
    assert len(notes(old)) == 1
    assert notes(context(domain)) == ()


@pytest.mark.parametrize(
    ("domain", "pmu", "hint"),
    [
        ("cpu: {}", None, None),
        ("cpu: {dedicatedCpuPlacement: true}", None, True),
        ("cpu: {dedicatedCpuPlacement: true, realtime: {}}", False, True),
        ("launchSecurity: {tdx: {}}", False, None),
    ],
)
def test_pmu_and_the_dedicated_hint(domain: str, pmu: bool | None, hint: bool | None) -> None:
    found = features(context(f"{{{domain}, memory: {{guest: 1Gi}}}}"))
    assert (found.pmu, found.kvm_hint_dedicated) == (pmu, hint)


RTC = Timer(name="rtc", present=True)


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ("{}", None),
        ("{utc: {}}", ClockPlan(offset="utc", adjustment="reset")),
        ("{utc: {offsetSeconds: 0}, timezone: Europe/Berlin}", ClockPlan(offset="utc", adjustment="0")),
        ("{timezone: Europe/Berlin}", ClockPlan(offset="timezone", timezone="Europe/Berlin")),
        ("{timer: {rtc: {}}}", ClockPlan(offset="utc", timers=(RTC,))),
    ],
)
def test_the_clock_always_has_an_offset(asked: str, expected: ClockPlan | None) -> None:
    assert clock(context(f"{{clock: {asked}, memory: {{guest: 1Gi}}}}")) == expected


def test_timers_keep_their_order() -> None:
    timers = "{hyperv: {}, hpet: {present: false}, kvm: {}, pit: {}, rtc: {}}"
    found = clock(context(f"{{clock: {{timer: {timers}}}, memory: {{guest: 1Gi}}}}"))
    assert found is not None
    assert [timer.name for timer in found.timers] == ["rtc", "pit", "kvmclock", "hpet", "hypervclock"]
    assert [timer.present for timer in found.timers] == [True, True, True, False, True]
