"""Who writes: the scope and epoch under which a broker remembers the rows of a job, and the brokers that belong to them.

A broker recognises a repeat by scope, epoch and key, and knows nothing of other brokers. So a repeat has to reach the broker of the first
attempt, whatever has become of the topic's route meanwhile. The names of the brokers therefore stand in the name of the scope itself,
which every message carries: `<who>/<topic's digest>@<broker>:<queues>,<broker>:<queues>`. Who repeats asks the brokers which scopes
begin like that, and reads there where the first attempt sent.

Rules of this file
1. Pure. Brokers are in the order of their names, so that everybody who sees the same route writes the same scope.
2. What was begun is never moved: an epoch in which something was stored keeps its brokers, also when one of them is gone. Its rows
   then wait, and fail after a while; what that broker holds cannot be known without it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple
from urllib.parse import quote, unquote

from orbitmq.errors import StaleEpochError
from orbitmq.limits.spark import SPARK_BROKER_SET_BYTES_MAX
from orbitmq.protocol.remoting.codes import ResponseCode
from orbitmq.protocol.remoting.idempotence_bodies import ScopeView, topic_mark


class BrokerSet(NamedTuple):
    """Brokers, and how many queues of the topic each has; in the order of their names."""

    names: tuple[str, ...]
    queue_counts: tuple[int, ...]

    @property
    def text(self) -> str:
        return ",".join(
            f"{quote(name, safe='-_.@+')}:{count}" for name, count in zip(self.names, self.queue_counts, strict=True)
        )

    @classmethod
    def parse(cls, text: str) -> BrokerSet | None:
        """None for what `text` of a set cannot be."""
        names: list[str] = []
        counts: list[int] = []
        for part in text.split(","):
            name, colon, count = part.rpartition(":")
            if not name or not colon or not (count.isascii() and count.isdigit() and 0 < int(count) <= 0xFFFF):
                return None
            names.append(unquote(name))
            counts.append(int(count))
        return cls(tuple(names), tuple(counts))


class Writer(NamedTuple):
    """Who writes, in which run, and what becomes of the epoch at the end.

    ends: the work is done when the task is, and nobody goes on with the next epoch: a batch job.
    brief: nobody will start it again under this name.
    follows: epochs follow each other without end, as micro-batches do, so each may have brokers of its own.
    """

    who: str
    epoch: int
    ends: bool
    brief: bool = False
    follows: bool = False

    def prefix(self, topic: str) -> str:
        """What all scopes for a topic begin with. The digest keeps sets of brokers of two topics apart."""
        return f"{self.who}/{topic_mark(topic)}@"

    def scope(self, topic: str, brokers: BrokerSet) -> str:
        return self.prefix(topic) + brokers.text


def stream_writer(query_id: str, batch_id: int) -> Writer:
    return Writer(query_id, batch_id, ends=False)


def job_writer(job: str, part: int | None, *, brief: bool, step: int = 0) -> Writer:
    """The writer of one partition of a batch job; of all of it when rows are named by a key and may be in any partition.

    step: which of the jobs that follow each other under this name.
    """
    return Writer(f"{job}/{'rows' if part is None else part}", step, ends=True, brief=brief)


def batch_scope(scope: str) -> str:
    """The scope that stands for all partitions of the batch job that `scope` is one partition of."""
    job, _, rest = scope.rsplit("/", 2)
    return f"{job}/*/{rest}"


def brokers_of(queue_counts: Mapping[str, int], turn: int) -> BrokerSet:
    """The brokers to write to, of those that have queues of the topic: all, or, where their names would make every message
    long, as many as fit, beginning at number `turn`."""
    names = sorted(queue_counts)
    taken: list[str] = []
    size = 0
    for place in range(len(names)):
        name = names[(turn + place) % len(names)]
        size += len(quote(name, safe="-_.@+").encode()) + 7
        if taken and size > SPARK_BROKER_SET_BYTES_MAX:
            break
        taken.append(name)
    taken.sort()
    return BrokerSet(tuple(taken), tuple(queue_counts[name] for name in taken))


def begun(writer: Writer, known: Iterable[ScopeView], topic: str) -> BrokerSet | None:
    """The brokers of an earlier attempt of this writer's epoch, None when there was none.

    known: what the brokers answered. `StaleEpochError` when a later run has begun: then this one was replaced.
    """
    found: set[str] = set()
    latest, prefix = -1, writer.prefix(topic)
    for view in known:
        if not view.scope.startswith(prefix):
            continue
        ours = writer.epoch in (view.epoch, view.previous_epoch)
        if ours or (writer.ends and (not writer.follows or view.epoch > writer.epoch)):
            found.add(view.scope[len(prefix) :])
        latest = max(latest, view.epoch)
    if (not writer.ends and latest > writer.epoch + 1) or (latest > writer.epoch and not found and not writer.ends):
        raise StaleEpochError(
            ResponseCode.STALE_EPOCH,
            f"batch {writer.epoch} of query {writer.who} is over, its batch {latest} was begun: nothing of it is written to {topic!r}",
            address="",
            remedy="another run of the same query has replaced this one; let only one run. After going back to an old checkpoint "
            "begin with a new one",
        )
    for text in sorted(found):
        brokers = BrokerSet.parse(text)
        if brokers is not None:
            return brokers
    return None


def share_of(part: int, epoch: int, brokers: BrokerSet) -> int:
    """The broker, as its place in the set, for the rows of a partition: partitions take turns, and so do batches."""
    return (part + epoch) % len(brokers.names)


def queue_places(hashes: Sequence[int], brokers: BrokerSet) -> list[tuple[int, int]]:
    """Broker and queue for hashes of sharding keys: the queue that a Java producer's hash selector takes from this route."""
    places = [(broker, queue) for broker, count in enumerate(brokers.queue_counts) for queue in range(count)]
    return [places[abs(value) % len(places)] for value in hashes]
