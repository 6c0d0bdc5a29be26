# SPDX-License-Identifier: Apache-2.0
"""``spec.domain.devices.interfaces`` -> InterfacePlan; SR-IOV ones are in ``hostdev``. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from launcher.plan.context import PlanContext
from launcher.plan.devices.model import (
    InterfacePlan,
    Passt,
    PluginPlan,
    PortForward,
    PortRange,
    Unbound,
    VhostUser,
)
from launcher.plan.devices.pciaddress import pci_address
from launcher.plan.devices.versions import PASST_VHOST_USER
from launcher.plan.node_networks import bridged_network, interface_mtu, plugin_of
from launcher.plan.settings import Binding
from launcher.spec.model import Interface

# QEMU's limit for the pairs of queues of one tap is the kernel's MAX_TAP_QUEUES.
MAX_QUEUES = 256


def plan_interfaces(context: PlanContext) -> tuple[InterfacePlan, ...]:
    """Plan the interfaces that the domain is defined with, in the manifest's order, without absent ones."""
    return tuple(
        _passt(context, nic)
        if nic.passt_binding is not None
        else _tap(context, nic, f"spec.domain.devices.interfaces[{index}]")
        for index, nic in enumerate(context.devices.interfaces)
        if nic.state != "absent" and nic.sriov is None and not _is_foreign(context, nic)
    )


def plan_plugins(context: PlanContext) -> tuple[PluginPlan, ...]:
    """The binding plugins of interfaces, in the order in which their programs edit the domain."""
    return tuple(
        PluginPlan(
            name=nic.name,
            binding=nic.binding.name,
            program=plugin.program,
            timeout_s=plugin.timeout_s,
            migrate=plugin.migrate,
        )
        for nic in context.devices.interfaces
        if nic.state != "absent" and nic.binding is not None
        if (plugin := plugin_of(context, nic)) is not None
    )


def unbound_bindings(context: PlanContext) -> Iterator[Unbound]:
    """Interfaces whose binding is a plugin's: nothing here knows what to attach them to."""
    for index, nic in enumerate(context.devices.interfaces):
        if nic.state != "absent" and _is_foreign(context, nic) and plugin_of(context, nic) is None:
            name = nic.binding.name if nic.binding is not None else "slirp, macvtap or passt"
            yield Unbound(field=f"spec.domain.devices.interfaces[{index}]", kind="binding", name=name)


def unbound_networks(context: PlanContext) -> Iterator[Unbound]:
    """Interfaces on a bridge of a network that the node does not know."""
    networks = {network.name: network for network in context.vmi.spec.networks}
    for index, nic in enumerate(context.devices.interfaces):
        network = networks.get(nic.name)
        plugin = plugin_of(context, nic)
        on_network = nic.bridge is not None or (plugin is not None and plugin.attachment == "managed-tap")
        if nic.state == "absent" or not on_network or bridged_network(context, network) is not None:
            continue
        if nic.name in context.allocations.attachments:
            continue
        name = network.multus.network_name if network is not None and network.multus is not None else "pod"
        yield Unbound(field=f"spec.domain.devices.interfaces[{index}]", kind="network", name=name)


def _is_foreign(context: PlanContext, nic: Interface) -> bool:
    """Nothing that we make is behind it."""
    plugin = plugin_of(context, nic)
    if plugin is not None:
        return not plugin.attachment
    return any(binding is not None for binding in (nic.binding, nic.slirp, nic.macvtap, nic.passt))


def _tap(context: PlanContext, nic: Interface, field: str) -> InterfacePlan:
    virtio = _is_virtio(nic)
    plugin = plugin_of(context, nic)
    switch = _switch(context, nic, plugin) if plugin is not None else None
    queues = _queues(context, nic) if virtio else None
    boot = nic.boot_order or None
    return InterfacePlan(
        name=nic.name,
        model=_model(context, nic),
        mac=_mac(context, nic),
        tap=context.allocations.taps.get(nic.name) if switch is None else None,
        vhost_user=switch,
        mtu=interface_mtu(context, nic),
        queues=queues,
        # A node that lacks the kernel's backend has QEMU serve the queues, from one thread.
        vhost=virtio
        and switch is None
        and (queues is not None or context.iommu)
        and context.facts.devices.vhost_net is not False,
        iommu=virtio and context.iommu,
        # Without a boot order the firmware would try to boot from the network; hidden memory forbids ROMs.
        rom=not (context.arch.nic_rom and (boot is None or context.iommu)),
        link_down=nic.state == "down",
        boot_order=boot,
        acpi_index=nic.acpi_index or None,
        address=pci_address(nic.pci_address, field=f"{field}.pciAddress"),
    )


def _switch(context: PlanContext, nic: Interface, plugin: Binding) -> VhostUser | None:
    if plugin.attachment != "vhost-user":
        return None
    path = plugin.socket.replace("{uid}", context.allocations.uid).replace("{interface}", nic.name)
    return VhostUser(socket=path)


def _passt(context: PlanContext, nic: Interface) -> InterfacePlan:
    status = context.vmi.status
    reported = next((s for s in status.interfaces if s.name == nic.name), None) if status else None
    return InterfacePlan(
        name=nic.name,
        model=_model(context, nic),
        mac=_mac(context, nic),
        passt=Passt(
            # REQUIRED_FOR: libvirt < 11.1, where passt serves only interfaces of type user.
            vhostuser=context.facts.libvirt_version >= PASST_VHOST_USER,
            device=(reported.pod_interface_name or None) if reported is not None else None,
            log_file=context.paths.passt_log(nic.name),
            forwards=_forwards(nic),
        ),
    )


def _forwards(nic: Interface) -> tuple[PortForward, ...]:
    if not nic.ports:
        return (PortForward(proto="tcp"), PortForward(proto="udp"))
    tcp = tuple(PortRange(start=port.port) for port in nic.ports if (port.protocol or "TCP") != "UDP")
    udp = tuple(PortRange(start=port.port) for port in nic.ports if port.protocol == "UDP")
    forwards = (PortForward(proto="tcp", ranges=tcp), PortForward(proto="udp", ranges=udp))
    return tuple(forward for forward in forwards if forward.ranges)


def _is_virtio(nic: Interface) -> bool:
    return nic.model in (None, "", "virtio")


def _model(context: PlanContext, nic: Interface) -> str:
    return context.virtio_model if _is_virtio(nic) else nic.model or context.virtio_model


def _mac(context: PlanContext, nic: Interface) -> str | None:
    """The MAC address as libvirt writes it: lower case, with colons."""
    mac = nic.mac_address or context.allocations.macs.get(nic.name)
    return mac.lower().replace("-", ":") if mac else None


def _queues(context: PlanContext, nic: Interface) -> int | None:
    """Pairs of queues; those of a NIC that is plugged already stay, however many vCPUs were added since."""
    if not context.devices.network_interface_multiqueue:
        return None
    status = context.vmi.status
    plugged = next((s.queue_count for s in status.interfaces if s.name == nic.name), None) if status else None
    return plugged or min(context.topology.current, MAX_QUEUES)
