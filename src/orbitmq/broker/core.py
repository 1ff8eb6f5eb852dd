"""What all rooms of a broker share: its tables of topics, groups, offsets and clients, its store, and its clock.

Rules of this file
1. No request is answered here.
2. The tables are loaded before anything is served: one that cannot be used stops the start.
"""

from __future__ import annotations

import logging
import os
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from orbitmq.access.gate import Gate
from orbitmq.access.late_answers import LateAnswers
from orbitmq.broker.choosing.subscriptions import Subscriptions
from orbitmq.broker.clients import ClientRegistry, ClientSession
from orbitmq.broker.counting.change_times import ChangeTimes
from orbitmq.broker.counting.statistics import Statistics
from orbitmq.broker.groups import GroupTable
from orbitmq.broker.offsets import OffsetTable
from orbitmq.broker.queue_locks import QueueLocks
from orbitmq.broker.refusal import Refusal
from orbitmq.broker.settings import BrokerSettings
from orbitmq.broker.survivors import Survivors
from orbitmq.broker.table_records.changes import RecordedTable
from orbitmq.broker.table_records.table_records import TableRecords
from orbitmq.broker.table_saving import TABLES, SavedTable, TableFile, TableSaving
from orbitmq.broker.topics import TopicTable
from orbitmq.clock import Clock
from orbitmq.deadlines import Deadlines
from orbitmq.limits.broker import NAMED_TOPICS_MAX
from orbitmq.protocol.remoting.commands import RequestCode, ResponseCode
from orbitmq.protocol.remoting.frame import request
from orbitmq.protocol.remoting.tally import Tally
from orbitmq.store.recovery import LastWriter
from orbitmq.store.store import MessageStore
from orbitmq.store.worker import InlineWorker, Worker

if TYPE_CHECKING:
    from orbitmq.access.plain.table import AccountFiles
    from orbitmq.broker.saved_access import SavedAccess

logger = logging.getLogger("orbitmq.broker")


def _random_below(end: int) -> int:
    """A number of [0, end). 0.1 us; `random.randrange` takes 0.6."""
    return int(random.random() * end)


class Facilities(msgspec.Struct, frozen=True, kw_only=True):
    """What the process around a broker gives it."""

    tables: Callable[[str], TableFile]
    """The file of a table such as `topics.json`."""
    store_host: bytes
    """The packed address that clients reach this broker at; it becomes part of every message id."""
    worker: Worker = msgspec.field(default_factory=InlineWorker)
    """Saves tables; not the store's."""
    configuration: Callable[[], Mapping[str, str]] | None = None
    """Every setting under RocketMQ's key; without it the broker shows those of its own."""
    change_configuration: Callable[[bytes], object] | None = None
    """Applies and keeps the `key=value` lines of a request or raises ConfigurationError; None where settings are fixed."""
    disk_use: Callable[[], Mapping[str, float]] = dict
    """The used share per path, for remarks and runtime information."""
    memory_bytes: int | None = None
    """Memory of the machine, which decides what counts as young; asked for when it is not given."""
    random_below: Callable[[int], int] = _random_below
    """Chooses a queue, in [0, n)."""
    access: SavedAccess | None = None
    """The users and policies that requests change; None where nobody is asked who they are."""
    accounts: AccountFiles | None = None
    """The accounts of RocketMQ 4, where this broker has some."""
    gate: Gate | None = None
    """Says who may do what; without one whoever can connect may do everything."""


class BrokerCore:
    def __init__(
        self,
        settings: BrokerSettings,
        store: MessageStore,
        clock: Clock,
        facilities: Facilities,
        records: TableRecords | None = None,
    ) -> None:
        """Load the tables, and bring them and their `records` in the log together. Raises `StoreDamagedError` for an unusable one."""
        self.records = records
        self.settings = settings
        self.store = store
        self.clock = clock
        self.facilities = facilities
        self.deadlines = Deadlines()
        self.late_answers = LateAnswers(self.deadlines, clock)
        """Of every front end: refusals of callers who have failed too often."""
        self.statistics = Statistics(clock.now_ms(), clock.monotonic_ns())
        self.tally = Tally()
        self.change_times = ChangeTimes(clock)
        self.topics = TopicTable(settings, facilities.tables("topics.json"), clock)
        self.groups = GroupTable(settings, facilities.tables("subscriptionGroup.json"), clock)
        self.offsets = OffsetTable(settings, facilities.tables("consumerOffset.json"), clock)
        self.locks = QueueLocks(clock)
        self.clients = ClientRegistry(
            _notify_members, self._wants_notice, settings.channel_expired_timeout_ms * 1_000_000
        )
        self.subscriptions = Subscriptions(settings, self.groups, self.clients)
        self.saving = self.make_saving((self.topics, self.groups), TABLES)
        self.topics.load()
        self.groups.load()
        self.offsets.load()
        for table in (self.topics, self.groups, self.offsets, self.locks):
            self.bind(table)
        if facilities.access is not None and facilities.access.is_recorded:
            self.bind(facilities.access)
        self._report_unlisted()
        if self.records is not None:
            recorded_at = partial(self.records.reading.recorded_at, self.offsets.record_name)
            self.offsets.take_up_unrecorded(recorded_at, lambda: self.store.confirm_offset)
        self.offsets.cut(self._queue_end)
        self.survivors = Survivors(store, self.offsets, self.clients, clock, self._queue_end)
        if store.queues.after_crash:
            self.survivors.expect()
        self._orphans = self.offsets.topics_beyond(self._queue_end)
        """Topics with saved offsets on queues that exist no more; these are cut when the topic gets them again."""
        self.topics.on_put = self._topic_put

    def bind(self, table: RecordedTable) -> None:
        """A table is loaded from its file: from now on it and its records in the log say the same."""
        if self.records is not None:
            self.records.bind(table, others_wrote=self.store.report.origin is not LastWriter.OURS)

    def make_saving(self, tables: Sequence[SavedTable], name: str) -> TableSaving:
        """What saves these tables, and tells when that is done and recorded."""
        records = self.records
        return TableSaving(
            tables,
            self.facilities.worker,
            self.deadlines,
            self.clock,
            name,
            None if records is None else records.when_recorded,
        )

    @property
    def young_bytes(self) -> int:
        """So far back from its end the log counts as lying in memory."""
        memory_bytes = self.facilities.memory_bytes
        if memory_bytes is None:
            memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        return memory_bytes * self.store.settings.access_message_in_memory_max_ratio // 100

    def begins_at_zero(self, topic: str, queue_id: int) -> bool:
        """Whether a queue still has its first message, and that counts as lying in memory."""
        if self.store.min_offset(topic, queue_id) > 0:
            return False
        queue = self.store.queues.get(topic, queue_id)
        first = None if queue is None else queue.unit(0)
        return first is None or self.store.log.written_end - first[0] <= self.young_bytes

    def unwritable(self) -> Refusal:
        """The refusal of a send while the store takes none: why, and how full the disks are."""
        disks = ", ".join(f"{path} {share:.0%} full" for path, share in self.facilities.disk_use().items())
        reason = self.store.unwritable_reason or "the write failed"
        return Refusal(
            ResponseCode.SERVICE_NOT_AVAILABLE,
            f"the store of broker {self.settings.broker_name!r} takes no messages: {reason}"
            + (f"; {disks}" if disks else ""),
        )

    def check_writable(self) -> None:
        """Raises `Refusal` while the store takes no messages."""
        if not self.store.writable:
            raise self.unwritable()

    def facts(self) -> Mapping[str, object]:
        """What was refused or dropped since the start, and how often each periodic work woke the process."""
        counted = self.statistics
        return {
            "orbitmqBusyAnswers": counted.busy_count,
            "orbitmqUnsupportedRequests": self.tally.unsupported,
            "orbitmqFailedHandlers": counted.failed_handler_count,
            "orbitmqDeadLetters": counted.dead_letter_count,
            "orbitmqDeliveredBytes": counted.got.size,
        } | {f"orbitmqWakeups_{name.replace(' ', '_')}": count for name, count in self.deadlines.wakeups.items()}

    # --- inside -----------------------------------------------------------------------------------------------------

    def _queue_end(self, topic: str, queue_id: int) -> int | None:
        """The offset that the next message of a queue gets; None for a queue that neither the store nor the table knows."""
        queue = self.store.queues.get(topic, queue_id)
        if queue is not None:
            return queue.max_offset
        config = self.topics.get(topic)
        return None if config is None or queue_id >= max(config.read_queue_nums, config.write_queue_nums) else 0

    def _report_unlisted(self) -> None:
        """Say which topics have messages that nobody can read: their table was lost, or the directory came without it."""
        unlisted = self.topics.unlisted(
            queue.topic for queue in self.store.queues if queue.max_offset > queue.min_offset
        )
        if unlisted:
            logger.warning(
                "%d topics have messages and are in no topic table, nobody can read them: %s%s. Restore config/topics.json or make them "
                "again with as many queues; mqadmin cleanUnusedTopic removes them",
                len(unlisted), ", ".join(unlisted[:NAMED_TOPICS_MAX]), ", ..." if len(unlisted) > NAMED_TOPICS_MAX else "",
                extra={"event": "topics_unlisted"},
            )  # fmt: skip

    def _topic_put(self, topic: str) -> None:
        if topic in self._orphans:
            self.offsets.cut(self._queue_end, topic)
            if topic not in self.offsets.topics_beyond(self._queue_end):
                self._orphans.discard(topic)

    def _wants_notice(self, group: str) -> bool:
        if not self.settings.notify_consumer_ids_changed_enable:
            return False
        config = self.groups.known(group)
        return config is None or config.notify_consumer_ids_changed_enable


def _notify_members(group: str, sessions: Iterable[ClientSession]) -> None:
    for session in sessions:
        session.send(request(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, {"consumerGroup": group}, oneway=True))
