# SPDX-License-Identifier: Apache-2.0
"""UUIDs out of names are those that the standard library makes."""

from __future__ import annotations

import uuid

from hypothesis import given
from hypothesis import strategies as st

from launcher.spec.derived import derived_uuid


@given(st.uuids(), st.text())
def test_they_are_of_version_5(namespace: uuid.UUID, name: str) -> None:
    assert derived_uuid(namespace, name) == str(uuid.uuid5(namespace, name))
