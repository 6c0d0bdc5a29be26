# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: E501 - one manifest a line reads best
"""Interfaces, disks, features, timers and small devices that a manifest does not spell out."""

from __future__ import annotations

import pytest
from spec_rules_manifests import AMD64, ARM64, S390X, devices, domain, full, full_domain, spec, vmi

from launcher.spec.defaults import apply_defaults
from launcher.spec.model import (
    CDRomTarget,
    CPUFeature,
    DiskTarget,
    FeatureSpinlocks,
    FeatureState,
    InterfaceBridge,
    InterfaceMasquerade,
    LunTarget,
    PodNetwork,
    SyNICTimer,
    TLBFlush,
)


def test_an_interface_for_a_guest_without_any() -> None:
    filled = full()

    (interface,) = filled.spec.domain.devices.interfaces
    (network,) = filled.spec.networks
    assert (interface.name, interface.masquerade) == ("default", InterfaceMasquerade())
    assert (network.name, network.pod) == ("default", PodNetwork())
    (bridged,) = full(pod_binding="bridge").spec.domain.devices.interfaces
    assert bridged.bridge == InterfaceBridge()
    (other,) = full(pod_binding="bridge", bridge_on_pod_network=False).spec.domain.devices.interfaces
    assert other.masquerade == InterfaceMasquerade()


@pytest.mark.parametrize(
    "fragment",
    [
        devices("{autoattachPodInterface: false}"),
        devices("{interfaces: [{name: a, bridge: {}}]}"),
        spec("{networks: [{name: a, pod: {}}]}"),
    ],
)
def test_no_interface_for_a_guest_that_speaks_of_them(fragment: str) -> None:
    given = vmi(fragment)

    filled = apply_defaults(given)

    assert filled.spec.domain.devices.interfaces == given.spec.domain.devices.interfaces
    assert filled.spec.networks == given.spec.networks


def test_volumes_without_a_user_get_a_disk_at_the_end() -> None:
    filled = full(
        "spec: {domain: {devices: {disks: [{name: b}], filesystems: [{name: fs, virtiofs: {}}]}}, volumes: ["
        "{name: a, emptyDisk: {capacity: 1Gi}}, {name: b, emptyDisk: {capacity: 1Gi}}, {name: fs, configMap: {name: c}}, "
        "{name: d, memoryDump: {claimName: c}}, {name: p, containerPath: {path: /p}}, {name: e, configMap: {name: c}}]}"
    )

    assert [disk.name for disk in filled.spec.domain.devices.disks] == ["b", "a", "e"]


@pytest.mark.parametrize("fragment", ["{autoattachInputDevice: true}", "{}"])
def test_no_input_device_beyond_what_is_listed(fragment: str) -> None:
    given = vmi(devices(fragment))
    assert apply_defaults(given).spec.domain.devices.inputs == ()


@pytest.mark.parametrize(
    ("architecture", "disk", "cdrom"),
    [(AMD64, "sata", "sata"), (ARM64, "virtio", "scsi"), (S390X, "virtio", "scsi")],
)
def test_buses(architecture: str, disk: str, cdrom: str) -> None:
    plain, optical, raw, chosen = full_domain(
        architecture,
        devices(
            "{disks: [{name: a}, {name: b, cdrom: {}}, {name: c, lun: {}}, {name: d, disk: {bus: scsi}}]}"
        ),
    ).devices.disks

    assert plain.disk == DiskTarget(bus=disk)
    assert optical.cdrom == CDRomTarget(bus=cdrom, readonly=True, tray="closed")
    assert raw.lun == LunTarget(bus="scsi")
    assert chosen.disk == DiskTarget(bus="scsi")
    assert plain.error_policy == raw.error_policy == "stop"


@pytest.mark.parametrize("given", ["[]", "[{name: m}]", "[{name: m, disk: {}}]"])
def test_the_disk_of_metrics_is_on_virtio(given: str) -> None:
    filled = full_domain(
        f"spec: {{domain: {{devices: {{disks: {given}}}}}, volumes: [{{name: m, downwardMetrics: {{}}}}]}}"
    )

    assert [disk.disk for disk in filled.devices.disks] == [DiskTarget(bus="virtio")]


def test_fields_of_disks_that_are_given() -> None:
    (optical, plain) = full_domain(
        devices(
            "{disks: [{name: a, cdrom: {readonly: false, tray: open, bus: usb}}, {name: b, errorPolicy: report}]}"
        )
    ).devices.disks

    assert optical.cdrom == CDRomTarget(bus="usb", readonly=False, tray="open")
    assert plain.error_policy == "report"


def test_features_that_are_named_are_on() -> None:
    features = full_domain(
        domain(
            "{features: {apic: {}, smm: {}, pvspinlock: {enabled: false}, hypervPassthrough: {}, kvm: {hidden: true}, "
            "hyperv: {synictimer: {direct: {}}, tlbflush: {extended: {}, direct: {enabled: false}}, spinlocks: {}, "
            "vapic: {enabled: false}}}}"
        )
    ).features

    assert features is not None
    assert features.apic is not None
    assert features.apic.enabled is True
    assert features.smm == FeatureState(enabled=True)
    assert features.pvspinlock == FeatureState(enabled=False)
    assert features.hyperv_passthrough is not None
    assert features.hyperv_passthrough.enabled is True
    hyperv = features.hyperv
    assert hyperv is not None
    assert hyperv.synictimer == SyNICTimer(enabled=True, direct=FeatureState(enabled=True))
    assert hyperv.tlbflush == TLBFlush(
        enabled=True, extended=FeatureState(enabled=True), direct=FeatureState(enabled=False)
    )
    assert hyperv.spinlocks == FeatureSpinlocks(enabled=True, spinlocks=4096)
    assert hyperv.vapic == FeatureState(enabled=False)


def test_spinlocks_that_are_off_get_no_retries() -> None:
    features = full_domain(domain("{features: {hyperv: {spinlocks: {enabled: false}}}}")).features

    assert features is not None
    assert features.hyperv is not None
    assert features.hyperv.spinlocks == FeatureSpinlocks(enabled=False)


@pytest.mark.parametrize(
    ("flags", "added"),
    [
        ("synictimer: {}", {"synic", "vpindex"}),
        ("synic: {}", {"vpindex"}),
        ("ipi: {}", {"vpindex"}),
        ("tlbflush: {}", {"vpindex"}),
        ("evmcs: {}", {"vapic"}),
        ("relaxed: {}, reset: {}, frequencies: {}", set()),
        ("synictimer: {enabled: false}", set()),
        ("synic: {}, vpindex: {enabled: false}", set()),
    ],
)
def test_hyperv_dependencies(flags: str, added: set[str]) -> None:
    fragment = domain(f"{{features: {{hyperv: {{{flags}}}}}}}")
    before, features = vmi(fragment).spec.domain.features, full_domain(fragment).features

    assert before is not None
    assert features is not None
    assert before.hyperv is not None
    assert features.hyperv is not None
    new = {
        name
        for name in features.hyperv.__struct_fields__
        if getattr(before.hyperv, name) is None and getattr(features.hyperv, name) is not None
    }
    assert new == added
    assert all(getattr(features.hyperv, name) == FeatureState(enabled=True) for name in added)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("[]", (CPUFeature(name="vmx", policy="require"),)),
        (
            "[{name: vmx, policy: optional}, {name: a}]",
            (CPUFeature(name="vmx", policy="require"), CPUFeature(name="a")),
        ),
    ],
)
def test_evmcs_requires_vmx(given: str, expected: tuple[CPUFeature, ...]) -> None:
    cpu = full_domain(domain(f"{{features: {{hyperv: {{evmcs: {{}}}}}}, cpu: {{features: {given}}}}}")).cpu

    assert cpu is not None
    assert cpu.features == expected


def test_timers_that_are_named_are_present() -> None:
    clock = full_domain(domain("{clock: {timer: {rtc: {}, hpet: {present: false}, kvm: {}}}}")).clock

    assert clock is not None
    assert clock.timer is not None
    assert clock.timer.rtc is not None
    assert clock.timer.rtc.present is True
    assert clock.timer.hpet is not None
    assert clock.timer.hpet.present is False
    assert clock.timer.pit is None


@pytest.mark.parametrize(
    ("architecture", "given", "i6300esb", "diag288"),
    [
        (AMD64, "{}", "reset", None),
        (AMD64, "{i6300esb: {action: shutdown}}", "shutdown", None),
        (AMD64, "{diag288: {}}", None, "reset"),
        (S390X, "{}", None, "reset"),
        (ARM64, "{}", None, None),
    ],
)
def test_watchdogs(architecture: str, given: str, i6300esb: str | None, diag288: str | None) -> None:
    dog = full_domain(architecture, devices(f"{{watchdog: {{name: w, {given[1:-1]}}}}}")).devices.watchdog

    assert dog is not None
    assert (dog.i6300esb.action if dog.i6300esb else None) == i6300esb
    assert (dog.diag288.action if dog.diag288 else None) == diag288


def test_small_devices() -> None:
    filled = full_domain(
        devices(
            "{sound: {name: s}, tpm: {}, inputs: [{name: t, type: tablet}], gpus: [{name: g, deviceName: d, "
            "virtualGPUOptions: {display: {ramFB: {}}}}, {name: h, deviceName: d}]}"
        )
    ).devices

    assert filled.sound is not None
    assert filled.sound.model == "ich9"
    assert filled.tpm is not None
    assert filled.tpm.enabled is True
    assert filled.tpm.persistent is None
    assert filled.inputs[0].bus == "usb"
    options = filled.gpus[0].virtual_gpu_options
    assert options is not None
    assert options.display is not None
    assert options.display.enabled is True
    assert options.display.ramfb == FeatureState(enabled=True)
    assert filled.gpus[1].virtual_gpu_options is None
    (tablet,) = full_domain(S390X, devices("{inputs: [{name: t, type: tablet}]}")).devices.inputs
    assert tablet.bus == "virtio"


def test_nothing_is_added_that_only_a_control_plane_adds() -> None:
    filled = full_domain(devices("{autoattachGraphicsDevice: true}"))

    assert filled.devices.video is None
