# SPDX-License-Identifier: Apache-2.0
"""``<channel>``. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from launcher.domain.element import E, Element
from launcher.plan.devices.model import ChannelPlan
from launcher.plan.model import VMPlan


def channels(plan: VMPlan) -> Iterator[Element]:
    """All virtio-serial channels; libvirt chooses the host's end where none is named."""
    return map(_channel, plan.devices.channels)


# The same few in all domains, but for those with a socket.
@lru_cache(maxsize=256)
def _channel(channel: ChannelPlan) -> Element:
    return E(
        "channel",
        E("source", mode="bind", path=channel.socket) if channel.socket is not None else None,
        E("target", type="virtio", name=channel.name),
        type="unix",
    )
