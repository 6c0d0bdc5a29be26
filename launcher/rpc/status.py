# SPDX-License-Identifier: Apache-2.0
"""launcher.errors <-> google.rpc.Status: the one table, both ways. Pure: nothing is logged or sent here.

``encode`` is what a server answers, ``decode`` what a client makes of it: the same class, message, hint and
typed context. A status that no agent wrote (a broken connection, a passed deadline) becomes the class that
asks the same of the caller.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeVar

from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.message import Message
from google.rpc.code_pb2 import Code
from google.rpc.error_details_pb2 import (
    BadRequest,
    ErrorInfo,
    PreconditionFailure,
    QuotaFailure,
    ResourceInfo,
    RetryInfo,
)
from google.rpc.status_pb2 import Status

from launcher import errors
from launcher.errors import LauncherError, Violation

Kind = TypeVar("Kind", bound=Message)

DOMAIN = "launcher"
"""``ErrorInfo.domain`` of all our errors."""

DETAILS_LIMIT = 6 * 1024
"""Bytes of a status for a client that names no limit: gRPC's C core refuses some trailers above 8 KiB."""

LIMIT_KEY = "launcher-status-limit"
"""Request metadata in which a client says how many bytes of a status it accepts."""

_MESSAGE_LIMIT = 600
# What a node lacks is a handful of things; each takes some 150 bytes.
_MOST_FINDINGS = 16
# Two type URLs, lengths, and the count of violations in the metadata.
_ENVELOPE = 192

_PLACED = re.compile(r"line (\d{1,9}), column (\d{1,9}): (.*)", re.DOTALL)


def encode(error: LauncherError, *, request_id: str = "", limit: int = DETAILS_LIMIT) -> Status:
    """The status of ``error``, at most about ``limit`` bytes.

    When violations had to be left out, ``ErrorInfo.metadata`` has ``violations`` (how many there are).
    """
    message = error.message if len(error.message) <= _MESSAGE_LIMIT else error.message[:_MESSAGE_LIMIT] + "…"
    info = ErrorInfo(reason=error.reason, domain=DOMAIN, metadata=_metadata(error))
    if error.hint:
        info.metadata["hint"] = error.hint
    if request_id:
        info.metadata["requestId"] = request_id
    status = Status(code=Code.Value(error.code), message=message)
    details = list(_details(error))
    room = limit - status.ByteSize() - info.ByteSize() - _ENVELOPE
    for detail in details:
        if isinstance(detail, BadRequest) and _shorten(detail, room):
            info.metadata["violations"] = str(len(getattr(error, "violations", ())))
    for detail in (info, *details):
        status.details.add().Pack(detail)
    return status


def decode(status: Status) -> LauncherError:
    """The error that ``encode`` made ``status`` of, or the nearest class for a status of other origin."""
    received = _Received.of(status)
    rebuild = _REBUILD.get(received.reason)
    if rebuild is not None:
        return rebuild(received)
    return by_code(Code.Name(status.code), status.message)


def by_code(code: str, message: str) -> LauncherError:
    """The class for a bare status code (by name), as the transport itself makes them."""
    match code:
        case "UNAVAILABLE":
            return errors.Unavailable(message, hint="is launcherd running, and is this its address?")
        case "CANCELLED":  # Nobody here cancels a call and then looks at it: the server did, as it ends.
            return errors.Unavailable(message, hint="look whether it was done, then ask again")
        case "DEADLINE_EXCEEDED":
            return errors.TimedOut(message)
        case "UNAUTHENTICATED" | "PERMISSION_DENIED":
            return errors.Denied(message)
        case "UNIMPLEMENTED":
            return errors.HostUnsupported("this call", message, hint="is the other end an older launcherd?")
        case "RESOURCE_EXHAUSTED":
            return errors.Exhausted("message size", message)
        case "INVALID_ARGUMENT" | "OUT_OF_RANGE":
            finding = Violation(field="request", type="FieldValueInvalid", message=message)
            return errors.InvalidRequest([finding])
        case "ABORTED":
            return errors.Conflict(message)
        case "FAILED_PRECONDITION":
            return errors.WrongPhase(message)
        case _:
            return errors.Bug(message or code)


# --- encoding ---------------------------------------------------------------------------------------------


def _metadata(error: LauncherError) -> dict[str, str]:
    """Typed context that no standard detail carries."""
    match error:
        case errors.NotFound() | errors.AlreadyExists():
            return {"kind": error.kind, "name": error.name}
        case errors.HostUnsupported():
            return {"capability": error.capability}
        case errors.Exhausted():
            return {"resource": error.resource}
        case errors.StorageError():
            return {"volume": error.volume}
        case errors.NetworkError():
            return {"network": error.network}
        case errors.HypervisorError():
            return {"libvirtCode": str(error.libvirt_code), "domain": error.domain}
        case errors.CommandFailed():
            return {"program": error.argv[0], "status": str(error.status)}
        case _:
            return {}


def _details(error: LauncherError) -> Iterator[Message]:
    """The standard details of google/rpc/error_details.proto that fit the class."""
    match error:
        case errors.InvalidSpec() | errors.InvalidRequest():
            yield BadRequest(field_violations=[_violation(v) for v in error.violations])
        case errors.NotFound() | errors.AlreadyExists():
            yield ResourceInfo(resource_type=error.kind, resource_name=error.name, description=error.message)
        case errors.WrongPhase():
            yield _precondition(error, ("", error.message))
        case errors.HostUnsupported():
            yield _precondition(error, *error.findings[:_MOST_FINDINGS])
        case errors.MigrationRefused():
            yield _precondition(error, *(("", finding) for finding in error.findings))
        case errors.Exhausted():
            quota = QuotaFailure()
            quota.violations.add(subject=error.resource, description=error.message)
            yield quota
        case errors.Unavailable():
            retry = RetryInfo()
            retry.retry_delay.FromMilliseconds(round(error.retry_after_s * 1000))
            yield retry


def _precondition(error: LauncherError, *findings: tuple[str, str]) -> PreconditionFailure:
    failure = PreconditionFailure()
    for subject, description in findings:
        failure.violations.add(type=error.reason, subject=subject, description=description)
    return failure


def _violation(violation: Violation) -> BadRequest.FieldViolation:
    """A finding on the wire: the place in a text, when known, goes before the words."""
    place = "" if violation.line is None else f"line {violation.line}, column {violation.column or 1}: "
    return BadRequest.FieldViolation(
        field=violation.field, reason=violation.type, description=place + violation.message
    )


def _shorten(detail: BadRequest, room: int) -> bool:
    """Drop violations from the end until ``detail`` fits in ``room`` bytes; keep one. True: some went."""
    dropped = False
    size = detail.ByteSize()
    while size > room and len(detail.field_violations) > 1:
        last = detail.field_violations[-1].ByteSize()
        size -= last + (2 if last < 128 else 3)  # one byte of tag, then the length as a varint
        del detail.field_violations[-1]
        dropped = True
    return dropped


# --- decoding ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _Received:
    """A status taken apart."""

    message: str
    reason: str
    metadata: Mapping[str, str]
    details: tuple[AnyMessage, ...]

    @classmethod
    def of(cls, status: Status) -> _Received:
        info = _find(status.details, ErrorInfo())
        ours = info.domain == DOMAIN
        return cls(
            message=status.message,
            reason=info.reason if ours else "",
            metadata=dict(info.metadata),
            details=tuple(status.details),
        )

    @property
    def hint(self) -> str:
        return self.metadata.get("hint", "")

    def get(self, key: str) -> str:
        return self.metadata.get(key, "")

    def number(self, key: str) -> int:
        text = self.metadata.get(key, "0")
        return int(text) if text.lstrip("-").isdigit() else 0

    def after(self, prefix: str) -> str:
        """The message without what a constructor puts before it again."""
        return self.message.removeprefix(prefix)

    def violations(self) -> list[Violation]:
        found = _find(self.details, BadRequest())
        return [_violation_of(v) for v in found.field_violations]

    def findings(self) -> list[str]:
        found = _find(self.details, PreconditionFailure())
        return [v.description for v in found.violations] or [self.message]

    def unsupported(self) -> errors.HostUnsupported:
        found = _find(self.details, PreconditionFailure())
        parts = [errors.HostUnsupported(v.subject, v.description, hint=self.hint) for v in found.violations]
        if parts:
            return errors.HostUnsupported.together(parts)
        capability = self.get("capability")
        return errors.HostUnsupported(
            capability, self.after(f"this node lacks {capability}: "), hint=self.hint
        )

    def retry_after_s(self) -> float:
        found = _find(self.details, RetryInfo())
        return found.retry_delay.ToMilliseconds() / 1000 or 1.0


def _find(details: Iterable[AnyMessage], wanted: Kind) -> Kind:
    """``wanted``, filled from the detail of its type; left empty when there is none."""
    for detail in details:
        detail.Unpack(wanted)  # does nothing for another type
    return wanted


def _violation_of(wire: BadRequest.FieldViolation) -> Violation:
    placed = _PLACED.fullmatch(wire.description)
    if placed is None:
        return Violation(field=wire.field, type=wire.reason, message=wire.description)
    line, column, message = placed.groups()
    return Violation(field=wire.field, type=wire.reason, message=message, line=int(line), column=int(column))


def _plain(cls: Callable[..., LauncherError]) -> Callable[[_Received], LauncherError]:
    return lambda r: cls(r.message, hint=r.hint)


_REBUILD: Mapping[str, Callable[[_Received], LauncherError]] = {
    "INVALID_SPEC": lambda r: errors.InvalidSpec(r.violations(), hint=r.hint),
    "INVALID_REQUEST": lambda r: errors.InvalidRequest(r.violations(), hint=r.hint),
    "NOT_FOUND": lambda r: errors.NotFound(r.get("kind"), r.get("name"), hint=r.hint),
    "ALREADY_EXISTS": lambda r: errors.AlreadyExists(r.get("kind"), r.get("name"), hint=r.hint),
    "WRONG_PHASE": _plain(errors.WrongPhase),
    "HOST_UNSUPPORTED": lambda r: r.unsupported(),
    "CONFLICT": _plain(errors.Conflict),
    "EXHAUSTED": lambda r: errors.Exhausted(r.get("resource"), r.message, hint=r.hint),
    "UNAVAILABLE": lambda r: errors.Unavailable(r.message, retry_after_s=r.retry_after_s(), hint=r.hint),
    "LIBVIRT_DOWN": lambda r: errors.HypervisorUnavailable(
        r.message, retry_after_s=r.retry_after_s(), hint=r.hint
    ),
    "TIMED_OUT": _plain(errors.TimedOut),
    "DENIED": _plain(errors.Denied),
    "NOT_MIGRATABLE": lambda r: errors.MigrationRefused(r.findings(), hint=r.hint),
    "MIGRATION_ABORTED": _plain(errors.MigrationAborted),
    "MIGRATION_FAILED": _plain(errors.MigrationFailed),
    "STORAGE": lambda r: errors.StorageError(
        r.get("volume"), r.after(f"volume {r.get('volume')!r}: "), hint=r.hint
    ),
    "NETWORK": lambda r: errors.NetworkError(
        r.get("network"), r.after(f"network {r.get('network')!r}: "), hint=r.hint
    ),
    "GUEST_AGENT": _plain(errors.GuestAgentError),
    "COMMAND_FAILED": lambda r: errors.CommandFailed(
        [r.get("program")],
        r.number("status"),
        r.after(f"{r.get('program')} ended with status {r.get('status')}: "),
        hint=r.hint,
    ),
    "LIBVIRT": lambda r: errors.HypervisorError(
        r.message, libvirt_code=r.number("libvirtCode"), domain=r.get("domain"), hint=r.hint
    ),
    "BUG": lambda r: errors.Bug(r.after("bug in launcher: ")),
}
