"""Everything that follows from a seed, with fresh seeds, for a given time: `python -m tests.exploring.explore --seconds 28800`.

The seeds of the suites are fixed, so that a failure there is the change's; what they do not meet is looked for here. One number decides all
seeds, and is printed. What failed is printed with the command that repeats it and, with `--keep`, put into `kept_seeds.txt`,
whose lines the suites run from then on. Exit code 0 when nothing was found, 1 otherwise.

Rules of this file
1. Explorers take turns, shortest use of time first, so that each gets its share however long its pieces take.
2. Time over means that nothing new is begun. A piece that passes its own limit is hung: its processes are shown and ended.
3. A piece that somebody ends from outside has found nothing; neither has the one that runs when the search itself is ended, and that one
   goes with it.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from tests.exploring.explorers import EXPLORERS, Explorer
from tests.processes import show_family

ROOT: Final = Path(__file__).resolve().parents[2]
KEPT: Final = Path(__file__).with_name("kept_seeds.txt")
SEEDS: Final = range(1_000_000, 2**31)
"""Beyond those that the suites use."""

TAIL_LINES: Final = 40

FROM_OUTSIDE: Final = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)
"""What people and machines end processes with. No piece ends itself so; SIGKILL and SIGSEGV are finds, lack of memory among them."""


class Outcome(NamedTuple):
    """One piece of work. problem: empty when nothing was found. ended_by: the signal from outside that ended it."""

    explorer: Explorer
    seed: int
    seconds: float
    problem: str
    ended_by: str = ""


def run(explorer: Explorer, seed: int) -> Outcome:
    """Run one piece in processes of its own, and wait for it."""
    environment = {name: value for name, value in os.environ.items() if name not in ("CI", "PYTEST_XDIST_WORKER")}
    began = time.monotonic()
    process = subprocess.Popen(
        explorer.command(seed),
        cwd=ROOT,
        env=environment | explorer.variables(seed),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
        preexec_fn=_take_a_core_away if explorer.one_core else None,
    )
    ended_by = problem = ""
    try:
        printed, _ = process.communicate(timeout=explorer.limit_s)
        if -process.returncode in FROM_OUTSIDE:
            ended_by = signal.Signals(-process.returncode).name
        elif process.returncode:
            problem = f"exit code {process.returncode}\n{_tail(printed)}"
    except subprocess.TimeoutExpired:
        stacks = show_family(process.pid)
        os.killpg(process.pid, signal.SIGKILL)
        printed, _ = process.communicate()
        problem = f"hung: not over after {explorer.limit_s} s\n{stacks}\n{_tail(printed)}"
    except BaseException:  # the search is ended; a session of its own hears nothing of that
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        raise
    return Outcome(explorer, seed, time.monotonic() - began, problem, ended_by)


def _take_a_core_away() -> None:
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, cores[: max(1, len(cores) - 1)])


def _tail(printed: str) -> str:
    return "\n".join(printed.splitlines()[-TAIL_LINES:])


def explore(explorers: Sequence[Explorer], seed: int, seconds: float, *, keep: bool = False) -> list[Outcome]:
    """Run pieces until the time is over, each explorer at least once if there is time; answers what was found."""
    draw = random.Random(seed)
    ends = time.monotonic() + seconds
    used: Counter[str] = Counter()
    pieces: Counter[str] = Counter()
    found: list[Outcome] = []
    order = draw.sample(list(explorers), len(explorers))
    while time.monotonic() < ends:
        explorer = min(order, key=lambda one: used[one.name])
        outcome = run(explorer, draw.choice(SEEDS))
        used[explorer.name] += int(outcome.seconds * 1000)
        pieces[explorer.name] += 1
        if outcome.ended_by:
            print(f"ended from outside by {outcome.ended_by}: {repeated(outcome)}", flush=True)
        if outcome.problem:
            found.append(outcome)
            print(f"FOUND by {explorer.name}, seed {outcome.seed}: {outcome.problem}", flush=True)
            print(f"repeat it: {repeated(outcome)}", flush=True)
            if keep:
                with KEPT.open("a") as file:
                    print(explorer.name, outcome.seed, file=file)
    for name, count in sorted(pieces.items()):
        print(f"{name}: {count} pieces in {used[name] / 1000:.1f} s", flush=True)
    return found


def repeated(outcome: Outcome) -> str:
    variables = " ".join(f"{name}={value}" for name, value in outcome.explorer.variables(outcome.seed).items())
    return f"{variables} {' '.join(['python', *outcome.explorer.command(outcome.seed)[1:]])}".strip()


def kept_cases(lines: Iterable[str]) -> list[tuple[str, int]]:
    """(explorer, seed) of each line; what follows `#` is its story."""
    words = [line.partition("#")[0].split() for line in lines]
    return [(name, int(seed)) for name, seed in (two for two in words if two)]


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.exploring.explore", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, help="decides everything; another one each time by default")
    parser.add_argument("--quick", action="store_true", help="only what takes seconds a piece")
    parser.add_argument("--only", help="names of explorers, separated by commas")
    parser.add_argument("--keep", action="store_true", help="keep the seeds of what is found as cases of the suites")
    options = parser.parse_args(arguments)
    seed = random.SystemRandom().randrange(2**31) if options.seed is None else options.seed
    chosen = [
        one
        for one in EXPLORERS
        if (one.quick or not options.quick) and (not options.only or one.name in options.only.split(","))
    ]
    if not chosen:
        parser.error(f"no explorer is named so; there are {', '.join(one.name for one in EXPLORERS)}")
    print(f"exploring with seed {seed} for {options.seconds:g} s", flush=True)
    found = explore(chosen, seed, options.seconds, keep=options.keep)
    print(f"seed {seed}: {len(found)} found", flush=True)
    return 1 if found else 0


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    sys.exit(main(sys.argv[1:]))
