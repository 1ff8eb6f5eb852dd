"""Many crashes with figures: `python -m tests.crash.campaign --mode kill|power|both --flush SYNC_FLUSH --count 500`.

Exit code 0 when every promise was kept after every crash, 1 otherwise; each broken seed is printed and can be repeated
with `--seed N --count 1 --verbose`.
"""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from collections import Counter

from tests.crash.harness import End, Verdict, judge
from tests.crash.planted import PLANTED, planted

from orbitmq.store.settings import FlushDiskType


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.crash.campaign", description=__doc__)
    parser.add_argument("--mode", choices=[end.value for end in End], default="kill")
    parser.add_argument("--flush", choices=[flush.name for flush in FlushDiskType], default="ASYNC_FLUSH")
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--keep", type=float, help="chance of an unsynced page to survive; drawn per seed by default")
    parser.add_argument("--plant", choices=sorted(PLANTED), help="with this bug; the exit code should then be 1")
    parser.add_argument("--verbose", action="store_true", help="print tracebacks")
    options = parser.parse_args(arguments)
    end, flush = End(options.mode), FlushDiskType[options.flush]
    verdicts: list[Verdict] = []
    begin = time.monotonic()
    with planted(options.plant):
        for seed in range(options.seed, options.seed + options.count):
            verdict = judge(end, flush, seed, keep=options.keep)
            verdicts.append(verdict)
            if verdict.problem is not None:
                print(f"seed {seed}, died in {verdict.ended_in or 'no call'}: {describe(verdict.problem)}")
                if options.verbose:
                    traceback.print_exception(verdict.problem)
    seconds = time.monotonic() - begin
    broken = sum(verdict.problem is not None for verdict in verdicts)
    print(
        f"{end.value}, {flush.name}: {len(verdicts)} crashes, {broken} broken, "
        f"{sum(v.acknowledged for v in verdicts)} messages acknowledged, {sum(v.calls for v in verdicts)} calls, "
        f"{seconds:.1f} s"
    )
    kinds = Counter(verdict.ended_in.partition(" ")[0] or "lived on" for verdict in verdicts)
    print("died in: " + ", ".join(f"{kind} {count}" for kind, count in kinds.most_common()))
    return 1 if broken else 0


def describe(problem: Exception) -> str:
    return f"{type(problem).__name__}: {problem}"[:400]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
