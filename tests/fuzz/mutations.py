"""Mutational fuzzing of parsers: a seeded source of broken inputs, and the loop that feeds them.

Rules of this file
1. Everything follows from the seed: the same corpus, seed and count give the same inputs, and a failure prints its
   input.
2. A parser under test may raise `OrbitError` (a refusal) and nothing else.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from orbitmq.errors import OrbitError

INTERESTING = (0, 1, 2, 7, 8, 0x7F, 0x80, 0xFF, 0x7FFF, 0x8000, 0xFFFF, 0x7FFFFFFF, 0x80000000, 2**32 - 1, 2**63)
INPUT_BYTES_MAX = 1 << 16


class Mutator:
    """Endless mutations of a corpus. Each input is one entry with one to six changes, some spliced with another
    entry.
    """

    def __init__(self, corpus: Sequence[bytes], seed: int, tokens: Sequence[bytes] = ()) -> None:
        """`tokens` are byte strings that mean something to the parser; they are inserted now and then."""
        if not corpus:
            raise ValueError("a mutator needs at least one input to start from")
        self._corpus = list(corpus)
        self._random = random.Random(seed)
        self._tokens = list(tokens) or [b"\x00"]
        self._changes = (
            self._flip,
            self._set_byte,
            self._set_number,
            self._nudge,
            self._cut,
            self._insert,
            self._remove,
            self._repeat,
            self._token,
            self._splice,
        )

    def next(self) -> bytes:
        """The next input, at most `INPUT_BYTES_MAX` long."""
        rnd = self._random
        data = bytearray(rnd.choice(self._corpus))
        for _ in range(rnd.choice((1, 1, 1, 2, 2, 3, 6))):
            rnd.choice(self._changes)(data)
        del data[INPUT_BYTES_MAX:]
        return bytes(data)

    def _at(self, data: bytearray) -> int:
        # Half of the changes go to the front, where the lengths and codes are.
        length = len(data)
        return self._random.randrange(min(length, 128) if self._random.random() < 0.5 else length) if length else 0

    def _flip(self, data: bytearray) -> None:
        if data:
            data[self._at(data)] ^= 1 << self._random.randrange(8)

    def _set_byte(self, data: bytearray) -> None:
        if data:
            data[self._at(data)] = self._random.randrange(256)

    def _set_number(self, data: bytearray) -> None:
        size = self._random.choice((1, 2, 4, 8))
        number = self._random.choice((*INTERESTING, len(data), len(data) + 1, max(len(data) - 1, 0)))
        at = self._at(data)
        data[at : at + size] = (number & (1 << 8 * size) - 1).to_bytes(size, "big")

    def _nudge(self, data: bytearray) -> None:
        if len(data) >= 4:
            at = min(self._at(data), len(data) - 4)
            number = int.from_bytes(data[at : at + 4], "big") + self._random.randint(-9, 9)
            data[at : at + 4] = (number & 0xFFFFFFFF).to_bytes(4, "big")

    def _cut(self, data: bytearray) -> None:
        del data[self._at(data) :]

    def _insert(self, data: bytearray) -> None:
        at = self._at(data)
        data[at:at] = self._random.randbytes(self._random.choice((1, 2, 4, 16)))

    def _remove(self, data: bytearray) -> None:
        at = self._at(data)
        del data[at : at + self._random.choice((1, 1, 2, 4, 16))]

    def _repeat(self, data: bytearray) -> None:
        at = self._at(data)
        piece = data[at : at + self._random.choice((1, 4, 32))]
        data[at:at] = piece * self._random.choice((1, 2, 8))

    def _token(self, data: bytearray) -> None:
        at = self._at(data)
        token = self._random.choice(self._tokens)
        data[at : at + self._random.choice((0, 0, len(token)))] = token

    def _splice(self, data: bytearray) -> None:
        other = self._random.choice(self._corpus)
        cut = self._random.randrange(len(other) + 1)
        data[self._at(data) :] = other[cut:]


def peak_kib() -> int:
    """The most memory this program had resident. `ru_maxrss` would count the process that started it: the kernel keeps that
    figure across exec."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(status.partition("VmHWM:")[2].split()[0])


def hex_corpus(path: Path) -> list[bytes]:
    """The inputs of a corpus file: one in hexadecimal per line, `#` begins a comment."""
    lines = (line.partition("#")[0].strip() for line in path.read_text(encoding="utf-8").splitlines())
    return [bytes.fromhex(line) for line in lines if line]


def campaign(
    name: str,
    mutator: Mutator,
    parse: Callable[[bytes], str],
    count: int,
    refusals: tuple[type[OrbitError], ...] = (OrbitError,),
) -> Counter[str]:
    """Feeds `count` inputs to `parse`, which names how it ended, and prints the figures.

    An error of `refusals` counts as refused; any other stops the run with its input. A `parse` that checks more than
    "no other error" handles refusals itself and passes none, or a law broken by way of a refusal would go unseen.
    """
    outcomes: Counter[str] = Counter()
    started = time.perf_counter()
    for number in range(count):
        outcomes[_outcome(f"{name}: input {number}", mutator.next(), parse, refusals)] += 1
    seconds = time.perf_counter() - started
    figures = ", ".join(f"{outcome} {times}" for outcome, times in sorted(outcomes.items()))
    print(f"{name}: {count} inputs in {seconds:.1f} s: {figures}")
    return outcomes


def _outcome(title: str, data: bytes, parse: Callable[[bytes], str], refusals: tuple[type[OrbitError], ...]) -> str:
    try:
        return parse(data)
    except refusals:
        return "refused"
    except BaseException:
        print(f"{title} broke the parser: {data.hex()}", file=sys.stderr)
        raise


def run(
    name: str,
    corpus: Sequence[bytes],
    parse: Callable[[bytes], str],
    tokens: Sequence[bytes] = (),
    refusals: tuple[type[OrbitError], ...] = (OrbitError,),
) -> int:
    """Command line of a fuzzer: `--count` inputs from `--seed`. The untouched corpus goes first."""
    options = argparse.ArgumentParser(description=f"fuzz the {name} parser")
    options.add_argument("--count", type=int, default=100_000)
    options.add_argument("--seed", type=int, default=1)
    arguments = options.parse_args()
    for number, data in enumerate(corpus):
        _outcome(f"{name}: input {number} of the corpus", data, parse, refusals)
    title = f"{name} (seed {arguments.seed})"
    campaign(title, Mutator(corpus, arguments.seed, tokens), parse, arguments.count, refusals)
    return 0
