# SPDX-License-Identifier: Apache-2.0
"""Rules of how an instance is run: architecture, host name, DNS, start, eviction, reboot, grace period."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from typing import Final

from launcher.errors import Violation
from launcher.spec.defaults import ARCHITECTURES
from launcher.spec.rules.checks import (
    A_LABEL,
    A_SUBDOMAIN,
    at_most,
    dns_subdomain,
    in_range,
    is_label,
    is_subdomain,
    labels,
    one_of,
    printable,
)
from launcher.spec.rules.context import DOMAIN, Context, Rule
from launcher.spec.rules.finding import invalid, required

START_STRATEGIES: Final = ("Paused",)
EVICTION_STRATEGIES: Final = ("None", "LiveMigrate", "LiveMigrateIfPossible", "External")
REBOOT_POLICIES: Final = ("Reboot", "Terminate")
# What the resolver of a C library takes (Kubernetes' limits of dnsConfig).
MOST_NAMESERVERS: Final = 3
MOST_SEARCHES: Final = 32


def guest_architecture(ctx: Context) -> Iterator[Violation]:
    """The architecture, the node's if none is given, is one that can be run."""
    yield from one_of("spec.architecture", ctx.full.spec.architecture, tuple(ARCHITECTURES))


def hostname(ctx: Context) -> Iterator[Violation]:
    """The host name is a DNS label, the subdomain a DNS subdomain."""
    name, subdomain = ctx.spec.hostname, ctx.spec.subdomain
    if name and not is_label(name):
        yield invalid("spec.hostname", name, f"not a DNS label; accepted are {A_LABEL}")
    if subdomain and not is_subdomain(subdomain):
        yield invalid("spec.subdomain", subdomain, f"not a DNS subdomain; accepted are {A_SUBDOMAIN}")


def dns(ctx: Context) -> Iterator[Violation]:
    """Name servers are addresses, search domains are domains, and a policy of None names servers."""
    config = ctx.spec.dns_config
    if ctx.spec.dns_policy == "None" and (config is None or not config.nameservers):
        yield required("spec.dnsConfig.nameservers", "dnsPolicy None needs at least one name server")
    if config is None:
        return
    yield from at_most("spec.dnsConfig.nameservers", config.nameservers, MOST_NAMESERVERS)
    yield from at_most("spec.dnsConfig.searches", config.searches, MOST_SEARCHES)
    for index, server in enumerate(config.nameservers[: MOST_NAMESERVERS + 1]):
        try:
            ipaddress.ip_address(server)
        except ValueError:
            yield invalid(f"spec.dnsConfig.nameservers[{index}]", server, "not an IPv4 or IPv6 address")
    for index, domain in enumerate(config.searches[: MOST_SEARCHES + 1]):
        if not is_subdomain(domain.removesuffix(".").lower()):
            yield invalid(f"spec.dnsConfig.searches[{index}]", domain, "not a domain name")
    for index, option in enumerate(config.options):
        path = f"spec.dnsConfig.options[{index}]"
        if not option.name:
            yield required(f"{path}.name", "an option of the resolver needs a name")
        yield from printable(f"{path}.name", option.name, 253)
        yield from printable(f"{path}.value", option.value, 253)


def start(ctx: Context) -> Iterator[Violation]:
    """The only start strategy is Paused, and a guest that starts paused cannot be probed for life."""
    strategy = ctx.spec.start_strategy
    yield from one_of("spec.startStrategy", strategy, START_STRATEGIES)
    if strategy == "Paused" and ctx.spec.liveness_probe is not None:
        message = (
            "a guest that starts paused would fail its liveness probe: use startStrategy or livenessProbe"
        )
        yield invalid("spec.startStrategy", strategy, message)
        yield invalid("spec.livenessProbe", None, message)


def policies(ctx: Context) -> Iterator[Violation]:
    """Eviction strategy, reboot policy and grace period are known values."""
    yield from one_of("spec.evictionStrategy", ctx.spec.eviction_strategy, EVICTION_STRATEGIES)
    yield from one_of(f"{DOMAIN}.rebootPolicy", ctx.domain.reboot_policy, REBOOT_POLICIES)
    yield from in_range("spec.terminationGracePeriodSeconds", ctx.spec.termination_grace_period_seconds, 0)


def names(ctx: Context) -> Iterator[Violation]:
    """Names of other objects have the form of names."""
    for field, value in (
        ("spec.priorityClassName", ctx.spec.priority_class_name),
        ("spec.schedulerName", ctx.spec.scheduler_name),
        ("spec.serviceAccountName", ctx.spec.service_account_name),
    ):
        if value:
            yield from dns_subdomain(field, value)
    yield from labels("spec.nodeSelector", ctx.spec.node_selector)


RULES: tuple[Rule, ...] = (guest_architecture, hostname, dns, start, policies, names)
