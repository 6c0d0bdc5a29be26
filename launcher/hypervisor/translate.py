# SPDX-License-Identifier: Apache-2.0
"""libvirt's numbers -> our words and errors. The only module that names VIR_ERR_*; it calls nothing.

Numbers are never written here: every table is built from libvirt's symbols, and a number without a
symbol becomes ``unknown-N``, so that a newer libvirtd never breaks an older launcher.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import libvirt

from launcher import errors
from launcher.hypervisor.port import DomainState


def table(prefix: str, names: str) -> dict[int, str]:
    """``{value of libvirt.PREFIX_NAME: name}`` for each of the space separated ``names``.

    Symbols that this libvirt-python does not have are left out. ``FROM_SNAPSHOT`` becomes
    ``from-snapshot``; ``POSTCOPY`` is spelt ``post-copy`` as in the rest of launcher.
    """
    values = ((getattr(libvirt, prefix + name, None), name) for name in names.split())
    return {
        value: name.lower().replace("_", "-").replace("postcopy", "post-copy")
        for value, name in values
        if isinstance(value, int)
    }


def named(names: Mapping[int, str], number: int) -> str:
    """The name of ``number``, or ``unknown-N``."""
    return names.get(number, f"unknown-{number}")


_STATES: Final = {
    number: DomainState(name)
    for number, name in table(
        "VIR_DOMAIN_", "NOSTATE RUNNING BLOCKED PAUSED SHUTDOWN SHUTOFF CRASHED PMSUSPENDED"
    ).items()
}

_REASONS: Final[Mapping[DomainState, dict[int, str]]] = {
    DomainState.NOSTATE: table("VIR_DOMAIN_NOSTATE_", "UNKNOWN"),
    DomainState.RUNNING: table(
        "VIR_DOMAIN_RUNNING_",
        "UNKNOWN BOOTED MIGRATED RESTORED FROM_SNAPSHOT UNPAUSED MIGRATION_CANCELED SAVE_CANCELED WAKEUP"
        " CRASHED POSTCOPY POSTCOPY_FAILED",
    ),
    DomainState.BLOCKED: table("VIR_DOMAIN_BLOCKED_", "UNKNOWN"),
    DomainState.PAUSED: table(
        "VIR_DOMAIN_PAUSED_",
        "UNKNOWN USER MIGRATION SAVE DUMP IOERROR WATCHDOG FROM_SNAPSHOT SHUTTING_DOWN SNAPSHOT CRASHED"
        " STARTING_UP POSTCOPY POSTCOPY_FAILED API_ERROR",
    ),
    DomainState.SHUTDOWN: table("VIR_DOMAIN_SHUTDOWN_", "UNKNOWN USER"),
    DomainState.SHUTOFF: table(
        "VIR_DOMAIN_SHUTOFF_", "UNKNOWN SHUTDOWN DESTROYED CRASHED MIGRATED SAVED FAILED FROM_SNAPSHOT DAEMON"
    ),
    DomainState.CRASHED: table("VIR_DOMAIN_CRASHED_", "UNKNOWN PANICKED"),
    DomainState.PMSUSPENDED: table("VIR_DOMAIN_PMSUSPENDED_", "UNKNOWN"),
}


def state_and_reason(state: int, reason: int) -> tuple[DomainState, str]:
    """virDomainState and its reason by name; an unknown state is NOSTATE with the number as reason."""
    if state not in _STATES:
        return DomainState.NOSTATE, f"unknown-{state}"
    name = _STATES[state]
    return name, named(_REASONS[name], reason)


_EVENTS: Final = table(
    "VIR_DOMAIN_EVENT_",
    "DEFINED UNDEFINED STARTED SUSPENDED RESUMED STOPPED SHUTDOWN PMSUSPENDED CRASHED",
)

_DETAILS: Final[Mapping[str, dict[int, str]]] = {
    "defined": table("VIR_DOMAIN_EVENT_DEFINED_", "ADDED UPDATED RENAMED FROM_SNAPSHOT"),
    "undefined": table("VIR_DOMAIN_EVENT_UNDEFINED_", "REMOVED RENAMED"),
    "started": table("VIR_DOMAIN_EVENT_STARTED_", "BOOTED MIGRATED RESTORED FROM_SNAPSHOT WAKEUP RECREATED"),
    "suspended": table(
        "VIR_DOMAIN_EVENT_SUSPENDED_",
        "PAUSED MIGRATED IOERROR WATCHDOG RESTORED FROM_SNAPSHOT API_ERROR POSTCOPY POSTCOPY_FAILED",
    ),
    "resumed": table("VIR_DOMAIN_EVENT_RESUMED_", "UNPAUSED MIGRATED FROM_SNAPSHOT POSTCOPY POSTCOPY_FAILED"),
    "stopped": table(
        "VIR_DOMAIN_EVENT_STOPPED_",
        "SHUTDOWN DESTROYED CRASHED MIGRATED SAVED FAILED FROM_SNAPSHOT RECREATED",
    ),
    "shutdown": table("VIR_DOMAIN_EVENT_SHUTDOWN_", "FINISHED GUEST HOST"),
    "pmsuspended": table("VIR_DOMAIN_EVENT_PMSUSPENDED_", "MEMORY DISK"),
    "crashed": table("VIR_DOMAIN_EVENT_CRASHED_", "PANICKED CRASHLOADED"),
}


def event_and_detail(event: int, detail: int) -> tuple[str, str]:
    """virDomainEventType and its detail by name."""
    name = named(_EVENTS, event)
    return name, named(_DETAILS.get(name, {}), detail)


JOB_KINDS: Final = table("VIR_DOMAIN_JOB_", "NONE BOUNDED UNBOUNDED COMPLETED FAILED CANCELLED")
JOB_OPERATIONS: Final = table(
    "VIR_DOMAIN_JOB_OPERATION_",
    "UNKNOWN START SAVE RESTORE MIGRATION_IN MIGRATION_OUT SNAPSHOT SNAPSHOT_REVERT DUMP BACKUP"
    " SNAPSHOT_DELETE",
)
IO_ERROR_ACTIONS: Final = table("VIR_DOMAIN_EVENT_IO_ERROR_", "NONE PAUSE REPORT")
DISK_ERRORS: Final = {
    number: "unspecified" if name == "unspec" else name
    for number, name in table("VIR_DOMAIN_DISK_ERROR_", "NONE UNSPEC NO_SPACE").items()
}
WATCHDOG_ACTIONS: Final = table(
    "VIR_DOMAIN_EVENT_WATCHDOG_", "NONE PAUSE RESET POWEROFF SHUTDOWN DEBUG INJECTNMI"
)
CLOSE_REASONS: Final = table("VIR_CONNECT_CLOSE_REASON_", "ERROR EOF KEEPALIVE CLIENT")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Failure:
    """One libvirt error in context: ``what`` we did to ``subject`` and what libvirt said."""

    what: str
    subject: str
    text: str
    code: int

    @property
    def message(self) -> str:
        return f"{self.what}: {self.text}"


_Make = Callable[[_Failure], errors.LauncherError]


def _symbols(prefix: str, names: str) -> tuple[int, ...]:
    return tuple(table(prefix, names))


def _not_found(kind: str) -> _Make:
    return lambda failure: errors.NotFound(kind, failure.subject)


def _exists(kind: str) -> _Make:
    return lambda failure: errors.AlreadyExists(kind, failure.subject, hint=failure.text)


def _unsupported(failure: _Failure) -> errors.LauncherError:
    return errors.HostUnsupported("a libvirt or QEMU feature", failure.message)


def _unavailable(failure: _Failure) -> errors.LauncherError:
    return errors.HypervisorUnavailable(failure.message, hint="is libvirtd running?")


def _plain(make: Callable[[str], errors.LauncherError]) -> _Make:
    return lambda failure: make(failure.message)


_ERRORS: Final[tuple[tuple[str, _Make], ...]] = (
    ("NO_DOMAIN", _not_found("domain")),
    ("NO_DOMAIN_METADATA", _not_found("domain metadata")),
    ("NO_DOMAIN_SNAPSHOT", _not_found("domain snapshot")),
    ("NO_DOMAIN_CHECKPOINT", _not_found("domain checkpoint")),
    ("NO_DOMAIN_BACKUP", _not_found("domain backup")),
    ("NO_NETWORK NO_INTERFACE NO_NWFILTER", _not_found("network")),
    ("NO_STORAGE_POOL NO_STORAGE_VOL", _not_found("storage")),
    ("NO_SECRET", _not_found("secret")),
    ("NO_NODE_DEVICE DEVICE_MISSING", _not_found("device")),
    ("DOM_EXIST", _exists("domain")),
    ("RESOURCE_BUSY BLOCK_COPY_ACTIVE", _plain(errors.Conflict)),
    ("OPERATION_INVALID", _plain(errors.WrongPhase)),
    (
        "NO_SUPPORT CONFIG_UNSUPPORTED ARGUMENT_UNSUPPORTED OPERATION_UNSUPPORTED CPU_INCOMPATIBLE",
        _unsupported,
    ),
    ("OPERATION_TIMEOUT", _plain(errors.TimedOut)),
    ("OPERATION_ABORTED", _plain(errors.MigrationAborted)),
    ("ACCESS_DENIED OPERATION_DENIED AUTH_FAILED AUTH_CANCELLED AUTH_UNAVAILABLE", _plain(errors.Denied)),
    ("AGENT_UNRESPONSIVE AGENT_UNSYNCED", _plain(errors.GuestAgentError)),
    ("NO_CONNECT INVALID_CONN", _unavailable),
)

_BY_CODE: Final = {code: make for names, make in _ERRORS for code in _symbols("VIR_ERR_", names)}

# libvirt gives these situations a code that other situations share, so its words must tell them apart.
# A libvirtd with translated messages falls back to the table above, which is coarser but not wrong.
_BY_TEXT: Final[tuple[tuple[int, re.Pattern[str], _Make], ...]] = tuple(
    (code, re.compile(pattern), make)
    for names, pattern, make in (
        ("OPERATION_FAILED", r"already (exists|defined|being) ", _exists("domain")),
        ("OPERATION_TIMEOUT", r"state change lock|agent change lock", _plain(errors.Conflict)),
        (
            "OPERATION_INVALID",
            r"another migration job|being migrated|(?<!not have an )active block job|already in progress",
            _plain(errors.Conflict),
        ),
        ("OPERATION_UNSUPPORTED", r"already in active block job", _plain(errors.Conflict)),
    )
    for code in _symbols("VIR_ERR_", names)
)

_ABORTED: Final = _symbols("VIR_ERR_", "OPERATION_ABORTED")
_UNSAFE: Final = _symbols("VIR_ERR_", "MIGRATE_UNSAFE")
_NOT_SUPPORTED: Final = _symbols("VIR_ERR_", "NO_SUPPORT")
_NOT_RUNNING: Final = _symbols("VIR_ERR_", "OPERATION_INVALID")
_MISSING_DEVICE: Final = _symbols("VIR_ERR_", "DEVICE_MISSING")
_CANNOT_RUN: Final = _symbols("VIR_ERR_", "CPU_INCOMPATIBLE CONFIG_UNSUPPORTED INVALID_ARG")
_NO_SUCH_VIRT_TYPE: Final = _symbols("VIR_ERR_", "INVALID_ARG CONFIG_UNSUPPORTED")


def is_unsupported(error: libvirt.libvirtError) -> bool:
    """True if the connection's driver does not have this call at all."""
    return error.get_error_code() in _NOT_SUPPORTED


def is_not_running(error: libvirt.libvirtError) -> bool:
    """True if the call needs a running domain (or another state) and this one is not."""
    return error.get_error_code() in _NOT_RUNNING


def is_missing_device(error: libvirt.libvirtError) -> bool:
    """True if the domain has no such device (any more)."""
    return error.get_error_code() in _MISSING_DEVICE


def is_no_such_virt_type(error: libvirt.libvirtError) -> bool:
    """True if no emulator here serves the architecture and virtualisation type that was asked for."""
    return error.get_error_code() in _NO_SUCH_VIRT_TYPE


def is_cpu_finding(error: libvirt.libvirtError) -> bool:
    """True if a CPU comparison says "no" (and not that it could not be made)."""
    return error.get_error_code() in _CANNOT_RUN or error.get_error_domain() == libvirt.VIR_FROM_CPU


def text_of(error: libvirt.libvirtError) -> str:
    """libvirt's message on one line, without the excerpt of the document that XML errors carry."""
    text = str(error.get_error_message() or error)
    if error.get_error_domain() == libvirt.VIR_FROM_XML or "\n-" in text:
        text = text.split("\n", 1)[0]
    return " ".join(text.split())


def error_from_libvirt(
    error: libvirt.libvirtError, *, what: str, domain: str = "", alive: bool = True
) -> errors.LauncherError:
    """The error to raise ``from`` a libvirt error.

    ``what`` says in a few words what was done, ``domain`` to whom; ``alive`` is whether the connection
    still works after the error: libvirt has no code of its own for a lost connection.
    """
    code = int(error.get_error_code() or 0)
    failure = _Failure(what=what, subject=domain, text=text_of(error), code=code)
    if not alive:
        return _unavailable(failure)
    for rule_code, pattern, make in _BY_TEXT:
        if code == rule_code and pattern.search(failure.text):
            return make(failure)
    if code in _BY_CODE:
        return _BY_CODE[code](failure)
    return errors.HypervisorError(failure.message, libvirt_code=code, domain=domain)


def migration_error_from_libvirt(
    error: libvirt.libvirtError, *, domain: str, alive: bool = True
) -> errors.LauncherError:
    """The error of a migration call itself.

    Codes mean less here, because the target's libvirtd and both QEMUs speak through the same call: "not
    found" or "unsupported" may be the target's. What remains certain: the connection to our own
    libvirtd, an abort, and a source that is busy or not running; all else is a failed migration.
    """
    code = int(error.get_error_code() or 0)
    text = text_of(error)
    if code in _ABORTED and alive:
        return errors.MigrationAborted(text)
    if code in _UNSAFE and alive:
        hint = "put the disks on storage that both nodes share and use cache none, or migrate them along"
        return errors.MigrationFailed(text, hint=hint)
    general = error_from_libvirt(error, what="migrate", domain=domain, alive=alive)
    if not alive or isinstance(general, (errors.Conflict, errors.WrongPhase, errors.Denied)):
        return general
    return errors.MigrationFailed(text)
