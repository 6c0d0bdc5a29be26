# SPDX-License-Identifier: Apache-2.0
"""Scalar types that the API names: bounded integers, time stamps, int-or-string."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

Int32 = Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)]
Int64 = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
# A port number or name; Kubernetes keeps the number in 32 bits.
IntOrString = Int32 | str
# RFC 3339, kept as the text the user wrote: a node never does arithmetic with somebody else's clock.
Time = str
