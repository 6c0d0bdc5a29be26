# SPDX-License-Identifier: Apache-2.0
"""``--claim``: where a claim lies on the node, as people write it -> ClaimBinding."""

from __future__ import annotations

from typing import TYPE_CHECKING

from launcher.errors import InvalidRequest, Violation
from launcher.spec.quantity import Quantity

if TYPE_CHECKING:
    from launcher.v1.types_pb2 import ClaimBinding


def claim_binding(text: str, *, option: str = "--claim") -> ClaimBinding:
    """Read ``NAME=PATH[,block][,shared][,preallocated][,capacity=SIZE]``, given by ``option``.

    Raises:
        InvalidRequest: it is not of that form.
    """
    from launcher.v1.types_pb2 import ClaimBinding

    name, _, rest = text.partition("=")
    path, *flags = rest.split(",")
    if not name or not path.startswith("/"):
        raise _invalid(option, text, "must be NAME=PATH with an absolute path")
    binding = ClaimBinding(claim=name, path=path)
    for flag in flags:
        key, _, value = flag.partition("=")
        if key == "block" and not value:
            binding.block = True
        elif key == "shared" and not value:
            binding.shared = True
        elif key == "preallocated" and not value:
            binding.preallocated = True
        elif key == "capacity":
            try:
                binding.capacity = Quantity(value).bytes_floor()
            except ValueError as error:
                raise _invalid(option, text, f"capacity: {error}") from error
        else:
            raise _invalid(option, text, f"{flag!r} is none of block, shared, preallocated, capacity=SIZE")
    return binding


def _invalid(option: str, value: str, message: str) -> InvalidRequest:
    return InvalidRequest([Violation(field=option, type="FieldValueInvalid", value=value, message=message)])
