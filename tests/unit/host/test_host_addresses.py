# SPDX-License-Identifier: Apache-2.0
"""An address of the host, by itself, by its interface, by its network."""

from __future__ import annotations

import pytest

from launcher.errors import InvalidRequest
from launcher.host.addresses import own_address


@pytest.mark.parametrize(
    ("said", "found"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("2001:db8::7", "2001:db8::7"),
        ("lo", "127.0.0.1"),
        ("127.0.0.0/8", "127.0.0.1"),
    ],
)
def test_what_is_said_is_found(said: str, found: str) -> None:
    assert own_address(said, field="migration.address") == found


@pytest.mark.parametrize("said", ["no-such-link", "198.51.100.0/24", "127.0.0.1/8", "2001:db8::/64"])
def test_what_is_not_here_is_refused_with_what_is(said: str) -> None:
    with pytest.raises(InvalidRequest, match=r"migration\.address.*lo 127\.0\.0\.1"):
        own_address(said, field="migration.address")
