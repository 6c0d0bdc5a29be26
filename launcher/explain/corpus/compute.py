# SPDX-License-Identifier: Apache-2.0
"""Examples that set the fields of CPU, memory, firmware, features, clock and encryption. Data only."""

from __future__ import annotations

TOPOLOGY = """
spec:
  domain:
    cpu: {sockets: 2, cores: 3, threads: 2, maxSockets: 4, model: Skylake-Server}
    memory: {guest: 1Gi, maxGuest: 4Gi}
    devices: {}
"""

CPU_FEATURES = """
spec:
  domain:
    cpu:
      model: host-model
      features: [{name: vmx, policy: disable}, {name: aes}]
    memory: {guest: 1Gi}
    devices: {}
"""

RESOURCES = """
spec:
  domain:
    resources:
      requests: {cpu: "2", memory: 1Gi}
      limits: {cpu: "4", memory: 2Gi}
      overcommitGuestOverhead: true
    memory: {reservedOverhead: {addedOverhead: 64Mi, memLock: Required}}
    devices: {}
"""

REQUESTS = """
spec:
  domain:
    resources: {requests: {cpu: "2", memory: 1Gi}}
    devices: {}
"""

DEDICATED = """
spec:
  domain:
    cpu:
      cores: 4
      model: host-passthrough
      dedicatedCpuPlacement: true
      isolateEmulatorThread: true
      numa: {guestMappingPassthrough: {}}
      realtime: {mask: "0-3,^1"}
    memory: {guest: 4Gi, hugepages: {pageSize: 1Gi}}
    devices: {}
"""

HUGE_PAGES = """
spec:
  domain:
    memory: {guest: 2Gi, hugepages: {pageSize: 2Mi}}
    devices: {}
"""

DEDICATED_ONLY = """
spec:
  domain:
    cpu: {cores: 2, dedicatedCpuPlacement: true}
    memory: {guest: 1Gi}
    devices: {}
"""

SUPPLEMENTAL_POOL = """
spec:
  domain:
    ioThreadsPolicy: supplementalPool
    ioThreads: {supplementalPoolThreadCount: 2}
    memory: {guest: 1Gi}
    devices:
      disks: [{name: data, disk: {bus: virtio}}]
  volumes: [{name: data, emptyDisk: {capacity: 1Gi}}]
"""

MACHINE = """
spec:
  architecture: amd64
  startStrategy: Paused
  domain:
    machine: {type: pc-q35-9.2}
    rebootPolicy: Terminate
    memory: {guest: 1Gi}
    devices: {}
"""

UEFI = """
spec:
  domain:
    firmware:
      uuid: 5d307ca9-b3ef-428c-8861-06e72d69f223
      serial: A-1234
      bootloader: {efi: {secureBoot: true, persistent: true}}
    features: {smm: {enabled: true}}
    memory: {guest: 1Gi}
    devices: {}
"""

BIOS = """
spec:
  domain:
    firmware: {bootloader: {bios: {useSerial: true}}}
    chassis: {manufacturer: Example, version: "1", serial: S1, asset: rack-7, sku: none}
    memory: {guest: 1Gi}
    devices: {}
"""

KERNEL_BOOT = """
spec:
  domain:
    firmware:
      kernelBoot:
        kernelArgs: console=ttyS0
        container:
          image: registry.example/kernel:6.1
          imagePullPolicy: IfNotPresent
          imagePullSecret: registry
          kernelPath: /boot/vmlinuz
          initrdPath: /boot/initrd
    memory: {guest: 1Gi}
    devices: {}
"""

ACPI_TABLES = """
spec:
  domain:
    firmware: {acpi: {slicNameRef: licence, msdmNameRef: key}}
    memory: {guest: 1Gi}
    devices: {}
  volumes:
    - {name: licence, secret: {secretName: licence}}
    - {name: key, secret: {secretName: key}}
"""

FEATURES = """
spec:
  domain:
    features:
      acpi: {enabled: true}
      apic: {enabled: true, endOfInterrupt: true}
      kvm: {hidden: true}
      pvspinlock: {enabled: false}
      hyperv:
        evmcs: {enabled: true}
        frequencies: {enabled: true}
        ipi: {enabled: true}
        reenlightenment: {enabled: true}
        relaxed: {enabled: true}
        reset: {enabled: true}
        runtime: {enabled: true}
        spinlocks: {enabled: true, spinlocks: 8191}
        synic: {enabled: true}
        synictimer: {enabled: true, direct: {enabled: true}}
        tlbflush: {enabled: true, direct: {enabled: true}, extended: {enabled: true}}
        vapic: {enabled: true}
        vendorid: {enabled: true, vendorid: example}
        vpindex: {enabled: true}
    memory: {guest: 1Gi}
    devices: {}
"""

HYPERV_PASSTHROUGH = """
spec:
  domain:
    features: {hypervPassthrough: {enabled: true}}
    memory: {guest: 1Gi}
    devices: {}
"""

TIMERS = """
spec:
  domain:
    clock:
      utc: {offsetSeconds: 3600}
      timer:
        hpet: {present: true, tickPolicy: delay}
        hyperv: {present: true}
        kvm: {present: false}
        pit: {present: true, tickPolicy: delay}
        rtc: {present: true, tickPolicy: catchup, track: guest}
    memory: {guest: 1Gi}
    devices: {}
"""

TIMEZONE = """
spec:
  domain:
    clock: {timezone: Europe/Berlin}
    memory: {guest: 1Gi}
    devices: {}
"""

SEV = """
spec:
  startStrategy: Paused
  domain:
    launchSecurity:
      sev: {policy: {encryptedState: true}, attestation: {}, dhCert: Y2VydA==, session: c2Vzc2lvbg==}
    firmware: {bootloader: {efi: {secureBoot: false}}}
    memory: {guest: 1Gi}
    devices: {}
"""

SNP = """
spec:
  domain:
    launchSecurity: {snp: {}}
    firmware: {bootloader: {efi: {secureBoot: false}}}
    memory: {guest: 1Gi}
    devices: {}
"""

TDX = """
spec:
  domain:
    launchSecurity: {tdx: {}}
    firmware: {bootloader: {efi: {secureBoot: false}}}
    memory: {guest: 1Gi}
    devices: {}
"""

NUMA = """
spec:
  domain:
    cpu: {cores: 4, dedicatedCpuPlacement: true, numa: {guestMappingPassthrough: {}}}
    memory: {guest: 4Gi, hugepages: {pageSize: 2Mi}}
    devices: {}
"""

SOME_FEATURES = """
spec:
  domain:
    features: {smm: {enabled: true}, hyperv: {vapic: {enabled: true}, vpindex: {enabled: true}}}
    memory: {guest: 1Gi}
    devices: {}
"""

SYNIC = """
spec:
  domain:
    features: {hyperv: {synic: {enabled: true}}}
    memory: {guest: 1Gi}
    devices: {}
"""

ARCHITECTURE = """
spec:
  architecture: amd64
  domain:
    memory: {guest: 1Gi}
    devices: {}
"""

EXAMPLES = {
    "topology": TOPOLOGY,
    "cpu-features": CPU_FEATURES,
    "resources": RESOURCES,
    "requests": REQUESTS,
    "dedicated-realtime": DEDICATED,
    "dedicated": DEDICATED_ONLY,
    "huge-pages": HUGE_PAGES,
    "supplemental-pool": SUPPLEMENTAL_POOL,
    "machine": MACHINE,
    "uefi": UEFI,
    "bios": BIOS,
    "kernel-boot": KERNEL_BOOT,
    "acpi-tables": ACPI_TABLES,
    "features": FEATURES,
    "hyperv-passthrough": HYPERV_PASSTHROUGH,
    "timers": TIMERS,
    "timezone": TIMEZONE,
    "sev": SEV,
    "snp": SNP,
    "tdx": TDX,
    "numa": NUMA,
    "some-features": SOME_FEATURES,
    "synic": SYNIC,
    "architecture": ARCHITECTURE,
}
