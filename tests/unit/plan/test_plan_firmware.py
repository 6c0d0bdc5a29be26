# SPDX-License-Identifier: Apache-2.0
"""Firmware images are chosen from the host's descriptors, by what the guest needs of them."""

from __future__ import annotations

import json
from collections.abc import Iterable

import pytest
from plan_manifest import context

from launcher.errors import HostUnsupported
from launcher.plan.descriptors import parse_descriptors
from launcher.plan.facts import Alias, Firmware, GuestFacts, NodeFacts
from launcher.plan.firmware import boot
from launcher.plan.model import BootPlan

PLAIN = "firmware: {bootloader: {efi: {secureBoot: false}}}"
SECURE = "firmware: {bootloader: {efi: {}}}, features: {smm: {}}"
SECURITY = "firmware: {bootloader: {efi: {secureBoot: false}}}, launchSecurity: {%s: {}}"
SEV_ES = SECURITY.replace("%s: {}", "sev: {policy: {encryptedState: true}}")


def flash(
    name: str, *features: str, machines: Iterable[str] = ("pc-q35-*",), mode: str = "", template: str = "VARS"
) -> str:
    """A descriptor of ``name`` in a flash."""
    mapping: dict[str, object] = {
        "device": "flash",
        "executable": {"filename": f"/fw/{name}", "format": "raw"},
        **({"mode": mode} if mode else {}),
        **({"nvram-template": {"filename": f"/fw/{template}", "format": "raw"}} if template else {}),
    }
    return descriptor(mapping, features, machines)


def rom(name: str, *features: str) -> str:
    """A descriptor of ``name`` as plain memory."""
    return descriptor({"device": "memory", "filename": f"/fw/{name}"}, features, ("pc-q35-*",))


def descriptor(mapping: dict[str, object], features: Iterable[str], machines: Iterable[str]) -> str:
    return json.dumps(
        {
            "description": "",
            "interface-types": ["uefi"],
            "mapping": mapping,
            "targets": [{"architecture": "x86_64", "machines": list(machines)}],
            "features": list(features),
            "tags": [],
        }
    )


HOST = {
    "10-combined.json": flash("COMBINED", mode="combined", template=""),
    "20-unenrolled.json": flash("CODE.secboot", "requires-smm", "secure-boot"),
    "30-enrolled.json": flash("CODE.ms", "enrolled-keys", "requires-smm", "secure-boot", template="VARS.ms"),
    "40-smm.json": flash("CODE.smm", "requires-smm"),
    "50-plain.json": flash("CODE", "amd-sev", machines=("pc-i440fx-*", "pc-q35-*")),
    "60-snp.json": flash("SNP", "amd-sev", "amd-sev-es", "amd-sev-snp", mode="stateless", template=""),
    "70-tdx.json": rom("TDX", "intel-tdx", "verbose-dynamic"),
    "80-masked.json": "",
    "90-broken.json": "{",
}


def planned(domain: str, facts: NodeFacts) -> BootPlan:
    return boot(context(f"{{memory: {{guest: 1Gi}}, {domain}}}", facts=facts))


def boot_of(domain: str, *, without: Iterable[str] = (), guests: tuple[GuestFacts, ...] = ()) -> BootPlan:
    found = parse_descriptors({name: text for name, text in HOST.items() if name not in without})
    return planned(domain, NodeFacts(firmwares=found, guests=guests))


def image_of(plan: BootPlan) -> tuple[str, str, str]:
    assert plan.loader is not None
    return plan.loader.path, plan.loader.type, plan.nvram.template if plan.nvram is not None else ""


@pytest.mark.parametrize(
    ("domain", "image"),
    [
        (PLAIN, ("/fw/CODE", "pflash", "/fw/VARS")),
        (f"{PLAIN}, features: {{smm: {{}}}}", ("/fw/CODE.smm", "pflash", "/fw/VARS")),
        (f"{PLAIN}, machine: {{type: pc-q35-6.2}}", ("/fw/CODE", "pflash", "/fw/VARS")),
        (SECURE, ("/fw/CODE.ms", "pflash", "/fw/VARS.ms")),
        (SECURITY % "sev", ("/fw/CODE", "pflash", "/fw/VARS")),
        (SECURITY % "snp", ("/fw/SNP", "rom", "")),
        (SECURITY % "tdx", ("/fw/TDX", "rom", "")),
    ],
)
def test_the_first_image_that_does_all_is_taken(domain: str, image: tuple[str, str, str]) -> None:
    assert image_of(boot_of(domain)) == image


@pytest.mark.parametrize(
    ("domain", "without", "capability"),
    [
        (PLAIN, ("50-plain.json",), "UEFI for amd64 without Secure Boot"),
        (SECURE, ("30-enrolled.json",), "UEFI for amd64 with Secure Boot"),
        (SECURE.replace("smm: {}", "smm: {enabled: false}"), (), "UEFI for amd64 with Secure Boot"),
        (SEV_ES, (), "UEFI for amd64 without Secure Boot for amd-sev-es"),
        (SECURITY % "snp", ("60-snp.json",), "UEFI for amd64 without Secure Boot for amd-sev-snp"),
        (SECURITY % "tdx", ("70-tdx.json",), "UEFI for amd64 without Secure Boot for intel-tdx"),
    ],
)
def test_what_no_descriptor_offers_is_refused_by_name(
    domain: str, without: tuple[str, ...], capability: str
) -> None:
    with pytest.raises(HostUnsupported) as caught:
        boot_of(domain, without=without)
    assert caught.value.capability == capability


def test_an_alias_of_a_machine_is_what_the_host_says_it_is() -> None:
    def guest(newest: str) -> tuple[GuestFacts, ...]:
        return (GuestFacts(arch="x86_64", aliases=(Alias(name="pc", machine=newest),)),)

    domain = f"{PLAIN}, machine: {{type: pc}}"
    assert image_of(boot_of(domain, guests=guest("pc-i440fx-7.2")))[0] == "/fw/CODE"
    with pytest.raises(HostUnsupported):
        boot_of(domain, guests=guest("isapc"))


def test_a_host_without_descriptors_has_no_firmware_and_an_unknown_one_has_the_usual() -> None:
    with pytest.raises(HostUnsupported, match="no firmware descriptor"):
        planned(PLAIN, NodeFacts(firmwares=()))
    usual = planned(PLAIN, NodeFacts(firmwares=None))
    assert image_of(usual) == (
        "/usr/share/edk2/ovmf/OVMF_CODE.fd",
        "pflash",
        "/usr/share/edk2/ovmf/OVMF_VARS.fd",
    )


def test_descriptors_are_ranked_by_name_and_bad_ones_left_out() -> None:
    found = parse_descriptors({"2.json": flash("B"), "1.json": flash("A"), "0.json": "", "3.json": "[1]"})
    assert [firmware.executable for firmware in found] == ["/fw/A", "/fw/B"]
    assert found[0] == Firmware(
        executable="/fw/A", nvram_template="/fw/VARS", targets=found[0].targets, features=()
    )
