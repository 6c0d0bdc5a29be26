# SPDX-License-Identifier: Apache-2.0
"""By which addresses a guest is reached, and what is said when there is none."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from launcher.agent.reach import Way, ways
from launcher.agent.records import InstanceRecord
from launcher.errors import HostUnsupported, Unavailable, WrongPhase
from launcher.spec.model import (
    VirtualMachineInstance,
    VirtualMachineInstanceNetworkInterface,
    VirtualMachineInstanceStatus,
)

BRIDGED = """
apiVersion: kubevirt.io/v1
kind: VirtualMachineInstance
metadata: {name: web, namespace: lab, uid: 6ba7b810-9dad-41d1-80b4-00c04fd430c8}
spec:
  domain:
    memory: {guest: 128Mi}
    devices:
      interfaces: [{name: lan, bridge: {}}]
  networks: [{name: lan, multus: {networkName: blue}}]
"""


def shown(record: InstanceRecord, *addresses: str, name: str = "lan") -> VirtualMachineInstance:
    nic = VirtualMachineInstanceNetworkInterface(name=name, ip_addresses=addresses)
    return replace(record.defaulted, status=VirtualMachineInstanceStatus(interfaces=(nic,)))


def test_behind_masquerade_inside_its_namespace(make_record: Callable[..., InstanceRecord]) -> None:
    record = make_record()
    namespace = f"/run/launcher/n/{record.uid}/ns"
    assert ways(record, shown(record, "100.64.0.7", name="default")) == (
        Way(address="10.0.2.2", namespace=namespace),
        Way(address="fd10:0:2::2", namespace=namespace),
    )


def test_on_a_bridge_at_what_is_known(make_record: Callable[..., InstanceRecord]) -> None:
    record = make_record(BRIDGED)
    assert ways(record, shown(record, "fe80::1", "192.0.2.5", "2001:db8::5")) == (
        Way(address="192.0.2.5"),
        Way(address="2001:db8::5"),
    )
    for nothing in (None, shown(record), shown(record, "fe80::1")):
        with pytest.raises(Unavailable, match=r"no address of lab/web is known \(lan\)"):
            ways(record, nothing)


def test_no_way_at_all(make_record: Callable[..., InstanceRecord]) -> None:
    alone = BRIDGED.partition("      interfaces")[0] + "      autoattachPodInterface: false\n"
    with pytest.raises(WrongPhase, match="lab/web has no network interface"):
        ways(make_record(alone), None)
    passt = BRIDGED.replace("bridge: {}", "passtBinding: {}").replace(
        "multus: {networkName: blue}", "pod: {}"
    )
    with pytest.raises(HostUnsupported, match=r"neither a masquerade nor a bridge \(lan\)"):
        ways(make_record(passt), None)
