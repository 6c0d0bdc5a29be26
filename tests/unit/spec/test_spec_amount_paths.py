# SPDX-License-Identifier: Apache-2.0
"""Reading and rules name an amount by the same path, and the place of both is found in the text."""

from __future__ import annotations

import pytest

from launcher.errors import InvalidSpec
from launcher.spec.load import load_manifests
from launcher.spec.model import VirtualMachineInstance
from launcher.spec.positions import with_positions
from launcher.spec.rules import check

TEXT = """
apiVersion: kubevirt.io/v1
kind: VirtualMachineInstance
metadata: {name: web}
spec:
  domain:
    memory: {guest: 1Gi}
    devices: {}
    resources:
      requests:
        %s: %s
"""


@pytest.mark.parametrize("value", ["nonsense", "-1"])
@pytest.mark.parametrize(
    ("key", "path"),
    [("cpu", ".cpu"), ("ephemeral-storage", ".ephemeral-storage"), ("example.com/gpu", "[example.com/gpu]")],
)
def test_one_path_for_an_amount(key: str, path: str, value: str) -> None:
    text = TEXT % (key, value)
    try:
        (loaded,) = load_manifests(text)
    except InvalidSpec as error:
        found = list(error.violations)
    else:
        assert isinstance(loaded.obj, VirtualMachineInstance)
        found = list(with_positions(check(loaded.obj), loaded.positions))
    assert [(v.field, v.line) for v in found] == [(f"spec.domain.resources.requests{path}", 11)]
