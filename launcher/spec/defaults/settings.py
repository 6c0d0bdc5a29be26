# SPDX-License-Identifier: Apache-2.0
"""What the operator of a node decides about defaults. Plain data; knows nothing of files or of planning."""

from __future__ import annotations

from typing import Literal

import msgspec

from launcher.spec.quantity import Quantity


class DefaultsSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of the defaults and the rules; what is here by default is a node without a configuration file.

    ``architecture`` is that of a manifest which names none (amd64, arm64 or s390x), ``cpu_model`` the model
    of one which names none (arm64 always has host-passthrough). ``live_update`` keeps slots for CPU and
    memory hotplug: ``max_hotplug_ratio`` times what the guest starts with, or, when given,
    ``max_cpu_sockets`` sockets (0 means not given) and ``max_guest`` of memory. ``eviction_strategy`` is
    used when a manifest has none; empty means none. ``pod_binding`` is the binding of the interface that a
    manifest without any gets, and ``bridge_on_pod_network`` says whether one may ask for a bridge there.
    """

    architecture: str = "amd64"
    cpu_model: str = "host-model"
    live_update: bool = True
    max_hotplug_ratio: int = 4
    max_cpu_sockets: int = 0
    max_guest: Quantity | None = None
    eviction_strategy: str = ""
    pod_binding: Literal["masquerade", "bridge"] = "masquerade"
    bridge_on_pod_network: bool = True
