# SPDX-License-Identifier: Apache-2.0
"""When the facts of a host are read, and what they are put together from."""

from __future__ import annotations

import asyncio
from typing import cast

import msgspec
import pytest

from launcher.agent.hostfacts import HostFacts
from launcher.errors import HypervisorUnavailable
from launcher.host.config import Config
from launcher.host.kvm import probe
from launcher.hypervisor.port import HostTexts, Hypervisor
from launcher.plan.arch import AMD64
from launcher.plan.facts import NodeFacts
from launcher.spec.codec import dec_hook
from launcher.spec.model import VirtualMachineInstance

CAPABILITIES = """
<capabilities><host><cpu><arch>x86_64</arch></cpu>
  <topology><cells num='1'><cell id='0'>
    <pages unit='KiB' size='4'>1000</pages><pages unit='KiB' size='2048'>999999</pages>
  </cell></cells></topology></host>
  <guest><arch name='x86_64'>
    <machine canonical='pc-q35-7.2'>q35</machine><machine>pc-q35-6.2</machine><domain type='kvm'/>
  </arch></guest>
</capabilities>
"""
DOMAIN = (
    "<domainCapabilities><domain>{}</domain><machine>{}</machine><arch>x86_64</arch></domainCapabilities>"
)


class Texts:
    """The part of a hypervisor that tells of the host, and what it was asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.up = True
        self.held = asyncio.Event()
        self.held.set()

    async def host_texts(self) -> HostTexts:
        self.asked.append("host")
        await self.held.wait()
        if not self.up:
            raise HypervisorUnavailable("gone")
        return HostTexts(
            libvirt_version=9_000_000 + len(self.asked),
            hypervisor_version=7_002_000,
            hostname="here",
            capabilities=CAPABILITIES,
            domain_capabilities={virt: DOMAIN.format(virt, "pc-q35-7.2") for virt in ("kvm", "qemu")},
        )

    async def domain_capabilities(self, arch: str, machine: str) -> tuple[str, ...]:
        self.asked.append(f"{arch}/{machine}")
        return (DOMAIN.format("kvm", machine), DOMAIN.format("qemu", machine))


@pytest.fixture
def texts() -> Texts:
    return Texts()


@pytest.fixture
def facts(texts: Texts) -> HostFacts:
    return HostFacts(Config(node="here"), cast(Hypervisor, texts))


def on(machine: str) -> VirtualMachineInstance:
    raw = {"spec": {"domain": {"machine": {"type": machine}, "devices": {}}}}
    return msgspec.convert(raw, VirtualMachineInstance, dec_hook=dec_hook)


def machines(found: NodeFacts) -> list[tuple[str, str]]:
    return [(caps.virt, caps.machine) for caps in found.domain_caps if caps.virt == "qemu"]


async def test_libvirt_is_asked_once_per_connection(texts: Texts, facts: HostFacts) -> None:
    first = await facts.get()
    assert (await facts.get()).libvirt_version == first.libvirt_version == 9_000_001
    facts.forget()
    assert (await facts.get()).libvirt_version == 9_000_002
    assert texts.asked == ["host", "host"]


async def test_facts_that_were_under_way_when_the_connection_changed_are_not_kept(
    texts: Texts, facts: HostFacts
) -> None:
    texts.held.clear()
    early = asyncio.create_task(facts.get())
    while not texts.asked:
        await asyncio.sleep(0)
    facts.forget()
    texts.held.set()
    assert (await early).libvirt_version == 9_000_001
    assert (await facts.get()).libvirt_version == 9_000_002


async def test_without_libvirt_there_are_no_facts(texts: Texts, facts: HostFacts) -> None:
    texts.up = False
    with pytest.raises(HypervisorUnavailable):
        await facts.get()
    texts.up = True
    assert (await facts.get()).node == "here"


async def test_another_machine_is_asked_about_once(texts: Texts, facts: HostFacts) -> None:
    default = [("qemu", "pc-q35-7.2")]
    assert machines(await facts.get(on("q35"))) == default
    assert machines(await facts.get(on("pc-q35-1.0"))) == default  # QEMU has it not
    both = [*default, ("qemu", "pc-q35-6.2")]
    assert machines(await facts.get(on("pc-q35-6.2"))) == both
    assert machines(await facts.get(on("pc-q35-6.2"))) == both
    assert texts.asked == ["host", "x86_64/pc-q35-6.2"]
    facts.forget()
    assert machines(await facts.get(on("pc-q35-6.2"))) == both


async def test_what_the_kernel_says_now_goes_before_what_libvirt_said(facts: HostFacts) -> None:
    found = await facts.get()
    small, *huge = found.cells[0].pools
    assert (small.size, small.count, small.free) == (4096, 1000, None)
    assert all(pool.count != 999_999 for pool in huge if pool.free is not None)
    usable = probe()
    assert (found.kvm_usable, found.kvm_reason) == (usable.usable, usable.reason)
    assert (found.caps(AMD64, "kvm") is not None) is usable.usable
    assert found.firmwares is not None
    assert found.programs.swtpm is not None
