"""The plan of a replay: which messages, cut into slices that are written one after the other.

A slice takes from the queues of one day in proportion to what they hold, so that they move on together. The plan is made once and kept:
a run that was killed goes on with the same slices, and so with the same parts of one idempotent work.

Rules of this file
1. Pure. Equal plans have equal slices.
2. A row is named by where it came from (topic, broker, queue, offset), never by the slice that it is in.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from typing import Final

import msgspec

from orbitmq.errors import ConfigurationError
from orbitmq.limits.spark import REPLAY_TASK_ROWS_PER_SECOND
from orbitmq.protocol.remoting.bodies import MessageQueue
from orbitmq.spark.pipelines.queue_slices import slices_of
from orbitmq.spark.reading.plan import QueueRange

VERSION: Final = 1


class Stretch(msgspec.Struct, frozen=True, order=True, array_like=True):
    """Offsets of one queue from `begin` on and below `end`, of which some may have no message; in an archive those of one `day`.

    `day` is empty for what is read from topics, and for archived messages that do not say when they were stored; `broker` for those of
    an archived log that was given no name.
    """

    day: str
    topic: str
    broker: str
    queue_id: int
    begin: int
    end: int

    @classmethod
    def of(cls, day: str, piece: QueueRange) -> Stretch:
        return cls(day, piece.queue.topic, piece.queue.broker_name, piece.queue.queue_id, piece.begin, piece.end)

    @property
    def range(self) -> QueueRange:
        return QueueRange(MessageQueue(self.topic, self.broker, self.queue_id), self.begin, self.end)


class Slice(msgspec.Struct, frozen=True):
    """What one job of Spark writes."""

    number: int
    day: str
    stretches: tuple[Stretch, ...]

    @property
    def offsets(self) -> int:
        return sum(stretch.end - stretch.begin for stretch in self.stretches)


class ReplayPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What a replay does, as its folder keeps it.

    work: the name under which the brokers know its rows. settings: those that may not change while it lasts, as texts. since_ms, until_ms:
    of store times. brokers: for kept queues, the broker to write to by the broker it came from.
    """

    version: int = VERSION
    work: str
    settings: dict[str, str]
    since_ms: int | None
    until_ms: int | None
    slice_rows: int
    brokers: dict[str, str]
    stretches: tuple[Stretch, ...]

    @property
    def offsets(self) -> int:
        return sum(stretch.end - stretch.begin for stretch in self.stretches)

    def slices(self) -> Iterator[Slice]:
        number = 0
        for day, of_day in groupby(sorted(self.stretches), key=lambda stretch: stretch.day):
            for pieces in slices_of([stretch.range for stretch in of_day], self.slice_rows):
                yield Slice(number, day, tuple(Stretch.of(day, piece) for piece in pieces))
                number += 1


def tasks_for(rate: float) -> int:
    """How many tasks share a rate: one, unless it is more than one can write."""
    return max(1, -int(-rate // REPLAY_TASK_ROWS_PER_SECOND))


def check_same(plan: ReplayPlan, settings: Mapping[str, str], folder: str) -> None:
    """Raises when a folder is of a replay with other settings."""
    if plan.version != VERSION:
        raise ConfigurationError(
            f"the replay in {folder} was begun by another version of orbitmq",
            remedy="end it with that version, or give this one another folder",
        )
    for name in sorted(plan.settings.keys() | settings.keys()):
        before, now = plan.settings.get(name, ""), settings.get(name, "")
        if before != now:
            raise ConfigurationError(
                f"the replay in {folder} was begun with {name}={before!r}, and now it is {now!r}",
                remedy="go on with the settings it was begun with, or give this one another folder",
            )


def brokers_for(stretches: Iterable[Stretch], queue_counts: Mapping[str, int], topic: str) -> dict[str, str]:
    """Where kept queues go: to the broker of the same name, else to the brokers in turn, by their names.

    queue_counts: writable queues of the target topic by broker. `ConfigurationError` when a queue would have no place.
    """
    sources: dict[str, int] = {}
    for stretch in stretches:
        sources[stretch.broker] = max(sources.get(stretch.broker, 0), stretch.queue_id)
    targets = sorted(queue_counts)
    strangers = [name for name in sorted(sources) if name not in queue_counts]
    chosen = {name: name for name in sources if name in queue_counts}
    chosen.update({name: targets[place % len(targets)] for place, name in enumerate(strangers)})
    for source, highest in sorted(sources.items()):
        target = chosen[source]
        if highest >= queue_counts[target]:
            raise ConfigurationError(
                f"queue {highest} of broker {source} has no place in topic {topic!r}, which has {queue_counts[target]} queues at "
                f"broker {target}",
                remedy=f"give the topic {highest + 1} queues: orbitmq topic update {topic} --queues {highest + 1}; or choose queues anew",
            )
    return chosen
