# SPDX-License-Identifier: Apache-2.0
"""The node on which the examples are measured: it has all that they ask for. Data and stand-ins only."""

from __future__ import annotations

from msgspec.structs import replace

from launcher.domain.translate import Assumptions, assume, stand_ins
from launcher.explain.translation import Translator
from launcher.plan.allocations import Allocations, ClaimPlace
from launcher.plan.devices.hostdev import resource_name
from launcher.plan.facts import Distance, HostCPU, NumaCell, PagePool
from launcher.plan.volumes import claim_name
from launcher.spec.model import Interface, VirtualMachineInstance
from launcher.units import GIB, MIB

_PAGES = (PagePool(size=2 * MIB, count=4096), PagePool(size=GIB, count=8))


def example_host(vmi: VirtualMachineInstance) -> Translator:
    """A node that runs ``vmi`` under KVM: two NUMA cells of four cores of two threads, huge pages, devices.

    It offers the devices and claims that ``vmi`` names and no others, so that another name finds nothing.
    """
    assumed = assume(vmi)
    facts = replace(assumed.facts, cells=_cells(), memory_locking=True)
    offered = _offered(vmi, assumed)

    def allocate(other: VirtualMachineInstance, assumed: Assumptions) -> Allocations:
        return replace(
            stand_ins(other, assumed),
            uid=offered.uid,
            claims=offered.claims,
            devices=offered.devices,
            virtual_functions=offered.virtual_functions,
            macs={nic.name: f"02:00:00:00:00:{n:02x}" for n, nic in enumerate(_nics(other))},
            taps={nic.name: f"tap-{nic.name}"[:15] for nic in _nics(other)},
        )

    return Translator(
        assumed=Assumptions(facts=facts, settings=assumed.settings, defaults=assumed.defaults),
        allocate=allocate,
    )


def _nics(vmi: VirtualMachineInstance) -> tuple[Interface, ...]:
    return vmi.spec.domain.devices.interfaces


def _offered(vmi: VirtualMachineInstance, assumed: Assumptions) -> Allocations:
    """Places and addresses for all that the manifest names."""
    devices = vmi.spec.domain.devices
    luns = {disk.name for disk in devices.disks if disk.lun is not None}
    claims = {claim: v.name in luns for v in vmi.spec.volumes if (claim := claim_name(v)) is not None}
    cards = dict.fromkeys(resource_name(item) for item in devices.host_devices)
    screens = dict.fromkeys(resource_name(item) for item in devices.gpus)
    return replace(
        stand_ins(vmi, assumed),
        claims={
            name: ClaimPlace(path=f"/claims/{name}", capacity=GIB, block=block)
            for name, block in sorted(claims.items())
        },
        devices={
            **{name: (f"0000:{bus:02x}:00.0",) for bus, name in enumerate(cards, 0x41)},
            **{name: (f"b5c0a7f6-5a0e-4d0c-9d52-{number:012x}",) for number, name in enumerate(screens)},
        },
        virtual_functions={
            nic.name: f"0000:{bus:02x}:02.0"
            for bus, nic in enumerate(_nics(vmi), 0x61)
            if nic.sriov is not None
        },
    )


def _cells() -> tuple[NumaCell, ...]:
    return tuple(
        NumaCell(
            id=cell,
            memory=16 * GIB,
            pools=_PAGES,
            cpus=tuple(
                HostCPU(id=core + thread * 8, siblings=(core, core + 8))
                for core in range(4 * cell, 4 * cell + 4)
                for thread in (0, 1)
            ),
            distances=(Distance(cell=0, value=10 + 11 * cell), Distance(cell=1, value=21 - 11 * cell)),
        )
        for cell in (0, 1)
    )
