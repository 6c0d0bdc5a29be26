# SPDX-License-Identifier: Apache-2.0
"""``spec.domain.devices.interfaces`` -> InterfacePlan; SR-IOV ones are in ``hostdev``. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from launcher.plan.context import PlanContext
from launcher.plan.devices.model import InterfacePlan, Passt, PortForward, PortRange, Unbound
from launcher.plan.devices.pciaddress import pci_address
from launcher.plan.devices.versions import PASST_VHOST_USER
from launcher.plan.networks import bridged_network, interface_mtu
from launcher.spec.model import Interface

# QEMU's limit for the pairs of queues of one tap is the kernel's MAX_TAP_QUEUES.
MAX_QUEUES = 256


def plan_interfaces(context: PlanContext) -> tuple[InterfacePlan, ...]:
    """Plan the interfaces that are on a tap or on passt, in the manifest's order, without absent ones."""
    return tuple(
        _passt(context, nic)
        if nic.passt_binding is not None
        else _tap(context, nic, f"spec.domain.devices.interfaces[{index}]")
        for index, nic in enumerate(context.devices.interfaces)
        if nic.state != "absent" and nic.sriov is None and not _is_foreign(nic)
    )


def unbound_bindings(context: PlanContext) -> Iterator[Unbound]:
    """Interfaces whose binding is a plugin's: nothing here knows what to attach them to."""
    for index, nic in enumerate(context.devices.interfaces):
        if nic.state != "absent" and _is_foreign(nic):
            name = nic.binding.name if nic.binding is not None else "slirp, macvtap or passt"
            yield Unbound(field=f"spec.domain.devices.interfaces[{index}]", kind="binding", name=name)


def unbound_networks(context: PlanContext) -> Iterator[Unbound]:
    """Interfaces on a bridge of a network that the node does not know."""
    networks = {network.name: network for network in context.vmi.spec.networks}
    for index, nic in enumerate(context.devices.interfaces):
        network = networks.get(nic.name)
        if nic.state == "absent" or nic.bridge is None or bridged_network(context, network) is not None:
            continue
        if nic.name in context.allocations.attachments:
            continue
        name = network.multus.network_name if network is not None and network.multus is not None else "pod"
        yield Unbound(field=f"spec.domain.devices.interfaces[{index}]", kind="network", name=name)


def _is_foreign(nic: Interface) -> bool:
    return any(binding is not None for binding in (nic.binding, nic.slirp, nic.macvtap, nic.passt))


def _tap(context: PlanContext, nic: Interface, field: str) -> InterfacePlan:
    virtio = _is_virtio(nic)
    queues = _queues(context, nic) if virtio else None
    boot = nic.boot_order or None
    return InterfacePlan(
        name=nic.name,
        model=_model(context, nic),
        mac=_mac(context, nic),
        tap=context.allocations.taps.get(nic.name),
        mtu=interface_mtu(context, nic),
        queues=queues,
        vhost=virtio and (queues is not None or context.iommu),
        iommu=virtio and context.iommu,
        # Without a boot order the firmware would try to boot from the network; hidden memory forbids ROMs.
        rom=not (context.arch.nic_rom and (boot is None or context.iommu)),
        link_down=nic.state == "down",
        boot_order=boot,
        acpi_index=nic.acpi_index or None,
        address=pci_address(nic.pci_address, field=f"{field}.pciAddress"),
    )


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
