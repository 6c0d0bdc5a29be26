# SPDX-License-Identifier: Apache-2.0
"""Commands for the QEMU guest agent, as libvirt hands them on. One call, no policy, no meaning."""

from __future__ import annotations

from typing import Final

import libvirt_qemu

from launcher.hypervisor.calls import Calls, LaneName

GRACE_S: Final = 10.0
"""libvirt first synchronises with the agent, for at most 5 s (VIR_DOMAIN_QEMU_AGENT_COMMAND_DEFAULT)."""


class AgentCalls:
    """The part of port.Hypervisor about the guest agent."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    async def agent_command(self, uuid: str, command: str, *, timeout_s: int) -> str:
        """Hand ``command`` to the guest agent and wait ``timeout_s`` for its answer.

        Raises:
            GuestAgentError: there is no agent, or it does not answer, or says no.
            WrongPhase: the domain does not run.
        """
        return await self._calls.on_domain(
            uuid,
            lambda domain: str(libvirt_qemu.qemuAgentCommand(domain, command, timeout_s, 0)),
            what="ask the guest agent",
            lane=LaneName.AGENT,
            timeout_s=timeout_s + GRACE_S,
        )
