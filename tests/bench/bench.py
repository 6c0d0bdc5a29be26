# SPDX-License-Identifier: Apache-2.0
"""``make bench``: how many manifests one core turns into domain XML, and what else costs time or memory.

Prints numbers and asserts none: they belong to the machine. Times are CPU times, so that what else runs on it
disturbs them little; the best run says most about the code, the median about the machine.
"""

from __future__ import annotations

import platform
import tempfile
from collections.abc import Callable
from itertools import cycle
from pathlib import Path
from typing import Any

import manifests
from measure import measure, memory_after, memory_of_idle_agent, pin

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
    print(f"\n{'':50}{'best/s':>12}{'median/s':>12}{'best':>14}")
    for name, text in (
        ("typical VMI", manifests.typical()),
        ("large VMI (20 disks, 8 NICs, 64 vCPUs)", manifests.large()),
        ("large VMI, dedicated CPUs", manifests.large(pinned=True)),
    ):
        translation(name, text)
    refusal()
    whole = manifests.of_a_mebibyte()
    _line("1 MiB of JSON, translated", lambda: translate(load_vmi(whole)))
    yaml_text = manifests.as_yaml(whole)
    _line("1 MiB of YAML, translated", lambda: translate(load_vmi(yaml_text)))
    small = ("2Gi", "1500m", "10G", "128Mi", "4")
    _line("quantities that were seen before (5)", lambda: [Quantity(text) for text in small])
    # More than the cache holds, in an order in which it never helps.
    amounts = cycle(AMOUNTS)
    _line("a quantity that was not", lambda: Quantity(next(amounts)))
    for name in POLICIES:
        decisions(name)
    memory()


def translation(name: str, text: str) -> None:
    """A whole translation as ``launcherctl translate`` and the agent do it, then each stage alone."""
    vmi = load_vmi(text)
    assumed = assume(vmi)
    full = apply_defaults(vmi, assumed.defaults)
    picked = stand_ins(full, assumed)
    plan = make_plan(full, assumed.facts, picked, assumed.settings)
    yaml_text = manifests.as_yaml(text)
    _line(f"{name}: JSON in, XML out", lambda: translate(load_vmi(text)))
    _line("  the same from YAML", lambda: translate(load_vmi(yaml_text)))
    _line("  load", lambda: load_vmi(text))
    _line("  defaults", lambda: apply_defaults(vmi, assumed.defaults))
    _line("  rules", lambda: check(vmi, settings=assumed.defaults, defaulted=full))
    _line("  plan", lambda: make_plan(full, assumed.facts, picked, assumed.settings))
    _line(f"  build ({len(build(plan))} bytes)", lambda: build(plan))


def refusal() -> None:
    """A manifest with a mistake on a line of its own, found with its place."""
    wrong = manifests.as_yaml(manifests.typical()).replace("cores: 2", "coers: 2")

    def refuse() -> None:
        try:
            load_vmi(wrong)
        except InvalidSpec:
            return
        raise AssertionError("a wrong manifest was accepted")

    _line("typical VMI with a typing error, refused", refuse)


def decisions(name: str) -> None:
    """One decision of a migration policy, averaged over a migration that does not converge."""
    pages = (Pages(size=2 * 10**9), Pages(size=10**9, write_bps=200e6))
    policy = make_policy(name, Options(), Workload(memory_bytes=3 * 10**9))
    samples = simulate(Scenario(pages=pages, link_bps=100e6, limit_s=400), policy).samples
    _line(f"decisions of policy {name}", lambda: _replay(policy, samples), each=len(samples))


def memory() -> None:
    """What processes of ours occupy."""
    print(f"\n{'resident memory after import':50}{'MiB':>12}")
    for name, statement in MEMORY:
        print(f"{name:50}{memory_after(statement):12.1f}")
    with tempfile.TemporaryDirectory() as scratch:
        print(f"{'launcherd, idle':50}{memory_of_idle_agent(Path(scratch)):12.1f}")


def _replay(policy: Any, samples: tuple[Sample, ...]) -> None:
    state = policy.initial()
    for sample in samples:
        state = policy.step(state, sample).state


def _line(name: str, call: Callable[[], object], *, each: int = 1) -> None:
    timing = measure(call)
    best_s, median_s = timing.best_s / each, timing.median_s / each
    shown = f"{best_s * 1e3:11.2f} ms" if best_s >= 1e-3 else f"{best_s * 1e6:11.1f} µs"
    print(f"{name:50}{1 / best_s:12.0f}{1 / median_s:12.0f}{shown}", flush=True)


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else ():
        name, _, value = line.partition(":")
        if name.strip() in ("model name", "Model"):
            return value.strip()
    return platform.machine()


if __name__ == "__main__":
    main()
