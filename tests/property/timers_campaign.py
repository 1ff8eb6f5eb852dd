"""Many lives with figures: `python -m tests.property.timers_campaign --seeds 1000`.

Exit code 0 when every promise was kept in every life, 1 otherwise; each broken seed is printed and can be repeated with
`--seed N --seeds 1 --verbose`.
"""

from __future__ import annotations

import argparse
import sys
import time
import traceback

from tests.property.timer_life import STEPS, run


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.property.timers_campaign", description=__doc__)
    parser.add_argument("--seeds", type=int, default=200, help="how many lives")
    parser.add_argument("--seed", type=int, default=0, help="the first one")
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--near", action="store_true", help="without a far tier")
    parser.add_argument("--verbose", action="store_true", help="print steps and tracebacks")
    options = parser.parse_args(arguments)
    make_tier = None
    if not options.near:
        from orbitmq.timing.far.arrow_tier import ArrowTier

        def make_tier(root):  # type: ignore[no-untyped-def]
            return ArrowTier(str(root))

    begin = time.monotonic()
    broken = messages = 0
    for seed in range(options.seed, options.seed + options.seeds):
        verdict = run(seed, make_tier, options.steps)
        messages += verdict.messages
        if verdict.problem is not None:
            broken += 1
            print(f"seed {seed}: {type(verdict.problem).__name__}: {verdict.problem}"[:400], flush=True)
            if options.verbose:
                print("\n".join(verdict.steps))
                traceback.print_exception(verdict.problem)
    seconds = time.monotonic() - begin
    print(
        f"{options.seeds} lives, {broken} broken, {messages} messages, {seconds:.1f} s, "
        f"{options.seeds / seconds:.2f} lives per second"
    )
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
