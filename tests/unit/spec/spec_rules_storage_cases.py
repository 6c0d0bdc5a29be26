# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: E501 - one manifest a line reads best
"""Manifests that rules about disks, filesystems and volumes refuse and accept."""

from __future__ import annotations

from spec_rules_manifests import spec

DISK = "spec.domain.devices.disks[0]"
FS = "spec.domain.devices.filesystems"
PVC = "persistentVolumeClaim: {claimName: c}"


def disk(text: str, volume: str = PVC, more: str = "") -> str:
    """A fragment with a disk ``a`` on a volume ``a``."""
    return f"spec: {{{more}domain: {{devices: {{disks: [{{name: a, {text}}}]}}}}, volumes: [{{name: a, {volume}}}]}}"


def volume(text: str) -> str:
    """A fragment with a volume ``a`` that gets a disk by default."""
    return spec(f"{{volumes: [{{name: a, {text}}}]}}")


def filesystem(name: str, source: str, volume_name: str = "a") -> str:
    """A fragment with a filesystem on a volume."""
    return (
        f"spec: {{domain: {{devices: {{filesystems: [{{name: {name}, virtiofs: {{}}}}]}}}}, "
        f"volumes: [{{name: {volume_name}, {source}}}]}}"
    )


V = "spec.volumes[0]"

REFUSED: tuple[tuple[str, str, set[str]], ...] = (
    (
        "disk name",
        "spec: {domain: {devices: {disks: [{name: A_1}]}}, volumes: [{name: A_1, emptyDisk: {capacity: 1Gi}}]}",
        {f"{DISK}.name", f"{V}.name"},
    ),
    (
        "disk twice",
        f"spec: {{domain: {{devices: {{disks: [{{name: a}}, {{name: a}}]}}}}, volumes: [{{name: a, {PVC}}}]}}",
        {"spec.domain.devices.disks[1].name"},
    ),
    ("disk of no volume", "spec: {domain: {devices: {disks: [{name: a}]}}}", {f"{DISK}.name"}),
    (
        "too many disks",
        f"spec: {{domain: {{devices: {{disks: [{', '.join(f'{{name: a{i}, cdrom: {{}}}}' for i in range(257))}]}}}}}}",
        {"spec.domain.devices.disks"},
    ),
    ("disk of a memory dump", disk("disk: {}", "memoryDump: {claimName: c}"), {f"{DISK}.name"}),
    ("two kinds", disk("disk: {}, lun: {}"), {f"{DISK}.lun"}),
    ("bus", disk("disk: {bus: ide}"), {f"{DISK}.disk.bus"}),
    ("bus of arm64", disk("disk: {bus: sata}", PVC, "architecture: arm64, "), {f"{DISK}.disk.bus"}),
    ("bus of s390x", disk("disk: {bus: usb}", PVC, "architecture: s390x, "), {f"{DISK}.disk.bus"}),
    ("cdrom on virtio", disk("cdrom: {bus: virtio}"), {f"{DISK}.cdrom.bus"}),
    ("lun on sata", disk("lun: {bus: sata}"), {f"{DISK}.lun.bus"}),
    ("lun on a file", disk("lun: {bus: scsi}", "emptyDisk: {capacity: 1Gi}"), {f"{DISK}.lun"}),
    ("reservation on virtio", disk("lun: {bus: virtio, reservation: true}"), {f"{DISK}.lun.reservation"}),
    (
        "readonly on sata",
        disk("disk: {bus: sata, readonly: true}"),
        {f"{DISK}.disk.readonly", f"{DISK}.disk.bus"},
    ),
    ("readonly on the default bus", disk("disk: {readonly: true}"), {f"{DISK}.disk.readonly"}),
    (
        "pci address on sata",
        disk("disk: {bus: sata, pciAddress: '0000:01:00.0'}"),
        {f"{DISK}.disk.pciAddress"},
    ),
    ("pci address", disk("disk: {bus: virtio, pciAddress: '01:00.0'}"), {f"{DISK}.disk.pciAddress"}),
    ("tray", disk("cdrom: {bus: sata, tray: ajar}"), {f"{DISK}.cdrom.tray"}),
    ("cache", disk("disk: {bus: virtio}, cache: unsafe"), {f"{DISK}.cache"}),
    ("io", disk("disk: {bus: virtio}, io: default"), {f"{DISK}.io"}),
    ("error policy", disk("disk: {bus: virtio}, errorPolicy: retry"), {f"{DISK}.errorPolicy"}),
    ("boot order", disk("disk: {bus: virtio}, bootOrder: 0"), {f"{DISK}.bootOrder"}),
    ("tag", disk('disk: {bus: virtio}, tag: "a\\tb"'), {f"{DISK}.tag"}),
    ("serial with blanks", disk("disk: {bus: virtio}, serial: a b"), {f"{DISK}.serial"}),
    ("long serial", disk(f"disk: {{bus: virtio}}, serial: {'a' * 257}"), {f"{DISK}.serial"}),
    ("native with a cache", disk("disk: {bus: virtio}, io: native, cache: writeback"), {f"{DISK}.io"}),
    (
        "shareable with a cache",
        disk("disk: {bus: virtio}, shareable: true, cache: writethrough"),
        {f"{DISK}.cache", f"{DISK}.shareable"},
    ),
    ("thread on sata", disk("disk: {bus: sata}, dedicatedIOThread: true"), {f"{DISK}.dedicatedIOThread"}),
    (
        "block sizes of two kinds",
        disk("disk: {bus: virtio}, blockSize: {matchVolume: {}, custom: {logical: 512, physical: 512}}"),
        {f"{DISK}.blockSize.matchVolume"},
    ),
    (
        "block size that is no power of two",
        disk("disk: {bus: virtio}, blockSize: {custom: {logical: 512, physical: 1000}}"),
        {f"{DISK}.blockSize.custom.physical"},
    ),
    (
        "block size missing",
        disk("disk: {bus: virtio}, blockSize: {custom: {physical: 512}}"),
        {f"{DISK}.blockSize.custom.logical"},
    ),
    (
        "logical over physical",
        disk("disk: {bus: virtio}, blockSize: {custom: {logical: 4096, physical: 512}}"),
        {f"{DISK}.blockSize.custom.physical"},
    ),
    (
        "logical on sata",
        disk("disk: {bus: sata}, blockSize: {custom: {logical: 4096, physical: 4096}}"),
        {f"{DISK}.blockSize.custom.logical"},
    ),
    (
        "large blocks on s390x",
        disk("disk: {}, blockSize: {custom: {logical: 512, physical: 8192}}", PVC, "architecture: s390x, "),
        {f"{DISK}.blockSize.custom.physical"},
    ),
    (
        "granularity",
        disk(
            "disk: {bus: virtio}, blockSize: {custom: {logical: 512, physical: 512, discardGranularity: 100}}"
        ),
        {f"{DISK}.blockSize.custom.discardGranularity"},
    ),
    # filesystems
    ("long tag", filesystem("a" * 37, PVC, "a" * 37), {f"{FS}[0].name"}),
    ("filesystem of no volume", filesystem("b", PVC), {f"{FS}[0].name"}),
    ("filesystem of an image", filesystem("a", "emptyDisk: {capacity: 1Gi}"), {f"{FS}[0].name"}),
    (
        "filesystem twice",
        "spec: {domain: {devices: {filesystems: [{name: a, virtiofs: {}}, {name: a, virtiofs: {}}]}}, "
        f"volumes: [{{name: a, {PVC}}}]}}",
        {f"{FS}[1].name"},
    ),
    (
        "containerPath of nobody",
        volume("containerPath: {path: /srv, readOnly: true}"),
        {f"{V}.containerPath"},
    ),
    # volumes
    (
        "volume twice",
        spec(f"{{volumes: [{{name: a, {PVC}}}, {{name: a, {PVC}}}]}}"),
        {"spec.volumes[1].name"},
    ),
    ("no source", spec("{volumes: [{name: a}]}"), {V}),
    ("two sources", volume(f"{PVC}, emptyDisk: {{capacity: 1Gi}}"), {f"{V}.persistentVolumeClaim"}),
    (
        "two service accounts",
        spec(
            "{volumes: [{name: a, serviceAccount: {serviceAccountName: x}}, "
            "{name: b, serviceAccount: {serviceAccountName: y}}]}"
        ),
        {"spec.volumes[1].serviceAccount"},
    ),
    (
        "two metrics",
        spec("{volumes: [{name: a, downwardMetrics: {}}, {name: b, downwardMetrics: {}}]}"),
        {"spec.volumes[1].downwardMetrics"},
    ),
    ("claim", volume("persistentVolumeClaim: {claimName: ''}"), {f"{V}.persistentVolumeClaim.claimName"}),
    ("data volume", volume("dataVolume: {name: A}"), {f"{V}.dataVolume.name"}),
    ("memory dump", volume("memoryDump: {claimName: ''}"), {f"{V}.memoryDump.claimName"}),
    ("ephemeral over nothing", volume("ephemeral: {}"), {f"{V}.ephemeral.persistentVolumeClaim"}),
    (
        "ephemeral",
        volume("ephemeral: {persistentVolumeClaim: {claimName: a/b}}"),
        {f"{V}.ephemeral.persistentVolumeClaim.claimName"},
    ),
    ("utility volumes", spec("{utilityVolumes: [{name: u, claimName: c}]}"), {"spec.utilityVolumes"}),
    ("image", volume("containerDisk: {image: 'a b'}"), {f"{V}.containerDisk.image"}),
    ("no image", volume("containerDisk: {image: ''}"), {f"{V}.containerDisk.image"}),
    (
        "image of a relative directory",
        volume("containerDisk: {image: 'oci:/a/../b'}"),
        {f"{V}.containerDisk.image"},
    ),
    ("path in the image", volume("containerDisk: {image: a, path: disk/a}"), {f"{V}.containerDisk.path"}),
    (
        "pull secret",
        volume("containerDisk: {image: a, imagePullSecret: A}"),
        {f"{V}.containerDisk.imagePullSecret"},
    ),
    ("host disk, no path", volume("hostDisk: {path: '', type: Disk}"), {f"{V}.hostDisk.path"}),
    ("host disk, a directory", volume("hostDisk: {path: /srv/, type: Disk}"), {f"{V}.hostDisk.path"}),
    ("host disk, type", volume("hostDisk: {path: /a, type: File}"), {f"{V}.hostDisk.type"}),
    ("host disk, no type", volume("hostDisk: {path: /a, type: ''}"), {f"{V}.hostDisk.type"}),
    (
        "host disk, capacity",
        volume("hostDisk: {path: /a, type: Disk, capacity: 1Gi}"),
        {f"{V}.hostDisk.capacity"},
    ),
    (
        "host disk, tiny",
        volume("hostDisk: {path: /a, type: DiskOrCreate, capacity: 1}"),
        {f"{V}.hostDisk.capacity"},
    ),
    ("empty disk", volume("emptyDisk: {capacity: 1000}"), {f"{V}.emptyDisk.capacity"}),
    (
        "containerPath, reserved and writable",
        filesystem("a", "containerPath: {path: /var/run/kubevirt/x}"),
        {f"{V}.containerPath.path", f"{V}.containerPath.readOnly"},
    ),
    # cloud-init and other generated images
    ("no user data", volume("cloudInitNoCloud: {}"), {f"{V}.cloudInitNoCloud"}),
    (
        "two kinds of user data",
        volume("cloudInitNoCloud: {userData: a, secretRef: {name: s}}"),
        {f"{V}.cloudInitNoCloud.secretRef"},
    ),
    (
        "two kinds of network data",
        volume("cloudInitConfigDrive: {userData: a, networkData: a, networkDataBase64: YQ==}"),
        {f"{V}.cloudInitConfigDrive.networkDataBase64"},
    ),
    (
        "no base64",
        volume("cloudInitNoCloud: {userDataBase64: 'a!'}"),
        {f"{V}.cloudInitNoCloud.userDataBase64"},
    ),
    (
        "long user data",
        volume(f"cloudInitNoCloud: {{userData: {'a' * 2049}}}"),
        {f"{V}.cloudInitNoCloud.userData"},
    ),
    (
        "long base64",
        volume(f"cloudInitNoCloud: {{userDataBase64: {'YWFh' * 683}}}"),
        {f"{V}.cloudInitNoCloud.userDataBase64"},
    ),
    (
        "secret without a name",
        volume("cloudInitNoCloud: {secretRef: {}}"),
        {f"{V}.cloudInitNoCloud.secretRef.name"},
    ),
    (
        "config map",
        volume("configMap: {volumeLabel: 'a b'}"),
        {f"{V}.configMap.name", f"{V}.configMap.volumeLabel"},
    ),
    ("secret", volume("secret: {}"), {f"{V}.secret.secretName"}),
    ("service account", volume("serviceAccount: {}"), {f"{V}.serviceAccount.serviceAccountName"}),
    ("sysprep of nothing", volume("sysprep: {}"), {f"{V}.sysprep"}),
    (
        "sysprep of both",
        volume("sysprep: {secret: {name: a}, configMap: {name: b}}"),
        {f"{V}.sysprep.secret"},
    ),
    (
        "downward API",
        volume(
            "downwardAPI: {fields: [{path: ../a, fieldRef: {fieldPath: metadata.name}}, "
            "{path: b, mode: 1024, fieldRef: {fieldPath: spec.nodeName}}, {path: b}, "
            "{path: c, resourceFieldRef: {resource: gpu, divisor: -1}}]}"
        ),
        {
            f"{V}.downwardAPI.fields[0].path",
            f"{V}.downwardAPI.fields[1].mode",
            f"{V}.downwardAPI.fields[1].fieldRef.fieldPath",
            f"{V}.downwardAPI.fields[2].path",
            f"{V}.downwardAPI.fields[2]",
            f"{V}.downwardAPI.fields[3].resourceFieldRef.resource",
            f"{V}.downwardAPI.fields[3].resourceFieldRef.divisor",
        },
    ),
    (
        "downward API: one file in the way of another",
        volume(
            "downwardAPI: {fields: ["
            + ", ".join(
                f"{{path: {path}, fieldRef: {{fieldPath: metadata.name}}}}"
                for path in ("a/b", "a", "./a/b/c", "a//b", "x", "./.", "n" * 256)
            )
            + "]}"
        ),
        {f"{V}.downwardAPI.fields[{number}].path" for number in (1, 2, 3, 5, 6)},
    ),
    ("metrics on sata", disk("disk: {bus: sata}", "downwardMetrics: {}"), {f"{DISK}.disk.bus"}),
    ("metrics on a cdrom", disk("cdrom: {bus: sata}", "downwardMetrics: {}"), {f"{DISK}.cdrom"}),
)

ACCEPTED: tuple[tuple[str, str], ...] = (
    ("an empty cdrom", "spec: {domain: {devices: {disks: [{name: a, cdrom: {}}]}}}"),
    ("a volume without a disk", volume(PVC)),
    ("a disk without a kind", disk("bootOrder: 1")),
    ("cdrom of arm64", disk("cdrom: {}", PVC, "architecture: arm64, ")),
    ("cdrom of s390x", disk("cdrom: {}", PVC, "architecture: s390x, ")),
    ("lun", disk("lun: {reservation: true, readonly: true}")),
    ("lun of a data volume", disk("lun: {bus: scsi}", "dataVolume: {name: d}")),
    (
        "everything on virtio",
        disk(
            "disk: {bus: virtio, readonly: true, pciAddress: '0000:0a:1f.7'}, cache: none, io: native, shareable: true, "
            "errorPolicy: report, serial: A-b_c.1+2, tag: a b, dedicatedIOThread: true, blockSize: "
            "{custom: {logical: 512, physical: 4096, discardGranularity: 1024}, matchVolume: {enabled: false}}"
        ),
    ),
    ("thread on scsi", disk("disk: {bus: scsi}, dedicatedIOThread: true")),
    ("blocks of the volume", disk("disk: {}, blockSize: {matchVolume: {}}")),
    ("filesystem", filesystem("a", PVC)),
    ("filesystem of a path", filesystem("a", "containerPath: {path: /srv/data, readOnly: true}")),
    (
        "container disk",
        volume("containerDisk: {image: 'quay.io/a/b@sha256:" + "0" * 64 + "', path: /disk/a.img}"),
    ),
    ("local image", volume("containerDisk: {image: 'oci-archive:/srv/a.tar:v1'}")),
    ("host disk", volume("hostDisk: {path: /srv/a.img, type: DiskOrCreate, capacity: 1Gi}")),
    ("host disk that is there", volume("hostDisk: {path: /srv/a.img, type: Disk}")),
    ("empty disk", volume("emptyDisk: {capacity: 1Mi}")),
    ("user data", volume(f"cloudInitNoCloud: {{userData: {'a' * 2048}, networkDataBase64: YQ==}}")),
    ("network data alone", volume("cloudInitConfigDrive: {networkData: a}")),
    (
        "user data of a secret",
        volume("cloudInitNoCloud: {secretRef: {name: s}, networkDataSecretRef: {name: n}}"),
    ),
    ("config map", volume("configMap: {name: c, volumeLabel: CFG_1}")),
    ("sysprep", volume("sysprep: {secret: {name: a}}")),
    (
        "downward API",
        volume(
            "downwardAPI: {fields: [{path: a/b, mode: 256, fieldRef: {fieldPath: \"metadata.labels['app']\"}}, "
            "{path: a/c, fieldRef: {fieldPath: metadata.uid}}, "
            "{path: c, resourceFieldRef: {resource: limits.cpu, divisor: 1m}}]}"
        ),
    ),
    ("metrics", disk("disk: {bus: virtio}", "downwardMetrics: {}")),
    ("metrics on the default bus", disk("disk: {}", "downwardMetrics: {}")),
    ("memory dump", volume("memoryDump: {claimName: c}")),
)
