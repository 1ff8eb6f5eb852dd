"""Many lives of the pending set with figures: `python -m tests.property.pending_set_campaign --steps 1000000`.

Exit code 0 when every promise was kept in every life, 1 otherwise; each broken seed is printed and can be repeated with
`--seed N --steps 40 --verbose`. 4 ms a step.
"""

from __future__ import annotations

import argparse
import sys
import time
import traceback

from tests.property.pending_set_life import STEPS, run


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.property.pending_set_campaign", description=__doc__)
    parser.add_argument("--steps", type=int, default=10_000, help="in all lives together")
    parser.add_argument("--seed", type=int, default=0, help="of the first life")
    parser.add_argument("--verbose", action="store_true", help="print what happened in a broken life")
    options = parser.parse_args(arguments)
    begin, broken = time.monotonic(), 0
    lives = -(-options.steps // STEPS)
    for seed in range(options.seed, options.seed + lives):
        verdict = run(seed)
        if verdict.problem is not None:
            broken += 1
            print(f"seed {seed}: {type(verdict.problem).__name__}: {verdict.problem}"[:600], flush=True)
            if options.verbose:
                print("\n".join(verdict.steps))
                traceback.print_exception(verdict.problem)
    print(f"{lives * STEPS} steps in {lives} lives, {broken} broken, {time.monotonic() - begin:.0f} s")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
