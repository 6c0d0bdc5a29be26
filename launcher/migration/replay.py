# SPDX-License-Identifier: Apache-2.0
"""Feeds a recorded series to a policy and tells what it decides at each step. Pure: text in, values out.

A series is a JSON object: ``options`` (the API's names, plus ``guestMemory``, ``hasVFIO``,
``acceptableCompletionTime`` and ``legacy``) and ``samples`` (``elapsedMs``, ``remainingBytes``, ``memBps``,
``iteration``, ``boundary``, ``state`` when the guest does not run, ``noStats``). Every call is taken to work.
"""

from __future__ import annotations

from typing import Any

import msgspec

from launcher.errors import InvalidRequest, Violation
from launcher.migration.compose import POLICIES, classic_acceptable_s, classic_legacy, make_policy
from launcher.migration.options import Options, Workload, resolve
from launcher.migration.policy import (
    Abort,
    Action,
    BreakPostCopy,
    Decision,
    Outcome,
    PauseGuest,
    Policy,
    SetMaxDowntime,
)
from launcher.migration.sample import Sample
from launcher.migration.stall import StallDetector
from launcher.spec.model import ExperimentalMigrationOptions, VMIMConfigurationOptions
from launcher.spec.model.migration import DowntimeTuningOptions, StallDetectorOptions
from launcher.spec.quantity import Quantity


class SeriesSample(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One sample of a series. Without ``processedBytes`` what was sent is reckoned from ``memBps``."""

    elapsed_ms: int
    remaining_bytes: int | None = None
    mem_bps: int | None = None
    iteration: int | None = None
    boundary: bool = False
    state: str = ""
    no_stats: bool = False
    processed_bytes: int | None = None
    throttle: int | None = None


class SeriesOptions(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Options of a series; those not given have the API's defaults."""

    guest_memory: str = "1Gi"
    has_vfio: bool = msgspec.field(name="hasVFIO", default=False)
    acceptable_completion_time: int | None = None
    legacy: bool = False
    allow_post_copy: bool | None = None
    allow_workload_disruption: bool | None = None
    completion_timeout_per_gib: int | None = msgspec.field(name="completionTimeoutPerGiB", default=None)
    progress_timeout: int | None = None
    max_downtime_ms: int | None = None
    downtime_tuning: dict[str, Any] | None = None
    stall_detector: dict[str, Any] | None = None


class SeriesFile(msgspec.Struct, frozen=True, kw_only=True):
    """A whole series."""

    samples: tuple[SeriesSample, ...]
    name: str = ""
    options: SeriesOptions = SeriesOptions()


class Call(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A call of the hypervisor, by libvirt's name."""

    call: str
    value: int | None = None


class ReplayLine(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """One decision; ``action`` is a detector's verdict, if it made one."""

    step: int
    now_ms: int
    calls: tuple[Call, ...]
    action: str = ""
    reason: str = ""


def read_series(text: bytes | str) -> SeriesFile:
    """Read a series.

    Raises:
        InvalidRequest: it is not JSON or not a series, naming the place.
    """
    try:
        return msgspec.json.decode(text, type=SeriesFile)
    except msgspec.DecodeError as error:
        finding = Violation(field="series", type="FieldValueInvalid", message=str(error))
        raise InvalidRequest([finding]) from error


def replay(series: SeriesFile, *, policy: str = "") -> tuple[ReplayLine, ...]:
    """The steps at which the policy acts; without a name, the classic one the series was recorded with."""
    rules = _policy(series.options, policy)
    state = rules.initial()
    limit: int | None = None
    sent = before = 0
    lines = []
    for number, sample in enumerate(series.samples):
        sent += (sample.mem_bps or 0) * (sample.elapsed_ms - before) // 1000
        before = sample.elapsed_ms
        decision = rules.step(state, _sample(sample, limit, sent))
        state = decision.state
        for action in decision.actions:
            state = rules.settle(state, Outcome(action=action, t=sample.elapsed_ms / 1000))
            limit = action.ms if isinstance(action, SetMaxDowntime) else limit
        if decision.actions:
            lines.append(replay_line(number, sample.elapsed_ms, decision))
    return tuple(lines)


def rule_names() -> tuple[str, ...]:
    """The names of rules that a series can be fed to; the first is what runs by default."""
    return tuple(POLICIES)


def _policy(given: SeriesOptions, name: str) -> Policy[Any]:
    options = _options(given)
    workload = Workload(memory_bytes=int(Quantity(given.guest_memory).value), vfio=given.has_vfio)
    name = name or ("classic-legacy" if given.legacy else "classic-stall")
    acceptable_s = given.acceptable_completion_time
    if acceptable_s is None:
        acceptable_s = classic_acceptable_s(options, workload)
    if name == "classic-legacy":
        return classic_legacy(options, workload, acceptable_s=acceptable_s)
    if name == "classic-stall":
        return StallDetector(options, acceptable_s=acceptable_s, vfio=given.has_vfio)
    return make_policy(name, options, workload)


def _options(given: SeriesOptions) -> Options:
    try:
        tuning = given.downtime_tuning
        detector = given.stall_detector
        experimental = ExperimentalMigrationOptions(
            downtime_tuning=None if tuning is None else msgspec.convert(tuning, DowntimeTuningOptions),
            stall_detector=None
            if detector is None
            else msgspec.convert(detector, StallDetectorOptions, dec_hook=_quantity),
        )
    except msgspec.ValidationError as error:
        finding = Violation(field="options", type="FieldValueInvalid", message=str(error))
        raise InvalidRequest([finding]) from error
    return resolve(
        VMIMConfigurationOptions(
            allow_post_copy=given.allow_post_copy,
            allow_workload_disruption=given.allow_workload_disruption,
            completion_timeout_per_gi_b=given.completion_timeout_per_gib,
            progress_timeout=given.progress_timeout,
            max_downtime_ms=given.max_downtime_ms,
            experimental=experimental,
        )
    )


def _quantity(kind: type, value: Any) -> Any:
    if kind is Quantity:
        return Quantity(str(value))
    raise TypeError(f"no decoder for {kind.__name__}")


def _sample(given: SeriesSample, limit: int | None, sent: int) -> Sample:
    domain, _, reason = given.state.partition("-")
    if given.no_stats:
        return Sample(t=given.elapsed_ms / 1000, job="none", max_downtime_ms=limit, boundary=given.boundary)
    return Sample(
        t=given.elapsed_ms / 1000,
        iteration=given.iteration,
        remaining=given.remaining_bytes,
        processed=sent if given.processed_bytes is None else given.processed_bytes,
        throttle=given.throttle,
        bandwidth=given.mem_bps or None,
        job_ms=given.elapsed_ms,
        max_downtime_ms=limit,
        domain=domain or "running",
        reason=reason,
        boundary=given.boundary,
    )


def replay_line(number: int, now_ms: int, decision: Decision[Any]) -> ReplayLine:
    """One decision as it is shown."""
    label = "" if decision.label == "none" else decision.label
    return ReplayLine(
        step=number,
        now_ms=now_ms,
        calls=tuple(_call(action) for action in decision.actions),
        action=label,
        reason="; ".join(action.reason for action in decision.actions),
    )


def _call(action: Action) -> Call:
    match action:
        case SetMaxDowntime():
            return Call(call="MigrateSetMaxDowntime", value=action.ms)
        case PauseGuest():
            return Call(call="Suspend")
        case Abort():
            return Call(call="AbortJob")
        case BreakPostCopy():
            return Call(call="AbortJobPostCopy")
        case _:
            return Call(call="MigrateStartPostCopy")
