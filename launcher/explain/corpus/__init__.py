# SPDX-License-Identifier: Apache-2.0
"""Small manifests that together set every field of an instance's spec: what explanations are measured on.

They are valid but for three old bindings that the rules refuse, and they are translated for a host that has
all that they ask for (``launcher.explain.example_host``). Data only.
"""

from __future__ import annotations

from launcher.explain.corpus import compute, devices, network, placement, storage

__all__ = ["EXAMPLES", "manifest_text"]

# name: YAML of a spec
EXAMPLES: dict[str, str] = {
    **compute.EXAMPLES,
    **devices.EXAMPLES,
    **storage.EXAMPLES,
    **network.EXAMPLES,
    **placement.EXAMPLES,
}

_HEAD = "apiVersion: kubevirt.io/v1\nkind: VirtualMachineInstance"


def manifest_text(name: str) -> str:
    """The example ``name`` as the text of a whole manifest."""
    return f"{_HEAD}\nmetadata: {{name: {name}}}{EXAMPLES[name]}"
