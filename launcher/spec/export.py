# SPDX-License-Identifier: Apache-2.0
"""From typed objects back to data, JSON and YAML, as kubectl would show them. Writes to no file."""

from __future__ import annotations

from typing import Any

import msgspec
import yaml

from launcher.spec.codec import enc_hook
from launcher.spec.model.base import Model
from launcher.spec.nodes import PLAIN, Scalar
from launcher.spec.notation import anything

# The order in which people expect the parts of an object; the rest follows as the model has it.
_FIRST = ("apiVersion", "kind", "metadata", "spec", "status")


class _Dumper(yaml.CSafeDumper):
    """Block style for text of several lines; no aliases, which people do not expect in manifests."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def to_builtins(obj: Model) -> dict[str, Any]:
    """The object as a dict with the API's names. Absent fields and empty lists and maps are left out."""
    data: dict[str, Any] = msgspec.to_builtins(obj, enc_hook=enc_hook)
    first = {key: data[key] for key in _FIRST if key in data}
    return first | data


def to_json(obj: Model, *, indent: int = 2) -> str:
    """The object as JSON text with a line end; ``indent=0`` gives one line."""
    text = msgspec.json.encode(to_builtins(obj))
    return (msgspec.json.format(text, indent=indent) if indent else text).decode() + "\n"


def to_yaml(obj: Model) -> str:
    """The object as YAML text, in block style."""
    text: str = yaml.dump(
        to_builtins(obj),
        Dumper=_Dumper,
        sort_keys=False,
        default_flow_style=False,
        allow_unicode=True,
        width=1000,
    )
    return text


def _represent_text(dumper: yaml.CSafeDumper, text: str) -> yaml.ScalarNode:
    style = None
    if "\n" in text:
        style = "|"
    elif not isinstance(anything(Scalar(text, PLAIN)), str) or text.lower() in ("y", "n"):
        style = '"'  # other readers of YAML take these for numbers and booleans
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _represent_text)
