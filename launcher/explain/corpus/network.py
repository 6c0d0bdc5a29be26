# SPDX-License-Identifier: Apache-2.0
"""Examples that set the fields of interfaces and networks. Data only."""

from __future__ import annotations

POD = """
spec:
  domain:
    memory: {guest: 1Gi}
    devices:
      interfaces:
        - name: front
          masquerade: {}
          model: virtio
          macAddress: "02:00:00:12:34:56"
          pciAddress: "0000:82:00.0"
          acpiIndex: 7
          bootOrder: 2
          tag: public
          ports: [{name: http, port: 80, protocol: TCP}]
          dhcpOptions:
            bootFileName: boot.efi
            tftpServerName: boot.example
            ntpServers: [192.0.2.1]
            privateOptions: [{option: 240, value: site}]
        - {name: back, bridge: {}, state: down}
  networks:
    - {name: front, pod: {vmNetworkCIDR: 10.9.0.0/24, vmIPv6NetworkCIDR: "fd10:9::/120"}}
    - {name: back, multus: {networkName: lab/back, default: false}}
"""

PORT_RANGES = """
spec:
  domain:
    memory: {guest: 1Gi}
    devices:
      interfaces: [{name: front, masquerade: {}, portRanges: [{start: 8000, end: 8080, protocol: TCP}]}]
  networks: [{name: front, pod: {}}]
"""

PASST = """
spec:
  domain:
    memory: {guest: 1Gi}
    devices:
      interfaces: [{name: front, passtBinding: {}, ports: [{port: 80, protocol: UDP}]}]
  networks: [{name: front, pod: {}}]
"""

SRIOV = """
spec:
  domain:
    memory: {guest: 1Gi}
    devices:
      interfaces: [{name: fast, sriov: {}}]
  networks: [{name: fast, resourceClaim: {claimName: functions, requestName: first}}]
  resourceClaims: [{name: functions, resourceClaimName: functions}]
"""

TEAM = """
spec:
  domain:
    memory: {guest: 1Gi}
    devices:
      interfaces:
        - {name: slow, masquerade: {}, macAddress: "02:00:00:12:34:56"}
        - {name: fast, sriov: {}, macAddress: "02:00:00:12:34:56"}
  networks: [{name: slow, pod: {}}, {name: fast, multus: {networkName: lab/fast}}]
"""

PLUGIN = """
spec:
  domain:
    memory: {guest: 1Gi}
    devices:
      interfaces: [{name: extra, binding: {name: example}}]
  networks: [{name: extra, multus: {networkName: lab/plugged}}]
"""

OLD_BINDINGS = """
spec:
  domain:
    memory: {guest: 1Gi}
    devices:
      interfaces: [{name: a, slirp: {}}, {name: b, macvtap: {}}, {name: c, passt: {}}]
  networks:
    - {name: a, pod: {}}
    - {name: b, multus: {networkName: lab/b}}
    - {name: c, multus: {networkName: lab/c}}
"""

EXAMPLES = {
    "pod-network": POD,
    "port-ranges": PORT_RANGES,
    "passt": PASST,
    "sriov": SRIOV,
    "team": TEAM,
    "plugin": PLUGIN,
    "old-bindings": OLD_BINDINGS,
}
