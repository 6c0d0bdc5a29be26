# SPDX-License-Identifier: Apache-2.0
"""Steps of networks as planning makes them, for tests and benchmarks that carry them out themselves."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from launcher.plan.allocations import Allocations, Attachment, Route
from launcher.plan.attached import outer_addresses
from launcher.plan.context import plan_context
from launcher.plan.devices.assembly import plan_devices
from launcher.plan.facts import NodeFacts
from launcher.plan.networks import network_steps
from launcher.plan.settings import Binding, BridgedNetwork, NetworkSettings, PlanSettings
from launcher.plan.steps import AnyStep
from launcher.spec.codec import dec_hook
from launcher.spec.model import VirtualMachineInstance

BRIDGE = "br0"
"""What the multus network ``guarded`` is."""
BELOW = "bl0"
"""What macvtaps are on: a link that ``pod_namespace`` makes."""
SETTINGS = PlanSettings(
    network=NetworkSettings(
        bridges={"guarded": BridgedNetwork(bridge=BRIDGE, guard=True)},
        bindings={"direct": Binding(attachment="macvtap", link=BELOW)},
    )
)


def masquerade(number: int = 1) -> list[AnyStep]:
    """The steps of a masqueraded interface of the instance ``number``."""
    nic = {"name": "default", "masquerade": {}, "ports": [{"port": 80}]}
    return planned(number, nic, {"name": "default", "pod": {}})


def guarded(number: int = 1) -> list[AnyStep]:
    """Those of an interface on a bridge of the node, kept to its MAC address."""
    nic = {"name": "lan", "bridge": {}}
    return planned(number, nic, {"name": "lan", "multus": {"networkName": "guarded"}})


def attached(pod: str) -> list[AnyStep]:
    """Those of an interface behind the link ``eth0`` of the namespace ``pod``, of one in the place of its
    ``net1``, and of one on a macvtap."""
    behind = Attachment(
        namespace=pod,
        interface="eth0",
        mtu=1400,
        addresses=("10.244.7.5/24", "fd44::5/64"),
        routes=(Route(destination="0.0.0.0/0", gateway="10.244.7.1"),),
    )
    place = Attachment(namespace=pod, interface="net1", mtu=1400, addresses=("10.245.0.9/24",))
    multus = {"networkName": "x"}
    return [
        *planned(1, {"name": "default", "masquerade": {}}, {"name": "default", "pod": {}}, behind),
        *planned(2, {"name": "net1", "bridge": {}}, {"name": "net1", "multus": multus}, place),
        *planned(3, {"name": "n", "binding": {"name": "direct"}}, {"name": "n", "multus": multus}),
    ]


def planned(
    number: int,
    nic: Mapping[str, object],
    network: Mapping[str, object],
    given: Attachment | None = None,
) -> list[AnyStep]:
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
        outer=(
            outer_addresses(given)
            if given is not None
            else (f"100.64.0.{number + 1}", f"fd64:6c61:756e::{number + 1:x}")
        ),
        attachments={name: given} if given is not None else {},
    )
    vmi = msgspec.convert(manifest, VirtualMachineInstance, dec_hook=dec_hook)
    context = plan_context(vmi, NodeFacts(), allocations, SETTINGS)
    return list(network_steps(context, plan_devices(context)))
