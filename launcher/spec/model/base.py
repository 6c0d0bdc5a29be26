# SPDX-License-Identifier: Apache-2.0
"""The one base class of all API types."""

from __future__ import annotations

import msgspec


# gc=False: objects are trees of values, free of cycles, so counting references frees them.
class Model(
    msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True, rename="camel", gc=False
):
    """An immutable API object: camelCase outside, snake_case inside, unknown fields refused.

    Change one with ``msgspec.structs.replace``.
    """
