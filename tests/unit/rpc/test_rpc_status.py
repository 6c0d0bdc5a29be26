# SPDX-License-Identifier: Apache-2.0
"""Errors survive the wire; statuses stay small."""

from __future__ import annotations

import inspect

import pytest
from google.rpc.code_pb2 import Code
from google.rpc.status_pb2 import Status
from hypothesis import given
from hypothesis import strategies as st

from launcher import errors
from launcher.errors import LauncherError, Violation
from launcher.rpc.status import DETAILS_LIMIT, by_code, decode, encode

FOUND = (
    Violation(field="spec.a", type="FieldUnknown", message="unknown field", line=3, column=5),
    Violation(field="spec.b[0]", type="FieldValueInvalid", message="line 1: no, column"),
)

ALL: tuple[LauncherError, ...] = (
    errors.InvalidSpec(FOUND, hint="h"),
    errors.InvalidRequest(FOUND),
    errors.NotFound("VMI", "a/b", hint="h"),
    errors.AlreadyExists("VMI", "a/b"),
    errors.WrongPhase("is not running", hint="h"),
    errors.HostUnsupported("KVM", "no /dev/kvm", hint="load kvm_intel"),
    errors.Conflict("a migration is under way"),
    errors.Exhausted("hugepages", "wants 4, has 3"),
    errors.Unavailable("later", retry_after_s=2.5),
    errors.HypervisorUnavailable("no libvirtd", retry_after_s=0.25),
    errors.TimedOut("30 s passed"),
    errors.Denied("no certificate"),
    errors.MigrationRefused(["no port", "no memory"], hint="h"),
    errors.MigrationAborted("by a person"),
    errors.MigrationFailed("the connection broke"),
    errors.StorageError("root", "no space"),
    errors.StorageError("", "no space"),
    errors.NetworkError("pod", "no bridge"),
    errors.GuestAgentError("silent"),
    errors.CommandFailed(["qemu-img", "create"], 1, "no space"),
    errors.HypervisorError("cannot", libvirt_code=38, domain="a_b"),
    errors.Bug("phase 7"),
)


@pytest.mark.parametrize("error", ALL, ids=lambda error: type(error).__name__)
def test_round_trip(error: LauncherError) -> None:
    status = encode(error, request_id="r1")
    back = decode(Status.FromString(status.SerializeToString()))
    assert type(back) is type(error)
    assert str(back) == str(error)
    kept = dict(vars(error))
    kept.pop("argv", None)  # only the program's name travels
    assert {key: value for key, value in vars(back).items() if key != "argv"} == kept
    assert Code.Name(status.code) == error.code


def test_everything_that_a_node_lacks_comes_back_whole() -> None:
    parts = [
        errors.HostUnsupported(f"thing {n}", f"spec.domain.field{n}: " + "why " * 30, hint="buy it")
        for n in range(12)
    ]
    sent = errors.HostUnsupported.together([*parts, parts[0]])
    assert len(sent.findings) == 12
    back = decode(encode(sent))
    assert isinstance(back, errors.HostUnsupported)
    assert (back.findings, back.message, back.hint) == (sent.findings, sent.message, "buy it")
    assert back.capability.startswith("thing 0, thing 1, ")
    many = errors.HostUnsupported.together([errors.HostUnsupported(str(n), "w" * 150) for n in range(300)])
    assert encode(many).ByteSize() <= DETAILS_LIMIT


def test_every_class_is_in_the_table() -> None:
    concrete = {
        cls
        for _, cls in inspect.getmembers(errors, inspect.isclass)
        if issubclass(cls, LauncherError) and not cls.__name__.startswith("_") and cls is not LauncherError
    }
    assert {type(error) for error in ALL} == concrete


@given(
    count=st.integers(min_value=1, max_value=400),
    size=st.integers(min_value=1, max_value=300),
    limit=st.integers(min_value=2048, max_value=64 * 1024),
)
def test_size_is_bounded_and_what_was_left_out_is_counted(count: int, size: int, limit: int) -> None:
    found = [Violation(field=f"spec.f{n}", type="FieldUnknown", message="x" * size) for n in range(count)]
    status = encode(errors.InvalidSpec(found, hint="h" * 50), request_id="r" * 32, limit=limit)
    assert status.ByteSize() <= limit
    back = decode(status)
    assert isinstance(back, errors.InvalidSpec)
    shown = len(back.violations)
    assert 1 <= shown <= count
    assert back.violations == tuple(found[:shown])
    room_for_one = 40 + size
    assert shown == count or status.ByteSize() + room_for_one + 250 > limit


def test_default_limit_holds_dozens() -> None:
    found = [
        Violation(
            field=f"spec.domain.devices.disks[{n}].disk.bus", type="FieldValueNotSupported", message="m" * 60
        )
        for n in range(25)
    ]
    status = encode(errors.InvalidSpec(found))
    assert status.ByteSize() <= DETAILS_LIMIT
    back = decode(status)
    assert isinstance(back, errors.InvalidSpec)
    assert len(back.violations) == 25


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("UNAVAILABLE", errors.Unavailable),
        ("CANCELLED", errors.Unavailable),
        ("DEADLINE_EXCEEDED", errors.TimedOut),
        ("UNAUTHENTICATED", errors.Denied),
        ("UNIMPLEMENTED", errors.HostUnsupported),
        ("RESOURCE_EXHAUSTED", errors.Exhausted),
        ("FAILED_PRECONDITION", errors.WrongPhase),
        ("UNKNOWN", errors.Bug),
    ],
)
def test_a_bare_code_becomes_the_class_that_asks_the_same(code: str, kind: type[LauncherError]) -> None:
    assert type(by_code(code, "text")) is kind
    assert type(decode(Status(code=Code.Value(code), message="text"))) is kind


def test_somebody_elses_reason_is_not_ours() -> None:
    status = encode(errors.NotFound("VMI", "a"))
    foreign = Status.FromString(status.SerializeToString().replace(b"launcher", b"whatever"))
    assert type(decode(foreign)) is errors.Bug
