# SPDX-License-Identifier: Apache-2.0
"""Examples that set the fields of scheduling, names, probes and credentials. Data only."""

from __future__ import annotations

NAMES = """
spec:
  hostname: web-1
  subdomain: web
  dnsPolicy: None
  dnsConfig: {nameservers: [192.0.2.53], searches: [example.com], options: [{name: ndots, value: "2"}]}
  evictionStrategy: LiveMigrate
  terminationGracePeriodSeconds: 60
  priorityClassName: high
  schedulerName: default-scheduler
  serviceAccountName: robot
  nodeSelector: {zone: a}
  tolerations:
    - {key: gpu, operator: Equal, value: "yes", effect: NoExecute, tolerationSeconds: 30}
  topologySpreadConstraints:
    - maxSkew: 1
      topologyKey: zone
      whenUnsatisfiable: DoNotSchedule
      minDomains: 2
      matchLabelKeys: [tier]
      nodeAffinityPolicy: Honor
      nodeTaintsPolicy: Ignore
      labelSelector: &labels
        matchLabels: {app: web}
        matchExpressions: [{key: tier, operator: In, values: [front]}]
  domain:
    memory: {guest: 1Gi}
    devices: {}
  affinity:
    nodeAffinity:
      requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [&node {
        matchExpressions: [{key: zone, operator: In, values: [a]}],
        matchFields: [{key: metadata.name, operator: In, values: [node-1]}]}]}
      preferredDuringSchedulingIgnoredDuringExecution: [{weight: 10, preference: *node}]
    podAffinity: &pods
      requiredDuringSchedulingIgnoredDuringExecution: [&term {
        topologyKey: zone, labelSelector: *labels, namespaceSelector: *labels, namespaces: [lab],
        matchLabelKeys: [tier], mismatchLabelKeys: [team]}]
      preferredDuringSchedulingIgnoredDuringExecution: [{weight: 10, podAffinityTerm: *term}]
    podAntiAffinity: *pods
"""

PROBES = """
spec:
  domain:
    memory: {guest: 1Gi}
    devices: {}
  readinessProbe:
    httpGet: {port: 80, host: 192.0.2.1, path: /, scheme: HTTP, httpHeaders: [{name: Accept, value: text}]}
    initialDelaySeconds: 5
    periodSeconds: 20
    timeoutSeconds: 3
    failureThreshold: 5
    successThreshold: 2
  livenessProbe:
    exec: {command: [cat, /tmp/alive]}
    initialDelaySeconds: 5
    periodSeconds: 20
    timeoutSeconds: 3
    failureThreshold: 5
    successThreshold: 1
"""

MORE_PROBES = """
spec:
  domain:
    memory: {guest: 1Gi}
    devices: {}
  readinessProbe: {tcpSocket: {port: 22, host: 192.0.2.1}}
  livenessProbe: {guestAgentPing: {}}
"""

STILL_MORE_PROBES = """
spec:
  domain:
    memory: {guest: 1Gi}
    devices: {}
  readinessProbe: {exec: {command: [cat, /tmp/ready]}}
  livenessProbe: {tcpSocket: {port: 22, host: 192.0.2.1}}
"""

LAST_PROBES = """
spec:
  domain:
    memory: {guest: 1Gi}
    devices: {}
  readinessProbe: {guestAgentPing: {}}
  livenessProbe:
    httpGet: {port: 80, host: 192.0.2.1, path: /, scheme: HTTP, httpHeaders: [{name: Accept, value: text}]}
"""

CREDENTIALS = """
spec:
  domain:
    memory: {guest: 1Gi}
    devices: {}
  accessCredentials:
    - sshPublicKey: {source: {secret: {secretName: keys}}, propagationMethod: {configDrive: {}}}
    - sshPublicKey: {source: {secret: {secretName: keys}}, propagationMethod: {noCloud: {}}}
    - sshPublicKey:
        source: {secret: {secretName: keys}}
        propagationMethod: {qemuGuestAgent: {users: [root]}}
    - userPassword: {source: {secret: {secretName: words}}, propagationMethod: {qemuGuestAgent: {}}}
  volumes:
    - {name: drive, cloudInitConfigDrive: {userData: "#cloud-config"}}
    - {name: cloud, cloudInitNoCloud: {userData: "#cloud-config"}}
"""

EXAMPLES = {
    "placement": NAMES,
    "probes-http-exec": PROBES,
    "probes-tcp-ping": MORE_PROBES,
    "probes-exec-tcp": STILL_MORE_PROBES,
    "probes-ping-http": LAST_PROBES,
    "credentials": CREDENTIALS,
}
