# SPDX-License-Identifier: Apache-2.0
"""Attestation of SEV guests: certificates, session, measurement, secret. When a guest starts is reconcile's.

Nothing here keeps or logs a secret; findings about one name the field and never its value.
"""

from __future__ import annotations

import asyncio
import dataclasses
import hashlib
from collections.abc import Iterator
from pathlib import Path

from msgspec.structs import replace

from launcher.agent import lifecycle
from launcher.agent.instances import Instances
from launcher.agent.machine import Machine, Services
from launcher.agent.port import SevMeasurementView, SevPlatformView
from launcher.agent.records import FINAL, InstanceRecord
from launcher.errors import HostUnsupported, InvalidRequest, StorageError, Violation, WrongPhase
from launcher.hypervisor.port import DomainState
from launcher.spec.model import VirtualMachineInstance
from launcher.spec.rules.checks import is_base64
from launcher.spec.rules.launch_security import LONGEST_BLOB

PREPARE_TIMEOUT_S = 20.0
"""How long a caller waits for an instance whose files are being made; it may call again."""
_NO_SEV = "AMD SEV"
_HINT = "use a node whose launcherctl node facts list sev"


class Attestation:
    """The calls of one node."""

    def __init__(self, services: Services, instances: Instances) -> None:
        self._services = services
        self._instances = instances

    async def platform(self) -> SevPlatformView:
        """What identifies this host's SEV firmware.

        Raises:
            HostUnsupported: there is none.
        """
        try:
            found = await self._services.hypervisor.sev_platform()
        except HostUnsupported as error:
            raise HostUnsupported(_NO_SEV, error.message, hint=_HINT) from error
        return SevPlatformView(**dataclasses.asdict(found))

    async def set_up(
        self, namespace: str, name: str, *, session: str, dh_cert: str
    ) -> VirtualMachineInstance:
        """Let a waiting instance start in its owner's session; the same session twice is the same as once.

        Raises:
            InvalidRequest: what is handed over is no base64.
            WrongPhase: the instance wants no attestation, has another session, or ended.
            TimedOut: its files and devices are not made in time.
        """
        _require_base64(session=session, dh_cert=dh_cert)
        machine = self._attested(namespace, name)
        # What preparing finds is written into the plan, too: one after the other.
        await machine.until(
            lambda m: m.record.prepared or m.record.phase in FINAL, timeout_s=PREPARE_TIMEOUT_S
        )
        await machine.update(lambda record: with_session(record, session=session, dh_cert=dh_cert))
        return await self._instances.get(namespace, name)

    async def measurement(self, namespace: str, name: str) -> SevMeasurementView:
        """What the firmware measured of a guest that started.

        Raises:
            WrongPhase: the instance wants no attestation, or has not started.
            StorageError: the firmware image cannot be read.
        """
        machine = self._attested(namespace, name)
        record = machine.record
        if record.phase != "Running":
            raise WrongPhase(f"{record.key} has not been measured: its phase is {record.phase}, not Running")
        found = await self._services.hypervisor.sev_measurement(record.plan.identity.uuid)
        loader = record.plan.boot.loader
        digest = await asyncio.to_thread(_sha256, Path(loader.path)) if loader is not None else ""
        return SevMeasurementView(**dataclasses.asdict(found), loader_sha256=digest)

    async def inject(self, namespace: str, name: str, *, header: str, secret: str) -> None:
        """Hand a secret to a guest that has not run yet.

        Raises:
            InvalidRequest: header or secret is missing or no base64.
            WrongPhase: the instance wants no attestation, or is not paused.
        """
        _require_base64(header=header, secret=secret)
        machine = self._attested(namespace, name)
        record, observed = machine.record, machine.observed
        if record.phase != "Running" or observed is None or observed.state is not DomainState.PAUSED:
            raise WrongPhase(
                f"{record.key} takes no secret: it has to be started and paused",
                hint="a secret is injected before the guest is unpaused for the first time",
            )
        await self._services.hypervisor.inject_sev_secret(
            record.plan.identity.uuid, header=header, secret=secret
        )

    def _attested(self, namespace: str, name: str) -> Machine:
        machine = self._instances.find(namespace, name)
        security = machine.record.defaulted.spec.domain.launch_security
        if security is None or security.sev is None or security.sev.attestation is None:
            raise WrongPhase(
                f"{machine.record.key} is no guest that is attested",
                hint="spec.domain.launchSecurity.sev.attestation asks for it",
            )
        return machine


def with_session(record: InstanceRecord, *, session: str, dh_cert: str) -> InstanceRecord:
    """The record of an instance that starts in this session. Pure.

    Raises:
        WrongPhase: it has another one.
    """
    present = record.defaulted.spec.domain.launch_security
    if not lifecycle.awaits_session(record):
        sev = present.sev if present is not None else None
        if sev is not None and (sev.session, sev.dh_cert) == (session, dh_cert):
            return record
        raise WrongPhase(f"{record.key} has a session already", hint="create it anew to change the session")
    plan = record.plan
    return replace(
        record,
        manifest=_with_session(record.manifest, session, dh_cert),
        defaulted=_with_session(record.defaulted, session, dh_cert),
        plan=replace(
            plan,
            launch_security=None
            if plan.launch_security is None
            else replace(plan.launch_security, session=session, dh_cert=dh_cert),
        ),
    )


def _with_session(vmi: VirtualMachineInstance, session: str, dh_cert: str) -> VirtualMachineInstance:
    security = vmi.spec.domain.launch_security
    if security is None or security.sev is None:
        return vmi
    sev = replace(security.sev, session=session, dh_cert=dh_cert)
    domain = replace(vmi.spec.domain, launch_security=replace(security, sev=sev))
    return replace(vmi, spec=replace(vmi.spec, domain=domain))


def _require_base64(**blobs: str) -> None:
    findings = tuple(_findings(blobs))
    if findings:
        raise InvalidRequest(findings)


def _findings(blobs: dict[str, str]) -> Iterator[Violation]:
    for field, blob in blobs.items():
        if not blob:
            yield Violation(field=field, type="FieldValueRequired", message="must not be empty")
        elif len(blob) > LONGEST_BLOB or not is_base64(blob):
            message = f"accepted is base64, at most {LONGEST_BLOB // 1024} KiB of it"
            yield Violation(field=field, type="FieldValueInvalid", message=message)


def _sha256(path: Path) -> str:
    try:
        with path.open("rb") as image:
            return hashlib.file_digest(image, "sha256").hexdigest()
    except OSError as error:
        raise StorageError("", f"cannot read the firmware {path}: {error.strerror}") from error
