# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: E501 - one manifest a line reads best
"""Manifests that rules about firmware, features, clock and launch security refuse and accept."""

from __future__ import annotations

from spec_rules_manifests import domain

FW = "spec.domain.firmware"
HYPERV = "spec.domain.features.hyperv"
SECURITY = "spec.domain.launchSecurity"
EFI = "firmware: {bootloader: {efi: {secureBoot: false}}}"


def kernel(text: str) -> str:
    """A fragment with a kernel boot."""
    return domain(f"{{firmware: {{kernelBoot: {text}}}}}")


def hyperv(text: str) -> str:
    """A fragment with Hyper-V flags."""
    return domain(f"{{features: {{hyperv: {text}}}}}")


REFUSED: tuple[tuple[str, str, set[str]], ...] = (
    ("uuid", domain("{firmware: {uuid: demo}}"), {f"{FW}.uuid"}),
    ("serial of two lines", domain('{firmware: {serial: "a\\n"}}'), {f"{FW}.serial"}),
    ("chassis", domain(f"{{chassis: {{asset: {'x' * 257}}}}}"), {"spec.domain.chassis.asset"}),
    (
        "two boot loaders",
        domain("{firmware: {bootloader: {bios: {}, efi: {secureBoot: false}}}}"),
        {f"{FW}.bootloader"},
    ),
    (
        "bios on arm64",
        "spec: {architecture: arm64, domain: {firmware: {bootloader: {bios: {}}}}}",
        {f"{FW}.bootloader.bios"},
    ),
    (
        "efi on s390x",
        "spec: {architecture: s390x, domain: {firmware: {bootloader: {efi: {}}}}}",
        {f"{FW}.bootloader.efi"},
    ),
    (
        "bios without its serial console",
        domain(
            "{firmware: {bootloader: {bios: {useSerial: true}}}, devices: {autoattachSerialConsole: false}}"
        ),
        {f"{FW}.bootloader.bios.useSerial"},
    ),
    (
        "secure boot without smm",
        domain("{firmware: {bootloader: {efi: {}}}}"),
        {f"{FW}.bootloader.efi.secureBoot"},
    ),
    (
        "secure boot on arm64",
        "spec: {architecture: arm64, domain: {firmware: {bootloader: {efi: {secureBoot: true}}}}}",
        {f"{FW}.bootloader.efi.secureBoot"},
    ),
    (
        "efi without acpi",
        domain(f"{{{EFI}, features: {{acpi: {{enabled: false}}}}}}"),
        {"spec.domain.features.acpi.enabled"},
    ),
    ("arguments without a kernel", kernel("{kernelArgs: quiet}"), {f"{FW}.kernelBoot.kernelArgs"}),
    ("no image", kernel("{container: {image: '', kernelPath: /k}}"), {f"{FW}.kernelBoot.container.image"}),
    ("no kernel", kernel("{container: {image: a}}"), {f"{FW}.kernelBoot.container.kernelPath"}),
    (
        "initrd alone",
        kernel("{container: {image: a, initrdPath: /i}}"),
        {f"{FW}.kernelBoot.container.kernelPath"},
    ),
    (
        "kernel at the root",
        kernel("{container: {image: a, kernelPath: /}}"),
        {f"{FW}.kernelBoot.container.kernelPath"},
    ),
    (
        "initrd outside",
        kernel("{container: {image: a, kernelPath: /k, initrdPath: /../i}}"),
        {f"{FW}.kernelBoot.container.initrdPath"},
    ),
    ("no table", domain("{firmware: {acpi: {}}}"), {f"{FW}.acpi"}),
    ("table of nothing", domain("{firmware: {acpi: {slicNameRef: t}}}"), {f"{FW}.acpi.slicNameRef"}),
    (
        "table of a config map",
        "spec: {domain: {firmware: {acpi: {msdmNameRef: t}}}, volumes: [{name: t, configMap: {name: c}}]}",
        {f"{FW}.acpi.msdmNameRef"},
    ),
    # features
    (
        "flags and passthrough",
        domain("{features: {hyperv: {}, hypervPassthrough: {enabled: false}}}"),
        {HYPERV, "spec.domain.features.hypervPassthrough"},
    ),
    (
        "synic without vpindex",
        hyperv("{synic: {}, vpindex: {enabled: false}}"),
        {f"{HYPERV}.vpindex.enabled"},
    ),
    (
        "synictimer, two steps",
        hyperv("{synictimer: {}, vpindex: {enabled: false}}"),
        {f"{HYPERV}.vpindex.enabled"},
    ),
    ("evmcs without vapic", hyperv("{evmcs: {}, vapic: {enabled: false}}"), {f"{HYPERV}.vapic.enabled"}),
    (
        "evmcs without vmx",
        domain("{features: {hyperv: {evmcs: {}}}, cpu: {features: [{name: vmx, policy: disable}]}}"),
        {"spec.domain.cpu.features[0].policy"},
    ),
    ("few retries", hyperv("{spinlocks: {spinlocks: 4095}}"), {f"{HYPERV}.spinlocks.spinlocks"}),
    ("many retries", hyperv("{spinlocks: {spinlocks: 4294967296}}"), {f"{HYPERV}.spinlocks.spinlocks"}),
    ("long vendor id", hyperv("{vendorid: {vendorid: abcdefghijklm}}"), {f"{HYPERV}.vendorid.vendorid"}),
    ("vendor id with a comma", hyperv("{vendorid: {vendorid: 'a,b'}}"), {f"{HYPERV}.vendorid.vendorid"}),
    ("no vendor id", hyperv("{vendorid: {}}"), {f"{HYPERV}.vendorid.vendorid"}),
    ("hyperv on s390x", "spec: {architecture: s390x, domain: {features: {hyperv: {relaxed: {}}}}}", {HYPERV}),
    (
        "hyperv passthrough on s390x",
        "spec: {architecture: s390x, domain: {features: {hypervPassthrough: {}}}}",
        {"spec.domain.features.hypervPassthrough"},
    ),
    (
        "smm on arm64",
        "spec: {architecture: arm64, domain: {features: {smm: {}}}}",
        {"spec.domain.features.smm"},
    ),
    # clock
    ("two offsets", domain("{clock: {utc: {}, timezone: Europe/Paris}}"), {"spec.domain.clock.timezone"}),
    ("time zone", domain("{clock: {timezone: 'New York'}}"), {"spec.domain.clock.timezone"}),
    (
        "rtc policy",
        domain("{clock: {timer: {rtc: {tickPolicy: merge}}}}"),
        {"spec.domain.clock.timer.rtc.tickPolicy"},
    ),
    ("rtc track", domain("{clock: {timer: {rtc: {track: host}}}}"), {"spec.domain.clock.timer.rtc.track"}),
    (
        "pit policy",
        domain("{clock: {timer: {pit: {tickPolicy: merge}}}}"),
        {"spec.domain.clock.timer.pit.tickPolicy"},
    ),
    (
        "hpet policy",
        domain("{clock: {timer: {hpet: {tickPolicy: x}}}}"),
        {"spec.domain.clock.timer.hpet.tickPolicy"},
    ),
    # launch security
    ("no kind", domain(f"{{{EFI}, launchSecurity: {{}}}}"), {SECURITY}),
    ("two kinds", domain(f"{{{EFI}, launchSecurity: {{sev: {{}}, snp: {{}}}}}}"), {SECURITY}),
    ("sev without efi", domain("{launchSecurity: {sev: {}}}"), {f"{SECURITY}.sev"}),
    (
        "snp with secure boot",
        domain("{features: {smm: {}}, firmware: {bootloader: {efi: {}}}, launchSecurity: {snp: {}}}"),
        {f"{SECURITY}.snp"},
    ),
    (
        "tdx with kept variables",
        domain("{firmware: {bootloader: {efi: {persistent: true}}}, launchSecurity: {tdx: {}}}"),
        {f"{SECURITY}.tdx"},
    ),
    (
        "tdx with smm",
        domain(f"{{{EFI}, features: {{smm: {{}}}}, launchSecurity: {{tdx: {{}}}}}}"),
        {"spec.domain.features.smm"},
    ),
    (
        "sev that boots from the network",
        f"spec: {{domain: {{{EFI}, launchSecurity: {{sev: {{}}}}, devices: {{interfaces: "
        "[{name: n, masquerade: {}, bootOrder: 1}]}}, networks: [{name: n, pod: {}}]}",
        {"spec.domain.devices.interfaces[0].bootOrder"},
    ),
    (
        "sev with transitional devices",
        domain(f"{{{EFI}, launchSecurity: {{sev: {{}}}}, devices: {{useVirtioTransitional: true}}}}"),
        {"spec.domain.devices.useVirtioTransitional"},
    ),
    (
        "attestation of what runs",
        domain(f"{{{EFI}, launchSecurity: {{sev: {{attestation: {{}}}}}}}}"),
        {f"{SECURITY}.sev.attestation"},
    ),
    (
        "session that is no base64",
        domain(f"{{{EFI}, launchSecurity: {{sev: {{session: '###', dhCert: YWJj}}}}}}"),
        {f"{SECURITY}.sev.session"},
    ),
    (
        "memory hotplug of a confidential guest",
        domain(f"{{{EFI}, launchSecurity: {{sev: {{}}}}, memory: {{guest: 1Gi, maxGuest: 2Gi}}}}"),
        {"spec.domain.memory.maxGuest"},
    ),
    ("on arm64", "spec: {architecture: arm64, domain: {launchSecurity: {}}}", {SECURITY}),
    ("sev on s390x", "spec: {architecture: s390x, domain: {launchSecurity: {sev: {}}}}", {f"{SECURITY}.sev"}),
    (
        "secure execution on huge pages",
        "spec: {architecture: s390x, domain: {launchSecurity: {}, memory: {hugepages: {pageSize: 1Mi}}}}",
        {"spec.domain.memory.hugepages"},
    ),
)

ACCEPTED: tuple[tuple[str, str], ...] = (
    (
        "firmware",
        domain(
            "{firmware: {uuid: 5D307CA9-b3ef-428c-8861-06e72d69f223, serial: a b (1), bootloader: {bios: {useSerial: true}}}, "
            "chassis: {manufacturer: 'Ä & Co', sku: ''}}"
        ),
    ),
    ("secure boot", domain("{firmware: {bootloader: {efi: {persistent: true}}}, features: {smm: {}}}")),
    ("no acpi with bios", domain("{features: {acpi: {enabled: false}}}")),
    ("arm64", "spec: {architecture: arm64, domain: {firmware: {bootloader: {efi: {}}}}}"),
    (
        "kernel",
        kernel(
            "{kernelArgs: quiet, container: {image: 'reg.lab:5000/a/b:1', kernelPath: /k, initrdPath: /i}}"
        ),
    ),
    ("kernel of a local image", kernel("{container: {image: 'oci:/srv/images/k:1', kernelPath: /boot/k}}")),
    ("nothing to boot", kernel("{}")),
    (
        "tables",
        "spec: {domain: {firmware: {acpi: {slicNameRef: t, msdmNameRef: t}}}, "
        "volumes: [{name: t, secret: {secretName: s}}]}",
    ),
    (
        "hyperv",
        hyperv(
            "{relaxed: {}, vapic: {}, spinlocks: {spinlocks: 8191}, synictimer: {direct: {}}, tlbflush: {extended: {}}, "
            "ipi: {}, evmcs: {}, vendorid: {vendorid: 'a b&<c>'}, reset: {enabled: false}, synic: {}}"
        ),
    ),
    (
        "a flag that is off needs nothing",
        hyperv("{synic: {enabled: false}, vpindex: {enabled: false}, vendorid: {enabled: false}}"),
    ),
    ("passthrough", domain("{features: {hypervPassthrough: {}}}")),
    (
        "flags that are off on s390x",
        "spec: {architecture: s390x, domain: {features: {hyperv: {relaxed: {enabled: false}}}}}",
    ),
    (
        "clock",
        domain(
            "{clock: {utc: {offsetSeconds: -3600}, timer: {rtc: {tickPolicy: catchup, track: wall}, "
            "pit: {tickPolicy: discard}, hpet: {present: false, tickPolicy: merge}, hyperv: {}, kvm: {}}}}"
        ),
    ),
    ("time zone", domain("{clock: {timezone: America/Argentina/Buenos_Aires}}")),
    (
        "sev",
        f"spec: {{startStrategy: Paused, domain: {{{EFI}, launchSecurity: "
        "{sev: {attestation: {}, session: YWJj, dhCert: YWJj, policy: {encryptedState: true}}}}}",
    ),
    ("tdx with secure boot", domain("{firmware: {bootloader: {efi: {}}}, launchSecurity: {tdx: {}}}")),
    ("secure execution", "spec: {architecture: s390x, domain: {launchSecurity: {}}}"),
)
