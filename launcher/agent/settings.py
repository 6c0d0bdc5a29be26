# SPDX-License-Identifier: Apache-2.0
"""The configuration as planning and defaulting want it. Pure mapping."""

from __future__ import annotations

import re

from launcher.agent.host_devices import is_address, is_usb
from launcher.agent.ledger import Limits
from launcher.agent.network_settings import network_settings
from launcher.errors import InvalidRequest, Violation
from launcher.host.config import Config
from launcher.plan.allocations import DevicePool
from launcher.plan.cpuset import parse_cpuset
from launcher.plan.facts import NodeFacts
from launcher.plan.settings import PlanSettings
from launcher.spec.defaults import DefaultsSettings
from launcher.spec.model import Quantity

_MACHINE = re.compile(r"[a-z][a-z0-9-]*-(rhel)?[0-9]+(\.[0-9]+)+")


def plan_settings(config: Config) -> PlanSettings:
    """Settings of ``make_plan``; raises InvalidRequest for values that cannot be."""
    return PlanSettings(
        state_dir=config.state_dir,
        run_dir=config.run_dir,
        allow_emulation=config.allow_emulation,
        live_update=config.live_update,
        pod_bridge=config.network.bridge,
        swtpm_dir=config.libvirt.swtpm_dir,
        machines=_machines(config),
        rescue_monitor=config.migration.rescue_monitor,
        network=network_settings(config),
        dedicated_cpus=node_limits(config).dedicated_cpus or (),
        confine=True,
    )


def node_limits(config: Config) -> Limits:
    """What instances may have of the node.

    Raises:
        InvalidRequest: a list of CPUs or an amount cannot be read, or the two lists meet.
    """
    reserved = _cpus("cpus.reserved", config.cpus.reserved)
    dedicated = _cpus("cpus.dedicated", config.cpus.dedicated)
    both = sorted(set(reserved) & set(dedicated))
    if both:
        raise _invalid("cpus.dedicated", config.cpus.dedicated, f"CPU {both[0]} is in cpus.reserved, too")
    percent = config.memory.overcommit_percent
    if percent < 1:
        raise _invalid("memory.overcommit_percent", str(percent), "must be at least 1")
    try:
        memory = Quantity(config.memory.reserved).bytes_floor()
    except ValueError as error:
        raise _invalid("memory.reserved", config.memory.reserved, str(error)) from error
    if memory < 0:
        raise _invalid("memory.reserved", config.memory.reserved, "must not be negative")
    return Limits(
        reserved_cpus=frozenset(reserved),
        dedicated_cpus=dedicated or None,
        reserved_memory=memory,
        overcommit_percent=percent,
        devices=_devices(config),
    )


def _devices(config: Config) -> dict[str, DevicePool]:
    for resource, one in config.devices.items():
        for address in one.addresses:
            if not is_address(address):
                accepted = "accepted are 0000:3b:02.1 (PCI), a UUID (mediated device) and 1:4 (USB)"
                raise _invalid(f"devices.{resource}.addresses", address, accepted)
            if one.migratable and is_usb(address):
                accepted = "a USB device cannot move its state; accepted is false"
                raise _invalid(f"devices.{resource}.migratable", "true", accepted)
    return {
        name: DevicePool(addresses=one.addresses, migratable=one.migratable)
        for name, one in config.devices.items()
    }


def _machines(config: Config) -> dict[str, str]:
    for alias, machine in config.machines.items():
        if not _MACHINE.fullmatch(machine) or machine == alias:
            accepted = "must be a versioned machine of QEMU's, such as pc-q35-7.2 for q35"
            raise _invalid(f"machines.{alias}", machine, accepted)
    return config.machines


def _cpus(key: str, text: str) -> tuple[int, ...]:
    try:
        return parse_cpuset(text)
    except ValueError as error:
        raise _invalid(key, text, f"{error}; accepted is a list such as 0-1,8") from error


def _invalid(key: str, value: str, message: str) -> InvalidRequest:
    finding = Violation(field=key, type="FieldValueInvalid", value=value[:80], message=message)
    return InvalidRequest([finding], hint="see docs/configuration.md")


def defaults_settings(config: Config, facts: NodeFacts) -> DefaultsSettings:
    """Settings of ``apply_defaults``: a guest without an architecture gets the host's."""
    return DefaultsSettings(
        architecture=facts.arch,
        cpu_model=config.cpus.model,
        live_update=config.live_update,
    )
