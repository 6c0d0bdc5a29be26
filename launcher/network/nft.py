# SPDX-License-Identifier: Apache-2.0
"""Hands a ruleset to nft(8), one transaction a call, in the agent's namespace or in another."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from launcher.errors import CommandFailed, NetworkError
from launcher.host.run import run
from launcher.network.ruleset import Command

TIMEOUT_S = 30.0


async def apply(network: str, commands: Sequence[Command], *, namespace: Path | None = None) -> None:
    """Carry out all of ``commands`` or none.

    Raises:
        NetworkError: nft or the kernel refuses, in its words.
        HostUnsupported: there is no nft.
        TimedOut: it did not end.
    """
    enter = [] if namespace is None else ["nsenter", f"--net={namespace}", "--"]
    text = json.dumps({"nftables": list(commands)})
    try:
        await run([*enter, "nft", "-j", "-f", "-"], timeout_s=TIMEOUT_S, stdin=text.encode())
    except CommandFailed as error:
        raise NetworkError(
            network,
            f"nftables refuses the rules: {error.stderr.strip()[-300:]}",
            hint="the agent needs CAP_NET_ADMIN, and the kernel nf_tables with nft_nat and nft_fwd_netdev",
        ) from error
