# SPDX-License-Identifier: Apache-2.0
"""Small manifests for the tests of rules and defaults: a base, and fragments that are laid over it."""

from __future__ import annotations

from typing import Any

import yaml

from launcher.spec.defaults import DefaultsSettings, apply_defaults
from launcher.spec.load import decode_object
from launcher.spec.model import DomainSpec, VirtualMachineInstance

BASE = """
apiVersion: kubevirt.io/v1
kind: VirtualMachineInstance
metadata: {name: demo, namespace: lab}
spec:
  domain:
    devices: {}
    memory: {guest: 1Gi}
"""


def merged(base: Any, fragment: Any) -> Any:
    """Maps are merged, null removes, everything else replaces."""
    if not isinstance(base, dict) or not isinstance(fragment, dict):
        return fragment
    result = dict(base)
    for key, value in fragment.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merged(base.get(key), value) if isinstance(value, dict) else value
    return result


def manifest(*fragments: str) -> dict[str, Any]:
    """The base with YAML fragments over it, as parsed data."""
    raw = yaml.safe_load(BASE)
    for fragment in fragments:
        raw = merged(raw, yaml.safe_load(fragment))
    assert isinstance(raw, dict)
    return raw


def vmi(*fragments: str) -> VirtualMachineInstance:
    """The same as an object."""
    loaded = decode_object(manifest(*fragments)).obj
    assert isinstance(loaded, VirtualMachineInstance)
    return loaded


def spec(text: str) -> str:
    """A fragment of ``spec``."""
    return "spec: " + text


def domain(text: str) -> str:
    """A fragment of ``spec.domain``."""
    return f"spec: {{domain: {text}}}"


def devices(text: str) -> str:
    """A fragment of ``spec.domain.devices``."""
    return f"spec: {{domain: {{devices: {text}}}}}"


AMD64 = spec("{architecture: amd64}")
ARM64 = spec("{architecture: arm64}")
S390X = spec("{architecture: s390x}")


def full(*fragments: str, **settings: object) -> VirtualMachineInstance:
    """The object with its defaults."""
    return apply_defaults(vmi(*fragments), DefaultsSettings(**settings))  # type: ignore[arg-type]


def full_domain(*fragments: str, **settings: object) -> DomainSpec:
    """Its ``spec.domain``."""
    return full(*fragments, **settings).spec.domain
