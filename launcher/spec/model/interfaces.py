# SPDX-License-Identifier: Apache-2.0
"""Guest network interfaces and the networks they attach to."""

from __future__ import annotations

from msgspec import field

from launcher.spec.model.base import Model
from launcher.spec.model.scalars import Int32
from launcher.spec.model.scheduling import ClaimRequest


class DHCPPrivateOptions(Model, frozen=True, kw_only=True):
    """API type ``DHCPPrivateOptions``.

    ``option`` is the number of a site-specific option, 224 to 254.
    """

    option: Int32
    value: str


class DHCPOptions(Model, frozen=True, kw_only=True):
    """API type ``DHCPOptions``."""

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
    """API type ``PluginBinding``."""

    name: str


class Port(Model, frozen=True, kw_only=True):
    """API type ``Port``."""

    port: Int32
    name: str | None = None
    protocol: str | None = None


class PortRange(Model, frozen=True, kw_only=True):
    """API type ``PortRange``.

    ``start`` to ``end``, both included.
    """

    end: Int32
    protocol: str
    start: Int32


class Interface(Model, frozen=True, kw_only=True):
    """API type ``Interface``.

    ``ports`` are those of the guest that the pod's address shows; none means all. ``boot_order`` counts
    from 1 over disks and interfaces together; ``state`` is ``up``, ``down`` or ``absent``.
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
    """API type ``MultusNetwork``."""

    network_name: str
    default: bool | None = None


class PodNetwork(Model, frozen=True, kw_only=True):
    """API type ``PodNetwork``."""

    vm_ipv6_network_cidr: str | None = field(name="vmIPv6NetworkCIDR", default=None)
    vm_network_cidr: str | None = field(name="vmNetworkCIDR", default=None)


class Network(Model, frozen=True, kw_only=True):
    """API type ``Network``."""

    name: str
    multus: MultusNetwork | None = None
    pod: PodNetwork | None = None
    resource_claim: ClaimRequest | None = None
