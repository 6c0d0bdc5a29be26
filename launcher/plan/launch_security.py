# SPDX-License-Identifier: Apache-2.0
"""Encrypted guests: SEV, SEV-ES, SEV-SNP, TDX, and s390x Secure Execution. Pure."""

from __future__ import annotations

from launcher.errors import HostUnsupported
from launcher.plan import versions
from launcher.plan.context import PlanContext
from launcher.plan.model import LaunchSecurityPlan
from launcher.spec.model import SEV

# AMD SEV API, guest policy: bit 0 forbids debugging, bit 2 demands an encrypted register state (SEV-ES).
SEV_NO_DEBUG = 0x1
SEV_ENCRYPTED_STATE = 0x4
# SEV-SNP ABI, guest policy: bit 16 allows SMT, bit 17 must be one.
SNP_POLICY = 0x30000

# Where TDX guests find the quote generation service; empty: QEMU's own default.
QGS_SOCKET = "kubevirt.io/qgs-socket-path"
DEFAULT_QGS_SOCKET = "/var/run/tdx-qgs/qgs.socket"


def launch_security(context: PlanContext) -> LaunchSecurityPlan | None:
    """The ``<launchSecurity>`` element. s390x Secure Execution has none: the guest image itself asks for it.

    Raises:
        HostUnsupported: this libvirt does not know the technology, the host does not have it, or there is no
            KVM to use it with.
    """
    asked = context.domain.launch_security
    if asked is None or context.arch.name != "amd64":
        return None
    if asked.snp is not None:
        _require(context, "SEV-SNP", "sev-snp", since=versions.SEV_SNP)
        return LaunchSecurityPlan(type="sev-snp", policy=hex(SNP_POLICY))
    if asked.sev is not None:
        _require(context, "SEV", "sev")
        return LaunchSecurityPlan(
            type="sev",
            policy=hex(_sev_policy(asked.sev)),
            dh_cert=asked.sev.dh_cert or None,
            session=asked.sev.session or None,
        )
    if asked.tdx is not None:
        _require(context, "TDX", "tdx", since=versions.TDX)
        socket = context.annotations.get(QGS_SOCKET, DEFAULT_QGS_SOCKET)
        return LaunchSecurityPlan(type="tdx", quote_generation=True, quote_socket=socket.strip() or None)
    return None


def is_sev_es(asked: SEV) -> bool:
    """Whether the register state is encrypted, too."""
    return asked.policy is not None and bool(asked.policy.encrypted_state)


def _sev_policy(asked: SEV) -> int:
    return SEV_NO_DEBUG | (SEV_ENCRYPTED_STATE if is_sev_es(asked) else 0)


def _require(context: PlanContext, what: str, kind: str, *, since: int = 0) -> None:
    if context.facts.libvirt_version < since:
        release = f"{since // 1_000_000}.{since // 1_000 % 1_000}"
        raise HostUnsupported(
            what, f"libvirt is older than {release}", hint="use a node with a newer libvirt"
        )
    if context.emulated:
        raise HostUnsupported(what, "the guest would run without KVM", hint="use a node that has KVM")
    caps = context.facts.caps(context.arch, context.virt)
    if caps is None:
        return
    kinds = caps.enums.get("launchSecurity.sectype")
    if kind in caps.unsupported_features or (kinds is not None and kind not in kinds):
        raise HostUnsupported(what, "libvirt's domain capabilities do not offer it", hint="use another node")
