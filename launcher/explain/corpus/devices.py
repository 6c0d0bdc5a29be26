# SPDX-License-Identifier: Apache-2.0
"""Examples that set the fields of devices other than disks and interfaces. Data only."""

from __future__ import annotations

AUTOATTACHED = """
spec:
  domain:
    memory: {guest: 1Gi}
    devices:
      autoattachGraphicsDevice: false
      autoattachMemBalloon: false
      autoattachPodInterface: false
      autoattachSerialConsole: false
      autoattachVSOCK: true
      disableHotplug: true
"""

ATTACHED = """
spec:
  domain:
    cpu: {cores: 2}
    memory: {guest: 1Gi}
    devices:
      autoattachInputDevice: true
      logSerialConsole: false
      blockMultiQueue: true
      networkInterfaceMultiqueue: true
      useVirtioTransitional: true
      clientPassthrough: {}
      downwardMetrics: {}
      rng: {}
      sound: {name: speaker, model: ac97}
      tpm: {enabled: true, persistent: true}
      video: {type: virtio}
      watchdog: {name: dog, i6300esb: {action: poweroff}}
      inputs: [{name: pointer, type: tablet, bus: virtio}]
      panicDevices: [{model: isa}]
      disks: [{name: data, disk: {bus: virtio}}]
  volumes: [{name: data, emptyDisk: {capacity: 1Gi}}]
"""

S390X = """
spec:
  architecture: s390x
  domain:
    memory: {guest: 1Gi}
    devices:
      watchdog: {name: dog, diag288: {action: poweroff}}
"""

HOST_DEVICES = """
spec:
  domain:
    memory: {guest: 1Gi}
    devices:
      hostDevices:
        - {name: card, deviceName: example.com/card, tag: fast}
        - {name: claimed, claimName: cards, requestName: first}
      gpus:
        - name: screen
          deviceName: example.com/vgpu
          tag: left
          virtualGPUOptions: {display: {enabled: true, ramFB: {enabled: false}}}
        - {name: compute, claimName: cards, requestName: second}
  resourceClaims:
    - {name: cards, resourceClaimName: cards-of-today}
    - {name: spare, resourceClaimTemplateName: cards}
"""

POINTER = """
spec:
  domain:
    memory: {guest: 1Gi}
    devices: {autoattachInputDevice: true}
"""

EXAMPLES = {
    "auto-attached-off": AUTOATTACHED,
    "small-devices": ATTACHED,
    "pointer": POINTER,
    "s390x-watchdog": S390X,
    "host-devices": HOST_DEVICES,
}
