# SPDX-License-Identifier: Apache-2.0
"""The hooks by which msgspec reads and writes the types of the model that it does not know."""

from __future__ import annotations

from typing import Any

from launcher.spec.quantity import Quantity


def dec_hook(kind: type, value: Any) -> Any:
    """Make a ``Quantity`` of what msgspec decoded: text or an integer.

    Raises ``ValueError`` for other values. Floats are among them: their decimal text is lost, so the
    readers of text keep numbers as text.
    """
    if kind is not Quantity:
        raise TypeError(f"no way to read a {kind.__name__}")
    return value if isinstance(value, Quantity) else Quantity(value)


def enc_hook(value: Any) -> Any:
    """Write a ``Quantity`` as the text that the user wrote."""
    if isinstance(value, Quantity):
        return value.text
    raise TypeError(f"no way to write a {type(value).__name__}")
