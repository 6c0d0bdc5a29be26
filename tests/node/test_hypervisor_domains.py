# SPDX-License-Identifier: Apache-2.0
"""Every call on domains and the host, on a real libvirtd and QEMU."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable

import pytest
from hypervisor_guests import connected, domain_xml, guest, new_uuid
from lxml import etree

from launcher.errors import AlreadyExists, HostUnsupported, HypervisorError, NotFound, WrongPhase
from launcher.hypervisor.port import DomainRecord, DomainState
from launcher.lab.node import Node

pytestmark = pytest.mark.node

Call = Callable[[str], Awaitable[object]]


async def test_a_domain_lives_and_ends(node_a: Node) -> None:
    async with connected(node_a.libvirt_uri) as (hypervisor, recorder):
        uuid = await hypervisor.define(domain_xml(new_uuid(), name="lives"))
        assert await hypervisor.domain(uuid) == DomainRecord(
            uuid=uuid, name="lives", state=DomainState.SHUTOFF, reason="unknown", persistent=True
        )
        await hypervisor.create(uuid, paused=True)
        assert (await hypervisor.domain(uuid)).state is DomainState.PAUSED
        await hypervisor.resume(uuid)
        assert await hypervisor.domain(uuid) == DomainRecord(
            uuid=uuid, name="lives", state=DomainState.RUNNING, reason="unpaused", persistent=True
        )
        await hypervisor.suspend(uuid)
        await hypervisor.suspend(uuid)
        assert (await hypervisor.domain(uuid)).reason == "user"
        await hypervisor.resume(uuid)
        await hypervisor.reset(uuid)
        await hypervisor.shutdown(uuid)
        await hypervisor.destroy(uuid)
        ended = await hypervisor.domain(uuid)
        assert (ended.state, ended.reason) == (DomainState.SHUTOFF, "destroyed")
        await hypervisor.destroy(uuid)
        await hypervisor.undefine(uuid)
        with pytest.raises(NotFound):
            await hypervisor.domain(uuid)
        await hypervisor.undefine(uuid)
        await hypervisor.destroy(uuid, graceful=False)
        for event, detail in (
            ("defined", "added"),
            ("started", "booted"),
            ("resumed", "unpaused"),
            ("suspended", "paused"),
            ("stopped", "destroyed"),
            ("undefined", "removed"),
        ):
            assert (await recorder.lifecycle(uuid, event, detail)).name == "lives"


async def test_lists_every_domain(node_a: Node) -> None:
    async with connected(node_a.libvirt_uri) as (hypervisor, _):
        off = await hypervisor.define(domain_xml(new_uuid(), name="list-off"))
        async with guest(hypervisor, domain_xml(new_uuid(), name="list-on")) as on:
            node_a.run("virsh", "undefine", "list-on")
            found = {record.uuid: record for record in await hypervisor.list_domains()}
            assert found[off] == await hypervisor.domain(off)
            assert found[on] == await hypervisor.domain(on)
            assert (found[on].state, found[on].persistent) == (DomainState.PAUSED, False)
        await hypervisor.undefine(off)


async def test_each_view_of_the_xml(node_a: Node) -> None:
    display = "<graphics type='vnc' socket='/run/libvirt/hv-vnc.sock' passwd='pw123'/>"
    async with (
        connected(node_a.libvirt_uri) as (hypervisor, _),
        guest(hypervisor, domain_xml(new_uuid(), extra=display)) as uuid,
    ):
        live = await hypervisor.domain_xml(uuid)
        assert etree.fromstring(live).get("id") is not None
        assert "pw123" not in live
        inactive = await hypervisor.domain_xml(uuid, inactive=True)
        assert etree.fromstring(inactive).get("id") is None
        migratable = await hypervisor.domain_xml(uuid, migratable=True)
        assert "pw123" in migratable
        assert etree.fromstring(migratable).findtext("uuid") == uuid


async def test_metadata_goes_live_and_into_the_definition(node_a: Node) -> None:
    async with connected(node_a.libvirt_uri) as (hypervisor, _):
        uuid = await hypervisor.define(domain_xml(new_uuid()))

        async def write(text: str) -> None:
            await hypervisor.set_metadata(uuid, f"<mark>{text}</mark>", prefix="t", namespace="urn:test:mark")

        async def read(*, inactive: bool) -> str | None:
            tree = etree.fromstring(await hypervisor.domain_xml(uuid, inactive=inactive))
            return tree.findtext("metadata/{urn:test:mark}mark")

        await write("off")
        assert await read(inactive=True) == "off"
        await hypervisor.create(uuid, paused=True)
        await write("on")
        assert await read(inactive=False) == "on"
        assert await read(inactive=True) == "on"
        await hypervisor.destroy(uuid, graceful=False)
        await hypervisor.undefine(uuid)


@pytest.mark.parametrize("keep", [True, False])
async def test_undefine_keeps_or_deletes_the_firmware_state(node_a: Node, keep: bool) -> None:
    uuid = new_uuid()
    nvram = f"/var/lib/libvirt/qemu/nvram/{uuid}.fd"
    node_a.run("mkdir", "-p", "/var/lib/libvirt/qemu/nvram")
    node_a.run("touch", nvram)
    firmware = (
        f"<loader readonly='yes' type='pflash'>/usr/share/OVMF/OVMF_CODE_4M.fd</loader><nvram>{nvram}</nvram>"
    )
    async with connected(node_a.libvirt_uri) as (hypervisor, _):
        await hypervisor.define(domain_xml(uuid, os=firmware))
        await hypervisor.undefine(uuid, keep_nvram=keep)
    assert node_a.layout.outside(nvram).exists() is keep


async def test_errors_have_our_classes(node_a: Node) -> None:
    uuid = new_uuid()
    async with connected(node_a.libvirt_uri) as (hypervisor, _):
        missing: tuple[Call, ...] = (
            hypervisor.domain,
            hypervisor.domain_xml,
            hypervisor.create,
            hypervisor.job_stats,
        )
        for call in missing:
            with pytest.raises(NotFound, match=uuid):
                await call(uuid)
        with pytest.raises(HypervisorError, match="define domain: XML document failed to validate"):
            await hypervisor.define("<domain type='qemu'><nonsense/></domain>")
        with pytest.raises(HypervisorError, match=r"define domain: .*mandates value") as malformed:
            await hypervisor.define("<domain secret='abc' x")
        assert "abc" not in str(malformed.value)
        await hypervisor.define(domain_xml(uuid, name="errors"))
        with pytest.raises(AlreadyExists):
            await hypervisor.define(domain_xml(new_uuid(), name="errors"))
        with pytest.raises(HostUnsupported, match="xen"):
            await hypervisor.define(domain_xml(new_uuid()).replace("type='qemu'", "type='xen'", 1))
        off: tuple[Call, ...] = (
            hypervisor.suspend,
            hypervisor.resume,
            hypervisor.job_stats,
            hypervisor.abort_job,
        )
        for call in off:
            with pytest.raises(WrongPhase, match="domain is not running"):
                await call(uuid)
        await hypervisor.create(uuid, paused=True)
        with pytest.raises(WrongPhase, match="already running"):
            await hypervisor.create(uuid)
        with pytest.raises(WrongPhase, match="no job is active"):
            await hypervisor.abort_job(uuid)
        with pytest.raises(WrongPhase, match="outgoing migration"):
            await hypervisor.start_postcopy(uuid)
        assert (await hypervisor.job_stats(uuid)).kind == "none"
        await hypervisor.destroy(uuid, graceful=False)
        await hypervisor.undefine(uuid)


async def test_libvirt_prints_no_errors_of_its_own(node_a: Node, capfd: pytest.CaptureFixture[str]) -> None:
    async with connected(node_a.libvirt_uri) as (hypervisor, _):
        with pytest.raises(NotFound):
            await hypervisor.domain(new_uuid())
    assert capfd.readouterr().err == ""


async def test_reads_the_host(node_a: Node) -> None:
    async with connected(node_a.libvirt_uri) as (hypervisor, _):
        texts = await hypervisor.host_texts()
    version = re.search(r"API: QEMU (\d+)\.(\d+)\.(\d+)", node_a.run("virsh", "version"))
    assert version is not None
    numbers = [int(number) for number in version.groups()]
    assert texts.libvirt_version == numbers[0] * 1_000_000 + numbers[1] * 1_000 + numbers[2]
    assert texts.hypervisor_version >= 7_002_000
    assert texts.hostname == "a"
    assert etree.fromstring(texts.capabilities).find("host/cpu/arch") is not None
    emulated = etree.fromstring(texts.domain_capabilities["x86_64/qemu"])
    assert "q35" in (emulated.findtext("machine") or "")
    assert "x86_64/kvm" not in texts.domain_capabilities  # this node sees no KVM


async def test_reads_the_capabilities_of_one_machine(node_a: Node) -> None:
    async with connected(node_a.libvirt_uri) as (hypervisor, _):
        (text,) = await hypervisor.domain_capabilities("x86_64", "pc-i440fx-6.2")
        assert etree.fromstring(text).findtext("machine") == "pc-i440fx-6.2"
        assert etree.fromstring(text).findtext("domain") == "qemu"
        assert await hypervisor.domain_capabilities("x86_64", "no-such-machine") == ()


def _with_cpu(cpu: str) -> str:
    return re.sub(r"<cpu .*</cpu>", cpu, domain_xml(new_uuid()))


async def test_compares_the_guest_cpu(node_a: Node) -> None:
    async with connected(node_a.libvirt_uri) as (hypervisor, _):
        assert await hypervisor.migration_compatible(domain_xml(new_uuid())) == ()
        exact = "<cpu mode='custom' match='exact' check='partial'><model>{}</model></cpu>"
        assert await hypervisor.migration_compatible(_with_cpu(exact.format("qemu64"))) == ()
        assert await hypervisor.migration_compatible(_with_cpu("<cpu mode='host-model'/>")) == ()
        assert await hypervisor.migration_compatible(_with_cpu("")) == ()
        (finding,) = await hypervisor.migration_compatible(_with_cpu(exact.format("Skylake-Server")))
        assert "does not provide required features" in finding
        assert "avx512f" in finding
        (finding,) = await hypervisor.migration_compatible(_with_cpu(exact.format("Nonsense")))
        assert "Nonsense" in finding
        foreign = domain_xml(new_uuid()).replace("machine='q35'", "machine='pc-q35-99.0'")
        (finding,) = await hypervisor.migration_compatible(foreign.replace("check='none'", "check='full'"))
        assert "pc-q35-99.0" in finding
