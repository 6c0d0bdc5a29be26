# SPDX-License-Identifier: Apache-2.0
"""A plan written down as libvirt's domain XML. Pure; everything is decided in ``launcher.plan`` already."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from launcher.domain.boot import boot
from launcher.domain.clock import clock
from launcher.domain.commandline import commandline
from launcher.domain.cpu import cpu
from launcher.domain.cputune import cputune
from launcher.domain.devices import DEVICES
from launcher.domain.element import E, Element, to_text
from launcher.domain.features import features
from launcher.domain.identity import identity
from launcher.domain.iothreads import iothreads
from launcher.domain.launch_security import launch_security
from launcher.domain.lifecycle import lifecycle
from launcher.domain.memory import memory
from launcher.domain.memory_backing import memory_backing
from launcher.domain.metadata import metadata
from launcher.domain.numatune import numatune
from launcher.domain.sysinfo import sysinfo
from launcher.domain.vcpu import vcpu
from launcher.plan.model import VMPlan

Builder = Callable[[VMPlan], Iterator[Element]]

# The order of the document, which is the order in which libvirt prints it.
DOMAIN: tuple[Builder, ...] = (
    identity,
    metadata,
    memory,
    memory_backing,
    vcpu,
    iothreads,
    cputune,
    numatune,
    sysinfo,
    boot,
    features,
    cpu,
    clock,
    lifecycle,
)
AFTER_DEVICES: tuple[Builder, ...] = (launch_security, commandline)


def build(plan: VMPlan) -> str:
    """The domain XML of ``plan``; the same plan always gives the same bytes.

    Raises:
        InvalidSpec: a value of the manifest holds characters that XML cannot.
    """
    emulator = E("emulator", plan.identity.emulator) if plan.identity.emulator else None
    return to_text(
        E(
            "domain",
            *_nodes(DOMAIN, plan),
            E("devices", emulator, *_nodes(DEVICES, plan)),
            *_nodes(AFTER_DEVICES, plan),
            type=plan.identity.virt,
        )
    )


def _nodes(builders: tuple[Builder, ...], plan: VMPlan) -> Iterator[Element]:
    return (node for builder in builders for node in builder(plan))
