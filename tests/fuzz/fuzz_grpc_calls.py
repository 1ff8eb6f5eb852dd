"""Fuzzer of whole calls of RocketMQ 5. Run: `python tests/fuzz/fuzz_grpc_calls.py --count 1000000 --seed 7`.

Requests of every RPC with strange fields, or strange bytes, come to the front end of a broker that lives on; `tests/worlds/grpc_fuzzing.py`
says what has to hold. It is told how calls ended.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from pathlib import Path

from mutations import peak_kib

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.worlds.grpc_fuzzing import run_calls

CALLS_OF_A_WORLD = 10_000
MEMORY_KIB_MAX = 400 * 1024


def main() -> int:
    options = argparse.ArgumentParser(description="fuzz the front end of RocketMQ 5")
    options.add_argument("--count", type=int, default=100_000)
    options.add_argument("--seed", type=int, default=1)
    arguments = options.parse_args()
    started = time.perf_counter()
    outcomes = Counter(run_calls(arguments.seed, arguments.count, CALLS_OF_A_WORLD))
    by_end: Counter[str] = Counter()
    for outcome, times in outcomes.items():
        by_end[outcome.partition(" ")[2]] += times
    figures = ", ".join(f"{end} {times}" for end, times in sorted(by_end.items()))
    seconds = time.perf_counter() - started
    print(f"calls of gRPC (seed {arguments.seed}): {arguments.count} inputs in {seconds:.1f} s: {figures}")
    used = peak_kib()
    print(f"calls of gRPC: at most {used // 1024} MiB of memory")
    assert used < MEMORY_KIB_MAX, "calls left something behind"
    return 0


if __name__ == "__main__":
    sys.exit(main())
