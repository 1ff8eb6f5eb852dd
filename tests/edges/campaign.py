"""One server at its edges: `python -m tests.edges.campaign --rounds 20 --seed 7`.

A round runs every edge once, each with a store of its own and chance from the seed. Every edge prints what it did and its account:
every send, every answer, every message. Exit code 0 when every promise was kept that is not in `KNOWN`, 1 otherwise; an edge that
cannot run here says why and is counted. `--plant NAME` runs with a bug, in the edge that has to catch it; the exit code should then
be 1.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from tests.edges.clock_jumps import clock_jumps
from tests.edges.cold_reads import full_worker, idle_readers
from tests.edges.descriptors import descriptors
from tests.edges.failing_calls import failing_reads, failing_writes
from tests.edges.faults import NoCompilerError
from tests.edges.full_disk import full_disk
from tests.edges.full_scopes import full_scopes
from tests.edges.planted import PLANTED
from tests.edges.repeats import repeats
from tests.edges.run import CannotRunError, EdgeRun
from tests.edges.saved_offsets import saved_offsets, synced_sends
from tests.edges.single_reads import single_reads

EDGES: Final[dict[str, Callable[[EdgeRun], None]]] = {
    edge.__name__: edge
    for edge in (
        full_disk,
        failing_reads,
        single_reads,
        failing_writes,
        descriptors,
        idle_readers,
        full_worker,
        clock_jumps,
        saved_offsets,
        synced_sends,
        repeats,
        full_scopes,
    )
}

KNOWN: Final[dict[str, str]] = {}
"""Edges at which the server is known to fail, with the reason."""


class Outcome(NamedTuple):
    edge: str
    findings: list[str]
    notes: list[str]
    account: str
    seconds: float
    cannot: str = ""
    """Why the edge could not be run here."""


def judge(edge: str, seed: int, plant: str | None = None, *, verbose: bool = False) -> Outcome:
    """One run of one edge."""
    began = time.monotonic()
    run = EdgeRun(Path(tempfile.mkdtemp(prefix=f"edge-{edge}-")), seed, plant)
    cannot = ""
    try:
        EDGES[edge](run)
    except (CannotRunError, NoCompilerError) as error:
        cannot = str(error)
    except Exception as error:
        if verbose:
            traceback.print_exc()
        run.findings.append(f"{type(error).__name__}: {str(error)[-600:]}")
    finally:
        run.close()
    return Outcome(edge, run.judgement(), run.notes, run.account.summary(), time.monotonic() - began, cannot)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.edges.campaign", description=__doc__)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0, help="of the first round")
    parser.add_argument("--edge", choices=sorted(EDGES), action="append", help="only this one; may be repeated")
    parser.add_argument("--plant", choices=sorted(PLANTED), help="with this bug; the exit code should then be 1")
    parser.add_argument("--verbose", action="store_true", help="print tracebacks")
    options = parser.parse_args(arguments)
    edges = options.edge or ([PLANTED[options.plant].edge] if options.plant else list(EDGES))
    broken = skipped = 0
    for seed in range(options.seed, options.seed + options.rounds):
        for edge in edges:
            outcome = judge(edge, seed, options.plant, verbose=options.verbose)
            broken += bool(outcome.findings) and (options.plant is not None or edge not in KNOWN)
            skipped += bool(outcome.cannot)
            show(outcome, seed)
    print(f"{options.rounds} rounds from seed {options.seed}: {broken} broken, {skipped} that could not run here")
    return 1 if broken else 0


def show(outcome: Outcome, seed: int) -> None:
    known = f", as is known: {KNOWN[outcome.edge]}" if outcome.edge in KNOWN else ""
    state = f"BROKEN{known}" if outcome.findings else f"not run: {outcome.cannot}" if outcome.cannot else "kept"
    print(f"{outcome.edge}, seed {seed}, {outcome.seconds:.1f} s: {state}")
    for note in outcome.notes:
        print(f"    {note}")
    print(f"    {outcome.account}")
    for finding in outcome.findings:
        print(f"    BROKEN: {finding}")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
