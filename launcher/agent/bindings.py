# SPDX-License-Identifier: Apache-2.0
"""Lets the programs of binding plugins edit a domain's XML before it is defined.

A program reads one JSON object from its standard input (``interface``, ``binding``, ``vmi`` and ``domain``,
which is XML) and writes the domain's XML to its standard output. It is the operator's: named by the node's
configuration, run with the agent's rights, ended with its whole process group when its time is over.
"""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET

import msgspec

from launcher.agent.records import InstanceRecord
from launcher.errors import CommandFailed, NetworkError
from launcher.host.run import run
from launcher.plan.devices.model import PluginPlan
from launcher.spec.codec import enc_hook

LARGEST_XML = 4 * 1024 * 1024
"""Bytes; a domain with everything has some hundred thousand."""


async def edited(xml: str, record: InstanceRecord) -> str:
    """``xml`` as the programs of the instance's binding plugins want it, one after the other.

    Raises:
        NetworkError: a program fails, or what it writes is not this domain.
        TimedOut: it does not end. HostUnsupported: it is not there.
    """
    for plugin in record.plan.devices.plugins:
        if plugin.program:
            xml = await _edit(xml, plugin, record)
    return xml


async def _edit(xml: str, plugin: PluginPlan, record: InstanceRecord) -> str:
    given = {
        "interface": plugin.name,
        "binding": plugin.binding,
        "vmi": msgspec.to_builtins(record.defaulted, enc_hook=enc_hook),
        "domain": xml,
    }
    try:
        done = await run(
            plugin.program,
            timeout_s=plugin.timeout_s,
            stdin=json.dumps(given).encode(),
            stdout_limit=LARGEST_XML,
        )
    except CommandFailed as error:
        raise NetworkError(plugin.name, f"the binding {plugin.binding}: {error.stderr[-300:]}") from error
    _require_same(done.text, xml, plugin)
    return done.text


def _require_same(text: str, before: str, plugin: PluginPlan) -> None:
    """Whatever it changed, it is the domain that the agent knows."""
    try:
        after = ET.fromstring(text)  # noqa: S314
    except ET.ParseError as error:
        raise NetworkError(plugin.name, f"the binding {plugin.binding} writes no XML: {error}") from error
    was = ET.fromstring(before)  # noqa: S314
    for path in ("name", "uuid"):
        if after.tag != "domain" or after.findtext(path) != was.findtext(path):
            raise NetworkError(
                plugin.name, f"the binding {plugin.binding} must leave the domain's {path} as it is"
            )
