# SPDX-License-Identifier: Apache-2.0
"""What of the node an interface's network and binding are. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from launcher.plan.context import PlanContext
from launcher.plan.settings import Binding, BridgedNetwork
from launcher.spec.model import Interface, Network

T = TypeVar("T")


def plugin_of(context: PlanContext, asked: Interface) -> Binding | None:
    """The binding plugin of the node that the interface names; None: it names none, or none that is here."""
    if asked.binding is None:
        return None
    return context.settings.network.bindings.get(asked.binding.name)


def bridged_network(context: PlanContext, network: Network | None) -> BridgedNetwork | None:
    """The bridge of the node that ``network`` is; None: it is none."""
    settings = context.settings
    if network is None:
        return None
    if network.pod is not None:
        return BridgedNetwork(bridge=settings.pod_bridge) if settings.pod_bridge else None
    if network.multus is None:
        return None
    return named_network(settings.network.bridges, network.multus.network_name, context.namespace)


def named_network(there: Mapping[str, T], name: str, namespace: str) -> T | None:
    """Of networks by ``[namespace/]name`` that which ``name`` means in ``namespace``."""
    full = name if "/" in name else f"{namespace}/{name}"
    return there.get(full) or there.get(full.partition("/")[2])


def interface_mtu(context: PlanContext, asked: Interface) -> int | None:
    """The MTU that the guest is told; None: nobody decided."""
    given = context.allocations.attachments.get(asked.name)
    if given is not None:
        return given.mtu or None
    if asked.masquerade is not None:
        return context.settings.network.mtu or None
    network = next((n for n in context.vmi.spec.networks if n.name == asked.name), None)
    bridged = bridged_network(context, network)
    return (bridged.mtu or None) if bridged is not None else None
