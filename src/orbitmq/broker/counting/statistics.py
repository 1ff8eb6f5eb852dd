"""What went through the broker: totals, rates, daily marks, put latency, and counters per topic and group.

Source: RocketMQ broker, statistics and runtime information.

Rules of this file
1. A message is noted when it comes and counted at the end of its turn, with the others (`settle`). Rates come from
   snapshots that the broker takes while it is busy, at most one every ten seconds; an idle broker takes none and is not
   woken for them.
2. Put latency is measured on a sample: the messages whose queue offset is a multiple of `LATENCY_SAMPLE`.
3. A message counts once, for the topic its sender named, when it is accepted; a delayed one is not counted again when it
   is delivered.
4. Days begin at local midnight, as with RocketMQ. Nothing wakes for it: the first turn of a day finds out.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from datetime import datetime
from typing import Final, NamedTuple

from orbitmq.broker.counting.latency import Latency
from orbitmq.broker.counting.sizes import BUCKET_OF_BITS, Sizes, SizeTable
from orbitmq.broker.counting.traffic import Counter, Traffic
from orbitmq.limits.broker import STATISTICS_SAMPLE_NS, TRAFFIC_STEP_NS

WINDOWS_NS: Final = (10_000_000_000, 60_000_000_000, 600_000_000_000)

LATENCY_SAMPLE: Final = 16
"""Every so many messages of a queue one is timed: a reading of the clock for each would cost the hot path more than it
tells. A power of two."""

LATENCY_MASK: Final = LATENCY_SAMPLE - 1


class _Sample(NamedTuple):
    at_ns: int
    put: int
    found: int
    missed: int
    transferred: int


class Mornings(NamedTuple):
    """Totals since the start as they were at the two last midnights."""

    put_yesterday: int
    put_today: int
    got_yesterday: int
    got_today: int


class Statistics:
    def __init__(self, now_ms: int, now_ns: int) -> None:
        step = now_ns // TRAFFIC_STEP_NS
        self.started_ms = now_ms
        self.put = Counter(step)
        """Messages and record bytes that were appended for senders."""
        self.got = Counter(step)
        """Messages and record bytes that pulls delivered."""
        self.put_failed_count = 0
        self.found_count = 0
        self.missed_count = 0
        self.busy_count = 0
        self.dead_letter_count = 0
        self.failed_handler_count = 0
        self.topics = Traffic()
        """Put, by topic."""
        self.prompt_sizes = SizeTable()
        """Sizes of messages that were visible at once, by topic."""
        self.delayed_sizes = SizeTable()
        """Sizes of delayed messages, by their real topic."""
        self.groups = Traffic()
        """Delivered, by `topic@group`."""
        self.groups_from_disk = Traffic()
        """The part of `groups` that was not in memory."""
        self.sent_back = Traffic()
        """Messages that consumers sent back, by `topic@group` with their first topic."""
        self.dead_letters = Traffic()
        """Those of `sent_back` whose attempts were used up."""
        self.put_latency = Latency(now_ns)
        """From the arrival of a send to the moment its flush mode is satisfied."""
        self._fresh: list[tuple[str, int, int, bool]] = []
        """What `stored` was told since the last `settle`."""
        self._recent: tuple[str, bool, Counter, Sizes] | None = None
        """What the last message was counted with."""
        self._samples: deque[_Sample] = deque(
            [_Sample(now_ns, 0, 0, 0, 0)], maxlen=WINDOWS_NS[-1] // STATISTICS_SAMPLE_NS + 2
        )
        self._next_look_ns = now_ns + STATISTICS_SAMPLE_NS
        self._day = _day_of(now_ms)
        self._mornings = Mornings(0, 0, 0, 0)
        self._last_turn = (0, 0)

    # --- counting ---------------------------------------------------------------------------------------------------

    def stored(self, topic: str, count: int, size: int, delayed: bool = False) -> None:
        """`count` messages of `size` record bytes were appended for `topic` (the one the sender named)."""
        self._fresh.append((topic, count, size, delayed))

    def settle(self, now_ns: int) -> None:
        """Add up what was stored since the last call. Whoever reads in the middle of a turn calls it first."""
        fresh = self._fresh
        if not fresh:
            return
        self._fresh = []
        step = now_ns // TRAFFIC_STEP_NS
        total = total_size = 0
        if self._recent is None:
            self._recent = self._tables_of(fresh[0][0], fresh[0][3], step)
        topic, delayed, counter, sizes = self._recent
        if counter.step != step:
            counter.enter(step)
        counts = sizes.counts
        for of, count, size, late in fresh:
            if of != topic or late is not delayed:  # a turn has few topics, and the next one mostly the same
                topic, delayed, counter, sizes = self._recent = self._tables_of(of, late, step)
                counts = sizes.counts
            counter.count += count
            counter.size += size
            counter.times += 1
            if count == 1:  # as `Sizes.add`, without a call: each message that is sent alone comes here
                counts[BUCKET_OF_BITS[(size - 1).bit_length()]] += 1
                sizes.total += size
            else:
                sizes.add(count, size)
            total += count
            total_size += size
        put = self.put
        if put.step != step:
            put.enter(step)
        put.count += total
        put.size += total_size
        put.times += len(fresh)

    def _tables_of(self, topic: str, delayed: bool, step: int) -> tuple[str, bool, Counter, Sizes]:
        """What counts messages of a topic, ready for `step`."""
        sizes = (self.delayed_sizes if delayed else self.prompt_sizes).of(topic)
        return topic, delayed, self.topics.at(topic, step), sizes

    def count_failed(self) -> None:
        self.put_failed_count += 1

    def pulled(self, topic: str, group: str, count: int, size: int, now_ns: int, *, cold: bool = False) -> None:
        """A pull delivered `count` messages, of which a failed cold read leaves none. `cold`: they came from the disk."""
        if not count:
            self.count_missed()
            return
        step = now_ns // TRAFFIC_STEP_NS
        self.found_count += 1
        got = self.got
        if got.step != step:
            got.enter(step)
        got.count += count
        got.size += size
        got.times += 1
        name = f"{topic}@{group}"
        self.groups.add(name, count, size, step)
        if cold:
            self.groups_from_disk.add(name, count, size, step)

    def count_missed(self) -> None:
        """A pull found nothing."""
        self.missed_count += 1

    def returned(self, topic: str, group: str, now_ns: int, *, dead: bool) -> None:
        """A consumer sent one message of `topic` back; with `dead` it became a dead letter."""
        name, step = f"{topic}@{group}", now_ns // TRAFFIC_STEP_NS
        self.sent_back.add(name, 1, 0, step)
        if dead:
            self.dead_letter_count += 1
            self.dead_letters.add(name, 1, 0, step)

    def drop_topic(self, topic: str) -> None:
        """Forget the counters of a deleted topic."""
        self._recent = None
        self.topics.drop(topic)
        self.prompt_sizes.drop(topic)
        self.delayed_sizes.drop(topic)
        self._drop(lambda of, _group: of == topic)

    def drop_group(self, group: str) -> None:
        """Forget the counters of a deleted group."""
        self._drop(lambda _topic, of: of == group)

    def _drop(self, gone: Callable[[str, str], bool]) -> None:
        for table in (self.groups, self.groups_from_disk, self.sent_back, self.dead_letters):
            for name in table.names():
                topic, _, group = name.partition("@")
                if gone(topic, group):
                    table.drop(name)

    # --- time -------------------------------------------------------------------------------------------------------

    def end_turn(self, now_ns: int, now_ms: Callable[[], int]) -> None:
        """At the end of a loop turn: count its messages, take a snapshot if the last is old enough, notice a new day."""
        self.settle(now_ns)
        if now_ns >= self._next_look_ns:
            self._next_look_ns = now_ns + STATISTICS_SAMPLE_NS
            self._new_day(now_ms(), self._last_turn)
            self._sample(now_ns)
        self._last_turn = (self.put.count, self.got.count)

    def mornings(self, now_ms: int) -> Mornings:
        """Totals at the last two midnights; exact to the ten seconds in which a busy broker passed them."""
        self._new_day(now_ms, (self.put.count, self.got.count))
        return self._mornings

    def _new_day(self, now_ms: int, totals: tuple[int, int]) -> None:
        """`totals`: put and got as they were at the midnight that may have passed."""
        days = _day_of(now_ms) - self._day
        if days <= 0:  # a clock that was set back does not repeat a day
            return
        put, got = totals
        known = self._mornings
        if days == 1:
            self._mornings = Mornings(known.put_today, put, known.got_today, got)
        else:
            self._mornings = Mornings(put, put, got, got)
        self._day += days

    # --- rates ------------------------------------------------------------------------------------------------------

    def rates(self, now_ns: int) -> dict[str, str]:
        """`putTps`, `getFoundTps`, `getMissTps`, `getTotalTps`, `getTransferredTps`: three rates a second each, as text."""
        self._sample(now_ns)
        now = self._now(now_ns)
        windows = [self._oldest_within(now_ns, window_ns) for window_ns in WINDOWS_NS]
        seconds = [max((now_ns - then.at_ns) / 1e9, 1.0) for then in windows]

        def text(counts: list[int]) -> str:
            return " ".join(f"{count / duration:.4f}" for count, duration in zip(counts, seconds, strict=True))

        found = [now.found - then.found for then in windows]
        missed = [now.missed - then.missed for then in windows]
        return {
            "putTps": text([now.put - then.put for then in windows]),
            "getFoundTps": text(found),
            "getMissTps": text(missed),
            "getTotalTps": text([hit + miss for hit, miss in zip(found, missed, strict=True)]),
            "getTransferredTps": text([now.transferred - then.transferred for then in windows]),
        }

    def _sample(self, now_ns: int) -> None:
        if now_ns - self._samples[-1].at_ns >= STATISTICS_SAMPLE_NS:
            self._samples.append(self._now(now_ns))

    def _now(self, now_ns: int) -> _Sample:
        return _Sample(now_ns, self.put.count, self.found_count, self.missed_count, self.got.count)

    def _oldest_within(self, now_ns: int, window_ns: int) -> _Sample:
        """The snapshot that begins a window: the youngest one at least as old as it, or the first of all."""
        chosen = self._samples[0]
        for sample in self._samples:
            if now_ns - sample.at_ns < window_ns:
                break
            chosen = sample
        return chosen


def _day_of(now_ms: int) -> int:
    return datetime.fromtimestamp(now_ms / 1000).toordinal()
