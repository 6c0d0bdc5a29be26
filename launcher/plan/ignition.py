# SPDX-License-Identifier: Apache-2.0
"""Ignition's configuration for the first boot, given in an annotation, as a file of QEMU's fw_cfg. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from launcher.errors import HostUnsupported
from launcher.plan.context import PlanContext
from launcher.plan.model import FirmwareFile
from launcher.plan.steps import AnyStep, WriteIgnition

DATA = "kubevirt.io/ignitiondata"
# Where Ignition looks on QEMU (its documentation, "Supported platforms").
NAME = "opt/com.coreos/config"


def ignition_config(annotations: Mapping[str, str]) -> str | None:
    """The configuration, if there is one: as in KubeVirt, text that does not name Ignition is none."""
    data = annotations.get(DATA, "")
    return data if "ignition" in data else None


def firmware_files(context: PlanContext) -> tuple[FirmwareFile, ...]:
    """The files that the guest finds in fw_cfg.

    Raises:
        HostUnsupported: the guest's board has no fw_cfg.
    """
    if ignition_config(context.annotations) is None:
        return ()
    if context.arch.name == "s390x":
        raise HostUnsupported(
            "fw_cfg for s390x guests",
            f"metadata.annotations[{DATA}] needs it",
            hint="hand the configuration over on a disk",
        )
    return (FirmwareFile(name=NAME, path=context.paths.ignition),)


def ignition_steps(context: PlanContext) -> tuple[AnyStep, ...]:
    """What must be written before the guest starts; the content stays in the annotation."""
    if ignition_config(context.annotations) is None:
        return ()
    facts = context.facts
    return (
        WriteIgnition(
            owner=context.allocations.uid,
            path=context.paths.ignition,
            uid=facts.qemu_uid,
            gid=facts.qemu_gid,
        ),
    )
