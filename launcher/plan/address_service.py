# SPDX-License-Identifier: Apache-2.0
"""What the servers of an interface's addresses tell its guest. Pure."""

from __future__ import annotations

from launcher.plan.allocations import Route
from launcher.plan.context import PlanContext
from launcher.plan.devices.model import InterfacePlan
from launcher.plan.steps import ServeAddresses
from launcher.spec.model import Interface

HOSTNAME_LENGTH = 63


def address_service(
    context: PlanContext,
    nic: InterfacePlan,
    asked: Interface,
    *,
    namespace: str,
    interface: str,
    directory: str,
    guests: tuple[str, ...],
    gateways: tuple[str, ...] = (),
    routes: tuple[Route, ...] = (),
) -> ServeAddresses:
    """The server on ``interface`` of ``namespace`` that gives ``guests`` (ADDRESS/PREFIX) to ``nic``."""
    spec, settings, options = context.vmi.spec, context.settings.network, asked.dhcp_options
    dns = spec.dns_config
    own = spec.dns_policy == "None"
    servers = (*(() if own else settings.nameservers), *(dns.nameservers if dns is not None else ()))
    search = (*(() if own else settings.search), *(dns.searches if dns is not None else ()))
    return ServeAddresses(
        owner=context.allocations.uid,
        network=nic.name,
        namespace=namespace,
        interface=interface,
        directory=directory,
        mac=nic.mac or "",
        guests=guests,
        gateways=gateways,
        hostname=(spec.hostname or context.name.partition(".")[0])[:HOSTNAME_LENGTH],
        subdomain=spec.subdomain or None,
        nameservers=servers,
        search=search,
        node_nameservers=not own and not settings.nameservers,
        node_search=not own and not settings.search,
        mtu=nic.mtu,
        ntp_servers=options.ntp_servers if options is not None else (),
        tftp_server=(options.tftp_server_name or None) if options is not None else None,
        boot_file=(options.boot_file_name or None) if options is not None else None,
        private=tuple((o.option, o.value) for o in options.private_options) if options is not None else (),
        routes=tuple((route.destination, route.gateway) for route in routes),
    )
