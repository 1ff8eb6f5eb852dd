"""Epochs that their senders have finished: a name, a number and a mark each, and none of their keys.

A batch job is divided into partitions, each with a scope of its own: `<job>/<partition>/<mark of the topic>@<brokers>`. When all of them
have ended, one record stands for the batch: its partition is `*`.

Rules of this file
1. Pure: times come in.
2. What is finished takes no room from what runs. There is a bound of its own; beyond it the oldest is forgotten.
"""

from __future__ import annotations

from collections.abc import Iterator
from string import hexdigits
from typing import Final, NamedTuple

from orbitmq.broker.table_records.changes import KeyChanges
from orbitmq.limits.broker import ONCE_FINISHED_MAX
from orbitmq.protocol.remoting.idempotence_bodies import MARK_CHARS, topic_mark

EVERY_PART: Final = "*"


class Finished(NamedTuple):
    """How an epoch ended: `mark` stands for everything that was sent in it. brief: nobody repeats it but a task that was replaced."""

    epoch: int
    mark: int
    brief: bool


def batch_of(name: str) -> str | None:
    """The name that stands for all partitions of the batch that a scope, or the beginning of its name, belongs to; None for one
    that is no partition."""
    parts = name.rsplit("/", 2)
    return f"{parts[0]}/{EVERY_PART}/{parts[2]}" if len(parts) == 3 and parts[1] != EVERY_PART else None


def is_of_topic(name: str, topic: str) -> bool:
    """Whether a scope, or all whose names begin so, sends to that topic alone: its name ends in `/<mark of the topic>@<brokers>`, or has
    the topic itself there."""
    return _mark_of(name) in (topic, topic_mark(topic))


def names_other_topic(name: str, topic: str) -> bool:
    """Whether a scope sends to another topic alone: where the mark of a topic stands in its name, another's stands. Cost: 1 us for a name
    with a mark, 0.3 us for any other."""
    mark = _mark_of(name)
    return mark is not None and len(mark) == MARK_CHARS and not mark.strip(hexdigits) and mark != topic_mark(topic)


def _mark_of(name: str) -> str | None:
    """What stands between the last `/` of a scope's name and the `@` behind it."""
    _, slash, end = name.rpartition("/")
    mark, at, _ = end.partition("@")
    return mark if slash and at else None


class FinishedEpochs:
    """By scope the last epoch that was finished."""

    __slots__ = ("_brief", "_lasting", "changes")

    def __init__(self) -> None:
        self._brief: dict[str, tuple[Finished, int]] = {}
        self._lasting: dict[str, tuple[Finished, int]] = {}
        """Both in the order of their ends, with the time."""
        self.changes: Final = KeyChanges()
        """Names that ended, ended anew, or were forgotten."""

    def __len__(self) -> int:
        return len(self._brief) + len(self._lasting)

    def __contains__(self, name: str) -> bool:
        return name in self._brief or name in self._lasting

    def __iter__(self) -> Iterator[tuple[str, Finished]]:
        for table in (self._brief, self._lasting):
            for name, (finished, _) in table.items():
                yield name, finished

    def get(self, name: str) -> Finished | None:
        """The end of this very scope."""
        found = self._brief.get(name) or self._lasting.get(name)
        return None if found is None else found[0]

    def covering(self, name: str) -> Finished | None:
        """The end of this scope, or of the batch that it is a part of; the later of both."""
        own, batch = self.get(name), batch_of(name)
        whole = None if batch is None else self.get(batch)
        if own is None or whole is None:
            return own or whole
        return own if own.epoch > whole.epoch else whole

    def add(self, name: str, finished: Finished, wall_ms: int) -> None:
        self.drop(name)
        (self._brief if finished.brief else self._lasting)[name] = finished, wall_ms
        self.changes.note(name)

    def drop(self, name: str) -> None:
        if self._brief.pop(name, None) or self._lasting.pop(name, None):
            self.changes.note(name)

    def of_topic(self, topic: str) -> list[str]:
        """Names of scopes that send to that topic alone. Cost: a look at each name."""
        return [name for name, _ in self if is_of_topic(name, topic)]

    @property
    def first_ms(self) -> int:
        """When the first of them ended, of those that are forgotten soon or late the later; 0 when there is none."""
        return max((next(iter(table.values()))[1] for table in (self._brief, self._lasting) if table), default=0)

    def correct_future(self, latest_ms: int, wall_ms: int) -> int:
        """What ended later than `latest_ms` ended at `wall_ms`. How many."""
        count = 0
        for table in (self._brief, self._lasting):
            wrong = [name for name, (_, ended_ms) in table.items() if ended_ms > latest_ms]
            for name in wrong:
                table[name] = table.pop(name)[0], wall_ms
            count += len(wrong)
        return count

    def end_again(self, wall_ms: int) -> None:
        """All of them ended then."""
        for table in (self._brief, self._lasting):
            for name, (finished, _) in table.items():
                table[name] = finished, wall_ms

    def oldest(self, brief_until_ms: int, lasting_until_ms: int) -> str | None:
        """A name that ended at these times or before; None when there is none."""
        for table, until_ms in ((self._brief, brief_until_ms), (self._lasting, lasting_until_ms)):
            name = next(iter(table), None)
            if name is not None and table[name][1] <= until_ms:
                return name
        return None

    def surplus(self) -> str | None:
        """The name that goes when there is one too many; None when there is not."""
        return next(iter(self._brief or self._lasting)) if len(self) > ONCE_FINISHED_MAX else None
