"""A replicated group whose processes, links and engine fail: `python -m tests.chaos.group_campaign --seeds 10 --seed 1`; with `--members 2`
or 5 as many brokers.

Prints an account of each seed. Exit code 0 when every promise was kept, 1 otherwise; with `--plant BUG` it should be 1.
"""

from __future__ import annotations

import argparse
import logging
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.chaos.faulty_run import play
from tests.chaos.group_bugs import PLANTED
from tests.chaos.group_run import Disaster, GroupRun


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1, help="the first")
    parser.add_argument("--disasters", type=int, default=len(Disaster), help="of each seed")
    parser.add_argument("--members", type=int, choices=(2, 3, 5), default=3)
    parser.add_argument("--ack", choices=("disk", "memory"), help="replicationAck; else by the seed")
    parser.add_argument("--of", nargs="+", choices=[one.name for one in Disaster], help="only these disasters")
    parser.add_argument("--plant", choices=sorted(PLANTED), help="run with a bug that must be caught")
    parser.add_argument("--keep", type=Path, help="where the directories of broken seeds stay")
    options = parser.parse_args(arguments)
    if options.keep is None and options.plant is None:
        options.keep = Path(tempfile.gettempdir()) / "orbitmq-group"
    return play(
        options,
        lambda directory, seed: GroupRun(
            directory,
            seed,
            options.plant,
            members=options.members,
            ack=options.ack,
            reads_in_order=options.plant is None,
        ),
    )


if __name__ == "__main__":
    logging.basicConfig(level=logging.ERROR)  # clients say a lot of brokers that are away
    sys.exit(main())
