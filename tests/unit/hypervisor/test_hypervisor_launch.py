# SPDX-License-Identifier: Apache-2.0
"""libvirt's parameters of launch security and statistics become records."""

from __future__ import annotations

import pytest

from launcher.errors import WrongPhase
from launcher.hypervisor.launch import sev_measurement, sev_platform
from launcher.hypervisor.port import DomainUsage, SevMeasurement, SevPlatform
from launcher.hypervisor.usage import usage


def test_a_platform() -> None:
    assert sev_platform(
        {
            "pdh": "cGRo",
            "cert-chain": "Y2hhaW4=",
            "cpu0-id": "aWQ=",
            "cbitpos": 51,
            "reduced-phys-bits": 1,
            "max-guests": 509,
            "max-es-guests": 99,
            "of-a-newer-libvirt": True,
        }
    ) == SevPlatform(
        pdh="cGRo",
        cert_chain="Y2hhaW4=",
        cpu0_id="aWQ=",
        cbitpos=51,
        reduced_phys_bits=1,
        max_guests=509,
        max_es_guests=99,
    )
    assert sev_platform({"pdh": "cGRo", "cert-chain": "Y2hhaW4="}).max_guests == 0


def test_a_measurement() -> None:
    values = {"sev-measurement": "bWVh", "sev-api-major": 1, "sev-api-minor": 51, "sev-build-id": 3}
    assert sev_measurement({**values, "sev-policy": 5}) == SevMeasurement(
        measurement="bWVh", api_major=1, api_minor=51, build_id=3, policy=5
    )
    assert sev_measurement({"sev-measurement": "bWVh"}) == SevMeasurement(measurement="bWVh")


def test_what_a_domain_uses() -> None:
    values = {
        "vcpu.current": 2,
        "vcpu.maximum": 4,
        "vcpu.0.time": 1_500_000_000,
        "vcpu.1.time": 500_000_000,
        "vcpu.1.wait": 9_000_000_000,
        "vcpu.0.kvm.exits.sum": 12,
        "balloon.current": 131072,
        "balloon.maximum": 262144,
    }
    assert usage(values) == DomainUsage(cpu_time_s=2.0, vcpus=2, memory=128 * 2**20)


def test_a_domain_that_does_not_run_uses_nothing() -> None:
    with pytest.raises(WrongPhase):
        usage({"vcpu.current": 1, "vcpu.maximum": 1})
