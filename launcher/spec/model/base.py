# SPDX-License-Identifier: Apache-2.0
"""The one base class of all API types."""

from __future__ import annotations

import msgspec


class Model(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True, rename="camel"):
    """An immutable API object: camelCase outside, snake_case inside, unknown fields refused.

    Change one with ``msgspec.structs.replace``.
    """
