"""A synchronous pair whose processes and link fail: `python -m tests.chaos.pair_campaign --seeds 10 --seed 1`; with `--brokers 3` a master
and two slaves.

Prints an account of each seed. Exit code 0 when every promise was kept, 1 otherwise; with `--plant BUG` it should be 1.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.chaos.faulty_run import play
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
    return play(options, lambda directory, seed: PairRun(directory, seed, options.plant, brokers=options.brokers))


if __name__ == "__main__":
    sys.exit(main())
