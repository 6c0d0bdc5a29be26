# SPDX-License-Identifier: Apache-2.0
"""Channels to programs in the guest -> ChannelPlan. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from launcher.plan.context import PlanContext
from launcher.plan.devices.model import ChannelPlan

GUEST_AGENT = "org.qemu.guest_agent.0"
DOWNWARD_METRICS = "org.github.vhostmd.1"


def plan_channels(context: PlanContext) -> tuple[ChannelPlan, ...]:
    """Plan the guest agent's channel, which is always there, and that of downward metrics."""
    return tuple(_channels(context))


def _channels(context: PlanContext) -> Iterator[ChannelPlan]:
    yield ChannelPlan(name=GUEST_AGENT)
    if context.devices.downward_metrics is not None:
        yield ChannelPlan(name=DOWNWARD_METRICS, socket=context.paths.downward_metrics_socket)
