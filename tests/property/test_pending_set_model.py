"""The pending set of the timers alone against a sorted list that is read from the log.

Whatever happens: nothing leaves early, twice or out of order, everything leaves, nobody's message is cancelled or moved unasked, and what
the timers show, count and keep from retention is what the log says. See `pending_set_account` for the promises and `pending_set_life` for
what happens. Many lives with figures: `python -m tests.property.test_pending_set_model --steps 1000000`.
"""

from __future__ import annotations

import argparse
import sys
import time
from typing import NamedTuple

from tests.crash.harness import quiet, scratch
from tests.property.pending_set_life import Life, little_at_a_time

STEPS = 40
"""Of one life."""


class Verdict(NamedTuple):
    seed: int
    problem: Exception | None
    steps: list[str]


def run(seed: int, steps: int = STEPS) -> Verdict:
    """One life. An exception of any kind is its problem."""
    life: Life | None = None
    problem: Exception | None = None
    with scratch() as base, quiet(), little_at_a_time():
        try:
            life = Life(seed, base)
            life.live(steps)
        except Exception as error:
            problem = error
    return Verdict(seed, problem, [] if life is None else life.steps)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.property.test_pending_set_model")
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
                import traceback

                print("\n".join(verdict.steps))
                traceback.print_exception(verdict.problem)
    print(f"{lives * STEPS} steps in {lives} lives, {broken} broken, {time.monotonic() - begin:.0f} s")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
