# SPDX-License-Identifier: Apache-2.0
"""``migrate --volume``: which volume goes to which claim, as people write it, and the instance with that."""

from __future__ import annotations

from typing import TYPE_CHECKING

from launcher.cli.claims import claim_binding
from launcher.errors import InvalidRequest, NotFound, Violation

if TYPE_CHECKING:
    from launcher.cli.client import Client, Object
    from launcher.v1.types_pb2 import Companions

STRATEGY = "Migration"
_CLAIMS = {"persistentVolumeClaim": "claimName", "dataVolume": "name"}
"""Sources of volumes that are claims, and how they name them."""


def ask_moves(client: Client, name: str, namespace: str, moves: tuple[str, ...]) -> Object:
    """Ask that volumes go to other claims, each ``VOLUME=CLAIM[=PATH…]``; gives the instance as it was.

    Raises:
        InvalidRequest: one is not of that form, or the volume has no claim.
        NotFound: there is no such volume.
    """
    from launcher.v1 import types_pb2

    before = client.instances.get(name, namespace=namespace)
    wanted = client.instances.get(name, namespace=namespace)
    companions: Companions = types_pb2.Companions()
    for text in moves:
        volume, _, claim = text.partition("=")
        if not volume or not claim:
            raise _invalid(text, "must be VOLUME=CLAIM, or VOLUME=CLAIM=PATH with where that lies")
        _point(wanted, volume, claim.partition("=")[0], text)
        if "=" in claim:
            companions.claims.append(claim_binding(claim, option="--volume"))
    client.instances.update(wanted, companions, namespace=namespace, volumes_strategy=STRATEGY)
    return before


def take_back(client: Client, before: Object, namespace: str) -> None:
    """The volumes are not to move."""
    client.instances.update(before, namespace=namespace, volumes_strategy=STRATEGY)


def _point(vmi: Object, name: str, claim: str, text: str) -> None:
    volumes = vmi["spec"].get("volumes", [])
    volume = next((found for found in volumes if found["name"] == name), None)
    if volume is None:
        raise NotFound("volume", name, hint=f"there are {', '.join(v['name'] for v in volumes) or 'none'}")
    kind = next((kind for kind in _CLAIMS if kind in volume), None)
    if kind is None:
        raise _invalid(text, f"volume {name!r} has no claim: persistentVolumeClaim and dataVolume can move")
    if volume[kind][_CLAIMS[kind]] == claim:
        raise _invalid(text, f"volume {name!r} is on the claim {claim!r} already; name another one")
    volume[kind][_CLAIMS[kind]] = claim


def _invalid(value: str, message: str) -> InvalidRequest:
    return InvalidRequest(
        [Violation(field="--volume", type="FieldValueInvalid", value=value, message=message)]
    )
