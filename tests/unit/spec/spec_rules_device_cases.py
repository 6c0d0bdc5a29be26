# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: E501 - one manifest a line reads best
"""Manifests that rules about small devices, devices of the node, probes and credentials refuse and accept."""

from __future__ import annotations

from spec_rules_manifests import devices, spec

D = "spec.domain.devices"
C = "spec.accessCredentials[0]"
ROOT = "{name: a, persistentVolumeClaim: {claimName: c}}"
CLAIMS = "resourceClaims: [{name: c, resourceClaimTemplateName: t}]"


def on(architecture: str, text: str) -> str:
    """A fragment of devices of another architecture."""
    return f"spec: {{architecture: {architecture}, domain: {{devices: {text}}}}}"


def probe(text: str) -> str:
    """A fragment with a readiness probe."""
    return spec(f"{{readinessProbe: {text}}}")


def ssh(method: str, source: str = "{secret: {secretName: s}}") -> str:
    """A fragment with a public key."""
    return spec(
        f"{{accessCredentials: [{{sshPublicKey: {{source: {source}, propagationMethod: {method}}}}}]}}"
    )


REFUSED: tuple[tuple[str, str, set[str]], ...] = (
    (
        "video without graphics",
        devices("{autoattachGraphicsDevice: false, video: {type: vga}}"),
        {f"{D}.video"},
    ),
    ("video", devices("{video: {type: qxl}}"), {f"{D}.video.type"}),
    ("video of no type", devices("{video: {}}"), {f"{D}.video.type"}),
    ("video of arm64", on("arm64", "{video: {type: vga}}"), {f"{D}.video.type"}),
    ("input type", devices("{inputs: [{name: a, type: keyboard}]}"), {f"{D}.inputs[0].type"}),
    ("input bus", devices("{inputs: [{name: a, type: tablet, bus: ps2}]}"), {f"{D}.inputs[0].bus"}),
    ("input name", devices("{inputs: [{name: '', type: tablet}]}"), {f"{D}.inputs[0].name"}),
    ("input name with XML", devices("{inputs: [{name: '\"<', type: tablet}]}"), {f"{D}.inputs[0].name"}),
    (
        "input twice",
        devices("{inputs: [{name: a, type: tablet}, {name: a, type: tablet}]}"),
        {f"{D}.inputs[1].name"},
    ),
    (
        "usb input of s390x",
        on("s390x", "{inputs: [{name: a, type: tablet, bus: usb}]}"),
        {f"{D}.inputs[0].bus"},
    ),
    ("sound model", devices("{sound: {name: s, model: sb16}}"), {f"{D}.sound.model"}),
    ("sound name", devices("{sound: {name: ''}}"), {f"{D}.sound.name"}),
    ("sound named as the interface that is added", devices("{sound: {name: default}}"), {f"{D}.sound.name"}),
    (
        "sound named as a disk that is added",
        spec("{domain: {devices: {sound: {name: v}}}, volumes: [{name: v, emptyDisk: {capacity: 1Gi}}]}"),
        {f"{D}.sound.name"},
    ),
    ("sound of arm64", on("arm64", "{sound: {name: s}}"), {f"{D}.sound"}),
    ("sound of s390x", on("s390x", "{sound: {name: s}}"), {f"{D}.sound"}),
    (
        "watchdog action",
        devices("{watchdog: {name: w, i6300esb: {action: pause}}}"),
        {f"{D}.watchdog.i6300esb.action"},
    ),
    (
        "watchdog of another architecture",
        devices("{watchdog: {name: w, diag288: {}}}"),
        {f"{D}.watchdog.diag288"},
    ),
    ("two watchdogs", devices("{watchdog: {name: w, i6300esb: {}, diag288: {}}}"), {f"{D}.watchdog.diag288"}),
    ("watchdog of arm64", on("arm64", "{watchdog: {name: w}}"), {f"{D}.watchdog"}),
    ("panic model", devices("{panicDevices: [{model: s390}]}"), {f"{D}.panicDevices[0].model"}),
    ("panic model twice", devices("{panicDevices: [{model: isa}, {}]}"), {f"{D}.panicDevices[1].model"}),
    ("panic of s390x", on("s390x", "{panicDevices: [{}]}"), {f"{D}.panicDevices"}),
    ("usb of a client of s390x", on("s390x", "{clientPassthrough: {}}"), {f"{D}.clientPassthrough"}),
    # names, orders and addresses of all
    (
        "boot order twice",
        f"spec: {{domain: {{devices: {{disks: [{{name: a, bootOrder: 1}}], interfaces: [{{name: n, masquerade: {{}}, bootOrder: 1}}]}}}}, "
        f"volumes: [{ROOT}], networks: [{{name: n, pod: {{}}}}]}}",
        {f"{D}.interfaces[0].bootOrder"},
    ),
    (
        "pci address twice",
        "spec: {domain: {devices: {disks: [{name: a, disk: {bus: virtio, pciAddress: '0000:0a:00.0'}}], "
        f"interfaces: [{{name: n, masquerade: {{}}, pciAddress: '0000:0A:00.0'}}]}}}}, volumes: [{ROOT}], "
        "networks: [{name: n, pod: {}}]}",
        {f"{D}.interfaces[0].pciAddress"},
    ),
    (
        "a disk and a watchdog of one name",
        f"spec: {{domain: {{devices: {{disks: [{{name: a}}], watchdog: {{name: a}}}}}}, volumes: [{ROOT}]}}",
        {f"{D}.watchdog.name"},
    ),
    (
        "a disk and a card of one name",
        "spec: {domain: {devices: {disks: [{name: gpu-a, cdrom: {}}], gpus: [{name: a, deviceName: x.y/z}]}}}",
        {f"{D}.gpus[0].name"},
    ),
    # devices of the node
    ("device name", devices("{hostDevices: [{name: 'a b', deviceName: x}]}"), {f"{D}.hostDevices[0].name"}),
    (
        "device twice",
        devices("{gpus: [{name: a, deviceName: x}, {name: a, deviceName: y}]}"),
        {f"{D}.gpus[1].name"},
    ),
    ("device of nothing", devices("{gpus: [{name: a}]}"), {f"{D}.gpus[0].deviceName"}),
    ("device resource", devices("{gpus: [{name: a, deviceName: 'a b'}]}"), {f"{D}.gpus[0].deviceName"}),
    (
        "device of both",
        f"spec: {{{CLAIMS}, domain: {{devices: {{gpus: [{{name: a, deviceName: x, claimName: c, requestName: r}}]}}}}}}",
        {f"{D}.gpus[0].deviceName"},
    ),
    (
        "device of a claim of nobody",
        devices("{hostDevices: [{name: a, claimName: c, requestName: r}]}"),
        {f"{D}.hostDevices[0].claimName"},
    ),
    (
        "two boot displays",
        devices(
            "{gpus: [{name: a, deviceName: x, virtualGPUOptions: {display: {}}}, "
            "{name: b, deviceName: x, virtualGPUOptions: {display: {ramFB: {}}}}]}"
        ),
        {f"{D}.gpus[1].virtualGPUOptions.display.ramFB"},
    ),
    (
        "claims",
        spec("{resourceClaims: [{name: c}, {name: c, resourceClaimName: A, resourceClaimTemplateName: b}]}"),
        {
            "spec.resourceClaims[0]",
            "spec.resourceClaims[1].name",
            "spec.resourceClaims[1].resourceClaimName",
            "spec.resourceClaims[1].resourceClaimTemplateName",
        },
    ),
    # probes
    ("no handler", probe("{}"), {"spec.readinessProbe"}),
    ("two handlers", probe("{guestAgentPing: {}, tcpSocket: {port: 1}}"), {"spec.readinessProbe.tcpSocket"}),
    ("no command", probe("{exec: {}}"), {"spec.readinessProbe.exec.command"}),
    ("port", probe("{tcpSocket: {port: 65536}}"), {"spec.readinessProbe.tcpSocket.port"}),
    ("port as text", probe("{httpGet: {port: '0'}}"), {"spec.readinessProbe.httpGet.port"}),
    ("port name", probe("{httpGet: {port: A_B}}"), {"spec.readinessProbe.httpGet.port"}),
    (
        "header",
        probe("{httpGet: {port: 80, httpHeaders: [{name: 'a:', value: b}]}}"),
        {"spec.readinessProbe.httpGet.httpHeaders[0].name"},
    ),
    (
        "probe of a guest without a pod network",
        spec("{domain: {devices: {autoattachPodInterface: false}}, livenessProbe: {tcpSocket: {port: 1}}}"),
        {"spec.livenessProbe.tcpSocket"},
    ),
    (
        "times",
        probe(
            "{guestAgentPing: {}, periodSeconds: 0, timeoutSeconds: 0, failureThreshold: 0, successThreshold: -1, "
            "initialDelaySeconds: -1}"
        ),
        {
            "spec.readinessProbe.periodSeconds",
            "spec.readinessProbe.timeoutSeconds",
            "spec.readinessProbe.failureThreshold",
            "spec.readinessProbe.successThreshold",
            "spec.readinessProbe.initialDelaySeconds",
        },
    ),
    (
        "alive twice",
        spec("{livenessProbe: {guestAgentPing: {}, successThreshold: 2}}"),
        {"spec.livenessProbe.successThreshold"},
    ),
    # credentials
    ("no credential", spec("{accessCredentials: [{}]}"), {C}),
    (
        "two credentials",
        spec(
            "{accessCredentials: [{sshPublicKey: {source: {secret: {secretName: s}}, propagationMethod: "
            "{qemuGuestAgent: {users: [root]}}}, userPassword: {source: {secret: {secretName: s}}, "
            "propagationMethod: {qemuGuestAgent: {}}}}]}"
        ),
        {f"{C}.userPassword"},
    ),
    ("no secret", ssh("{qemuGuestAgent: {users: [root]}}", "{}"), {f"{C}.sshPublicKey.source.secret"}),
    ("no way", ssh("{}"), {f"{C}.sshPublicKey.propagationMethod"}),
    (
        "two ways",
        f"{ssh('{noCloud: {}, qemuGuestAgent: {users: [root]}}')[:-1]}, volumes: [{{name: v, cloudInitNoCloud: {{userData: x}}}}]}}",
        {f"{C}.sshPublicKey.propagationMethod.qemuGuestAgent"},
    ),
    ("no volume", ssh("{noCloud: {}}"), {f"{C}.sshPublicKey.propagationMethod.noCloud"}),
    ("no drive", ssh("{configDrive: {}}"), {f"{C}.sshPublicKey.propagationMethod.configDrive"}),
    (
        "no users",
        ssh("{qemuGuestAgent: {users: []}}"),
        {f"{C}.sshPublicKey.propagationMethod.qemuGuestAgent.users"},
    ),
    (
        "users",
        ssh("{qemuGuestAgent: {users: [root, root, ../x, -f]}}"),
        {f"{C}.sshPublicKey.propagationMethod.qemuGuestAgent.users[{i}]" for i in (1, 2, 3)},
    ),
    (
        "password of nobody",
        spec("{accessCredentials: [{userPassword: {source: {}, propagationMethod: {}}}]}"),
        {f"{C}.userPassword.source.secret", f"{C}.userPassword.propagationMethod"},
    ),
)

ACCEPTED: tuple[tuple[str, str], ...] = (
    (
        "small devices",
        devices(
            "{video: {type: bochs}, inputs: [{name: t, type: tablet, bus: virtio}, {name: u, type: tablet}], "
            "sound: {name: s, model: ac97}, watchdog: {name: w, i6300esb: {action: shutdown}}, rng: {}, tpm: {persistent: true}, "
            "panicDevices: [{model: isa}, {model: hyperv}, {model: pvpanic}], clientPassthrough: {}, autoattachVSOCK: true, "
            "downwardMetrics: {}}"
        ),
    ),
    ("graphics off", devices("{autoattachGraphicsDevice: false}")),
    ("of arm64", on("arm64", "{video: {type: ramfb}, inputs: [{name: t, type: tablet}]}")),
    (
        "of s390x",
        on("s390x", "{video: {type: virtio}, inputs: [{name: t, type: tablet}], watchdog: {name: w}}"),
    ),
    (
        "devices of the node",
        f"spec: {{{CLAIMS}, domain: {{devices: {{gpus: [{{name: a, deviceName: nvidia.com/GV100GL, virtualGPUOptions: "
        "{display: {}}}, {name: b, deviceName: nvidia.com/GV100GL, virtualGPUOptions: {display: {enabled: false}}}], "
        "hostDevices: [{name: a, claimName: c, requestName: r, tag: x}]}}}",
    ),
    ("exec", probe("{exec: {command: [cat, /tmp/ready]}, periodSeconds: 1, initialDelaySeconds: 0}")),
    (
        "http",
        probe("{httpGet: {port: http, path: /health, scheme: HTTPS, httpHeaders: [{name: X-A, value: b}]}}"),
    ),
    ("tcp", spec("{livenessProbe: {tcpSocket: {port: '22'}, successThreshold: 1}}")),
    ("keys through the agent", ssh("{qemuGuestAgent: {users: [root, core, DOMAIN.user]}}")),
    (
        "keys through cloud-init",
        f"{ssh('{noCloud: {}}')[:-1]}, volumes: [{{name: v, cloudInitNoCloud: {{userData: x}}}}]}}",
    ),
    (
        "password",
        spec(
            "{accessCredentials: [{userPassword: {source: {secret: {secretName: s}}, propagationMethod: {qemuGuestAgent: {}}}}]}"
        ),
    ),
)
