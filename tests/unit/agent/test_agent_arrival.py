# SPDX-License-Identifier: Apache-2.0
"""What a target finds out about itself before a migration, from the real XML."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from launcher.agent.arrival import ArrivalChecks
from launcher.agent.landing import Landings
from launcher.host.config import Config, Migration, Network
from launcher.migration.peer import PrepareRequest, SharedDisk

NOW = 1_000_000.0
CAPABILITIES = "<domainCapabilities><domain>{kind}</domain></domainCapabilities>"


class Host:
    """Knows one machine, and runs guests by emulation."""

    async def domain_capabilities(self, arch: str, machine: str) -> tuple[str, ...]:
        known = (arch, machine) == ("x86_64", "pc-q35-7.2")
        return (CAPABILITIES.format(kind="qemu"),) if known else ()


def domain(*, kind: str = "qemu", machine: str = "pc-q35-7.2", os: str = "", devices: str = "") -> str:
    return (
        f"<domain type='{kind}'><name>vm</name><uuid>u</uuid>"
        f"<os><type arch='x86_64' machine='{machine}'>hvm</type>{os}</os>"
        f"<devices>{devices}</devices></domain>"
    )


def findings(xml: str, *, config: Config | None = None, **request: Any) -> list[str]:
    checks = ArrivalChecks(
        config or Config(),
        cast("Any", Host()),
        cast("Any", SimpleNamespace(records=lambda: ())),
        Landings(config or Config()),
        lambda: NOW,
    )
    asked = PrepareRequest(attempt="a", source_node="s", vmi="{}", domain_xml=xml, **request)

    async def all_of_them() -> list[str]:
        found = await asyncio.gather(*(check.run(asked) for check in checks.all()))
        return [finding for findings in found for finding in findings]

    return asyncio.run(all_of_them())


def test_a_guest_that_fits_has_no_findings() -> None:
    assert findings(domain(), source_time=NOW - 59) == []


@pytest.mark.parametrize(
    ("xml", "said"),
    [
        (domain(machine="pc-q35-10.0"), "does not know the machine pc-q35-10.0 for x86_64"),
        (domain(kind="kvm"), "runs by kvm, this node offers qemu"),
        (domain(os="<loader>/no/such.fd</loader>"), "the firmware /no/such.fd is not on this node"),
        (domain(os="<nvram template='/no/vars.fd'/>"), "the firmware /no/vars.fd is not on this node"),
    ],
)
def test_what_the_host_lacks(xml: str, said: str) -> None:
    found = findings(xml)
    assert len(found) == 1
    assert said in found[0]


def test_a_missing_bridge_counts_only_for_guests_with_taps() -> None:
    config = Config(network=Network(bridge="nobridge0"))
    assert findings(domain(), config=config) == []
    tap = "<interface type='ethernet'><target dev='lt1'/></interface>"
    assert "no bridge nobridge0" in findings(domain(devices=tap), config=config)[0]


def test_clocks_that_are_apart() -> None:
    assert findings(domain(), source_time=0) == [], "an older source does not say"
    assert "61 s apart" in findings(domain(), source_time=NOW + 61)[0]


def disk(path: Path) -> str:
    return (
        "<disk type='file' device='disk'><driver type='raw'/>"
        f"<source file='{path}'/><target dev='vda'/></disk>"
    )


def test_a_disk_of_another_size(tmp_path: Path) -> None:
    path = tmp_path / "disk.img"
    path.write_bytes(bytes(4096))
    xml = domain(devices=disk(path))
    assert findings(xml, disks=(SharedDisk(path=str(path), bytes=4096),)) == []
    found = findings(xml, disks=(SharedDisk(path=str(path), bytes=8192),))
    assert found == [f"the disk {path} has 4096 bytes here and 8192 on the source"]


def test_certificates_count_only_for_encrypted_migrations(tmp_path: Path) -> None:
    config = Config(migration=Migration(address="10.0.0.1", tls_dir=str(tmp_path)))
    assert findings(domain(), config=config) == []
    assert "has no ca-cert.pem" in findings(domain(), config=config, tls=True)[0]


def test_copied_disks_need_space(tmp_path: Path) -> None:
    config = Config(state_dir=str(tmp_path))
    assert findings(domain(), config=config, copied_bytes=4096) == []
    assert "left" in findings(domain(), config=config, copied_bytes=1 << 60)[0]


def test_all_findings_come_together() -> None:
    found = findings(domain(kind="kvm", os="<loader>/no/such.fd</loader>"), source_time=NOW - 900)
    assert len(found) == 3
