# SPDX-License-Identifier: Apache-2.0
"""``make fuzz``: very many manifests, in bounded memory. Stops at the first that misbehaves."""

from __future__ import annotations

import argparse
import resource
import sys
import time
from collections import Counter
from hashlib import sha256
from random import Random
from typing import Any

from fuzz_examination import examine, outcome
from fuzz_mutation import mutated, written

MEBIBYTE = 2**20
# Peak memory may grow by this much after the first manifests: caches fill, the allocator keeps some.
ALLOWED_GROWTH_MIB = 128
WARM_UP = 2000
SHOW_EACH = 10_000


def case(number: int) -> tuple[str | bytes | dict[str, Any], Random]:
    """The manifest with a number: a text or, each seventh time, data as a gRPC call brings it."""
    random = Random(number)
    value = mutated(random)
    if number % 7 == 0 and isinstance(value, dict):
        return value, random
    return written(value, random), random


def digest(count: int) -> str:
    """One word for what becomes of the first manifests."""
    found = sha256()
    for number in range(count):
        found.update(repr(outcome(*case(number))).encode())
    return found.hexdigest()


def main() -> int:
    """Examine manifests until all are done or one misbehaves; print what became of them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0, help="number of the first manifest")
    asked = parser.parse_args()
    outcomes: Counter[str] = Counter()
    slowest = (0.0, 0)
    settled = 0.0
    for done, number in enumerate(range(asked.seed, asked.seed + asked.count), start=1):
        start = time.process_time()
        try:
            outcomes[examine(*case(number))] += 1
        except Exception:
            print(f"\nmanifest {number} misbehaves; again with --seed {number} --count 1", file=sys.stderr)
            print(repr(case(number)[0])[:4000], file=sys.stderr)
            raise
        slowest = max(slowest, (time.process_time() - start, number))
        if done == min(WARM_UP, asked.count):
            settled = _peak_mib()
        if done % SHOW_EACH == 0:
            print(f"{done}: {dict(outcomes)}, peak {_peak_mib():.0f} MiB", flush=True)
    growth = _peak_mib() - settled
    print(f"{asked.count} manifests: {dict(outcomes)}")
    print(f"slowest {slowest[0] * 1000:.0f} ms (manifest {slowest[1]})")
    print(f"peak memory {_peak_mib():.0f} MiB, {growth:.0f} MiB of them after the first {WARM_UP} manifests")
    if growth > ALLOWED_GROWTH_MIB:
        print(f"error: memory grew by more than {ALLOWED_GROWTH_MIB} MiB", file=sys.stderr)
        return 1
    return 0


def _peak_mib() -> float:
    # ru_maxrss is in KiB on Linux (getrusage(2)).
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / MEBIBYTE


if __name__ == "__main__":
    sys.exit(main())
