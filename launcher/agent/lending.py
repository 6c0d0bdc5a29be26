# SPDX-License-Identifier: Apache-2.0
"""Chooses virtual functions of the node's cards for interfaces that were handed none. Asks the kernel."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator

from msgspec.structs import replace

from launcher.agent.attachments import TIMEOUT_S
from launcher.agent.port import Attachment, Companions
from launcher.agent.records import InstanceRecord
from launcher.errors import Exhausted, TimedOut
from launcher.plan.node_networks import named_network
from launcher.plan.settings import FunctionNetwork, NetworkSettings
from launcher.spec.model import Interface, VirtualMachineInstance


async def with_functions(
    manifest: VirtualMachineInstance,
    companions: Companions,
    networks: NetworkSettings,
    others: Iterable[InstanceRecord],
    *,
    arriving: bool = False,
) -> Companions:
    """``companions`` with a function that none of ``others`` has for each interface that needs one.

    Of one that is ``arriving`` those of its source mean nothing here: all are chosen anew, with the MAC
    address and, where this node's network names none, the VLAN that they had. An interface on a network that
    is no card of this node is left as it is (one that arrives: without a function), for planning to refuse.

    Raises:
        Exhausted: all functions of a card are in use.
        NetworkError: a card is not there, or has no functions.
        TimedOut: the kernel does not answer.
    """
    given = dict(companions.attachments)
    wanted = [nic for nic in _passed_through(manifest) if arriving or not _device(given.get(nic.name))]
    if not wanted:
        return companions
    taken = {one.device for other in others for one in other.allocations.attachments.values()}
    taken |= {one.device for name, one in given.items() if name not in {nic.name for nic in wanted}}
    for nic in wanted:
        had = given.pop(nic.name, Attachment())
        card = _card(manifest, nic, networks)
        if card is None:
            continue
        device = await _free(nic.name, card, taken)
        taken.add(device)
        given[nic.name] = Attachment(device=device, vlan=card.vlan or had.vlan, mac=had.mac)
    return replace(companions, attachments=given)


def _passed_through(manifest: VirtualMachineInstance) -> Iterator[Interface]:
    for nic in manifest.spec.domain.devices.interfaces:
        if nic.sriov is not None and nic.state != "absent":
            yield nic


def _device(given: Attachment | None) -> str:
    return given.device if given is not None else ""


def _card(
    manifest: VirtualMachineInstance, nic: Interface, networks: NetworkSettings
) -> FunctionNetwork | None:
    network = next((one for one in manifest.spec.networks if one.name == nic.name), None)
    if network is None or network.multus is None:
        return None
    namespace = (manifest.metadata.namespace if manifest.metadata is not None else None) or "default"
    return named_network(networks.cards, network.multus.network_name, namespace)


async def _free(name: str, card: FunctionNetwork, taken: set[str]) -> str:
    from launcher.network.function import functions_on

    try:
        async with asyncio.timeout(TIMEOUT_S):
            there = await asyncio.to_thread(functions_on, name, card.link)
    except TimeoutError as error:
        raise TimedOut(f"the functions of {card.link} were not found within {TIMEOUT_S:g} s") from error
    free = next((device for device in there if device not in taken), None)
    if free is None:
        raise Exhausted(
            "virtual functions",
            f"interface {name!r}: all {len(there)} virtual functions of {card.link} are in use",
            hint="delete an instance that has one, or write a larger number to sriov_numvfs of the card",
        )
    return free
