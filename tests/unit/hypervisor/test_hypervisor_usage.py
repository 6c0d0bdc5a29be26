# SPDX-License-Identifier: Apache-2.0
"""libvirt's counters of interfaces, whole and with gaps."""

from __future__ import annotations

from launcher.hypervisor.port import LinkUsage
from launcher.hypervisor.usage import link_usages


def test_each_interface_with_a_name_is_counted() -> None:
    values = {
        "net.count": 3,
        "net.0.name": "lt0",
        "net.0.rx.bytes": 10,
        "net.0.rx.pkts": 2,
        "net.0.rx.errs": 1,
        "net.0.rx.drop": 3,
        "net.0.tx.bytes": 20,
        "net.0.tx.pkts": 4,
        "net.0.tx.errs": 5,
        "net.0.tx.drop": 6,
        "net.2.name": "lt2",
    }
    assert tuple(link_usages(values)) == (
        LinkUsage(
            link="lt0",
            rx_bytes=10,
            rx_packets=2,
            rx_errors=1,
            rx_dropped=3,
            tx_bytes=20,
            tx_packets=4,
            tx_errors=5,
            tx_dropped=6,
        ),
        LinkUsage(link="lt2"),
    )
    assert tuple(link_usages({})) == ()
