"""Many lives of transactions, of popped messages, over remoting or over gRPC too, of sends over gRPC, of copies or of groups in a
model, or of pairs of brokers or members of groups with real stores, with figures:
`python -m tests.property.lives_campaign --of pop --lives 1000`.

Exit code 0 when both accounts agreed in every life, 1 otherwise; each broken seed is printed and can be repeated with
`--seed N --lives 1`. A life takes 0.1 s, of a pair 0.4 s, of a group 0.025 s, of members with stores 0.5 s.
"""

from __future__ import annotations

import argparse
import sys
import time
from contextlib import nullcontext
from functools import partial

from tests.crash import test_grpc_sends
from tests.property import (
    group_bugs,
    group_life,
    member_bugs,
    member_life,
    networked_life,
    pair_bugs,
    pair_life,
    replica_life,
    test_pop_life,
    test_receive_life,
    test_transactions_life,
)

LIVES = {
    "pop": test_pop_life.run,
    "receives": test_receive_life.live,
    "groups": group_life.live,
    "members": partial(networked_life.live, member_life.Life),
    "pairs": partial(networked_life.live, pair_life.Life),
    "replicas": replica_life.run,
    "sends": test_grpc_sends.run,
    "transactions": test_transactions_life.run,
}
"""The models; their planted bugs are caught beside them, in the suite."""

BUGS = {"members": member_bugs.BUGS, "pairs": pair_bugs.BUGS, "groups": group_bugs.BUGS}


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.property.lives_campaign", description=__doc__)
    parser.add_argument("--of", choices=list(LIVES), required=True)
    parser.add_argument("--lives", type=int, default=200, help="how many")
    parser.add_argument("--seed", type=int, default=0, help="the first one")
    parser.add_argument("--length", type=int, default=1, help="how much longer than in the suite")
    parser.add_argument("--plant", help="a bug that the lives have to notice (of groups, members and pairs)")
    options = parser.parse_args(arguments)
    begin, broken = time.monotonic(), 0
    planted = BUGS[options.of][options.plant]() if options.plant else nullcontext()
    with planted:
        for seed in range(options.seed, options.seed + options.lives):
            try:
                LIVES[options.of](seed, options.length)
            except Exception as problem:
                broken += 1
                print(f"seed {seed}: {type(problem).__name__}: {problem}"[:400], flush=True)
    print(f"{options.lives} lives of {options.of}, {broken} broken, {time.monotonic() - begin:.0f} s")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
