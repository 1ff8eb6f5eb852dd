"""All states that three members, some records and some changes of the view can come into, in whatever order things happen.

    python -m tests.property.group_states --records 1 --changes 2 --powers 0 --gives-up 0 --states-max 0
    python -m tests.property.group_states --records 2 --changes 1 --powers 0 --gives-up 0 --plant cut_by_length

The group begins with everybody in sync behind its first leader (`group_world`), and each move that is possible is tried
(`group_moves`). What is written is on the disk at once where no power is lost.
"""

from __future__ import annotations

import argparse
import sys
import time
from contextlib import nullcontext
from typing import Any, NamedTuple

from tests.property.group_account import BrokenGroup
from tests.property.group_bugs import BUGS
from tests.property.group_moves import moves_of, settled
from tests.property.group_world import Bounds, World


class Walked(NamedTuple):
    states: int
    steps: int


def walk(bounds: Bounds, *, states_max: int = 0) -> Walked:
    """Every state once. BrokenGroup with the way to the state in which something does not hold."""
    begin = settled(bounds)
    seen = {begin.key()}
    todo: list[tuple[World, tuple[Any, ...]]] = [(begin, ())]
    taken = 0
    while todo:
        world, way = todo.pop()
        for what, move in moves_of(world):
            taken += 1
            after = world.copied()
            try:
                move(after)
            except BrokenGroup as broken:
                raise BrokenGroup(f"{broken}; the way there: {'; '.join(_way((what, way)))}") from None
            after.forget()
            key = after.key()
            if key not in seen:
                seen.add(key)
                todo.append((after, (what, way)))
        if states_max and len(seen) >= states_max:
            break
    return Walked(len(seen), taken)


def _way(way: tuple[Any, ...]) -> list[str]:
    words: list[str] = []
    while way:
        what, way = way
        words.insert(0, what)
    return words


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.property.group_states", description=__doc__)
    for name, value in Bounds()._asdict().items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=int, default=value)
    parser.add_argument("--states-max", type=int, default=100_000, help="stop there; 0: never")
    parser.add_argument("--plant", choices=list(BUGS), default=None)
    options = vars(parser.parse_args(arguments))
    plant, states_max, begin = options.pop("plant"), options.pop("states_max"), time.process_time()
    with BUGS[plant]() if plant else nullcontext():
        walked = walk(Bounds(**options), states_max=states_max)
    is_all = not states_max or walked.states < states_max
    seconds, which = time.process_time() - begin, "all" if is_all else "the first"
    print(f"{which} {walked.states} states, {walked.steps} steps between them, {seconds:.0f} s of CPU")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
