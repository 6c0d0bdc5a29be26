# SPDX-License-Identifier: Apache-2.0
"""What the operator of a node decides for all instances, as far as planning needs it. Plain data."""

from __future__ import annotations

import msgspec


class PlanSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of planning; the defaults are those of a node without a configuration file.

    ``live_update`` keeps slots for CPU and memory hotplug (``maxSockets``, ``maxGuest``).
    ``dedicated_cpus`` are for guests with dedicated CPUs only; ``confine`` keeps all threads of such a guest
    on its own CPUs. ``balloon_stats_period_s`` 0 turns balloon statistics off. ``serial_log`` keeps a log of
    the console.
    """

    state_dir: str = "/var/lib/launcher"
    run_dir: str = "/run/launcher"
    allow_emulation: bool = False
    live_update: bool = True
    max_hotplug_ratio: int = 4
    max_cpu_sockets: int = 0
    dedicated_cpus: tuple[int, ...] = ()
    confine: bool = False
    balloon_stats_period_s: int = 10
    free_page_reporting: bool = True
    serial_log: bool = True
    pod_bridge: str = ""
    smbios_manufacturer: str = "launcher"
    smbios_product: str = "launcher"
    smbios_family: str = "Virtual Machine"
    smbios_version: str = ""
    smbios_sku: str = ""
