# SPDX-License-Identifier: Apache-2.0
"""A record -> what the content of its volumes is made from, and what another node needs for that. Pure."""

from __future__ import annotations

import msgspec

from launcher.agent.port import Companions
from launcher.agent.records import InstanceRecord
from launcher.plan.media.material import Material
from launcher.plan.steps import FetchContainerDisk, FetchKernel


def material_of(record: InstanceRecord) -> Material:
    """The instance with what came beside it."""
    companions = record.companions
    return Material(
        vmi=record.defaulted,
        uuid=record.plan.identity.uuid,
        devices=record.plan.devices,
        secrets=companions.secrets,
        config_maps=companions.config_maps,
        service_accounts=companions.service_accounts,
    )


def companions_for_target(record: InstanceRecord) -> Companions:
    """What travels with a migrating instance: its overlays fit only the images that they were made on."""
    found = {
        step.image: step.digest
        for step in record.plan.steps
        if isinstance(step, FetchContainerDisk | FetchKernel) and step.digest
    }
    return msgspec.structs.replace(record.companions, digests={**record.companions.digests, **found})
