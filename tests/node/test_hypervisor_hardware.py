# SPDX-License-Identifier: Apache-2.0
"""Calls that change the hardware of a domain, on a real libvirtd and QEMU; the guest itself has no code."""

from __future__ import annotations

import pytest
from hypervisor_guests import connected, domain_xml, new_uuid

from launcher.domain.read import read_domain
from launcher.errors import HostUnsupported, HypervisorError, NotFound
from launcher.hypervisor.driver import LibvirtHypervisor
from launcher.lab.node import Node

pytestmark = pytest.mark.node
RNG = "<rng model='virtio'><backend model='random'>/dev/urandom</backend><alias name='ua-rng'/></rng>"


def pluggable(uuid: str) -> str:
    """One vCPU of two, and a free root port."""
    port = (
        "<controller type='pci' index='0' model='pcie-root'/><controller type='pci' model='pcie-root-port'/>"
    )
    return domain_xml(uuid, extra=port).replace("<vcpu>1</vcpu>", "<vcpu current='1'>2</vcpu>")


async def texts(hypervisor: LibvirtHypervisor, uuid: str) -> tuple[str, str]:
    """The domain as it runs, and as it starts next."""
    return await hypervisor.domain_xml(uuid), await hypervisor.domain_xml(uuid, inactive=True)


async def test_vcpus_are_pinned_and_plugged_and_a_deaf_guest_gives_none_back(node_a: Node) -> None:
    async with connected(node_a.libvirt_uri) as (hypervisor, _):
        uuid = await hypervisor.define(pluggable(new_uuid()))
        await hypervisor.create(uuid)
        await hypervisor.pin_vcpu(uuid, 1, (0,))
        await hypervisor.set_vcpus(uuid, 2)
        await hypervisor.set_vcpus(uuid, 2)
        for text in await texts(hypervisor, uuid):
            view = read_domain(text)
            assert (view.vcpus, view.max_vcpus, view.pins[1]) == (2, 2, (0,))
        with pytest.raises(HypervisorError, match="unplug"):
            await hypervisor.set_vcpus(uuid, 1)
        assert read_domain(await hypervisor.domain_xml(uuid)).vcpus == 2
        with pytest.raises(HypervisorError, match="max allowable vcpus"):
            await hypervisor.set_vcpus(uuid, 3)
        await hypervisor.destroy(uuid)
        await hypervisor.undefine(uuid)
        with pytest.raises(NotFound):
            await hypervisor.set_vcpus(uuid, 2)


async def test_devices_come_and_go_live_and_in_the_definition(node_a: Node) -> None:
    async with connected(node_a.libvirt_uri) as (hypervisor, _):
        uuid = await hypervisor.define(pluggable(new_uuid()))
        await hypervisor.attach_device(uuid, RNG)
        assert "<rng" in await hypervisor.domain_xml(uuid)
        await hypervisor.detach_device(uuid, RNG)
        assert "<rng" not in await hypervisor.domain_xml(uuid)
        await hypervisor.create(uuid)
        await hypervisor.attach_device(uuid, RNG)
        assert ["<rng" in text for text in await texts(hypervisor, uuid)] == [True, True]
        with pytest.raises(HostUnsupported, match="ua-rng"):
            await hypervisor.attach_device(uuid, RNG)
        await hypervisor.destroy(uuid)
        await hypervisor.undefine(uuid)
