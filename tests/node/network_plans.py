# SPDX-License-Identifier: Apache-2.0
"""Steps of networks as planning makes them, for tests and benchmarks that carry them out themselves."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from launcher.plan.allocations import Allocations
from launcher.plan.context import plan_context
from launcher.plan.devices import plan_devices
from launcher.plan.facts import NodeFacts
from launcher.plan.networks import network_steps
from launcher.plan.settings import BridgedNetwork, NetworkSettings, PlanSettings
from launcher.plan.steps import AnyStep
from launcher.spec.codec import dec_hook
from launcher.spec.model import VirtualMachineInstance

BRIDGE = "br0"
"""What the multus network ``guarded`` is."""
SETTINGS = PlanSettings(
    network=NetworkSettings(bridges={"guarded": BridgedNetwork(bridge=BRIDGE, guard=True)})
)


def masquerade(number: int = 1) -> list[AnyStep]:
    """The steps of a masqueraded interface of the instance ``number``."""
    nic = {"name": "default", "masquerade": {}, "ports": [{"port": 80}]}
    return planned(number, nic, {"name": "default", "pod": {}})


def guarded(number: int = 1) -> list[AnyStep]:
    """Those of an interface on a bridge of the node, kept to its MAC address."""
    nic = {"name": "lan", "bridge": {}}
    return planned(number, nic, {"name": "lan", "multus": {"networkName": "guarded"}})


def planned(number: int, nic: Mapping[str, object], network: Mapping[str, object]) -> list[AnyStep]:
    """The steps of one interface of the instance ``number``."""
    name = str(nic["name"])
    manifest = {
        "metadata": {"name": f"g{number}", "namespace": "default"},
        "spec": {
            "domain": {"memory": {"guest": "64Mi"}, "devices": {"interfaces": [nic]}},
            "networks": [network],
        },
    }
    uid = f"00000000-0000-4000-8000-{number:012x}"
    allocations = Allocations(
        uid=uid,
        uuid=uid,
        macs={name: f"02:00:00:00:01:{number:02x}"},
        taps={name: f"lt{number:012x}"},
        outer=(f"100.64.0.{number + 1}", f"fd64:6c61:756e::{number + 1:x}"),
    )
    vmi = msgspec.convert(manifest, VirtualMachineInstance, dec_hook=dec_hook)
    context = plan_context(vmi, NodeFacts(), allocations, SETTINGS)
    return list(network_steps(context, plan_devices(context)))
