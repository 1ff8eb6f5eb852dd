"""The judge of store directories: a workload with a book about it, and the comparison of a broker's content with the book.

Rules of this file
1. A message enters the book when its SEND_OK has arrived, with the place that the answer gave it. What was sent without
   an answer may be there or not, but nothing else may.
2. The book is kept on the wire by `rig.wire`; the content is read by RocketMQ's own client (`StoreReader`) from whatever
   broker has opened the directory, so that every record passes through Java's decoder.
3. Small file sizes, so that commit log, consume queues and index roll within a few thousand messages.
"""

from __future__ import annotations

import hashlib
import random
import time
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Final, NamedTuple

from rig.brokers import BrokerUnderTest
from rig.drivers import Driver, Event, store_reader
from rig.wire import Wire

SMALL_FILES: Final = {
    "mappedFileSizeCommitLog": str(256 * 1024),
    "mappedFileSizeConsumeQueue": str(20 * 200),
    "maxHashSlotNum": "500",
    "maxIndexNum": "2000",
    "maxMessageSize": str(64 * 1024),
    "fileReservedTime": "72",
    "deleteWhen": "04",
}
TOPICS: Final = {"JudgeA": 4, "JudgeB": 1, "JudgeC": 8}
GROUP: Final = "JudgeGroup"
LEVELS: Final = {1: 1000, 2: 5000, 3: 10_000, 4: 30_000, 5: 60_000}
DELIVERY_LIMIT_S: Final = 60.0
"""After the last due time; a broker that needs longer has lost the message."""


class Entry(NamedTuple):
    """A message of the book. For a delayed one the place is that in its topic only after delivery, hence None."""

    topic: str
    queue_id: int
    queue_offset: int | None
    physical_offset: int | None
    unique_key: str
    body_sha1: str
    properties: tuple[tuple[str, str], ...]
    sent_at: float
    level: int


class Ledger:
    """The book and the sender that fills it. `origin` names the writer, so that several can share one directory."""

    def __init__(self, origin: str, seed: int) -> None:
        self.origin = origin
        self.entries: list[Entry] = []
        self.unanswered: set[str] = set()
        """Unique keys of messages on their way: sent, not yet answered."""
        self.committed: dict[tuple[str, int], int] = {}
        self._random = random.Random(seed)
        self._count = 0

    def create_topics(self, wire: Wire) -> None:
        for topic, queues in TOPICS.items():
            wire.create_topic(topic, queues)
        wire.create_group(GROUP, retry_max_times=7)

    def write(self, wire: Wire, count: int, *, level: int = 0, topic: str | None = None) -> None:
        """Send `count` messages of mixed sizes over all topics; every eighth request is a batch."""
        for _ in range(count):
            name = topic or self._random.choice(list(TOPICS))
            queue_id = self._random.randrange(TOPICS[name])
            if level == 0 and self._random.randrange(8) == 0:
                self._batch(wire, name, queue_id)
            else:
                self._single(wire, name, queue_id, level)

    def commit_some(self, wire: Wire) -> None:
        """Consumer offsets, which must survive as well."""
        for topic, queues in TOPICS.items():
            for queue_id in range(queues):
                offset = wire.max_offset(topic, queue_id) // 2
                if offset:
                    wire.commit(GROUP, topic, queue_id, offset)
                    self.committed[topic, queue_id] = offset

    def _single(self, wire: Wire, topic: str, queue_id: int, level: int) -> None:
        key, body, properties = self._message(level)
        before = time.time()
        sent = wire.send(
            topic, queue_id, body, {**properties, "UNIQ_KEY": key, "WAIT": "true"}, born_at=int(before * 1000)
        )
        offset = None if level else sent.queue_offset
        physical = None if level else int(sent.msg_id[-16:], 16)
        self._enter(topic, queue_id, offset, physical, key, body, properties, before, level)

    def _batch(self, wire: Wire, topic: str, queue_id: int) -> None:
        messages = [self._message(0) for _ in range(5)]
        before = time.time()
        sent = wire.send_batch(
            topic,
            queue_id,
            [(body, {**properties, "UNIQ_KEY": key}) for key, body, properties in messages],
            born_at=int(before * 1000),
        )
        for i, ((key, body, properties), msg_id) in enumerate(zip(messages, sent.msg_id.split(","), strict=True)):
            self._enter(topic, queue_id, sent.queue_offset + i, int(msg_id[-16:], 16), key, body, properties, before, 0)

    def _message(self, level: int) -> tuple[str, bytes, dict[str, str]]:
        self._count += 1
        key = f"{self.origin}{self._count:08d}".rjust(32, "0")
        body = f"{self.origin}-{self._count}-".encode() + self._random.randbytes(
            self._random.choice((0, 10, 200, 1000, 3000))
        )
        self.unanswered.add(key)
        properties = {
            "KEYS": f"k{self._count} {self.origin}",
            "TAGS": self._random.choice(("TagA", "TagB", "étiquette")),
        }
        if self._count % 3 == 0:
            properties["user"] = "value with spaces, ümlauts and 漢字"
        if level:
            properties["DELAY"] = str(level)
        return key, body, properties

    def _enter(
        self,
        topic: str,
        queue_id: int,
        offset: int | None,
        physical: int | None,
        key: str,
        body: bytes,
        properties: dict[str, str],
        before: float,
        level: int,
    ) -> None:
        self.unanswered.discard(key)
        kept = tuple(sorted((name, value) for name, value in properties.items() if name != "DELAY"))
        self.entries.append(
            Entry(topic, queue_id, offset, physical, key, hashlib.sha1(body).hexdigest(), kept, before, level)
        )


class Content:
    """Everything a broker serves of the judged topics, by unique key."""

    def __init__(self, events: list[Event]) -> None:
        self.queues = {(e["topic"], e["queueId"]): (e["min"], e["max"]) for e in events if e["event"] == "queue"}
        self.by_key: dict[str, list[Event]] = defaultdict(list)
        self.places: dict[tuple[str, int], list[int]] = defaultdict(list)
        for event in events:
            if event["event"] == "message":
                self.by_key[event["properties"]["UNIQ_KEY"]].append(event)
                self.places[event["topic"], event["queueId"]].append(event["queueOffset"])

    def holds(self, entries: Iterable[Entry]) -> bool:
        """Whether every entry is there."""
        return all(entry.unique_key in self.by_key for entry in entries)

    def torn(self) -> dict[tuple[str, int], tuple[list[int], list[int]]]:
        """Queues whose messages are not just those that they said they had: what came, and what was said.

        A queue says where it ends before it is read, so a delivery between the two shows here once and never again.
        """
        said = {place: list(range(lowest, end)) for place, (lowest, end) in self.queues.items()}
        return {
            place: (self.places[place], offsets) for place, offsets in said.items() if self.places[place] != offsets
        }


def read(driver: Driver) -> Content:
    """Read all judged topics once."""
    events: list[Event] = []
    for topic in TOPICS:
        events += driver.command("read", topic=topic)
    return Content(events)


def judge(broker: BrokerUnderTest, ledgers: Iterable[Ledger], folder: Path, *, after_crash: bool = False) -> None:
    """Compare what the broker serves with the books; waits for pending delayed messages. Raises AssertionError.

    After a crash of an earlier writer a delayed message may have been delivered twice, and the index may lack messages:
    RocketMQ drops index files that are newer than its checkpoint and rebuilds only from where its recovery begins.
    """
    books = list(ledgers)
    entries = [entry for ledger in books for entry in ledger.entries]
    assert entries, "an empty book proves nothing"
    with store_reader(broker.name_server, folder) as driver:
        due = max((entry.sent_at + LEVELS[entry.level] / 1000 for entry in entries if entry.level), default=0.0)
        time.sleep(max(due - time.time(), 0))  # what came early shows by its store time, whenever it is read
        content = read(driver)
        while (content.torn() or not content.holds(entries)) and time.time() < due + DELIVERY_LIMIT_S:
            time.sleep(0.5)
            content = read(driver)
        check_not_early(entries, content)
        check_content(
            entries, content, set().union(*(ledger.unanswered for ledger in books)), repeats_allowed=after_crash
        )
        if not after_crash:
            check_look_ups(entries, driver)
        driver.close()
    with broker.wire() as wire:
        for ledger in books:
            for (topic, queue_id), offset in ledger.committed.items():
                assert wire.committed(GROUP, topic, queue_id) == offset, f"consumer offset of {topic}/{queue_id}"


def check_not_early(entries: list[Entry], content: Content) -> None:
    """No delayed message stands in its topic with a store time before its due time."""
    for entry in entries:
        if entry.level:
            for event in content.by_key.get(entry.unique_key, []):
                # Whole milliseconds, as RocketMQ takes its time of acceptance.
                wait_ms = event["storeAt"] - int(entry.sent_at * 1000)
                assert wait_ms >= LEVELS[entry.level], f"level {entry.level} delivered after {wait_ms:.0f} ms: {event}"


def check_content(
    entries: list[Entry], content: Content, unanswered: set[str], *, repeats_allowed: bool = False
) -> None:
    """Every entry once, at its place, unchanged; nothing foreign; queues without holes."""
    known = {entry.unique_key for entry in entries}
    missing = [entry for entry in entries if entry.unique_key not in content.by_key]
    assert not missing, f"{len(missing)} of {len(entries)} acknowledged messages are missing, first {missing[:3]}"
    foreign = set(content.by_key) - known - unanswered
    assert not foreign, f"messages nobody sent: {sorted(foreign)[:3]}"
    for entry in entries:
        events = content.by_key[entry.unique_key]
        assert len(events) == 1 or (repeats_allowed and entry.level), f"stored {len(events)} times: {entry}"
        event = events[0]
        assert (event["topic"], event["queueId"]) == (entry.topic, entry.queue_id), f"{entry} came out as {event}"
        assert event["bodySha1"] == entry.body_sha1, f"body of {entry}"
        if entry.queue_offset is not None:
            assert (event["queueOffset"], event["physicalOffset"]) == (entry.queue_offset, entry.physical_offset), (
                f"place of {entry}"
            )
        for name, value in entry.properties:
            assert event["properties"].get(name) == value, f"property {name} of {entry}"
    for place, (came, said) in content.torn().items():
        assert came == said, f"offsets of {place}"


def check_look_ups(entries: list[Entry], driver: Driver) -> None:
    """A sample through the key index and by offset id."""
    for entry in entries[:: max(1, len(entries) // 20)]:
        key = dict(entry.properties)["KEYS"].split()[0]
        found = [
            e["properties"]["UNIQ_KEY"]
            for e in driver.command("key", topic=entry.topic, key=key)
            if e["event"] == "keyed"
        ]
        assert entry.unique_key in found, f"key index: {key} of {entry}"


def rolled_files(data: Path) -> dict[str, int]:
    """How many files of each kind lie in a store directory: shows that the workload made them roll."""
    return {
        "commitlog": len(list((data / "commitlog").iterdir())),
        "consumequeue": max(len(list(queue.iterdir())) for queue in (data / "consumequeue").glob("*/*")),
        "index": len(list((data / "index").iterdir())),
    }
