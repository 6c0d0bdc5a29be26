# SPDX-License-Identifier: Apache-2.0
"""How a changed manifest says that its volumes may have other claims."""

from __future__ import annotations

from pathlib import Path

from launcher.api import manifest
from launcher.plan.volumes import claim_name
from launcher.v1.instances_pb2 import UpdateInstanceRequest

MACHINE = """
apiVersion: kubevirt.io/v1
kind: VirtualMachine
metadata: {name: web}
spec:
  %s
  template:
    spec: {domain: {memory: {guest: 64Mi}, devices: {}}}
"""


def test_a_virtual_machine_names_its_strategy() -> None:
    for written, found in (("updateVolumesStrategy: Migration", "Migration"), ("running: true", "")):
        request = UpdateInstanceRequest(text=MACHINE % written)
        vmi, _, strategy = manifest.change(request, "text")
        assert vmi.metadata is not None
        assert (vmi.metadata.name, strategy) == ("web", found)


def test_the_example_is_a_machine_whose_volume_may_go_elsewhere() -> None:
    text = (Path(__file__).parents[3] / "examples" / "volume-migration.yaml").read_text()
    assert "claimName: slow" in text
    for claim in ("slow", "fast"):
        request = UpdateInstanceRequest(text=text.replace("claimName: slow", f"claimName: {claim}"))
        vmi, _, strategy = manifest.change(request, "text")
        assert strategy == "Migration"
        assert [claim_name(volume) for volume in vmi.spec.volumes] == [claim]
