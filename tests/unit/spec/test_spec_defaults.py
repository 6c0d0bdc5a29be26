# SPDX-License-Identifier: Apache-2.0
"""What a manifest gets that does not say: step by step, for each architecture."""

from __future__ import annotations

import uuid

import pytest
from msgspec.structs import replace
from spec_rules_manifests import AMD64, ARM64, S390X, devices, domain, full, full_domain, spec, vmi

from launcher.spec.defaults import STEPS, apply_defaults, trace
from launcher.spec.defaults.hotplug import alignment
from launcher.spec.defaults.identity import UUID_NAMESPACE
from launcher.spec.defaults.lifecycle import pull_policy
from launcher.spec.model import (
    BIOS,
    EFI,
    FeatureState,
    Hugepages,
    Memory,
    ObjectMeta,
    Quantity,
)


def topology(*fragments: str, **settings: object) -> tuple[int | None, int | None, int | None, int | None]:
    """Cores, sockets, threads, maxSockets."""
    cpu = full_domain(*fragments, **settings).cpu
    assert cpu is not None
    return cpu.cores, cpu.sockets, cpu.threads, cpu.max_sockets


def sizes(*fragments: str, **settings: object) -> tuple[str, str]:
    """Guest memory and maxGuest as text."""
    memory = full_domain(*fragments, **settings).memory
    assert memory is not None
    return str(memory.guest), str(memory.max_guest or "")


def test_the_smallest_manifest() -> None:
    filled = full("metadata: {namespace: null}")

    assert filled.metadata == ObjectMeta(name="demo", namespace="default")
    assert filled.spec.architecture == "amd64"
    assert filled.spec.termination_grace_period_seconds == 30
    assert filled.spec.eviction_strategy is None
    machine = filled.spec.domain.machine
    assert machine is not None
    assert machine.type == "q35"
    assert filled.status is None


@pytest.mark.parametrize(
    ("architecture", "machine", "model", "acpi", "efi"),
    [
        (AMD64, "q35", "host-model", True, None),
        (ARM64, "virt", "host-passthrough", True, EFI(secure_boot=False)),
        (S390X, "s390-ccw-virtio", "host-model", False, None),
    ],
)
def test_architectures(architecture: str, machine: str, model: str, acpi: bool, efi: EFI | None) -> None:
    filled = full_domain(architecture)

    assert filled.machine is not None
    assert filled.machine.type == machine
    assert filled.cpu is not None
    assert filled.cpu.model == model
    assert filled.features is not None
    assert filled.features.acpi == FeatureState(enabled=acpi)
    assert filled.firmware is not None
    loader = filled.firmware.bootloader
    assert (loader.efi if loader is not None else None) == efi


def test_what_is_given_is_kept() -> None:
    given = domain("{machine: {type: pc-q35-7.2}, cpu: {model: Haswell}, features: {acpi: {enabled: false}}}")

    filled = full_domain(given)

    assert filled.machine == vmi(given).spec.domain.machine
    assert filled.cpu is not None
    assert filled.cpu.model == "Haswell"
    assert filled.features == vmi(given).spec.domain.features


def test_the_nodes_cpu_model_and_eviction_strategy() -> None:
    filled = full(cpu_model="Cascadelake-Server", eviction_strategy="LiveMigrate")

    assert filled.spec.eviction_strategy == "LiveMigrate"
    assert filled.spec.domain.cpu is not None
    assert filled.spec.domain.cpu.model == "Cascadelake-Server"
    assert full(ARM64, cpu_model="Haswell").spec.domain.cpu is not None
    assert (
        full(spec("{evictionStrategy: None}"), eviction_strategy="LiveMigrate").spec.eviction_strategy
        == "None"
    )


@pytest.mark.parametrize(
    ("fragment", "expected"),
    [
        ("{}", (1, 1, 1, 4)),
        ("{resources: {requests: {cpu: 1500m}, limits: {cpu: 3}}}", (1, 3, 1, 12)),
        ("{resources: {requests: {cpu: 1500m}}}", (1, 2, 1, 8)),
        ("{resources: {limits: {cpu: 0}, requests: {cpu: 2}}}", (1, 2, 1, 8)),
        ("{cpu: {cores: 4}, resources: {limits: {cpu: 3}}}", (4, None, None, None)),
        ("{cpu: {threads: 2}}", (None, None, 2, None)),
        ("{cpu: {sockets: 2}}", (None, 2, None, 8)),
        ("{cpu: {sockets: 2, cores: 2, threads: 2, maxSockets: 3}}", (2, 2, 2, 3)),
        ("{cpu: {cores: 0, sockets: 0, threads: 0}}", (1, 1, 1, 4)),
        # 512 vCPUs are the most that slots are kept for
        ("{cpu: {sockets: 16, cores: 16}}", (16, 16, None, 32)),
        ("{cpu: {sockets: 200}}", (None, 200, None, 512)),
        ("{cpu: {sockets: 40, cores: 16}}", (16, 40, None, 40)),
    ],
)
def test_topology(fragment: str, expected: tuple[int | None, ...]) -> None:
    assert topology(domain(fragment)) == expected


def test_cpu_hotplug_depends_on_architecture_and_settings() -> None:
    assert topology(ARM64) == (1, 1, 1, None)
    assert topology(S390X) == (1, 1, 1, 4)
    assert topology(S390X, domain("{cpu: {sockets: 100}}"))[3] == 248
    assert topology(live_update=False) == (1, 1, 1, None)
    assert topology(max_hotplug_ratio=2) == (1, 1, 1, 2)
    assert topology(max_hotplug_ratio=0) == (1, 1, 1, 1)
    assert topology(max_cpu_sockets=6) == (1, 1, 1, 6)
    assert topology(domain("{cpu: {sockets: 8}}"), max_cpu_sockets=6) == (None, 8, None, 8)
    assert topology(domain("{cpu: {cores: 8}}"), max_cpu_sockets=6) == (8, None, None, None)


def test_cpus_that_are_limited_are_requested() -> None:
    resources = full_domain(domain("{resources: {limits: {cpu: 2}, requests: {memory: 1Gi}}}")).resources

    assert resources is not None
    assert resources.requests == {"cpu": Quantity("2"), "memory": Quantity("1Gi")}
    assert resources.limits == {"cpu": Quantity("2")}


@pytest.mark.parametrize(
    ("fragment", "expected"),
    [
        ("{}", ("1Gi", "4Gi")),
        ("{memory: {guest: 2G}}", ("2G", "")),
        ("{memory: {guest: 1026Mi}}", ("1026Mi", "4104Mi")),
        ("{memory: {guest: 512Mi}}", ("512Mi", "")),
        ("{memory: {guest: 1025Mi}}", ("1025Mi", "")),
        ("{memory: {maxGuest: 2Gi}}", ("1Gi", "2Gi")),
        ("{memory: {guest: 3Gi, hugepages: {pageSize: 1Gi}}}", ("3Gi", "12Gi")),
        ("{memory: {guest: 1536Mi, hugepages: {pageSize: 1Gi}}}", ("1536Mi", "")),
        ("{memory: null, resources: {requests: {memory: 2Gi}, limits: {memory: 3Gi}}}", ("2Gi", "8Gi")),
        ("{memory: null, resources: {limits: {memory: 3Gi}}}", ("3Gi", "12Gi")),
        ("{memory: {guest: null, hugepages: {pageSize: 2Mi}}}", ("2Mi", "")),
        ("{memory: {guest: null, hugepages: {pageSize: big}}}", ("None", "")),
        ("{memory: {guest: 4Ei}}", ("4Ei", "")),
        ("{cpu: {realtime: {}}}", ("1Gi", "")),
        ("{cpu: {numa: {guestMappingPassthrough: {}}}}", ("1Gi", "")),
        ("{launchSecurity: {}}", ("1Gi", "")),
    ],
)
def test_memory(fragment: str, expected: tuple[str, str]) -> None:
    assert sizes(domain(fragment)) == expected


@pytest.mark.parametrize(
    ("size", "step"), [("1Gi", 2**30), ("1024Mi", 2**30), ("2Mi", 2**21), (None, 2**21), ("?", 2**21)]
)
def test_memory_is_plugged_in_whole_huge_pages(size: str | None, step: int) -> None:
    pages = Hugepages(page_size=size) if size is not None else None
    assert alignment(Memory(hugepages=pages)) == step


def test_memory_hotplug_depends_on_architecture_and_settings() -> None:
    assert sizes(ARM64) == ("1Gi", "")
    assert sizes(S390X) == ("1Gi", "")
    assert sizes(live_update=False) == ("1Gi", "")
    assert sizes(max_hotplug_ratio=2) == ("1Gi", "2Gi")
    assert sizes(max_guest=Quantity("6Gi")) == ("1Gi", "6Gi")
    assert sizes(max_guest=Quantity("512Mi")) == ("1Gi", "")
    assert sizes(max_guest=Quantity("5Pi")) == ("1Gi", ""), "no guest can address it"


def test_bootloaders() -> None:
    def loader(*fragments: str) -> tuple[BIOS | None, EFI | None]:
        firmware = full_domain(*fragments).firmware
        assert firmware is not None
        return (firmware.bootloader.bios, firmware.bootloader.efi) if firmware.bootloader else (None, None)

    efi, bios = domain("{firmware: {bootloader: {efi: {}}}}"), domain("{firmware: {bootloader: {bios: {}}}}")
    assert loader() == (None, None)
    assert loader(efi) == (None, EFI(secure_boot=True))
    assert loader(ARM64, efi) == (None, EFI(secure_boot=False))
    assert loader(ARM64, bios) == (BIOS(), None)
    assert loader(domain("{firmware: {bootloader: {efi: {secureBoot: false}}}}")) == (
        None,
        EFI(secure_boot=False),
    )


def uuid_of(*fragments: str) -> str:
    firmware = full_domain(*fragments).firmware
    assert firmware is not None
    assert firmware.uuid is not None
    return firmware.uuid


def test_the_firmware_uuid_is_stable_and_its_owners_own() -> None:
    assert uuid_of() == str(uuid.uuid5(UUID_NAMESPACE, "lab/demo/")) == uuid_of(domain("{cpu: {cores: 7}}"))
    others = {
        uuid_of(),
        uuid_of("metadata: {name: other}"),
        uuid_of("metadata: {namespace: other}"),
        uuid_of("metadata: {uid: u-1}"),
    }
    assert len(others) == 4
    assert uuid_of("metadata: {namespace: null}") == uuid_of("metadata: {namespace: default}")
    given = "5D307CA9-b3ef-428c-8861-06e72d69f223"
    assert uuid_of(domain(f"{{firmware: {{uuid: {given}}}}}")) == given


def test_an_instance_without_metadata() -> None:
    filled = apply_defaults(replace(vmi(), metadata=None))

    assert filled.metadata is None
    assert filled.spec.domain.firmware is not None
    assert filled.spec.domain.firmware.uuid


@pytest.mark.parametrize(
    ("image", "policy"),
    [
        ("quay.io/a/b", "Always"),
        ("quay.io/a/b:latest", "Always"),
        ("quay.io:5000/a", "Always"),
        ("quay.io/a/b:1", "IfNotPresent"),
        ("b@sha256:0000", "IfNotPresent"),
    ],
)
def test_pull_policies(image: str, policy: str) -> None:
    filled = full(
        spec(f"{{volumes: [{{name: a, containerDisk: {{image: '{image}'}}}}]}}"),
        domain(f"{{firmware: {{kernelBoot: {{container: {{image: '{image}', kernelPath: /k}}}}}}}}"),
    )

    assert pull_policy(image) == policy
    source = filled.spec.volumes[0].container_disk
    assert source is not None
    assert source.image_pull_policy == policy
    firmware = filled.spec.domain.firmware
    assert firmware is not None
    assert firmware.kernel_boot is not None
    assert firmware.kernel_boot.container is not None
    assert firmware.kernel_boot.container.image_pull_policy == policy


def test_probes() -> None:
    filled = full(
        spec("{livenessProbe: {guestAgentPing: {}, periodSeconds: 5}, readinessProbe: {guestAgentPing: {}}}")
    ).spec

    assert filled.liveness_probe is not None
    assert filled.readiness_probe is not None
    assert filled.liveness_probe.period_seconds == 5
    assert filled.liveness_probe.timeout_seconds == 1
    assert filled.readiness_probe.period_seconds == 10
    assert filled.readiness_probe.failure_threshold == 3
    assert filled.readiness_probe.success_threshold == 1
    assert filled.readiness_probe.initial_delay_seconds is None


def test_the_trace_names_the_steps_that_did_something() -> None:
    steps = list(trace(vmi(AMD64, devices("{autoattachPodInterface: false}"))))

    assert [step.name for step, _ in steps] == [
        "machine-type",
        "cpu-topology",
        "acpi",
        "cpu-model",
        "cpu-hotplug",
        "memory-hotplug",
        "grace-period",
        "firmware-uuid",
    ]
    assert steps[-1][1] == full(AMD64, devices("{autoattachPodInterface: false}"))


def test_every_step_is_named_once_and_explained() -> None:
    assert len({step.name for step in STEPS}) == len(STEPS)
    assert all(step.summary.endswith(".") for step in STEPS)
