# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: E501 - one manifest a line reads best
"""Manifests that rules about metadata, life cycle, resources, CPU and memory refuse and accept."""

from __future__ import annotations

from spec_rules_manifests import domain, spec

DEDICATED = "cpu: {cores: 2, dedicatedCpuPlacement: true, numa: {guestMappingPassthrough: {}}}"
REALTIME = (
    "cpu: {cores: 4, dedicatedCpuPlacement: true, numa: {guestMappingPassthrough: {}}, realtime: {mask: '%s'}}"
    ", memory: {guest: 1Gi, hugepages: {pageSize: 2Mi}}"
)

# (what it is, the fragment, the fields that are refused and no others)
REFUSED: tuple[tuple[str, str, set[str]], ...] = (
    ("name with capitals", "metadata: {name: Demo}", {"metadata.name"}),
    ("name with a slash", "metadata: {name: a/b}", {"metadata.name"}),
    ("name too long for a file", f"metadata: {{name: {'a' * 240}}}", {"metadata.name"}),
    ("generateName", "metadata: {name: null, generateName: Demo-}", {"metadata.generateName"}),
    ("namespace", "metadata: {namespace: a.b}", {"metadata.namespace"}),
    ("uid that is a path", "metadata: {uid: ../../etc}", {"metadata.uid"}),
    ("label", "metadata: {labels: {a: b c}}", {"metadata.labels[a]"}),
    ("label key", "metadata: {labels: {'-': b}}", {"metadata.labels[-]"}),
    ("annotation key", "metadata: {annotations: {'a b': c}}", {"metadata.annotations[a b]"}),
    (
        "slot count",
        "metadata: {annotations: {kubevirt.io/pci-interface-slot-count: many}}",
        {"metadata.annotations[kubevirt.io/pci-interface-slot-count]"},
    ),
    ("annotations too large", f"metadata: {{annotations: {{a: {'x' * 262145}}}}}", {"metadata.annotations"}),
    ("architecture", spec("{architecture: riscv}"), {"spec.architecture"}),
    ("hostname", spec("{hostname: my.host}"), {"spec.hostname"}),
    ("subdomain", spec("{subdomain: My}"), {"spec.subdomain"}),
    ("dnsPolicy None without servers", spec("{dnsPolicy: 'None'}"), {"spec.dnsConfig.nameservers"}),
    ("nameserver", spec("{dnsConfig: {nameservers: [one]}}"), {"spec.dnsConfig.nameservers[0]"}),
    (
        "nameservers",
        spec("{dnsConfig: {nameservers: ['::1', '::2', '::3', '::4']}}"),
        {"spec.dnsConfig.nameservers"},
    ),
    ("search domain", spec("{dnsConfig: {searches: [a_b]}}"), {"spec.dnsConfig.searches[0]"}),
    ("resolver option", spec("{dnsConfig: {options: [{value: x}]}}"), {"spec.dnsConfig.options[0].name"}),
    ("start strategy", spec("{startStrategy: Later}"), {"spec.startStrategy"}),
    (
        "paused and probed",
        spec("{startStrategy: Paused, livenessProbe: {guestAgentPing: {}}}"),
        {"spec.startStrategy", "spec.livenessProbe"},
    ),
    ("eviction strategy", spec("{evictionStrategy: Maybe}"), {"spec.evictionStrategy"}),
    ("reboot policy", domain("{rebootPolicy: Never}"), {"spec.domain.rebootPolicy"}),
    ("grace period", spec("{terminationGracePeriodSeconds: -1}"), {"spec.terminationGracePeriodSeconds"}),
    ("priority class", spec("{priorityClassName: High!}"), {"spec.priorityClassName"}),
    ("node selector", spec("{nodeSelector: {a: b c}}"), {"spec.nodeSelector[a]"}),
    ("toleration", spec("{tolerations: [{operator: Exists, value: x}]}"), {"spec.tolerations[0].value"}),
    ("toleration without key", spec("{tolerations: [{operator: Equal}]}"), {"spec.tolerations[0].operator"}),
    (
        "weight",
        spec(
            "{affinity: {podAffinity: {preferredDuringSchedulingIgnoredDuringExecution: "
            "[{weight: 0, podAffinityTerm: {topologyKey: k}}]}}}"
        ),
        {"spec.affinity.podAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].weight"},
    ),
    (
        "skew",
        spec("{topologySpreadConstraints: [{maxSkew: 0, topologyKey: k, whenUnsatisfiable: DoNotSchedule}]}"),
        {"spec.topologySpreadConstraints[0].maxSkew"},
    ),
    # resources, machine, I/O threads
    ("negative cpu", domain("{resources: {limits: {cpu: -1}}}"), {"spec.domain.resources.limits.cpu"}),
    ("resource key", domain("{resources: {limits: {'a b': 1}}}"), {"spec.domain.resources.limits[a b]"}),
    (
        "request over limit",
        domain("{resources: {requests: {cpu: 3}, limits: {cpu: 2500m}}}"),
        {"spec.domain.resources.requests.cpu"},
    ),
    (
        "tiny request",
        domain("{resources: {requests: {memory: 64}}}"),
        {"spec.domain.resources.requests.memory"},
    ),
    ("machine of another architecture", domain("{machine: {type: virt}}"), {"spec.domain.machine.type"}),
    ("machine with blanks", domain("{machine: {type: q35 accel}}"), {"spec.domain.machine.type"}),
    ("I/O threads policy", domain("{ioThreadsPolicy: many}"), {"spec.domain.ioThreadsPolicy"}),
    (
        "empty pool",
        domain("{ioThreadsPolicy: supplementalPool}"),
        {"spec.domain.ioThreads.supplementalPoolThreadCount"},
    ),
    (
        "pool of none",
        domain("{ioThreadsPolicy: supplementalPool, ioThreads: {supplementalPoolThreadCount: 0}}"),
        {"spec.domain.ioThreads.supplementalPoolThreadCount"},
    ),
    # CPU
    ("negative cores", domain("{cpu: {cores: -2}}"), {"spec.domain.cpu.cores"}),
    ("too many cores", domain("{cpu: {cores: 100000}}"), {"spec.domain.cpu.cores"}),
    (
        "too many CPUs requested",
        domain("{resources: {requests: {cpu: 5k}}}"),
        {"spec.domain.resources.requests.cpu"},
    ),
    (
        "too many sockets to come",
        domain("{cpu: {cores: 2, sockets: 1, maxSockets: 4096}}"),
        {"spec.domain.cpu.maxSockets"},
    ),
    ("sockets over maxSockets", domain("{cpu: {sockets: 4, maxSockets: 2}}"), {"spec.domain.cpu.sockets"}),
    ("cpu model", domain("{cpu: {model: 'a b'}}"), {"spec.domain.cpu.model"}),
    (
        "cpu model on arm64",
        "spec: {architecture: arm64, domain: {cpu: {model: host-model}}}",
        {"spec.domain.cpu.model"},
    ),
    (
        "cpu feature policy",
        domain("{cpu: {features: [{name: vmx, policy: maybe}]}}"),
        {"spec.domain.cpu.features[0].policy"},
    ),
    ("cpu feature name", domain("{cpu: {features: [{name: ''}]}}"), {"spec.domain.cpu.features[0].name"}),
    (
        "cpu feature with XML",
        domain("{cpu: {features: [{name: '<a>'}]}}"),
        {"spec.domain.cpu.features[0].name"},
    ),
    (
        "cpu feature twice",
        domain("{cpu: {features: [{name: a}, {name: a}]}}"),
        {"spec.domain.cpu.features[1].name"},
    ),
    (
        "dedicated, fraction",
        domain("{cpu: {dedicatedCpuPlacement: true}, resources: {requests: {cpu: 1500m}}}"),
        {"spec.domain.resources.requests.cpu"},
    ),
    (
        "dedicated, mismatch",
        domain("{cpu: {cores: 2, dedicatedCpuPlacement: true}, resources: {requests: {cpu: 3}}}"),
        {"spec.domain.resources.requests.cpu"},
    ),
    (
        "dedicated, request below limit",
        domain("{cpu: {dedicatedCpuPlacement: true}, resources: {requests: {cpu: 2}, limits: {cpu: 3}}}"),
        {"spec.domain.resources.requests.cpu"},
    ),
    (
        "dedicated, memory request below limit",
        domain(
            "{cpu: {cores: 1, dedicatedCpuPlacement: true}, "
            "resources: {requests: {memory: 1Gi}, limits: {memory: 2Gi}}}"
        ),
        {"spec.domain.resources.requests.memory"},
    ),
    (
        "dedicated, no number",
        domain("{cpu: {dedicatedCpuPlacement: true}}"),
        {"spec.domain.cpu.dedicatedCpuPlacement"},
    ),
    (
        "dedicated, many threads",
        domain("{cpu: {cores: 1, threads: 3, dedicatedCpuPlacement: true}}"),
        {"spec.domain.cpu.threads"},
    ),
    (
        "isolated emulator",
        domain("{cpu: {cores: 1, isolateEmulatorThread: true}}"),
        {"spec.domain.cpu.isolateEmulatorThread"},
    ),
    (
        "numa without huge pages",
        domain(f"{{{DEDICATED}}}"),
        {"spec.domain.cpu.numa.guestMappingPassthrough"},
    ),
    (
        "numa without dedicated CPUs",
        domain(
            "{cpu: {cores: 2, numa: {guestMappingPassthrough: {}}}, memory: {hugepages: {pageSize: 2Mi}}}"
        ),
        {"spec.domain.cpu.numa.guestMappingPassthrough"},
    ),
    (
        "numa on s390x",
        f"spec: {{architecture: s390x, domain: {{{DEDICATED}, memory: {{hugepages: {{pageSize: 1Mi}}}}}}}}",
        {"spec.domain.cpu.numa.guestMappingPassthrough"},
    ),
    (
        "realtime alone",
        domain("{cpu: {cores: 2, realtime: {}}}"),
        {"spec.domain.cpu.dedicatedCpuPlacement", "spec.domain.cpu.numa.guestMappingPassthrough"},
    ),
    ("mask of words", domain(f"{{{REALTIME % 'all'}}}"), {"spec.domain.cpu.realtime.mask"}),
    ("mask backwards", domain(f"{{{REALTIME % '3-1'}}}"), {"spec.domain.cpu.realtime.mask"}),
    ("mask beyond", domain(f"{{{REALTIME % '0-4'}}}"), {"spec.domain.cpu.realtime.mask"}),
    ("mask of nothing", domain(f"{{{REALTIME % '0-1,^0,^1'}}}"), {"spec.domain.cpu.realtime.mask"}),
    ("mask without end", domain(f"{{{REALTIME % ('0,' * 600 + '0')}}}"), {"spec.domain.cpu.realtime.mask"}),
    # memory
    ("no memory", domain("{memory: null}"), {"spec.domain.memory.guest"}),
    ("negative memory", domain("{memory: {guest: -1Gi}}"), {"spec.domain.memory.guest"}),
    ("forgotten suffix", domain("{memory: {guest: 1024}}"), {"spec.domain.memory.guest"}),
    (
        "forgotten suffix of the limit that sizes the guest",
        domain("{memory: null, resources: {limits: {memory: 64}}}"),
        {"spec.domain.resources.limits.memory"},
    ),
    (
        "forgotten suffix of that limit beside a request of nothing",
        domain("{memory: null, resources: {requests: {memory: 0}, limits: {memory: 64}}}"),
        {"spec.domain.resources.limits.memory"},
    ),
    ("too much memory", domain("{memory: {guest: 5Pi}}"), {"spec.domain.memory.guest"}),
    (
        "too much memory requested",
        domain("{memory: null, resources: {requests: {memory: 5Pi}}}"),
        {"spec.domain.resources.requests.memory"},
    ),
    (
        "guest over limit",
        domain("{memory: {guest: 2Gi}, resources: {limits: {memory: 1Gi}}}"),
        {"spec.domain.memory.guest"},
    ),
    (
        "page size",
        domain("{memory: {hugepages: {pageSize: big}}}"),
        {"spec.domain.memory.hugepages.pageSize"},
    ),
    (
        "page size zero",
        domain("{memory: {hugepages: {pageSize: '0'}}}"),
        {"spec.domain.memory.hugepages.pageSize"},
    ),
    ("no page size", domain("{memory: {hugepages: {}}}"), {"spec.domain.memory.hugepages.pageSize"}),
    (
        "odd page size",
        domain("{memory: {hugepages: {pageSize: 4Mi}}}"),
        {"spec.domain.memory.hugepages.pageSize"},
    ),
    (
        "odd page size on s390x",
        "spec: {architecture: s390x, domain: {memory: {hugepages: {pageSize: 3Mi}}}}",
        {"spec.domain.memory.hugepages.pageSize"},
    ),
    (
        "page larger than memory",
        domain("{memory: {guest: 512Mi, hugepages: {pageSize: 1Gi}}}"),
        {"spec.domain.memory.guest", "spec.domain.memory.hugepages.pageSize"},
    ),
    (
        "no whole pages",
        domain("{memory: {guest: 1025Mi, hugepages: {pageSize: 2Mi}}}"),
        {"spec.domain.memory.guest", "spec.domain.memory.hugepages.pageSize"},
    ),
    (
        "no whole pages requested",
        domain(
            "{memory: {guest: null, hugepages: {pageSize: 2Mi}}, resources: {requests: {memory: 1025Mi}}}"
        ),
        {"spec.domain.resources.requests.memory", "spec.domain.memory.hugepages.pageSize"},
    ),
    (
        "maxGuest below guest",
        domain("{memory: {guest: 2Gi, maxGuest: 1Gi}}"),
        {"spec.domain.memory.guest", "spec.domain.memory.maxGuest"},
    ),
    ("maxGuest unaligned", domain("{memory: {maxGuest: 2049Mi}}"), {"spec.domain.memory.maxGuest"}),
    (
        "maxGuest of a small guest",
        domain("{memory: {guest: 512Mi, maxGuest: 1Gi}}"),
        {"spec.domain.memory.guest"},
    ),
    (
        "maxGuest on arm64",
        "spec: {architecture: arm64, domain: {memory: {maxGuest: 2Gi}}}",
        {"spec.domain.memory.maxGuest"},
    ),
    (
        "memLock",
        domain("{memory: {reservedOverhead: {memLock: Maybe}}}"),
        {"spec.domain.memory.reservedOverhead.memLock"},
    ),
    (
        "negative overhead",
        domain("{memory: {reservedOverhead: {addedOverhead: -1Mi}}}"),
        {"spec.domain.memory.reservedOverhead.addedOverhead"},
    ),
)

ACCEPTED: tuple[tuple[str, str], ...] = (
    (
        "metadata",
        "metadata: {name: a.b-c, uid: 5d307ca9-b3ef-428c-8861-06e72d69f223, labels: {example.com/app: a_B.c, e: ''}, "
        "annotations: {example.com/x: 'any text, any length', kubevirt.io/pci-interface-slot-count: '4'}}",
    ),
    ("generateName", "metadata: {name: null, generateName: demo-}"),
    (
        "life cycle",
        spec(
            "{architecture: amd64, hostname: web-1, subdomain: a.b, dnsPolicy: 'None', startStrategy: Paused, "
            "dnsConfig: {nameservers: [10.0.0.1, '::1'], searches: [a.b.], options: [{name: ndots, value: '5'}]}, "
            "evictionStrategy: LiveMigrateIfPossible, terminationGracePeriodSeconds: 0, priorityClassName: high, "
            "schedulerName: default-scheduler, nodeSelector: {kubernetes.io/os: linux}}"
        ),
    ),
    (
        "scheduling",
        spec(
            "{tolerations: [{operator: Exists}, {key: a, value: b, effect: NoExecute, tolerationSeconds: 5}], "
            "affinity: {nodeAffinity: {preferredDuringSchedulingIgnoredDuringExecution: "
            "[{weight: 100, preference: {}}]}}, topologySpreadConstraints: "
            "[{maxSkew: 1, topologyKey: k, whenUnsatisfiable: ScheduleAnyway}]}"
        ),
    ),
    ("reboot policy", domain("{rebootPolicy: Terminate}")),
    (
        "resources",
        domain(
            "{resources: {requests: {cpu: 500m, memory: 1Gi, example.com/gpu: 1}, limits: {cpu: 2, memory: 1Gi}}}"
        ),
    ),
    ("limit of zero", domain("{resources: {requests: {cpu: 1}, limits: {cpu: 0}}}")),
    ("machine", domain("{machine: {type: pc-q35-7.2}}")),
    ("pool", domain("{ioThreadsPolicy: supplementalPool, ioThreads: {supplementalPoolThreadCount: 4}}")),
    ("a count without a policy", domain("{ioThreads: {supplementalPoolThreadCount: 0}}")),
    (
        "topology",
        domain("{cpu: {sockets: 2, cores: 4, threads: 2, maxSockets: 2, model: Skylake-Server-IBRS}}"),
    ),
    (
        "features",
        domain("{cpu: {features: [{name: vmx}, {name: amd-ssbd, policy: disable}, {name: a, policy: ''}]}}"),
    ),
    ("dedicated by request", domain("{cpu: {dedicatedCpuPlacement: true}, resources: {requests: {cpu: 2}}}")),
    (
        "dedicated, all agree",
        domain(
            "{cpu: {cores: 2, threads: 1, dedicatedCpuPlacement: true, isolateEmulatorThread: true}, "
            "resources: {requests: {cpu: 2, memory: 1Gi}, limits: {cpu: 2, memory: 1Gi}}}"
        ),
    ),
    ("realtime", domain(f"{{{REALTIME % ' 0-3 ,^1'}}}")),
    ("realtime, all", domain(f"{{{REALTIME % ''}}}")),
    ("memory of requests", domain("{memory: null, resources: {requests: {memory: 64Mi}}}")),
    ("memory of limits", domain("{memory: null, resources: {limits: {memory: 64Mi}}}")),
    ("memory of one page", domain("{memory: {guest: null, hugepages: {pageSize: 1Gi}}}")),
    ("pages of arm64", "spec: {architecture: arm64, domain: {memory: {hugepages: {pageSize: 64Ki}}}}"),
    ("maxGuest", domain("{memory: {maxGuest: 4Gi}}")),
    ("maxGuest that is the guest", domain("{memory: {guest: 65Mi, maxGuest: 65Mi}}")),
    ("overhead", domain("{memory: {reservedOverhead: {addedOverhead: 32Mi, memLock: Required}}}")),
)
