# SPDX-License-Identifier: Apache-2.0
"""What becomes of fields that no translation shows: declared here, because it cannot be measured. Data only.

A field that shows in a domain or in what a node prepares must not stand here; a test measures it. ``by``
names the module that acts on a field, and a test looks whether it does.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from launcher.explain.schema import Field


class Disposition(StrEnum):
    """What becomes of a field."""

    TRANSLATED = "translated"
    ENFORCED = "enforced"
    PASSED_ON = "passed on"
    NOT_HERE = "not applicable on a node"
    REFUSED = "refused"
    NOT_YET = "not acted on yet"

    @property
    def meaning(self) -> str:
        """One sentence for people."""
        return _MEANINGS[self]


_MEANINGS = {
    Disposition.TRANSLATED: "it shows in the domain XML",
    Disposition.ENFORCED: "the agent acts on it without the domain XML",
    Disposition.PASSED_ON: "kept and handed back for a control plane; the agent does not look at it",
    Disposition.NOT_HERE: "has no meaning on a single node; kept and handed back",
    Disposition.REFUSED: "a manifest that uses it is refused",
    Disposition.NOT_YET: "accepted and checked, but nothing acts on it yet",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Declaration:
    """What becomes of the fields at and below ``path``, in one line, and the module that acts on them."""

    path: str
    disposition: Disposition
    line: str
    by: str = ""


def _passed(path: str, line: str) -> Declaration:
    return Declaration(path=path, disposition=Disposition.PASSED_ON, line=line)


def _not_here(path: str, line: str) -> Declaration:
    return Declaration(path=path, disposition=Disposition.NOT_HERE, line=line)


def _not_yet(path: str, line: str) -> Declaration:
    return Declaration(path=path, disposition=Disposition.NOT_YET, line=line)


def _enforced(path: str, by: str, line: str) -> Declaration:
    return Declaration(path=path, disposition=Disposition.ENFORCED, line=line, by=by)


_DEVICES = "spec.domain.devices"
_CONTENT = "decides what is in the files of the volume"
_MEDIA = "launcher.plan.media.volume"
_DOWNWARD = "launcher.plan.media.downward"
_CLOUD_INIT = "launcher.plan.media.cloud_init"
_DUMPS = "launcher.agent.memory_dump_rules"
_CREDENTIALS = "launcher.plan.media.credentials"
_NETWORKS = "launcher.plan.node_networks"
_TOLD = "launcher.plan.address_service"
_BEHIND = "launcher.plan.masquerade"
_LEDGER = "launcher.agent.ledger"
_HANDED = "a cluster allocates claims; the agent is handed the devices"
_UNPLUG = "whether the volume may be unplugged although the guest booted with it"

INSTANCE: tuple[Declaration, ...] = (
    _passed("spec.affinity", "a scheduler places the instance"),
    _passed("spec.nodeSelector", "a scheduler places the instance"),
    _passed("spec.tolerations", "a scheduler places the instance"),
    _passed("spec.topologySpreadConstraints", "a scheduler places the instance"),
    _passed("spec.schedulerName", "a scheduler places the instance"),
    _passed("spec.priorityClassName", "a scheduler orders instances"),
    _passed("spec.serviceAccountName", "a cluster knows service accounts"),
    _enforced("spec.evictionStrategy", "launcher.agent.drain_plan", "what a drain of the node does with it"),
    _passed("spec.resourceClaims[].resourceClaimName", _HANDED),
    _passed("spec.resourceClaims[].resourceClaimTemplateName", _HANDED),
    _passed("spec.networks[].resourceClaim", "the agent is handed the virtual function of the interface"),
    _not_here(f"{_DEVICES}.interfaces[].ports[].name", "names a port for people only"),
    _not_here(
        "spec.volumes[].ephemeral.persistentVolumeClaim.readOnly", "the claim under an overlay is only read"
    ),
    _not_here("spec.volumes[].containerPath.readOnly", "must be true: such a path is only read"),
    _enforced(
        "spec.terminationGracePeriodSeconds",
        "launcher.agent.lifecycle",
        "waited for between the power button and the kill",
    ),
    _enforced(
        "spec.volumes[].hostDisk.shared",
        "launcher.agent.migratability",
        "a shared image is not copied by a migration",
    ),
    _enforced("spec.hostname", "launcher.plan.media.cloud_init", "the name in cloud-init's metadata"),
    _enforced(
        "spec.dnsPolicy", _TOLD, "None: the guest is told what dnsConfig says, not the node's resolver"
    ),
    _enforced("spec.dnsConfig", _TOLD, "name servers and search domains that DHCP tells, after the node's"),
    _not_here("spec.dnsConfig.options", "DHCP tells no options of a resolver"),
    _enforced("spec.subdomain", _TOLD, "the guest's own domain comes first in what DHCP lets it search"),
    _enforced("spec.livenessProbe", "launcher.agent.probes", "a guest that fails it is ended: phase Failed"),
    _enforced("spec.readinessProbe", "launcher.agent.probes", "decides the condition Ready"),
    _enforced(
        "spec.accessCredentials", _CREDENTIALS, "the condition AccessCredentialsSynchronized tells of it"
    ),
    _enforced(
        "spec.accessCredentials[].sshPublicKey",
        _CREDENTIALS,
        "the keys that may log in as the users: others are taken away",
    ),
    _enforced(
        "spec.accessCredentials[].sshPublicKey.propagationMethod.configDrive",
        _CLOUD_INIT,
        "keys go into the metadata of the config drive",
    ),
    _enforced(
        "spec.accessCredentials[].sshPublicKey.propagationMethod.noCloud",
        _CLOUD_INIT,
        "keys go into the metadata of the NoCloud drive",
    ),
    _enforced(
        "spec.accessCredentials[].sshPublicKey.propagationMethod.qemuGuestAgent",
        _CREDENTIALS,
        "handed over whenever the guest agent connects",
    ),
    _enforced(
        "spec.accessCredentials[].userPassword",
        _CREDENTIALS,
        "set by the guest agent whenever it connects",
    ),
    _enforced(
        "spec.utilityVolumes",
        "launcher.agent.utility_volumes",
        "directories for dumps and backups; they come and go while the guest runs, never at creation",
    ),
    _not_here("spec.networks[].multus.default", "there is no pod whose first network it could take"),
    _enforced(
        "spec.networks[].multus.networkName",
        _NETWORKS,
        "the node's bridge of that name, or a link handed in",
    ),
    _enforced("spec.networks[].pod", _NETWORKS, "the guest is behind masquerade, or on the node's bridge"),
    _enforced(
        "spec.domain.memory.reservedOverhead.addedOverhead",
        "launcher.plan.overhead",
        "reserved beside the guest's memory",
    ),
    _enforced(
        "spec.domain.resources.overcommitGuestOverhead",
        _LEDGER,
        "then what QEMU needs itself is not reserved",
    ),
    _not_here(
        "spec.domain.memory.reservedOverhead.memLock",
        "libvirt lets QEMU lock what its devices need; realtime locks all",
    ),
    _enforced(
        "spec.domain.launchSecurity.sev.attestation",
        "launcher.agent.lifecycle",
        "without session and dhCert the guest waits for launcherctl sev setup",
    ),
    _enforced(
        f"{_DEVICES}.disks[].tag", _CLOUD_INIT, "told by the config drive, with address or serial number"
    ),
    _enforced(f"{_DEVICES}.gpus[].tag", _CLOUD_INIT, "told by the config drive, with the PCI address"),
    _enforced(f"{_DEVICES}.hostDevices[].tag", _CLOUD_INIT, "told by the config drive, with the PCI address"),
    _enforced(f"{_DEVICES}.interfaces[].tag", _CLOUD_INIT, "told by the config drive, with the PCI address"),
    _enforced(
        f"{_DEVICES}.autoattachInputDevice",
        "launcher.spec.kinds",
        "adds a tablet to a VirtualMachine without inputs; a bare instance lists its own, as in KubeVirt",
    ),
    _enforced(f"{_DEVICES}.interfaces[].binding", _NETWORKS, "what the node's configuration says of it"),
    _enforced(f"{_DEVICES}.interfaces[].dhcpOptions", _TOLD, "told by DHCP where we serve addresses"),
    _enforced(f"{_DEVICES}.interfaces[].portRanges", _BEHIND, "forwarded behind masquerade"),
    _enforced("spec.volumes[].cloudInitConfigDrive", _MEDIA, _CONTENT),
    _enforced("spec.volumes[].cloudInitNoCloud", _MEDIA, _CONTENT),
    _enforced("spec.volumes[].configMap.name", _MEDIA, _CONTENT),
    _enforced("spec.volumes[].configMap.optional", _MEDIA, _CONTENT),
    _enforced("spec.volumes[].downwardAPI.fields", _DOWNWARD, _CONTENT),
    _enforced("spec.volumes[].secret.secretName", _MEDIA, _CONTENT),
    _enforced("spec.volumes[].secret.optional", _MEDIA, _CONTENT),
    _enforced("spec.volumes[].serviceAccount.serviceAccountName", _MEDIA, _CONTENT),
    _enforced("spec.volumes[].sysprep.secret", _MEDIA, _CONTENT),
    _enforced("spec.volumes[].sysprep.configMap", _MEDIA, _CONTENT),
    _enforced("spec.volumes[].dataVolume.hotpluggable", "launcher.agent.update_volumes", _UNPLUG),
    _enforced("spec.volumes[].persistentVolumeClaim.hotpluggable", "launcher.agent.update_volumes", _UNPLUG),
    _enforced("spec.volumes[].memoryDump.claimName", _DUMPS, "where launcherctl memory-dump puts a dump"),
    _not_yet("spec.volumes[].memoryDump.hotpluggable", "a dump needs no volume to be plugged"),
    _enforced(
        "spec.volumes[].memoryDump.readOnly", _DUMPS, "a dump into a claim that is only read is refused"
    ),
)

MIGRATION: tuple[Declaration, ...] = (
    _enforced("spec.vmiName", "launcher.agent.migrations", "the instance that is moved"),
    _enforced(
        "spec.addedNodeSelector",
        "launcher.agent.migrations",
        "kubernetes.io/hostname names the target; other labels are for a scheduler",
    ),
    _enforced("spec.priority", "launcher.agent.outgoing_draft", "orders the migrations that wait for a slot"),
    _enforced(
        "spec.sendTo", "launcher.agent.migrations", "the agent that is asked, and by which id it knows"
    ),
    _enforced(
        "spec.receive", "launcher.agent.expected", "the id by which a sender is let in, and waited for"
    ),
)

_OPTIONS = "launcher.migration.options"
POLICY: tuple[Declaration, ...] = (
    _enforced("spec.selectors", "launcher.migration.selection", "the policy with most matching labels wins"),
    *(
        _enforced(f"spec.{name}", _OPTIONS, "an option of every migration that the policy selects")
        for name in (
            "allowAutoConverge",
            "allowPostCopy",
            "allowWorkloadDisruption",
            "bandwidthPerMigration",
            "completionTimeoutPerGiB",
            "maxDowntimeMs",
            "experimental",
        )
    ),
)

DECLARED: dict[str, tuple[Declaration, ...]] = {
    "VirtualMachineInstance": INSTANCE,
    "VirtualMachineInstanceMigration": MIGRATION,
    "MigrationPolicy": POLICY,
}


def declaration(field: Field, kind: str = "VirtualMachineInstance") -> Declaration | None:
    """What is declared of a field, or of the nearest field around it."""
    around = (entry for entry in DECLARED[kind] if covers(entry.path, field.path))
    return max(around, key=lambda entry: len(entry.path), default=None)


def covers(path: str, other: str) -> bool:
    """Whether the field at ``other`` is that at ``path`` or stands below it."""
    return other == path or other.startswith((f"{path}.", f"{path}["))
