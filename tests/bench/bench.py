# SPDX-License-Identifier: Apache-2.0
"""``make bench``: how many manifests one core turns into domain XML, and what else costs time or memory.

Prints numbers and asserts none: they belong to the machine. Times are CPU times, so that what else runs on it
disturbs them little; the best run says most about the code, the median about the machine.
"""

from __future__ import annotations

import platform
import tempfile
from itertools import cycle
from pathlib import Path
from typing import Any

import manifests
import networks
from measure import Case, measure, memory_after, memory_of_idle_agent, pin

from launcher.domain.build import build
from launcher.domain.translate import assume, stand_ins, translate
from launcher.errors import InvalidSpec
from launcher.migration.compose import POLICIES, make_policy
from launcher.migration.options import Options, Workload
from launcher.migration.sample import Sample
from launcher.migration.simulator import Pages, Scenario, simulate
from launcher.plan.make import make_plan
from launcher.spec.defaults import apply_defaults
from launcher.spec.load import load_vmi
from launcher.spec.quantity import Quantity
from launcher.spec.rules import check

AMOUNTS = [f"{number}{suffix}" for number in range(1, 1500) for suffix in ("", "m", "Mi", "Gi", "G")]
MEMORY = (
    ("Python itself", ""),
    ("launcher.domain.translate", "import launcher.domain.translate"),
    ("launcherctl", "import launcher.cli.main"),
    ("launcherd", "import launcher.daemon"),
)


def main() -> None:
    """Print everything."""
    core = pin()
    where = f"pinned to CPU {core}" if core is not None else "not pinned"
    print(f"{platform.python_implementation()} {platform.python_version()}, {_processor()}, {where}")
    cases = [
        *translation("typical VMI", manifests.typical()),
        *translation("large VMI (20 disks, 8 NICs, 64 vCPUs)", manifests.large()),
        *translation("large VMI, dedicated CPUs", manifests.large(pinned=True)),
        refusal(),
        *of_a_mebibyte(),
        *quantities(),
        *(decisions(name) for name in POLICIES),
    ]
    print(f"\n{'':56}{'best/s':>10}{'median/s':>10}{'best':>14}")
    for case, timing in zip(cases, measure(cases), strict=True):
        best_s = timing.best_s
        shown = f"{best_s * 1e3:11.2f} ms" if best_s >= 1e-3 else f"{best_s * 1e6:11.1f} µs"
        print(f"{case.name:56}{1 / best_s:10.0f}{1 / timing.median_s:10.0f}{shown}")
    memory()
    networks.report()


def translation(name: str, text: str) -> list[Case]:
    """A whole translation as ``launcherctl translate`` and the agent do it, then each stage alone."""
    vmi = load_vmi(text)
    assumed = assume(vmi)
    full = apply_defaults(vmi, assumed.defaults)
    picked = stand_ins(full, assumed)
    plan = make_plan(full, assumed.facts, picked, assumed.settings)
    size = len(build(plan))
    yaml_text = manifests.as_yaml(text)
    return [
        Case(name=f"{name}: JSON in, XML out", call=lambda: translate(load_vmi(text))),
        Case(name="  the same from YAML", call=lambda: translate(load_vmi(yaml_text))),
        Case(name="  load", call=lambda: load_vmi(text)),
        Case(name="  defaults", call=lambda: apply_defaults(vmi, assumed.defaults)),
        Case(name="  rules", call=lambda: check(vmi, settings=assumed.defaults, defaulted=full)),
        Case(name="  plan", call=lambda: make_plan(full, assumed.facts, picked, assumed.settings)),
        Case(name=f"  build ({size} bytes)", call=lambda: build(plan)),
    ]


def refusal() -> Case:
    """A manifest with a typing error, found with its place."""
    wrong = manifests.as_yaml(manifests.typical()).replace("cores: 2", "coers: 2")

    def refuse() -> None:
        try:
            load_vmi(wrong)
        except InvalidSpec:
            return
        raise AssertionError("a wrong manifest was accepted")

    return Case(name="typical VMI with a typing error, refused", call=refuse)


def of_a_mebibyte() -> list[Case]:
    """As large as it gets."""
    text = manifests.of_a_mebibyte()
    yaml_text = manifests.as_yaml(text)
    return [
        Case(name="1 MiB of JSON, translated", call=lambda: translate(load_vmi(text))),
        Case(name="1 MiB of YAML, translated", call=lambda: translate(load_vmi(yaml_text))),
    ]


def quantities() -> list[Case]:
    """Amounts that were read before, and more of them than are remembered."""
    known = ("2Gi", "1500m", "10G", "128Mi", "4")
    amounts = cycle(AMOUNTS)
    return [
        Case(name="a quantity that was read before", call=lambda: [*map(Quantity, known)], each=len(known)),
        Case(name="a quantity that was not", call=lambda: Quantity(next(amounts))),
    ]


def decisions(name: str) -> Case:
    """One decision of a migration policy, averaged over a migration that does not converge."""
    pages = (Pages(size=2 * 10**9), Pages(size=10**9, write_bps=200e6))
    policy = make_policy(name, Options(), Workload(memory_bytes=3 * 10**9))
    samples = simulate(Scenario(pages=pages, link_bps=100e6, limit_s=400), policy).samples
    return Case(
        name=f"a decision of the policy {name}", call=lambda: _replay(policy, samples), each=len(samples)
    )


def memory() -> None:
    """What processes of ours occupy."""
    print(f"\n{'resident memory after import':56}{'MiB':>10}")
    for name, statement in MEMORY:
        print(f"{name:56}{memory_after(statement):10.1f}")
    with tempfile.TemporaryDirectory() as scratch:
        print(f"{'launcherd, idle':56}{memory_of_idle_agent(Path(scratch)):10.1f}")


def _replay(policy: Any, samples: tuple[Sample, ...]) -> None:
    state = policy.initial()
    for sample in samples:
        state = policy.step(state, sample).state


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else ():
        name, _, value = line.partition(":")
        if name.strip() in ("model name", "Model"):
            return value.strip()
    return platform.machine()


if __name__ == "__main__":
    main()
