# SPDX-License-Identifier: Apache-2.0
"""Rules of ``spec.volumes`` and ``utilityVolumes``: names, one source each, and claims."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from launcher.errors import Violation
from launcher.spec.model import Volume
from launcher.spec.rules.checks import Found, at_most, dns_label, dns_subdomain, one_of, unique
from launcher.spec.rules.context import Context, Rule
from launcher.spec.rules.disks import MOST
from launcher.spec.rules.finding import duplicate, forbidden, invalid, required

VOLUMES: Final = "spec.volumes"
UTILITY_TYPES: Final = ("MemoryDump", "Backup")
"""KubeVirt's values of ``utilityVolumes[].type``."""

# All sources of a volume, which are its fields but for the name: (field of the model, name in the manifest).
_SOURCES: Final = tuple(
    (name, written)
    for name, written in zip(Volume.__struct_fields__, Volume.__struct_encode_fields__, strict=True)
    if name != "name"
)
# Sources of which an instance can have one.
_SINGLE: Final = ("service_account", "downward_metrics", "memory_dump")


def sources(volume: Volume) -> list[tuple[str, str]]:
    """The sources that a volume has, as (field of the model, name in the manifest); a valid one has one."""
    return [source for source in _SOURCES if getattr(volume, source[0]) is not None]


def names(ctx: Context) -> Iterator[Violation]:
    """Volumes have unique names, which are also file names."""
    yield from at_most(VOLUMES, ctx.volumes, MOST)
    yield from unique((f"{path}.name", volume.name) for path, volume in ctx.volumes)
    for path, volume in ctx.volumes:
        yield from dns_label(f"{path}.name", volume.name)


def one_source(ctx: Context) -> Iterator[Violation]:
    """A volume has exactly one source, and of some sources there is only one."""
    first: dict[str, str] = {}
    for path, volume in ctx.volumes:
        given = sources(volume)
        if not given:
            yield required(
                path,
                f"needs a source: one of {', '.join(written for _, written in _SOURCES)}",
            )
        elif len(given) > 1:
            written = ", ".join(name for _, name in given)
            yield invalid(f"{path}.{given[1][1]}", None, f"a volume has one source, not {written}")
        for name, written in given:
            if name in _SINGLE:
                taken = first.setdefault(name, path)
                if taken != path:
                    yield invalid(
                        f"{path}.{written}", None, f"an instance has one {written}; there is {taken} already"
                    )


def claims(ctx: Context) -> Iterator[Violation]:
    """Claims and data volumes are named."""
    for path, volume in ctx.volumes:
        if volume.persistent_volume_claim is not None:
            yield from _claim(
                f"{path}.persistentVolumeClaim.claimName", volume.persistent_volume_claim.claim_name
            )
        if volume.data_volume is not None:
            yield from dns_subdomain(
                f"{path}.dataVolume.name", volume.data_volume.name, "the name of a data volume"
            )
        if volume.memory_dump is not None:
            yield from _claim(f"{path}.memoryDump.claimName", volume.memory_dump.claim_name)
        if volume.ephemeral is not None:
            claim = volume.ephemeral.persistent_volume_claim
            if claim is None:
                yield required(f"{path}.ephemeral.persistentVolumeClaim", "needs the claim to write over")
            else:
                yield from _claim(f"{path}.ephemeral.persistentVolumeClaim.claimName", claim.claim_name)


def utility_volumes(ctx: Context) -> Iterator[Violation]:
    """Utility volumes come to an instance that runs, and have names of their own."""
    path = "spec.utilityVolumes"
    volumes = ctx.spec.utility_volumes
    if volumes and ctx.creating:
        yield forbidden(path, "an instance starts without utility volumes; they are added while it runs")
    yield from at_most(path, volumes, MOST)
    yield from unique((f"{path}[{i}].name", volume.name) for i, volume in enumerate(volumes))
    for index, volume in enumerate(volumes):
        yield from dns_label(f"{path}[{index}].name", volume.name)
        if volume.name in ctx.volume_named:
            yield invalid(
                f"{path}[{index}].name", volume.name, "is the name of a volume already; must be unique"
            )
        yield from _claim(f"{path}[{index}].claimName", volume.claim_name)
        yield from one_of(f"{path}[{index}].type", volume.type, UTILITY_TYPES)
    taken = {claim: at for at, volume in ctx.volumes if (claim := _claim_of(volume))}
    for index, utility in enumerate(volumes):
        field = f"{path}[{index}].claimName"
        first = taken.setdefault(utility.claim_name, field)
        if utility.claim_name and first != field:
            yield duplicate(field, utility.claim_name, first)


def _claim_of(volume: Volume) -> str:
    if volume.data_volume is not None:
        return volume.data_volume.name
    under = volume.ephemeral.persistent_volume_claim if volume.ephemeral is not None else None
    source = volume.persistent_volume_claim or volume.memory_dump or under
    return source.claim_name if source is not None else ""


def _claim(field: str, name: str) -> Found:
    return dns_subdomain(field, name, "the name of a persistent volume claim")


RULES: tuple[Rule, ...] = (names, one_source, claims, utility_volumes)
