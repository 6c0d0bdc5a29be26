# SPDX-License-Identifier: Apache-2.0
"""Names of nodes and addresses, as they are written for a migration or a drain."""

from __future__ import annotations

import pytest

from launcher.agent.destinations import destination
from launcher.errors import InvalidRequest
from launcher.host.config import Config, Tls

TLS = Tls(certificate="/c", key="/k", ca="/a")
CONFIG = Config(tls=TLS, peers={"b": "192.0.2.2:7443", "here": "unix:/run/x", "odd": "192.0.2.3"})


@pytest.mark.parametrize(
    ("wanted", "address"),
    [
        ("b", "192.0.2.2:7443"),
        ("here", "unix:/run/x"),
        ("[2001:db8::2]:7443", "[2001:db8::2]:7443"),
        ("unix:/run/y", "unix:/run/y"),
    ],
)
def test_a_peer_or_an_address(wanted: str, address: str) -> None:
    assert destination(CONFIG, wanted, field="target") == address


@pytest.mark.parametrize(
    ("wanted", "field", "message"),
    [
        ("c", "target", "no such peer; accepted are ADDRESS:PORT and the peers of this node: b, here, odd"),
        (":7443", "target", "must be unix:PATH or ADDRESS:PORT"),
        ("b:0", "target", "must be unix:PATH or ADDRESS:PORT"),
        ("odd", "peers.odd", "must be unix:PATH or ADDRESS:PORT"),
    ],
)
def test_anything_else_is_refused_where_it_stands(wanted: str, field: str, message: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        destination(CONFIG, wanted, field="target")
    (found,) = caught.value.violations
    assert (found.field, found.message) == (field, message)


def test_tcp_needs_the_nodes_certificate() -> None:
    bare = Config(peers={"b": "192.0.2.2:7443", "here": "unix:/run/x"})
    assert destination(bare, "here", field="target") == "unix:/run/x"
    with pytest.raises(InvalidRequest, match="needs certificate, key and ca"):
        destination(bare, "b", field="target")
