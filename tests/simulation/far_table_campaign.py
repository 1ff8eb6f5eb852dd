"""Many lives of a cluster with a far table: `python -m tests.simulation.far_table_campaign --seeds 1000`.

Exit code 0 when every promise was kept in every life, 1 otherwise; each broken seed is printed and can be repeated with
`--seed N --seeds 1 --verbose`. With `--plant NAME` a bug is planted, and 0 means that it was caught; `--plant all` plants each one.
"""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from contextlib import nullcontext

from tests.simulation.far_table.life import live
from tests.simulation.far_table.planted import PLANTS


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.far_table_campaign", description=__doc__)
    parser.add_argument("--seeds", type=int, default=200, help="how many lives")
    parser.add_argument("--seed", type=int, default=0, help="the first one")
    parser.add_argument("--plant", choices=[*PLANTS, "all"], help="a bug that has to be caught within so many lives")
    parser.add_argument("--verbose", action="store_true", help="print what happened, and tracebacks")
    options = parser.parse_args(arguments)
    if options.plant is not None:
        names = list(PLANTS) if options.plant == "all" else [options.plant]
        return max([_caught(name, options.seed, options.seeds) for name in names])
    return _campaign(options.seed, options.seeds, verbose=options.verbose)


def _campaign(first: int, count: int, *, verbose: bool) -> int:
    begin = time.process_time()
    broken = rows = promoted = recalled = crashes = 0
    for seed in range(first, first + count):
        verdict = live(seed, is_told=verbose)
        rows, promoted = rows + verdict.rows, promoted + verdict.promoted
        recalled, crashes = recalled + verdict.recalled, crashes + verdict.crashes
        if verdict.problem is not None:
            broken += 1
            print(f"seed {seed}: {type(verdict.problem).__name__}: {verdict.problem}"[:400], flush=True)
        if verbose:
            print("\n".join(verdict.history))
            traceback.print_exception(verdict.problem)
    seconds = time.process_time() - begin
    print(
        f"{count} lives, {broken} broken, {rows} rows, {promoted} promoted, {recalled} recalled, {crashes} crashes, "
        f"{seconds:.1f} s of CPU"
    )
    return 1 if broken else 0


def _caught(name: str, first: int, count: int) -> int:
    plant = PLANTS.get(name, nullcontext)
    with plant():
        for seed in range(first, first + count):
            verdict = live(seed, is_rough=True)
            if verdict.problem is not None:
                print(f"{name}: seed {seed}: {verdict.problem}"[:200], flush=True)
                return 0
    print(f"{name}: not caught in {count} lives", flush=True)
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
