# SPDX-License-Identifier: Apache-2.0
"""Makes and releases the network steps of a plan. Each can be made twice and released twice.

pyroute2 is loaded with the first link: it costs 24 MiB.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from launcher.errors import Bug, LauncherError
from launcher.host.logging import get
from launcher.network import dnsmasq, namespace, nft, ruleset
from launcher.network.lost import HELD, lost
from launcher.network.standing import Standing
from launcher.network.supervision import Supervision
from launcher.plan.steps import (
    AnyStep,
    CreateMacvtap,
    CreateNetworkNamespace,
    CreateTap,
    CreateVeth,
    ForwardNodePorts,
    ForwardPackets,
    GuardLink,
    JoinLinks,
    LendFunction,
    ServeAddresses,
    SharePool,
    TranslateAddresses,
)

log = get(__name__)

UPLINK_PREFIX = "lu"
"""Links that need the node's NAT, see ``plan.networks``."""
NODE = nft.Table("inet", ruleset.TABLE)
"""What the node's namespace has for all instances."""


LentStep = TranslateAddresses | GuardLink | JoinLinks | ForwardPackets


class NetworkExecutor:
    """Links of the namespace the agent runs in, namespaces of instances, and what serves in them."""

    def __init__(self) -> None:
        self._pool = asyncio.Lock()
        self._rules = Standing()
        self._servers = Supervision(dnsmasq.serve)

    async def make(self, step: AnyStep) -> None:
        """Bring ``step`` about; raises NetworkError or HostUnsupported."""
        match step:
            case CreateTap():
                from launcher.network.tap import create_tap

                await asyncio.to_thread(create_tap, step)
            case CreateMacvtap():
                from launcher.network.macvtap import create_macvtap

                await asyncio.to_thread(create_macvtap, step)
            case LendFunction():
                from launcher.network.function import lend_function

                await asyncio.to_thread(lend_function, step)
            case CreateNetworkNamespace():
                await asyncio.to_thread(_create_namespace, step)
            case CreateVeth():
                from launcher.network.veth import create_veth

                await asyncio.to_thread(create_veth, step)
            case JoinLinks():
                from launcher.network.wire import join_links

                await asyncio.to_thread(namespace.inside, _at(step.namespace), lambda: join_links(step))
            case ForwardPackets():
                from launcher.network.forwarding import pass_on

                versions = frozenset(step.versions)
                await asyncio.to_thread(namespace.inside, Path(step.namespace), lambda: pass_on(versions))
            case GuardLink():
                await self._guard(step)
            case TranslateAddresses():
                rules = ruleset.translation_rules(step)
                await nft.apply(step.network, rules, namespace=Path(step.namespace))
            case ForwardNodePorts():
                for part, rules in ruleset.node_port_rules(step).items():
                    await self._rules.keep(_node_ports(step), part, step.network, rules)
            case SharePool():
                await self._share(step)
            case ServeAddresses():
                await self._servers.keep(step)
            case _:
                raise Bug(f"{type(step).__name__} is not a network step")

    async def release(self, step: AnyStep) -> None:
        """Undo ``step``; what is already gone is fine."""
        match step:
            case CreateTap():
                from launcher.network.tap import delete_tap

                await asyncio.to_thread(delete_tap, step)
            case CreateMacvtap():
                from launcher.network.macvtap import delete_macvtap

                await asyncio.to_thread(delete_macvtap, step)
            case LendFunction():
                from launcher.network.function import return_function

                await asyncio.to_thread(return_function, step)
            case CreateNetworkNamespace():
                await asyncio.to_thread(namespace.remove, Path(step.path))
            case CreateVeth():
                from launcher.network.veth import delete_veth

                await asyncio.to_thread(delete_veth, step)
            case GuardLink(namespace=None):
                table = ruleset.guard_table(step)
                gone = ruleset.chain_removal("netdev", table, step.link)
                await self._rules.end(nft.Table("netdev", table), step.link, step.network, gone)
            case ForwardNodePorts():
                for part in ruleset.node_port_rules(step):
                    gone = ruleset.chain_removal("inet", ruleset.node_port_table(step), part)
                    await self._rules.end(_node_ports(step), part, step.network, gone)
            case TranslateAddresses(lent=True) | GuardLink(lent=True) | JoinLinks() | ForwardPackets():
                await self._leave(step)
            case TranslateAddresses() | GuardLink():
                pass  # they go with their namespace
            case SharePool():
                await self._unshare(step)
            case ServeAddresses():
                self._servers.let_go(step)
                await asyncio.to_thread(dnsmasq.end, step)
            case _:
                raise Bug(f"{type(step).__name__} is not a network step")

    def take_up(self, step: AnyStep) -> None:
        """Look after what a living instance was given by an earlier agent: its server runs, or soon does, and
        its rules stand."""
        match step:
            case ServeAddresses():
                self._servers.resume(step)
            case SharePool():
                self._rules.resume(NODE, ruleset.POOL_CHAIN, ruleset.pool_rules(step))
            case ForwardNodePorts():
                for part, rules in ruleset.node_port_rules(step).items():
                    self._rules.resume(_node_ports(step), part, rules)
            case GuardLink(namespace=None):
                table = nft.Table("netdev", ruleset.guard_table(step))
                self._rules.resume(table, step.link, ruleset.guard_rules(step))
            case _:
                pass

    async def mend(self, steps: tuple[AnyStep, ...]) -> tuple[str, ...]:
        """Make again what somebody removed of ``steps``, which were all made; returns in sentences what the
        guest has lost for good: a tap is QEMU's, and another one of its name would not be.
        """
        gone = await asyncio.to_thread(lost, steps)
        taps = {step.network: step.name for step in gone if isinstance(step, HELD)}
        told = [_tap_is_gone(network, name) for network, name in taps.items()]
        for network in sorted({step.network for step in gone} - set(taps)):
            log.warning("somebody removed links of a guest: they are made again", network=network)
            ours = [step for step in steps if getattr(step, "network", None) == network]
            try:
                await self._make_again([step for step in ours if not isinstance(step, HELD)])
            except LauncherError as error:
                told.append(str(error))
        return tuple(told)

    async def _make_again(self, steps: list[AnyStep]) -> None:
        for step in steps:
            if isinstance(step, ServeAddresses):
                await self.release(step)  # it serves in a namespace, or on a link, that is no more
            await self.make(step)

    async def close(self) -> None:
        """Look after nothing any more; servers and rules stay."""
        await self._servers.close()
        await self._rules.close()

    async def _guard(self, step: GuardLink) -> None:
        rules = ruleset.guard_rules(step)
        if step.namespace is not None:
            await nft.apply(step.network, rules, namespace=Path(step.namespace))
            return
        await self._rules.keep(nft.Table("netdev", ruleset.guard_table(step)), step.link, step.network, rules)

    async def _leave(self, step: LentStep) -> None:
        """Leave a namespace that is not ours as it was; one that is gone needs nothing."""
        there = _at(step.namespace)
        if there is None or not await asyncio.to_thread(namespace.is_namespace, there):
            return
        match step:
            case TranslateAddresses():
                await nft.apply(step.network, ruleset.removal("inet"), namespace=there)
            case GuardLink():
                await nft.apply(step.network, ruleset.removal("netdev"), namespace=there)
            case JoinLinks():
                from launcher.network.wire import part_links

                await asyncio.to_thread(namespace.inside, there, lambda: part_links(step))
            case ForwardPackets():
                from launcher.network.forwarding import pass_on

                off = frozenset(step.versions)
                await asyncio.to_thread(namespace.inside, there, lambda: pass_on(off, on=False))

    async def _share(self, step: SharePool) -> None:
        rules = ruleset.pool_rules(step)
        async with self._pool:
            await asyncio.to_thread(_forward, step)
            if not self._rules.holds(NODE, ruleset.POOL_CHAIN, rules):
                await self._rules.keep(NODE, ruleset.POOL_CHAIN, step.network, rules)

    async def _unshare(self, step: SharePool) -> None:
        from launcher.network.link import any_marked

        async with self._pool:
            if not await asyncio.to_thread(any_marked, UPLINK_PREFIX):
                gone = ruleset.chain_removal("inet", ruleset.TABLE, ruleset.POOL_CHAIN)
                await self._rules.end(NODE, ruleset.POOL_CHAIN, step.network, gone)


def _tap_is_gone(network: str, name: str) -> str:
    return f"interface {network!r}: somebody removed {name}, and the guest is cut off until it starts anew"


def _node_ports(step: ForwardNodePorts) -> nft.Table:
    return nft.Table("inet", ruleset.node_port_table(step))


def _at(path: str | None) -> Path | None:
    return Path(path) if path is not None else None


def _create_namespace(step: CreateNetworkNamespace) -> None:
    from launcher.network.forwarding import forward_all

    path = Path(step.path)
    namespace.create(path)
    namespace.inside(path, forward_all)


def _forward(step: SharePool) -> None:
    from launcher.network.forwarding import forward_on_node

    forward_on_node(frozenset(6 if ":" in pool else 4 for pool in step.pools))
