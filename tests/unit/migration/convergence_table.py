# SPDX-License-Identifier: Apache-2.0
"""Print how each policy fares with simulated guests and links: ``make migration-bench`` (SEEDS=N).

time is the mean of total time over the time that one copy takes, bytes that of what was sent over what there
is; down is the downtime in seconds. wrongly: given up although it would have ended in time by itself. broken:
post-copy without a link for more than 10 s. blind: irreversible steps taken over a dead link.
"""

from __future__ import annotations

import argparse

from migration_families import CONSENTS, FAMILIES, converges, play, scenarios, summary

POLICIES = ("standard", "ramp", "classic-legacy", "classic-stall")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=4, help="scenarios of each family")
    parser.add_argument("--family", choices=tuple(FAMILIES), help="only this one")
    given = parser.parse_args()
    drawn = scenarios(given.seeds, (given.family,) if given.family else tuple(FAMILIES))
    ends = [converges(scenario) for _, scenario in drawn]
    print(f"{len(drawn)} scenarios, maxDowntime 900 ms, completion timeout 150 s/GiB")
    header = False
    for consent in CONSENTS:
        for policy in POLICIES:
            row = summary(play(policy, consent, drawn, ends))
            if not header:
                print(f"{'consent':<11} {'policy':<15}" + "".join(f"{name:>10}" for name in row))
                header = True
            print(
                f"{consent:<11} {policy:<15}" + "".join(f"{value:>10}" for value in row.values()), flush=True
            )


if __name__ == "__main__":
    main()
