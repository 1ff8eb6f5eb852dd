"""A synchronous pair whose processes and link fail: `python -m tests.chaos.pair_campaign --seeds 10 --seed 1`; with `--brokers 3` a master
and two slaves.

Prints an account of each seed. Exit code 0 when every promise was kept, 1 otherwise; with `--plant BUG` it should be 1.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tests.chaos.pair_bugs import PLANTED
from tests.chaos.pair_run import Disaster, PairRun


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1, help="the first")
    parser.add_argument("--disasters", type=int, default=26, help="of each seed")
    parser.add_argument(
        "--brokers", type=int, choices=(2, 3), default=2, help="with 3, exchanges of roles and what kills"
    )
    parser.add_argument("--of", nargs="+", choices=[one.name for one in Disaster], help="only these disasters")
    parser.add_argument("--plant", choices=sorted(PLANTED), help="run with a bug that must be caught")
    parser.add_argument("--keep", type=Path, help="where the directories of broken seeds stay")
    options = parser.parse_args(arguments)
    broken = 0
    for seed in range(options.seed, options.seed + options.seeds):
        began = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="orbitmq-pair-", ignore_cleanup_errors=True) as directory:
            run = PairRun(Path(directory), seed, options.plant, brokers=options.brokers)
            asyncio.run(run.run(run.drawn(options.disasters, options.of)))
            if run.findings and options.keep:
                shutil.copytree(directory, options.keep / f"seed-{seed}", dirs_exist_ok=True)
        print(f"{run.summary()}; {time.monotonic() - began:.0f} s", flush=True)
        for finding in run.findings:
            print(f"  BROKEN: {finding}", flush=True)
        broken += bool(run.findings)
    print(f"{options.seeds} seeds from {options.seed}: {broken} broken")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
