# SPDX-License-Identifier: Apache-2.0
"""Every rule refuses what it must, at the right field and nowhere else, and lets pass what is right."""

from __future__ import annotations

from functools import cache

import pytest
import spec_rules_compute_cases as compute
import spec_rules_device_cases as device
import spec_rules_domain_cases as domain_cases
import spec_rules_network_cases as network
import spec_rules_storage_cases as storage
from msgspec.structs import replace
from spec_rules_manifests import devices, domain, spec, vmi

from launcher.errors import Violation
from launcher.spec.defaults import DefaultsSettings, apply_defaults
from launcher.spec.model import ObjectMeta
from launcher.spec.rules import RULES, check
from launcher.spec.rules.context import Context, Rule, context

TABLES = (compute, domain_cases, storage, network, device)
REFUSED = [case for table in TABLES for case in table.REFUSED]
ACCEPTED = [case for table in TABLES for case in table.ACCEPTED]

TYPES = {
    "FieldValueInvalid",
    "FieldValueRequired",
    "FieldValueNotSupported",
    "FieldValueNotFound",
    "FieldValueDuplicate",
    "Forbidden",
}


def fields(violations: tuple[Violation, ...]) -> set[str]:
    return {violation.field for violation in violations}


@pytest.mark.parametrize(("name", "fragment", "expected"), REFUSED, ids=[case[0] for case in REFUSED])
def test_refuses_at_exactly_these_fields(name: str, fragment: str, expected: set[str]) -> None:
    violations = check(vmi(fragment))

    assert fields(violations) == expected
    assert {violation.type for violation in violations} <= TYPES
    assert all(violation.message and len(violation.value) <= 120 for violation in violations)


@pytest.mark.parametrize(("name", "fragment"), ACCEPTED, ids=[case[0] for case in ACCEPTED])
def test_accepts(name: str, fragment: str) -> None:
    assert check(vmi(fragment)) == ()


@pytest.mark.parametrize(
    "rule", RULES, ids=lambda rule: f"{rule.__module__.rpartition('.')[2]}.{rule.__name__}"
)
def test_each_rule_finds_something_in_some_case(rule: Rule) -> None:
    assert any(next(iter(rule(ctx)), None) is not None for ctx in refused_contexts())


@cache
def refused_contexts() -> tuple[Context, ...]:
    settings = DefaultsSettings()
    instances = [vmi(fragment) for _, fragment, _ in REFUSED]
    return tuple(context(item, apply_defaults(item, settings), settings, creating=True) for item in instances)


def test_all_findings_are_reported_together() -> None:
    violations = check(
        vmi(
            "metadata: {name: Bad}",
            spec("{hostname: a.b, startStrategy: Later}"),
            domain("{cpu: {features: [{name: x, policy: maybe}]}, devices: {sound: {name: s, model: sb16}}}"),
        )
    )

    assert fields(violations) == {
        "metadata.name",
        "spec.hostname",
        "spec.startStrategy",
        "spec.domain.cpu.features[0].policy",
        "spec.domain.devices.sound.model",
    }


def test_a_finding_says_what_would_be_accepted() -> None:
    (violation,) = check(vmi(storage.disk("disk: {bus: virtio}, cache: unsafe")))

    assert violation.field == "spec.domain.devices.disks[0].cache"
    assert violation.type == "FieldValueNotSupported"
    assert violation.value == "unsafe"
    assert violation.message == "not supported; accepted: none, writethrough, writeback"


def test_secrets_are_not_shown() -> None:
    password = "hunter2-" + "x" * 2048
    violations = check(
        vmi(
            storage.volume(f"cloudInitNoCloud: {{userData: {password}, networkDataBase64: '{password}!'}}"),
            domain("{launchSecurity: {sev: {session: '#hunter2'}}}"),
        )
    )

    assert len(violations) == 4
    assert not any("hunter2" in violation.value + violation.message for violation in violations)


def test_a_long_value_is_shortened_and_an_unprintable_one_escaped() -> None:
    (long,) = check(vmi(spec(f"{{hostname: {'A' * 200}}}")))
    (unprintable,) = check(vmi(domain('{firmware: {serial: "a\\n"}}')))

    assert long.value == "A" * 57 + "..."
    assert unprintable.value == "a\\n"


def test_the_number_of_findings_is_bounded() -> None:
    features = ", ".join("{name: '<'}" for _ in range(5000))

    assert len(check(vmi(domain(f"{{cpu: {{features: [{features}]}}}}")))) == 1000


def test_an_instance_without_metadata_needs_a_name() -> None:
    assert fields(check(replace(vmi(), metadata=None))) == {"metadata.name"}
    assert fields(check(replace(vmi(), metadata=ObjectMeta(namespace="lab")))) == {"metadata.name"}


def test_a_bridge_on_the_pod_network_is_the_operators_choice() -> None:
    instance = vmi(network.nic("bridge: {}"))

    assert check(instance) == ()
    assert fields(check(instance, settings=DefaultsSettings(bridge_on_pod_network=False))) == {
        f"{network.NIC}.bridge"
    }


def test_the_architecture_of_the_node_decides_for_a_manifest_without_one() -> None:
    instance = vmi(devices("{sound: {name: s}}"))

    assert check(instance) == ()
    assert fields(check(instance, settings=DefaultsSettings(architecture="arm64"))) == {f"{device.D}.sound"}


def test_an_instance_that_runs_may_have_utility_volumes() -> None:
    good = vmi(spec("{utilityVolumes: [{name: u, claimName: c}]}"))
    bad = vmi(
        spec(
            "{volumes: [{name: v, emptyDisk: {capacity: 1Gi}}, {name: d, dataVolume: {name: data}}], "
            "utilityVolumes: [{name: v, claimName: c}, {name: u, claimName: ''}, {name: u, claimName: c}, "
            "{name: w, claimName: data, type: Scratch}]}"
        )
    )

    assert check(good, creating=False) == ()
    assert fields(check(bad, creating=False)) == {
        "spec.utilityVolumes[0].name",
        "spec.utilityVolumes[1].claimName",
        "spec.utilityVolumes[2].name",
        "spec.utilityVolumes[2].claimName",
        "spec.utilityVolumes[3].claimName",
        "spec.utilityVolumes[3].type",
    }


def test_a_defaulted_copy_that_the_caller_has_is_used() -> None:
    instance = vmi(domain("{memory: null}"))
    helped = apply_defaults(vmi(), DefaultsSettings())

    assert fields(check(instance)) == {"spec.domain.memory.guest"}
    assert check(instance, defaulted=helped) == ()
