# SPDX-License-Identifier: Apache-2.0
"""Every error that launcher raises on purpose. Standard library only; nothing is logged here.

    LauncherError                        INTERNAL             never raised itself
     ├─ InvalidSpec(violations)          INVALID_ARGUMENT     INVALID_SPEC
     ├─ InvalidRequest(violations)       INVALID_ARGUMENT     INVALID_REQUEST
     ├─ NotFound(kind, name)             NOT_FOUND            NOT_FOUND
     ├─ AlreadyExists(kind, name)        ALREADY_EXISTS       ALREADY_EXISTS
     ├─ WrongPhase                       FAILED_PRECONDITION  WRONG_PHASE
     ├─ HostUnsupported(capability)      FAILED_PRECONDITION  HOST_UNSUPPORTED
     ├─ Conflict                         ABORTED              CONFLICT
     ├─ Exhausted(resource)              RESOURCE_EXHAUSTED   EXHAUSTED
     ├─ Unavailable                      UNAVAILABLE          UNAVAILABLE
     │   └─ HypervisorUnavailable                             LIBVIRT_DOWN
     ├─ TimedOut                         DEADLINE_EXCEEDED    TIMED_OUT
     ├─ Denied                           PERMISSION_DENIED    DENIED
     ├─ MigrationRefused(findings)       FAILED_PRECONDITION  NOT_MIGRATABLE
     ├─ MigrationAborted                 CANCELLED            MIGRATION_ABORTED
     ├─ MigrationFailed                  INTERNAL             MIGRATION_FAILED
     ├─ StorageError(volume)             INTERNAL             STORAGE
     ├─ NetworkError(network)            INTERNAL             NETWORK
     ├─ GuestAgentError                  UNAVAILABLE          GUEST_AGENT
     ├─ CommandFailed(argv, status)      INTERNAL             COMMAND_FAILED
     ├─ HypervisorError(code, domain)    INTERNAL             LIBVIRT
     └─ Bug                              INTERNAL             BUG

Each class fixes ``code`` (the name of a gRPC status code), ``reason`` (stable, for programs) and
``expected`` (an expected error is logged without a stack trace). An instance carries ``message``, an
optional ``hint`` (what to do next) and typed context. Raise with ``from``; never repeat the inner message.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """One finding about a manifest or request.

    ``field`` is a path such as ``spec.domain.devices.disks[0].disk.bus``; ``type`` one of
    ``FieldValueInvalid``, ``FieldValueRequired``, ``FieldValueNotSupported``, ``FieldValueNotFound``,
    ``FieldValueDuplicate``, ``FieldUnknown``, ``FieldTypeInvalid``, ``Forbidden``; ``value`` what was
    written, shortened, never a secret; ``message`` says what would be accepted. ``line`` and
    ``column`` (from 1) are set when the text of the manifest is known.
    """

    field: str
    type: str
    message: str
    value: str = ""
    line: int | None = None
    column: int | None = None


class LauncherError(Exception):
    """Root of the tree above."""

    code: ClassVar[str] = "INTERNAL"
    reason: ClassVar[str] = "INTERNAL"
    expected: ClassVar[bool] = False

    def __init__(self, message: str, *, hint: str = "") -> None:
        if type(self) is LauncherError:
            raise TypeError("LauncherError is abstract: raise one of its subclasses")
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message} ({self.hint})" if self.hint else self.message


class _Violations(LauncherError):
    code = "INVALID_ARGUMENT"
    expected = True

    def __init__(self, violations: Iterable[Violation], *, what: str, hint: str = "") -> None:
        self.violations: tuple[Violation, ...] = tuple(violations)
        count = len(self.violations)
        shown = "; ".join(f"{v.field}: {v.message}" for v in self.violations[:10])
        more = f"; and {count - 10} more" if count > 10 else ""
        super().__init__(f"{what} has {count} error{'s' if count != 1 else ''}: {shown}{more}", hint=hint)


class InvalidSpec(_Violations):
    """A manifest that cannot be accepted; ``violations`` lists everything found."""

    reason = "INVALID_SPEC"

    def __init__(self, violations: Iterable[Violation], *, hint: str = "") -> None:
        super().__init__(violations, what="manifest", hint=hint)


class InvalidRequest(_Violations):
    """A request (not a manifest) with bad fields."""

    reason = "INVALID_REQUEST"

    def __init__(self, violations: Iterable[Violation], *, hint: str = "") -> None:
        super().__init__(violations, what="request", hint=hint)


class NotFound(LauncherError):
    """``kind`` ``name`` does not exist here."""

    code = "NOT_FOUND"
    reason = "NOT_FOUND"
    expected = True

    def __init__(self, kind: str, name: str, *, hint: str = "") -> None:
        super().__init__(f"{kind} {name!r} not found", hint=hint)
        self.kind, self.name = kind, name


class AlreadyExists(LauncherError):
    """``kind`` ``name`` exists already."""

    code = "ALREADY_EXISTS"
    reason = "ALREADY_EXISTS"
    expected = True

    def __init__(self, kind: str, name: str, *, hint: str = "") -> None:
        super().__init__(f"{kind} {name!r} already exists", hint=hint)
        self.kind, self.name = kind, name


class WrongPhase(LauncherError):
    """The object is in a phase or state in which the request makes no sense."""

    code = "FAILED_PRECONDITION"
    reason = "WRONG_PHASE"
    expected = True


class HostUnsupported(LauncherError):
    """This node cannot serve the request; ``capability`` names what it lacks. ``findings`` are pairs of
    capability and reason: more than one when several things are missing."""

    code = "FAILED_PRECONDITION"
    reason = "HOST_UNSUPPORTED"
    expected = True

    def __init__(
        self, capability: str, message: str, *, hint: str = "", findings: Sequence[tuple[str, str]] = ()
    ) -> None:
        super().__init__(f"this node lacks {capability}: {message}", hint=hint)
        self.capability = capability
        self.findings = tuple(findings) or ((capability, message),)

    @classmethod
    def together(cls, parts: Sequence[HostUnsupported]) -> HostUnsupported:
        """One error for all of ``parts`` (at least one), in their order and without repetitions."""
        findings = tuple(dict.fromkeys(finding for part in parts for finding in part.findings))
        if len(findings) == 1:
            return cls(*findings[0], hint=parts[0].hint)
        return cls(
            ", ".join(dict.fromkeys(capability for capability, _ in findings)),
            "; ".join(f"{capability}: {reason}" for capability, reason in findings),
            hint="; ".join(dict.fromkeys(part.hint for part in parts if part.hint)),
            findings=findings,
        )


class Conflict(LauncherError):
    """Another operation is in progress or the object changed meanwhile."""

    code = "ABORTED"
    reason = "CONFLICT"
    expected = True


class Exhausted(LauncherError):
    """The node has no more of ``resource``."""

    code = "RESOURCE_EXHAUSTED"
    reason = "EXHAUSTED"
    expected = True

    def __init__(self, resource: str, message: str, *, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.resource = resource


class Unavailable(LauncherError):
    """Try again later; ``retry_after_s`` says when."""

    code = "UNAVAILABLE"
    reason = "UNAVAILABLE"
    expected = True

    def __init__(self, message: str, *, retry_after_s: float = 1.0, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.retry_after_s = retry_after_s


class HypervisorUnavailable(Unavailable):
    """There is no connection to libvirt now."""

    reason = "LIBVIRT_DOWN"


class TimedOut(LauncherError):
    """A wait passed its deadline."""

    code = "DEADLINE_EXCEEDED"
    reason = "TIMED_OUT"
    expected = True


class Denied(LauncherError):
    """The caller may not do this."""

    code = "PERMISSION_DENIED"
    reason = "DENIED"
    expected = True


class MigrationRefused(LauncherError):
    """A migration that must not start; ``findings`` lists every reason."""

    code = "FAILED_PRECONDITION"
    reason = "NOT_MIGRATABLE"
    expected = True

    def __init__(self, findings: Sequence[str], *, hint: str = "") -> None:
        self.findings = tuple(findings)
        super().__init__("migration refused: " + "; ".join(self.findings), hint=hint)


class MigrationAborted(LauncherError):
    """A migration ended by a person or a policy before it switched over."""

    code = "CANCELLED"
    reason = "MIGRATION_ABORTED"
    expected = True


class MigrationFailed(LauncherError):
    """A migration that ended against our will."""

    reason = "MIGRATION_FAILED"
    expected = True


class StorageError(LauncherError):
    """Something about ``volume`` (or a path) went wrong; ``problem`` is what, in one word for programs:
    VolumeNotFound, VolumeNotPermitted, VolumeInvalid, VolumeTooSmall, VolumeLocked, VolumeFull, or empty."""

    reason = "STORAGE"
    expected = True

    def __init__(self, volume: str, message: str, *, hint: str = "", problem: str = "") -> None:
        super().__init__(f"volume {volume!r}: {message}" if volume else message, hint=hint)
        self.volume, self.problem = volume, problem


class NetworkError(LauncherError):
    """Something about ``network`` (or a link) went wrong."""

    reason = "NETWORK"
    expected = True

    def __init__(self, network: str, message: str, *, hint: str = "") -> None:
        super().__init__(f"network {network!r}: {message}" if network else message, hint=hint)
        self.network = network


class GuestAgentError(LauncherError):
    """The guest agent did not answer or refused."""

    code = "UNAVAILABLE"
    reason = "GUEST_AGENT"
    expected = True


class CommandFailed(LauncherError):
    """A program ended with a status that is not 0; ``stderr`` is its last words."""

    reason = "COMMAND_FAILED"
    expected = True

    def __init__(self, argv: Sequence[str], status: int, stderr: str, *, hint: str = "") -> None:
        super().__init__(f"{argv[0]} ended with status {status}: {stderr.strip()[-500:]}", hint=hint)
        self.argv, self.status, self.stderr = tuple(argv), status, stderr


class HypervisorError(LauncherError):
    """A libvirt error with no better class; ``libvirt_code`` is its number."""

    reason = "LIBVIRT"

    def __init__(self, message: str, *, libvirt_code: int = 0, domain: str = "", hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.libvirt_code, self.domain = libvirt_code, domain


class Bug(LauncherError):
    """A state that our own code must not reach."""

    reason = "BUG"

    def __init__(self, message: str) -> None:
        super().__init__(f"bug in launcher: {message}", hint="please report it with the log")
