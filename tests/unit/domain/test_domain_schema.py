# SPDX-License-Identifier: Apache-2.0
"""Every example of this repository, translated, against a RELAX NG schema of libvirt.

``make schema-check SCHEMAS=DIR`` takes the schemas of a newer libvirt and translates for the newest one;
without it, those that are installed here, for the libvirt that is installed here. ``MANIFESTS=DIR`` adds
manifests of one's own. libvirt's schemas are not part of this repository: theirs is another
licence.
"""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

import libvirt
import pytest
from lxml import etree
from msgspec.structs import replace

from launcher.cli.documents import split
from launcher.domain.build import build
from launcher.domain.translate import assume, named, stand_ins
from launcher.errors import HostUnsupported
from launcher.explain.corpus import EXAMPLES, manifest_text
from launcher.plan.allocations import ClaimPlace
from launcher.plan.make import make_plan
from launcher.plan.volumes import claim_name
from launcher.spec.defaults import apply_defaults
from launcher.spec.load import load_manifests
from launcher.spec.model import VirtualMachineInstance
from launcher.spec.rules import check

ROOT = Path(__file__).parents[3]
GIVEN = os.environ.get("LAUNCHER_LIBVIRT_SCHEMAS", "")
SCHEMAS = Path(GIVEN or "/usr/share/libvirt/schemas")
OWN = os.environ.get("LAUNCHER_MANIFESTS", "")
INSTALLED = libvirt.getVersion()

GOLDEN = sorted(path.parent.name for path in (ROOT / "tests/golden").glob("*/vmi.yaml"))
MANIFESTS = {
    **{f"golden/{case}": ROOT / "tests/golden" / case / "vmi.yaml" for case in GOLDEN},
    **{f"examples/{path.name}": path for path in sorted((ROOT / "examples").glob("*.yaml"))},
    **({path.name: path for path in sorted(Path(OWN).glob("*.yaml"))} if OWN else {}),
}


@cache
def schema() -> etree.RelaxNG:
    file = SCHEMAS / "domain.rng"
    assert file.exists(), f"{file} is missing: install libvirt-daemon, or set LAUNCHER_LIBVIRT_SCHEMAS"
    return etree.RelaxNG(etree.parse(file))


def assert_valid(text: str) -> None:
    checked = schema()
    assert checked.validate(etree.fromstring(text)), f"{checked.error_log}\n{text}"


def instances(text: str) -> list[VirtualMachineInstance]:
    wanted = [part.text for part in split(text) if part.kind in ("VirtualMachineInstance", "VirtualMachine")]
    objects = [loaded.obj for part in wanted for loaded in load_manifests(part)]
    return [obj for obj in objects if isinstance(obj, VirtualMachineInstance)]


def document(vmi: VirtualMachineInstance) -> str | None:
    """The domain XML on a host that has everything, by the libvirt of the schemas; None: that lacks words."""
    assumed = assume(vmi)
    full = apply_defaults(named(vmi), assumed.defaults)
    assert check(vmi, settings=assumed.defaults, defaulted=full) == ()
    facts = assumed.facts if GIVEN else replace(assumed.facts, libvirt_version=INSTALLED)
    picked = stand_ins(full, assumed)
    luns = {disk.name for disk in full.spec.domain.devices.disks if disk.lun is not None}
    claims = {claim_name(volume): volume.name in luns for volume in full.spec.volumes}
    names = [nic.name for nic in full.spec.domain.devices.interfaces]
    picked = replace(
        picked,
        claims={
            claim: ClaimPlace(path=f"/claims/{claim}", block=block)
            for claim, block in claims.items()
            if claim
        },
        taps={name: f"tap{number}" for number, name in enumerate(names)},
        macs={name: f"02:00:00:00:00:{number:02x}" for number, name in enumerate(names)},
    )
    try:
        return build(make_plan(full, facts, picked, assumed.settings))
    except HostUnsupported:
        if GIVEN:
            raise  # the newest libvirt has words for everything
        return None


if GIVEN:  # those that an older libvirt cannot have are among them

    @pytest.mark.parametrize("case", GOLDEN)
    def test_golden_documents(case: str) -> None:
        assert_valid((ROOT / "tests/golden" / case / "domain.xml").read_text())


@pytest.mark.parametrize("name", MANIFESTS)
def test_manifests(name: str) -> None:
    for vmi in instances(MANIFESTS[name].read_text()):
        text = document(vmi)
        if text is not None:
            assert_valid(text)


@pytest.mark.parametrize("name", EXAMPLES)
def test_examples_of_every_field(name: str) -> None:
    for vmi in instances(manifest_text(name)):
        if check(vmi) == ():
            text = document(vmi)
            if text is not None:
                assert_valid(text)


def test_not_everything_was_refused() -> None:
    texts = [document(vmi) for path in MANIFESTS.values() for vmi in instances(path.read_text())]
    assert sum(text is not None for text in texts) >= 15
