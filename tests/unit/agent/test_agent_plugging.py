# SPDX-License-Identifier: Apache-2.0
"""What is remembered of a guest that does not give a device back."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from launcher.agent.disks import UnplugDisk
from launcher.agent.hotplug import disk_of
from launcher.agent.plugging import Plugging
from launcher.agent.records import InstanceRecord
from launcher.host.clock import SystemClock

MANIFEST = """
apiVersion: kubevirt.io/v1
kind: VirtualMachineInstance
metadata: {name: web, namespace: lab}
spec:
  domain:
    memory: {guest: 128Mi}
    devices: {disks: [{name: data, disk: {bus: scsi}}]}
  volumes: [{name: data, emptyDisk: {capacity: 1Gi}}]
"""


async def _asked(_uuid: str, _xml: str) -> None:
    """The guest was asked; that is all that libvirt says."""


@pytest.mark.parametrize(
    ("alias", "says"),
    [("ua-data", "the guest refused to give data back"), ("ua-other", "has not given disk data back yet")],
)
async def test_a_refusal_is_told_and_the_guest_asked_again(
    make_record: Callable[..., InstanceRecord], alias: str, says: str
) -> None:
    record = make_record(MANIFEST)
    plugging = Plugging(cast(Any, SimpleNamespace(detach_device=_asked)), cast(Any, None), SystemClock())
    await plugging.perform(record, UnplugDisk(record.plan.devices.disks[0]))
    plugging.refused(alias)
    tries = plugging.seen(None).of_disk(disk_of("data"))
    assert says in tries.error
    assert (tries.failures, tries.exhausted) == (1, False)
