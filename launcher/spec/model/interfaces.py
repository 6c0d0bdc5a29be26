# SPDX-License-Identifier: Apache-2.0
"""Guest network interfaces and the networks they attach to."""

from __future__ import annotations

from msgspec import field

from launcher.spec.model.base import Model
from launcher.spec.model.scalars import Int32
from launcher.spec.model.scheduling import ClaimRequest


class DHCPPrivateOptions(Model, frozen=True, kw_only=True):
    """API type ``DHCPPrivateOptions``.

    A site-specific option.

    option: number of the option
    value: text of the option
    """

    option: Int32
    value: str


class DHCPOptions(Model, frozen=True, kw_only=True):
    """API type ``DHCPOptions``.

    Options of the DHCP answer.

    boot_file_name: file to boot over the network (option 67)
    ntp_servers: IPv4 addresses of time servers (option 42)
    private_options: options of the site
    tftp_server_name: server of the boot file (option 66)
    """

    boot_file_name: str | None = None
    ntp_servers: tuple[str, ...] = ()
    private_options: tuple[DHCPPrivateOptions, ...] = ()
    tftp_server_name: str | None = None


class DeprecatedInterfaceMacvtap(Model, frozen=True, kw_only=True):
    """API type ``DeprecatedInterfaceMacvtap``."""


class DeprecatedInterfacePasst(Model, frozen=True, kw_only=True):
    """API type ``DeprecatedInterfacePasst``."""


class DeprecatedInterfaceSlirp(Model, frozen=True, kw_only=True):
    """API type ``DeprecatedInterfaceSlirp``."""


class InterfaceBridge(Model, frozen=True, kw_only=True):
    """API type ``InterfaceBridge``."""


class InterfaceMasquerade(Model, frozen=True, kw_only=True):
    """API type ``InterfaceMasquerade``."""


class InterfacePasstBinding(Model, frozen=True, kw_only=True):
    """API type ``InterfacePasstBinding``."""


class InterfaceSRIOV(Model, frozen=True, kw_only=True):
    """API type ``InterfaceSRIOV``."""


class PluginBinding(Model, frozen=True, kw_only=True):
    """API type ``PluginBinding``.

    A binding plugin.

    name: name under which the cluster knows the plugin
    """

    name: str


class Port(Model, frozen=True, kw_only=True):
    """API type ``Port``.

    One port.

    port: number of the port
    name: name of the port; unique in the interface
    protocol: TCP or UDP; absent, TCP
    """

    port: Int32
    name: str | None = None
    protocol: str | None = None


class PortRange(Model, frozen=True, kw_only=True):
    """API type ``PortRange``.

    Ports from start to end, both included.

    end: last port
    protocol: TCP or UDP
    start: first port
    """

    end: Int32
    protocol: str
    start: Int32


class Interface(Model, frozen=True, kw_only=True):
    """API type ``Interface``.

    One network interface and how it is bound to its network (exactly one binding).

    name: the network that it attaches to; unique among the interfaces
    acpi_index: index by which a guest derives a stable name (eno1)
    binding: a binding that a plugin of the cluster provides
    boot_order: place in the boot order, from 1, counted over disks and interfaces together
    bridge: on a bridge, as if the guest were plugged into the network itself
    dhcp_options: extra options for the guest's DHCP
    mac_address: MAC address; absent, one is chosen and kept
    macvtap: no longer supported by the API
    masquerade: behind NAT, with an internal address of its own
    model: model of the card; absent, virtio
    passt: no longer supported by the API
    passt_binding: by passt, without privileges: connections are made by a process of the host
    pci_address: fixed PCI address in the guest
    port_ranges: ranges of ports to forward
    ports: the guest's ports that the pod's address shows; none means all
    slirp: no longer supported by the API
    sriov: a virtual function of an SR-IOV card, passed through
    state: link up or down; absent takes the interface away
    tag: a label for the guest's metadata, not for the hardware
    """

    name: str
    acpi_index: Int32 | None = None
    binding: PluginBinding | None = None
    boot_order: Int32 | None = None
    bridge: InterfaceBridge | None = None
    dhcp_options: DHCPOptions | None = None
    mac_address: str | None = None
    macvtap: DeprecatedInterfaceMacvtap | None = None
    masquerade: InterfaceMasquerade | None = None
    model: str | None = None
    passt: DeprecatedInterfacePasst | None = None
    passt_binding: InterfacePasstBinding | None = None
    pci_address: str | None = None
    port_ranges: tuple[PortRange, ...] = ()
    ports: tuple[Port, ...] = ()
    slirp: DeprecatedInterfaceSlirp | None = None
    sriov: InterfaceSRIOV | None = None
    state: str | None = None
    tag: str | None = None


class MultusNetwork(Model, frozen=True, kw_only=True):
    """API type ``MultusNetwork``.

    A further network.

    network_name: [namespace/]name of the network attachment definition
    default: it takes the place of the pod network
    """

    network_name: str
    default: bool | None = None


class PodNetwork(Model, frozen=True, kw_only=True):
    """API type ``PodNetwork``.

    The network of the pod.

    vm_ipv6_network_cidr: IPv6 network behind masquerade
    vm_network_cidr: IPv4 network behind masquerade
    """

    vm_ipv6_network_cidr: str | None = field(name="vmIPv6NetworkCIDR", default=None)
    vm_network_cidr: str | None = field(name="vmNetworkCIDR", default=None)


class Network(Model, frozen=True, kw_only=True):
    """API type ``Network``.

    What interfaces attach to; exactly one kind.

    name: name that an interface refers to
    multus: a further network, from a network attachment definition
    pod: the network of the pod, on this node its bridge
    resource_claim: a virtual function from a resource claim
    """

    name: str
    multus: MultusNetwork | None = None
    pod: PodNetwork | None = None
    resource_claim: ClaimRequest | None = None
