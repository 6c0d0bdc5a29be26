# SPDX-License-Identifier: Apache-2.0
"""libvirt's numbers and errors in our words."""

from __future__ import annotations

import libvirt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from launcher import errors
from launcher.hypervisor import translate
from launcher.hypervisor.port import DomainState


def libvirt_error(
    code: int, text: str = "text", *, domain: int = libvirt.VIR_FROM_QEMU
) -> libvirt.libvirtError:
    """An error as libvirt-python raises it; it takes these from the C library."""
    error = libvirt.libvirtError("call failed")
    error.err = (code, domain, text, 2, "", None, None, -1, -1)
    return error


@pytest.mark.parametrize(
    ("prefix", "name"),
    [
        ("VIR_DOMAIN_RUNNING_", DomainState.RUNNING),
        ("VIR_DOMAIN_PAUSED_", DomainState.PAUSED),
        ("VIR_DOMAIN_SHUTOFF_", DomainState.SHUTOFF),
        ("VIR_DOMAIN_CRASHED_", DomainState.CRASHED),
    ],
)
def test_every_reason_that_libvirt_knows_has_a_name(prefix: str, name: DomainState) -> None:
    state = getattr(libvirt, f"VIR_DOMAIN_{name.name}")
    for symbol in (symbol for symbol in dir(libvirt) if symbol.startswith(prefix)):
        reason = translate.state_and_reason(state, getattr(libvirt, symbol))[1]
        assert reason.replace("post-copy", "postcopy") == symbol.removeprefix(prefix).lower().replace(
            "_", "-"
        )


@pytest.mark.parametrize(
    "event", ["DEFINED", "UNDEFINED", "STARTED", "SUSPENDED", "RESUMED", "STOPPED", "PMSUSPENDED", "CRASHED"]
)
def test_every_event_detail_that_libvirt_knows_has_a_name(event: str) -> None:
    prefix = f"VIR_DOMAIN_EVENT_{event}_"
    number = getattr(libvirt, prefix.removesuffix("_"))
    for symbol in (symbol for symbol in dir(libvirt) if symbol.startswith(prefix)):
        name, detail = translate.event_and_detail(number, getattr(libvirt, symbol))
        assert name == event.lower()
        assert detail.replace("post-copy", "postcopy") == symbol.removeprefix(prefix).lower().replace(
            "_", "-"
        )


def test_names_as_the_rest_of_launcher_spells_them() -> None:
    paused = libvirt.VIR_DOMAIN_PAUSED
    assert translate.state_and_reason(paused, libvirt.VIR_DOMAIN_PAUSED_POSTCOPY_FAILED) == (
        DomainState.PAUSED,
        "post-copy-failed",
    )
    assert translate.state_and_reason(paused, libvirt.VIR_DOMAIN_PAUSED_IOERROR)[1] == "ioerror"
    assert translate.named(translate.JOB_OPERATIONS, libvirt.VIR_DOMAIN_JOB_OPERATION_MIGRATION_OUT) == (
        "migration-out"
    )
    assert translate.named(translate.CLOSE_REASONS, libvirt.VIR_CONNECT_CLOSE_REASON_KEEPALIVE) == "keepalive"


@given(st.integers(min_value=100), st.integers(min_value=100))
def test_numbers_of_a_newer_libvirt_do_not_break_anything(first: int, second: int) -> None:
    assert translate.state_and_reason(first, second) == (DomainState.NOSTATE, f"unknown-{first}")
    assert translate.state_and_reason(libvirt.VIR_DOMAIN_RUNNING, second)[1] == f"unknown-{second}"
    assert translate.event_and_detail(first, second) == (f"unknown-{first}", f"unknown-{second}")
    assert translate.event_and_detail(libvirt.VIR_DOMAIN_EVENT_STARTED, second)[1] == f"unknown-{second}"


@pytest.mark.parametrize(
    ("symbol", "text", "expected"),
    [
        ("NO_DOMAIN", "Domain not found", errors.NotFound),
        ("NO_DOMAIN_METADATA", "no metadata", errors.NotFound),
        ("DOM_EXIST", "domain exists", errors.AlreadyExists),
        ("OPERATION_FAILED", "domain 'x' already exists with uuid 1", errors.AlreadyExists),
        ("OPERATION_FAILED", "domain is already being started", errors.AlreadyExists),
        ("OPERATION_FAILED", "job 'migration in' failed in post-copy phase", errors.HypervisorError),
        ("OPERATION_INVALID", "domain is not running", errors.WrongPhase),
        ("OPERATION_INVALID", "another migration job is already running", errors.Conflict),
        ("OPERATION_INVALID", "domain has active block job", errors.Conflict),
        ("OPERATION_UNSUPPORTED", "disk 'vda' already in active block job", errors.Conflict),
        ("OPERATION_INVALID", "disk vda does not have an active block job", errors.WrongPhase),
        ("RESOURCE_BUSY", "busy", errors.Conflict),
        ("OPERATION_TIMEOUT", "cannot acquire state change lock (held by monitor)", errors.Conflict),
        ("OPERATION_TIMEOUT", "vcpu unplug request timed out", errors.TimedOut),
        ("CONFIG_UNSUPPORTED", "no such feature", errors.HostUnsupported),
        ("NO_SUPPORT", "no such call", errors.HostUnsupported),
        ("CPU_INCOMPATIBLE", "missing avx", errors.HostUnsupported),
        ("OPERATION_ABORTED", "canceled by client", errors.MigrationAborted),
        ("ACCESS_DENIED", "access denied", errors.Denied),
        ("AGENT_UNRESPONSIVE", "agent silent", errors.GuestAgentError),
        ("NO_CONNECT", "no connection", errors.HypervisorUnavailable),
        ("INTERNAL_ERROR", "surprise", errors.HypervisorError),
    ],
)
def test_each_code_has_its_class(symbol: str, text: str, expected: type[errors.LauncherError]) -> None:
    error = libvirt_error(getattr(libvirt, f"VIR_ERR_{symbol}"), text)
    found = translate.error_from_libvirt(error, what="try", domain="d")
    assert type(found) is expected
    if expected is not errors.NotFound:
        assert text in str(found)


def test_a_lost_connection_counts_more_than_any_code() -> None:
    error = libvirt_error(libvirt.VIR_ERR_SYSTEM_ERROR, "End of file", domain=libvirt.VIR_FROM_RPC)
    assert isinstance(
        translate.error_from_libvirt(error, what="try", alive=False), errors.HypervisorUnavailable
    )
    plain = translate.error_from_libvirt(error, what="try", domain="d")
    assert isinstance(plain, errors.HypervisorError)
    assert (plain.libvirt_code, plain.domain) == (libvirt.VIR_ERR_SYSTEM_ERROR, "d")


@pytest.mark.parametrize(
    ("symbol", "text", "expected"),
    [
        ("OPERATION_ABORTED", "canceled by client", errors.MigrationAborted),
        ("OPERATION_INVALID", "domain is not running", errors.WrongPhase),
        ("OPERATION_INVALID", "another migration job is already running", errors.Conflict),
        ("NO_DOMAIN", "the target lost it", errors.MigrationFailed),
        ("CONFIG_UNSUPPORTED", "Target CPU does not match source", errors.MigrationFailed),
        ("MIGRATE_UNSAFE", "Unsafe migration", errors.MigrationFailed),
        ("OPERATION_FAILED", "domain 'x' already exists with uuid 1", errors.MigrationFailed),
        ("SYSTEM_ERROR", "unable to connect to server", errors.MigrationFailed),
    ],
)
def test_errors_of_a_migration(symbol: str, text: str, expected: type[errors.LauncherError]) -> None:
    error = libvirt_error(getattr(libvirt, f"VIR_ERR_{symbol}"), text)
    found = translate.migration_error_from_libvirt(error, domain="d")
    assert type(found) is expected
    assert text in str(found)
    lost = translate.migration_error_from_libvirt(error, domain="d", alive=False)
    assert type(lost) is errors.HypervisorUnavailable


def test_an_excerpt_of_the_document_is_left_out() -> None:
    text = "(domain_definition):1: Start tag expected\n<graphics passwd='pw'\n-------^"
    error = libvirt_error(libvirt.VIR_ERR_XML_DETAIL, text, domain=libvirt.VIR_FROM_XML)
    found = translate.error_from_libvirt(error, what="define domain")
    assert str(found) == "define domain: (domain_definition):1: Start tag expected"


def test_the_values_of_real_errors_are_found() -> None:
    connection = libvirt.open("test:///default")
    with pytest.raises(libvirt.libvirtError) as raised:
        connection.lookupByName("nobody")
    found = translate.error_from_libvirt(raised.value, what="look up", domain="nobody")
    assert isinstance(found, errors.NotFound)
    assert found.name == "nobody"
    connection.close()
