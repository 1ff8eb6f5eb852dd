"""Days of micro-batches against the broker's memory of idempotent sends: `python -m tests.property.batches_campaign --hours 168`.

The memory is the broker's own; time is made up, and rows are numbers. Exit code 0 when nothing was refused, every repeat was recognised and
the memory stayed within its bound, 1 otherwise. CPU for a day with 200 partitions: half a minute of a stream, 20 minutes of jobs.
"""

from __future__ import annotations

import argparse
import random
import resource
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from enum import StrEnum
from typing import Final, NamedTuple

from orbitmq.broker.idempotence.finished import Finished
from orbitmq.broker.idempotence.identity import SendIdentity
from orbitmq.broker.idempotence.memory import KeyBounds, KeyMemory
from orbitmq.broker.refusal import Refusal
from orbitmq.spark.writing.batch_writer import in_foreach_batch
from orbitmq.spark.writing.scopes import BrokerSet, Writer, batch_scope, job_writer, stream_writer

TOPIC: Final = "orders"
BROKERS: Final = BrokerSet(("broker-a",), (8,))
QUERY: Final = "a3b893f4-e92b-4299-8bd8-8806bb15ec84"
BEGIN_MS: Final = 1_796_000_000_000
GIVEN_BACK: Final = 4_096
"""Keys that the broker frees at a time."""
REQUEST_ROWS: Final = 10_000
"""More than a request has, so that days take minutes."""


class Form(StrEnum):
    """Who writes."""

    STREAM = "stream"
    """A query whose sink is orbitmq: a scope for all partitions, an epoch for each batch."""
    FOREACH_BATCH = "foreach-batch"
    """A named write in `foreachBatch`: a scope for each partition, whose task ends its epoch."""
    JOBS = "jobs"
    """A job without a name in every second."""
    NAMED_JOBS = "named-jobs"
    """A job with a name of its own in every second: more ended names in three days than are remembered."""


class Played(NamedTuple):
    """batches that were written; repeats that were recognised; the most that was remembered."""

    batches: int
    repeats: int
    most_bytes: int
    most_scopes: int
    most_finished: int


class Broken(AssertionError):
    """A promise was not kept."""


def play(
    form: Form,
    seconds: int,
    *,
    partitions: int = 200,
    rows: int = 1,
    first_rows: int = 0,
    seed: int = 0,
    memory: KeyMemory | None = None,
) -> Played:
    """A batch in each second, of `rows` rows in each partition, `first_rows` in the first one. Some tasks and some batches are repeated."""
    sender = _Sender(memory or KeyMemory(KeyBounds()), random.Random(seed))
    for batch in range(seconds):
        sender.now_ms = BEGIN_MS + 1_000 * batch
        count = first_rows if first_rows and not batch else rows
        _batch(sender, form, batch, partitions, count)
        if sender.chance(1 / 60):  # the driver died before it noted the end of its batch
            _batch(sender, form, batch, partitions, count, is_repeat=True)
        if batch and sender.chance(1 / 60):  # a task that was replaced, and does not know it yet
            _batch(
                sender, form, batch - 1, partitions, first_rows if first_rows and batch == 1 else rows, is_repeat=True
            )
        sender.look()
    return Played(seconds, sender.repeats, sender.most_bytes, sender.most_scopes, sender.most_finished)


def _batch(sender: _Sender, form: Form, batch: int, partitions: int, rows: int, *, is_repeat: bool = False) -> None:
    ended = []
    for part, keys in _requests(form, batch, partitions, rows):
        writer = _writer(form, batch, part)
        scope = writer.scope(TOPIC, BROKERS)
        is_over = is_repeat and writer.ends
        sender.send(scope, writer.epoch, keys, is_repeat=is_repeat, is_over=is_over)
        if not is_over and sender.chance(1 / 500):  # speculation, or an answer that was lost
            sender.send(scope, writer.epoch, keys, is_repeat=True, is_over=False)
        if writer.ends:
            ended.append((scope, Finished(writer.epoch, part, writer.brief)))
            sender.finish(*ended[-1])
    if ended:
        scope, finished = ended[0]
        sender.finish(batch_scope(scope), finished)


def _requests(form: Form, batch: int, partitions: int, rows: int) -> Iterator[tuple[int, range]]:
    """Partitions with their rows. Those of a stream share a scope, so it makes no difference to the memory which partition a row is of."""
    first = batch << 32
    if form is not Form.STREAM:
        for part in range(partitions):
            yield part, range(first + part * rows, first + (part + 1) * rows)
        return
    for at in range(0, partitions * rows, REQUEST_ROWS):
        yield 0, range(first + at, first + min(at + REQUEST_ROWS, partitions * rows))


def _writer(form: Form, batch: int, part: int) -> Writer:
    match form:
        case Form.STREAM:
            return stream_writer(QUERY, batch)
        case Form.FOREACH_BATCH:
            name, step = in_foreach_batch("orders to red", QUERY, batch, 0)
            return job_writer(name, part, brief=False, step=step)._replace(follows=True)
        case Form.JOBS:
            return job_writer(f"{batch:032x}", part, brief=True)
        case Form.NAMED_JOBS:
            return job_writer(f"orders of second {batch}", part, brief=False)


class _Sender:
    """What a broker does with requests, and the account of it."""

    def __init__(self, memory: KeyMemory, chances: random.Random) -> None:
        self.now_ms = BEGIN_MS
        self.repeats = self.most_bytes = self.most_scopes = self.most_finished = 0
        self._memory = memory
        self._chances = chances
        self._place = 0

    def chance(self, share: float) -> bool:
        return self._chances.random() < share

    def send(self, scope: str, epoch: int, keys: Sequence[int], *, is_repeat: bool, is_over: bool) -> None:
        """One request of a task. is_over: its epoch was ended, so it is refused as stale, which a job takes for stored."""
        memory = self._memory
        sends = [SendIdentity(scope, epoch, key * 0x9E3779B97F4A7C15F39CC0605CEDC835 & (1 << 128) - 1) for key in keys]
        try:
            found = memory.find_all(sends, TOPIC)
            if None in found and not memory.has_room(sends[0], len(sends)):
                memory.make_room(sends[0], found.count(None), self.now_ms, self.now_ms)
        except Refusal as refusal:
            if is_over:
                self.repeats += len(sends)
                return
            raise Broken(f"refused at {self._when()}: {refusal.remark}") from refusal
        if is_over or (is_repeat and None in found) or (not is_repeat and any(place is not None for place in found)):
            raise Broken(
                f"{found.count(None)} of {len(found)} are new in a {'repeat' if is_repeat else 'batch'}, {self._when()}"
            )
        if is_repeat:
            self.repeats += len(sends)
            return
        places = [self._place + number << 96 for number in range(len(sends))]
        self._place += len(sends)
        kept = memory.keep_new(sends, places, self.now_ms, self.now_ms)
        if kept is None:
            raise Broken(f"an epoch that was let in is stale, {self._when()}")
        for place in places:
            memory.confirm(kept, place)
        memory.give_back(GIVEN_BACK)
        self.most_bytes = max(self.most_bytes, memory.used_bytes)
        self.most_scopes = max(self.most_scopes, memory.scope_count)

    def finish(self, scope: str, finished: Finished) -> None:
        if not self._memory.finish(scope, finished, self.now_ms):
            raise Broken(f"{scope} ended before with another mark, {self._when()}")

    def look(self) -> None:
        """Between two batches."""
        memory = self._memory
        memory.expire(self.now_ms, self.now_ms)
        self.most_finished = max(self.most_finished, len(memory.finished))
        if memory.used_bytes > memory.bounds.memory_bytes or memory.keeps_aside:
            raise Broken(f"{memory.used_bytes} bytes are remembered, {self._when()}")

    def _when(self) -> str:
        return f"{(self.now_ms - BEGIN_MS) // 1000} s after the begin"


def _plays(hours: float, partitions: int, forms: Sequence[str]) -> Iterator[tuple[str, Callable[[], Played]]]:
    seconds = int(hours * 3_600)
    for form in map(Form, forms):
        yield form, lambda form=form: play(form, seconds, partitions=partitions)  # type: ignore[misc]
    yield "a first batch of five million rows", lambda: play(Form.STREAM, 60, first_rows=5_000_000 // partitions)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.property.batches_campaign", description=__doc__)
    parser.add_argument("--hours", type=float, default=168.0, help="of batches of a second, of each form")
    parser.add_argument("--partitions", type=int, default=200)
    parser.add_argument("--forms", nargs="+", choices=list(Form), default=list(Form))
    options = parser.parse_args(arguments)
    is_whole = True
    for name, run in _plays(options.hours, options.partitions, options.forms):
        begin = time.process_time()
        try:
            said = str(run()._asdict())
        except Broken as problem:
            is_whole, said = False, f"BROKEN: {problem}"
        resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
        print(
            f"{name}: {said}; {time.process_time() - begin:.0f} s of CPU, at most {resident} MiB resident", flush=True
        )
    return 0 if is_whole else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
