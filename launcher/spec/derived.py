# SPDX-License-Identifier: Apache-2.0
"""UUIDs that follow from names (RFC 9562, version 5). Pure.

``uuid.uuid5`` gives the same; it takes ten times as long for objects that nobody here needs.
"""

from __future__ import annotations

import hashlib
import uuid


def derived_uuid(namespace: uuid.UUID, name: str) -> str:
    """The UUID of ``name`` in ``namespace``: always the same."""
    digest = hashlib.sha1(namespace.bytes + name.encode(), usedforsecurity=False).hexdigest()
    variant = "89ab"[int(digest[16], 16) & 3]
    return f"{digest[:8]}-{digest[8:12]}-5{digest[13:16]}-{variant}{digest[17:20]}-{digest[20:32]}"
