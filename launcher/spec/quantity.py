"""Kubernetes resource quantities, exact: integers and fractions, never floats.

Stub of the interface; the owner of this module completes it.
"""

from __future__ import annotations

from fractions import Fraction


class Quantity:
    """A non-rounded amount such as ``2Gi``, ``1500m`` or ``3``.

    ``text`` is what the user wrote; ``value`` its exact size in base units (bytes, CPUs).
    Equality and ordering follow ``value``.
    """

    __slots__ = ("text", "value")
    text: str
    value: Fraction

    def __init__(self, text: str | int) -> None:
        raise NotImplementedError
