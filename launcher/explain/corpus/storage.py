# SPDX-License-Identifier: Apache-2.0
"""Examples that set the fields of disks, filesystems and volumes. Data only."""

from __future__ import annotations

DISKS = """
spec:
  domain:
    memory: {guest: 1Gi}
    ioThreadsPolicy: auto
    devices:
      disks:
        - name: root
          disk: {bus: virtio, pciAddress: "0000:81:00.0"}
          bootOrder: 1
          cache: none
          io: native
          errorPolicy: report
          serial: SN-1
          dedicatedIOThread: true
          changedBlockTracking: true
          tag: system
          blockSize: {custom: {logical: 4096, physical: 4096, discardGranularity: 8192}}
        - name: data
          disk: {bus: scsi, readonly: true}
          blockSize: {matchVolume: {enabled: true}}
        - name: common
          disk: {bus: virtio}
          shareable: true
        - name: media
          cdrom: {bus: sata, readonly: true, tray: open}
        - name: passed
          lun: {bus: scsi, readonly: true, reservation: true}
  volumes:
    - {name: root, containerDisk: {image: "registry.example/os:1", imagePullPolicy: Always,
         imagePullSecret: registry, path: /disk/os.qcow2}}
    - {name: data, persistentVolumeClaim: {claimName: data, readOnly: false, hotpluggable: false}}
    - {name: common, hostDisk: {path: /images/common.img, type: DiskOrCreate, capacity: 2Gi, shared: true}}
    - {name: media, dataVolume: {name: media, hotpluggable: false}}
    - {name: passed, persistentVolumeClaim: {claimName: passed, readOnly: false, hotpluggable: true}}
"""

MORE_VOLUMES = """
spec:
  domain:
    memory: {guest: 1Gi}
    devices: {}
  volumes:
    - {name: scratch, emptyDisk: {capacity: 3Gi}}
    - {name: overlay, ephemeral: {persistentVolumeClaim: {claimName: base, readOnly: true}}}
    - {name: dump, memoryDump: {claimName: dumps, hotpluggable: true, readOnly: false}}
    - {name: figures, downwardMetrics: {}}
"""

DOCUMENTS = """
spec:
  domain:
    memory: {guest: 1Gi}
    devices: {}
  volumes:
    - {name: config, configMap: {name: config, optional: true, volumeLabel: config}}
    - {name: keys, secret: {secretName: keys, optional: true, volumeLabel: keys}}
    - {name: token, serviceAccount: {serviceAccountName: robot}}
    - {name: answers, sysprep: {configMap: {name: answers}}}
    - {name: secrets, sysprep: {secret: {name: answers}}}
    - name: about
      downwardAPI:
        volumeLabel: about
        fields:
          - {path: name, fieldRef: {fieldPath: metadata.name, apiVersion: v1}, mode: 256}
          - {path: cpus, resourceFieldRef: {resource: limits.cpu, containerName: compute, divisor: "1"}}
"""

CLOUD_INIT = """
spec:
  domain:
    memory: {guest: 1Gi}
    devices: {}
  volumes:
    - {name: inline, cloudInitNoCloud: {userData: "#cloud-config", networkData: "version: 2"}}
    - {name: encoded, cloudInitNoCloud: {userDataBase64: Y2xvdWQ=, networkDataBase64: bmV0}}
    - {name: secret, cloudInitNoCloud: {secretRef: {name: user}, networkDataSecretRef: {name: net}}}
    - {name: drive, cloudInitConfigDrive: {userData: "#cloud-config", networkData: "version: 2"}}
    - {name: drive64, cloudInitConfigDrive: {userDataBase64: Y2xvdWQ=, networkDataBase64: bmV0}}
    - {name: hidden, cloudInitConfigDrive: {secretRef: {name: user}, networkDataSecretRef: {name: net}}}
"""

SHARED_DIRECTORIES = """
spec:
  domain:
    memory: {guest: 1Gi}
    devices:
      filesystems: [{name: files, virtiofs: {}}, {name: tools, virtiofs: {}}]
  volumes:
    - {name: files, persistentVolumeClaim: {claimName: files}}
    - {name: tools, containerPath: {path: /opt/tools, readOnly: true}}
"""

UTILITY = """
spec:
  domain:
    memory: {guest: 1Gi}
    devices: {}
  utilityVolumes: [{name: backup, claimName: backup, type: Backup, readOnly: false}]
"""

LUN = """
spec:
  domain:
    memory: {guest: 1Gi}
    devices:
      disks: [{name: passed, lun: {bus: virtio}}]
  volumes: [{name: passed, persistentVolumeClaim: {claimName: passed, readOnly: true}}]
"""

EXAMPLES = {
    "disks": DISKS,
    "lun": LUN,
    "more-volumes": MORE_VOLUMES,
    "documents": DOCUMENTS,
    "cloud-init": CLOUD_INIT,
    "shared-directories": SHARED_DIRECTORIES,
    "utility-volumes": UTILITY,
}
