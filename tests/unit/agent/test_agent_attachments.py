# SPDX-License-Identifier: Apache-2.0
"""What a caller says of links that it hands in."""

from __future__ import annotations

import msgspec
import pytest

from launcher.agent.attachments import looked_at
from launcher.agent.port import Attachment, Companions, Route
from launcher.errors import InvalidRequest
from launcher.spec.codec import dec_hook
from launcher.spec.model import VirtualMachineInstance

MANIFEST = msgspec.convert(
    {
        "metadata": {"name": "g"},
        "spec": {
            "domain": {
                "devices": {"interfaces": [{"name": "a", "masquerade": {}}, {"name": "b", "sriov": {}}]}
            },
            "networks": [{"name": "a", "pod": {}}, {"name": "b", "multus": {"networkName": "b"}}],
        },
    },
    VirtualMachineInstance,
    dec_hook=dec_hook,
)
GIVEN = Attachment(namespace="/run/netns/x", interface="eth0")


async def test_nothing_handed_in_is_nothing_looked_at() -> None:
    companions = Companions(digests={"a": "b"})
    assert await looked_at(MANIFEST, companions) is companions


@pytest.mark.parametrize(
    ("name", "change", "field"),
    [
        ("c", {}, "companions.attachments[c]"),
        ("b", {}, "companions.attachments[b].device"),
        ("a", {"device": "0000:3b:02.1"}, "companions.attachments[a].device"),
        ("b", {"device": "3b:02.1"}, "companions.attachments[b].device"),
        ("b", {"device": "0000:3b:02.1", "vlan": 4095}, "companions.attachments[b].vlan"),
        ("a", {"namespace": "x"}, "companions.attachments[a].namespace"),
        ("a", {"interface": "a/b"}, "companions.attachments[a].interface"),
        ("a", {"interface": "longer-than-links-are"}, "companions.attachments[a].interface"),
        ("a", {"mac": "0a-58"}, "companions.attachments[a].mac"),
        ("a", {"addresses": ("192.0.2.300/24",)}, "companions.attachments[a].addresses"),
        ("a", {"routes": (Route(destination="::/0", gateway="x"),)}, "companions.attachments[a].routes"),
    ],
)
async def test_what_cannot_be_is_refused_by_its_field(
    name: str, change: dict[str, object], field: str
) -> None:
    given = msgspec.structs.replace(GIVEN, **change)
    with pytest.raises(InvalidRequest) as refused:
        await looked_at(MANIFEST, Companions(attachments={name: given}))
    assert [violation.field for violation in refused.value.violations] == [field]
