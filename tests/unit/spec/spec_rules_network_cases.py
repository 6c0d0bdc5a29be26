# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: E501 - one manifest a line reads best
"""Manifests that rules about interfaces and networks refuse and accept."""

from __future__ import annotations

NIC = "spec.domain.devices.interfaces[0]"
NET = "spec.networks[0]"
POD = "pod: {}"
MULTUS = "multus: {networkName: lab/data}"


def nic(text: str, network: str = POD, more: str = "") -> str:
    """A fragment with an interface ``n`` on a network ``n``."""
    return (
        f"spec: {{{more}domain: {{devices: {{interfaces: [{{name: n, {text}}}]}}}}, "
        f"networks: [{{name: n, {network}}}]}}"
    )


def nics(interfaces: str, networks: str) -> str:
    """A fragment with several of both."""
    return f"spec: {{domain: {{devices: {{interfaces: [{interfaces}]}}}}, networks: [{networks}]}}"


def node_ports(text: str, nic_text: str = "masquerade: {}, ports: [{port: 80}]") -> str:
    """A fragment with the annotation that asks for ports of the node."""
    network = MULTUS if "bridge" in nic_text else POD
    return f"metadata: {{annotations: {{launcher/node-ports: '{text}'}}}}\n" + nic(nic_text, network)


NODE_PORTS = "metadata.annotations[launcher/node-ports]"

REFUSED: tuple[tuple[str, str, set[str]], ...] = (
    ("ports of the node without masquerade", node_ports("22", "bridge: {}"), {NODE_PORTS}),
    ("no port of the node", node_ports("ssh"), {NODE_PORTS}),
    ("nothing asked of the node", node_ports(""), {NODE_PORTS}),
    ("a port beyond the last", node_ports("65536:80"), {NODE_PORTS}),
    ("a port of the guest twice", node_ports("80,30080:80"), {NODE_PORTS}),
    ("a port of the node twice", node_ports("30080:80,30080:81", "masquerade: {}"), {NODE_PORTS}),
    ("a port that the guest does not show", node_ports("22"), {NODE_PORTS}),
    ("all ports of none", node_ports("auto", "masquerade: {}"), {NODE_PORTS}),
    ("interface name", nics("{name: a.b, masquerade: {}}", "{name: a.b, pod: {}}"), {f"{NIC}.name"}),
    (
        "interface twice",
        nics("{name: a, bridge: {}}, {name: a, bridge: {}}", f"{{name: a, {MULTUS}}}"),
        {"spec.domain.devices.interfaces[1].name"},
    ),
    (
        "interface without a network",
        nics("{name: a, masquerade: {}}, {name: b, bridge: {}}", "{name: a, pod: {}}"),
        {"spec.domain.devices.interfaces[1].name"},
    ),
    ("network without an interface", f"spec: {{networks: [{{name: a, {POD}}}]}}", {f"{NET}.name"}),
    (
        "network twice",
        nics("{name: a, bridge: {}}", f"{{name: a, {MULTUS}}}, {{name: a, {MULTUS}}}"),
        {"spec.networks[1].name"},
    ),
    ("no binding", nic("model: virtio"), {NIC}),
    ("two bindings", nic("masquerade: {}, bridge: {}"), {f"{NIC}.masquerade"}),
    ("slirp", nic("slirp: {}"), {f"{NIC}.slirp"}),
    ("macvtap", nic("macvtap: {}", MULTUS), {f"{NIC}.macvtap"}),
    ("binding without a name", nic("binding: {name: ''}"), {f"{NIC}.binding.name"}),
    ("masquerade on multus", nic("masquerade: {}", MULTUS), {f"{NIC}.masquerade"}),
    ("passt on multus", nic("passtBinding: {}", MULTUS), {f"{NIC}.passtBinding"}),
    ("sriov on the pod network", nic("sriov: {}"), {f"{NIC}.sriov"}),
    (
        "bridge on a claim",
        nic(
            "bridge: {}",
            "resourceClaim: {claimName: c, requestName: r}",
            "resourceClaims: [{name: c, resourceClaimName: x}], ",
        ),
        {f"{NIC}.sriov"},
    ),
    ("model", nic("masquerade: {}, model: ne2000"), {f"{NIC}.model"}),
    ("boot order", nic("masquerade: {}, bootOrder: -1"), {f"{NIC}.bootOrder"}),
    ("acpi index", nic("masquerade: {}, acpiIndex: 0"), {f"{NIC}.acpiIndex"}),
    ("acpi index, large", nic("masquerade: {}, acpiIndex: 16384"), {f"{NIC}.acpiIndex"}),
    (
        "acpi index twice",
        nics(
            "{name: a, masquerade: {}, acpiIndex: 1}, {name: b, bridge: {}, acpiIndex: 1}",
            f"{{name: a, pod: {{}}}}, {{name: b, {MULTUS}}}",
        ),
        {"spec.domain.devices.interfaces[1].acpiIndex"},
    ),
    ("pci address", nic("masquerade: {}, pciAddress: '0000:00:20.0'"), {f"{NIC}.pciAddress"}),
    ("mac address", nic("masquerade: {}, macAddress: 02:00:00:00:00"), {f"{NIC}.macAddress"}),
    ("mac address of many", nic("masquerade: {}, macAddress: 03:00:00:00:00:01"), {f"{NIC}.macAddress"}),
    ("mac address of zeros", nic("masquerade: {}, macAddress: '00-00-00-00-00-00'"), {f"{NIC}.macAddress"}),
    (
        "mac address of the bridge",
        nic("masquerade: {}, macAddress: '02:00:00:00:00:00'"),
        {f"{NIC}.macAddress"},
    ),
    (
        "mac address twice",
        nics(
            "{name: a, masquerade: {}, macAddress: 02:00:00:00:00:AA}, {name: b, bridge: {}, macAddress: 02-00-00-00-00-aa}",
            f"{{name: a, pod: {{}}}}, {{name: b, {MULTUS}}}",
        ),
        {"spec.domain.devices.interfaces[1].macAddress"},
    ),
    (
        "mac address of two functions",
        nics(
            "{name: a, sriov: {}, macAddress: 02:00:00:00:00:AA}, {name: b, sriov: {}, macAddress: 02-00-00-00-00-aa}",
            f"{{name: a, {MULTUS}}}, {{name: b, {MULTUS}}}",
        ),
        {"spec.domain.devices.interfaces[1].macAddress"},
    ),
    (
        "stand-in of another model",
        nics(
            "{name: a, bridge: {}, model: e1000e, macAddress: 02:00:00:00:00:AA}, {name: b, sriov: {}, macAddress: 02-00-00-00-00-aa}",
            f"{{name: a, {MULTUS}}}, {{name: b, {MULTUS}}}",
        ),
        {"spec.domain.devices.interfaces[1].macAddress"},
    ),
    ("state", nic("masquerade: {}, state: sleeping"), {f"{NIC}.state"}),
    ("state of sriov", nic("sriov: {}, state: down", MULTUS), {f"{NIC}.state"}),
    ("absent default", nic("bridge: {}, state: absent"), {f"{NIC}.state"}),
    ("absent sriov", nic("sriov: {}, state: absent", MULTUS), {f"{NIC}.state"}),
    ("tag", nic(f"masquerade: {{}}, tag: {'a' * 254}"), {f"{NIC}.tag"}),
    # ports and DHCP
    ("port", nic("masquerade: {}, ports: [{port: 0}]"), {f"{NIC}.ports[0].port"}),
    ("protocol", nic("masquerade: {}, ports: [{port: 80, protocol: SCTP}]"), {f"{NIC}.ports[0].protocol"}),
    ("port name", nic("masquerade: {}, ports: [{port: 80, name: HTTP}]"), {f"{NIC}.ports[0].name"}),
    ("port name of digits", nic("masquerade: {}, ports: [{port: 80, name: '80'}]"), {f"{NIC}.ports[0].name"}),
    (
        "port name twice",
        nic("masquerade: {}, ports: [{port: 80, name: a}, {port: 81, name: a}]"),
        {f"{NIC}.ports[1].name"},
    ),
    (
        "range backwards",
        nic("masquerade: {}, portRanges: [{protocol: TCP, start: 9, end: 8}]"),
        {f"{NIC}.portRanges[0].end"},
    ),
    (
        "ranges overlap",
        nic(
            "masquerade: {}, portRanges: [{protocol: TCP, start: 1, end: 9}, {protocol: TCP, start: 9, end: 12}]"
        ),
        {f"{NIC}.portRanges[1]"},
    ),
    (
        "range without a protocol",
        nic("masquerade: {}, portRanges: [{protocol: '', start: 1, end: 65536}]"),
        {f"{NIC}.portRanges[0].protocol", f"{NIC}.portRanges[0].end"},
    ),
    (
        "ranges and ports",
        nic("masquerade: {}, ports: [{port: 80}], portRanges: [{protocol: TCP, start: 1, end: 9}]"),
        {f"{NIC}.portRanges"},
    ),
    (
        "ranges on a bridge",
        nic("bridge: {}, portRanges: [{protocol: TCP, start: 1, end: 9}]", MULTUS),
        {f"{NIC}.portRanges"},
    ),
    (
        "eleven ranges",
        nic(
            "masquerade: {}, portRanges: ["
            + ", ".join(f"{{protocol: UDP, start: {i}, end: {i}}}" for i in range(1, 12))
            + "]"
        ),
        {f"{NIC}.portRanges"},
    ),
    (
        "time server",
        nic("masquerade: {}, dhcpOptions: {ntpServers: ['::1']}"),
        {f"{NIC}.dhcpOptions.ntpServers[0]"},
    ),
    (
        "public option",
        nic("masquerade: {}, dhcpOptions: {privateOptions: [{option: 223, value: a}]}"),
        {f"{NIC}.dhcpOptions.privateOptions[0].option"},
    ),
    (
        "option twice and empty",
        nic(
            "masquerade: {}, dhcpOptions: {privateOptions: [{option: 224, value: a}, {option: 224, value: ''}]}"
        ),
        {f"{NIC}.dhcpOptions.privateOptions[1].option", f"{NIC}.dhcpOptions.privateOptions[1].value"},
    ),
    (
        "option of two lines",
        nic('masquerade: {}, dhcpOptions: {privateOptions: [{option: 224, value: "a\\nb"}]}'),
        {f"{NIC}.dhcpOptions.privateOptions[0].value"},
    ),
    (
        "boot file",
        nic('masquerade: {}, dhcpOptions: {bootFileName: "a\\nb"}'),
        {f"{NIC}.dhcpOptions.bootFileName"},
    ),
    # networks
    ("no source", nics("{name: n, bridge: {}}", "{name: n}"), {NET}),
    ("two sources", nic("bridge: {}", f"{POD}, {MULTUS}"), {f"{NET}.pod"}),
    (
        "two pod networks",
        nics(
            "{name: a, masquerade: {}}, {name: b, masquerade: {}}", "{name: a, pod: {}}, {name: b, pod: {}}"
        ),
        {"spec.networks[1].pod"},
    ),
    (
        "two defaults",
        nics(
            "{name: a, bridge: {}}, {name: b, bridge: {}}",
            "{name: a, multus: {networkName: x, default: true}}, {name: b, multus: {networkName: y, default: true}}",
        ),
        {"spec.networks[1].multus.default"},
    ),
    (
        "pod network and a default",
        nics(
            "{name: a, masquerade: {}}, {name: b, bridge: {}}",
            "{name: a, pod: {}}, {name: b, multus: {networkName: y, default: true}}",
        ),
        {"spec.networks[1].multus.default"},
    ),
    ("network name", nic("bridge: {}", "multus: {networkName: a/b/c}"), {f"{NET}.multus.networkName"}),
    ("no network name", nic("bridge: {}", "multus: {networkName: ''}"), {f"{NET}.multus.networkName"}),
    (
        "claim of nobody",
        nic("sriov: {}", "resourceClaim: {claimName: c, requestName: r}"),
        {f"{NET}.resourceClaim.claimName"},
    ),
    (
        "claim of nothing",
        nic("sriov: {}", "resourceClaim: {}"),
        {f"{NET}.resourceClaim.claimName", f"{NET}.resourceClaim.requestName"},
    ),
    ("range", nic("masquerade: {}", "pod: {vmNetworkCIDR: 10.0.2.0}"), {f"{NET}.pod.vmNetworkCIDR"}),
    (
        "range of words",
        nic("masquerade: {}", "pod: {vmNetworkCIDR: 10.0.2.0/99}"),
        {f"{NET}.pod.vmNetworkCIDR"},
    ),
    (
        "range too small",
        nic("masquerade: {}", "pod: {vmNetworkCIDR: 10.0.2.0/31}"),
        {f"{NET}.pod.vmNetworkCIDR"},
    ),
    (
        "range of the other family",
        nic("masquerade: {}", "pod: {vmIPv6NetworkCIDR: 10.0.2.0/24}"),
        {f"{NET}.pod.vmIPv6NetworkCIDR"},
    ),
    *(
        (
            f"range that is no guest's: {text}",
            nic("masquerade: {}", f"pod: {{{key}: '{text}'}}"),
            {f"{NET}.pod.{key}"},
        )
        for key, text in (
            ("vmNetworkCIDR", "0.0.0.0/0"),
            ("vmNetworkCIDR", "0.0.0.0/8"),
            ("vmNetworkCIDR", "240.0.0.0/8"),
            ("vmIPv6NetworkCIDR", "::/0"),
            ("vmIPv6NetworkCIDR", "fe80::/64"),
        )
    ),
    (
        "range of multicast",
        nic("masquerade: {}", "pod: {vmNetworkCIDR: 224.0.0.0/24}"),
        {f"{NET}.pod.vmNetworkCIDR"},
    ),
)

ACCEPTED: tuple[tuple[str, str], ...] = (
    ("nothing", "spec: {}"),
    ("none at all", "spec: {domain: {devices: {autoattachPodInterface: false}}}"),
    ("ports of the node", node_ports("auto")),
    ("a port of the node that is named", node_ports(" 30080:80/tcp ")),
    ("any port of the node", node_ports("22,30053:53/udp", "masquerade: {}")),
    ("bridge on the pod network", nic("bridge: {}")),
    ("passt", nic("passtBinding: {}, ports: [{port: 22}]")),
    ("a binding by name", nic("binding: {name: my-plugin}")),
    (
        "masquerade with everything",
        nic(
            "masquerade: {}, model: e1000e, macAddress: 02-AB-00-00-00-01, acpiIndex: 16383, bootOrder: 1, state: down, "
            "pciAddress: '0000:02:00.0', tag: front, ports: [{port: 80, name: http, protocol: TCP}, {port: 53, protocol: UDP}], "
            "dhcpOptions: {bootFileName: a.efi, tftpServerName: t, ntpServers: [10.0.0.1], "
            "privateOptions: [{option: 240, value: 'x,y'}]}",
            "pod: {vmNetworkCIDR: 192.168.7.1/30, vmIPv6NetworkCIDR: 'fd10:1::/126'}",
        ),
    ),
    (
        "ranges",
        nic(
            "masquerade: {}, portRanges: [{protocol: TCP, start: 1, end: 9}, {protocol: UDP, start: 1, end: 65535}]"
        ),
    ),
    ("an absent bridge", nic("bridge: {}, state: absent", MULTUS)),
    ("sriov", nic("sriov: {}", MULTUS)),
    (
        "sriov with a stand-in",
        nics(
            "{name: a, masquerade: {}, macAddress: 02:00:00:00:00:AA}, {name: b, sriov: {}, macAddress: 02-00-00-00-00-aa}",
            f"{{name: a, {POD}}}, {{name: b, {MULTUS}}}",
        ),
    ),
    (
        "sriov by claim",
        nic(
            "sriov: {}",
            "resourceClaim: {claimName: c, requestName: r}",
            "resourceClaims: [{name: c, resourceClaimName: x}], ",
        ),
    ),
    (
        "a default of multus",
        nics(
            "{name: a, bridge: {}}, {name: b_1, bridge: {}}",
            "{name: a, multus: {networkName: x, default: true}}, {name: b_1, multus: {networkName: ns/y}}",
        ),
    ),
)
