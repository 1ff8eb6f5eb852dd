"""The broker: its parts put together, and the table of the requests it answers.

A front end hands over decoded requests (`handle`), tells when all sockets that were ready have been read (`end_turn`),
and when a connection is gone (`peer_closed`). Whoever owns the event loop calls `tick` at `next_tick_ns`.

Rules of this file
1. Every request gets an answer unless it is oneway: an unknown code the protocol's "not supported", a failing handler
   SYSTEM_ERROR. No request harms another connection.
2. At the end of a turn changed tables are saved and the log is written before any answer of the turn leaves: what a
   client was told survives this process.
3. Periodic work has a name, is armed only while there is something to do, and its wake-ups are counted
   (`deadlines.wakeups`). An idle broker is not woken.
4. One thread. File work that takes long goes to `worker`.
"""

from __future__ import annotations

import logging
import os
import random
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from orbitmq.broker.administration.processors import Administration
from orbitmq.broker.administration.queries import QueryProcessor
from orbitmq.broker.admission import Admission
from orbitmq.broker.clients import ClientRegistry
from orbitmq.broker.counting.change_times import ChangeTimes
from orbitmq.broker.counting.statistics import Statistics
from orbitmq.broker.far_table import FarTableRequests
from orbitmq.broker.groups import GroupTable
from orbitmq.broker.membership import MembershipProcessor
from orbitmq.broker.offset_requests import OffsetProcessor
from orbitmq.broker.offsets import OffsetTable
from orbitmq.broker.once.idempotence import Idempotence
from orbitmq.broker.once.requests import OnceRequests
from orbitmq.broker.pull import PullProcessor
from orbitmq.broker.queue_locks import QueueLocks
from orbitmq.broker.recurring.desk import RunDesk
from orbitmq.broker.recurring.requests import RecurringProcessor
from orbitmq.broker.refusal import Refusal
from orbitmq.broker.reply import ReplyProcessor
from orbitmq.broker.send import SendProcessor
from orbitmq.broker.send_back import SendBackProcessor
from orbitmq.broker.settings import BrokerSettings
from orbitmq.broker.timers.finding import PendingIndex
from orbitmq.broker.timers.intake import TimerIntake
from orbitmq.broker.timers.service import TimerService
from orbitmq.broker.topics import TableFile, TopicTable
from orbitmq.clock import Clock
from orbitmq.deadlines import Deadlines
from orbitmq.errors import OrbitError
from orbitmq.protocol.ids import UniqueIds, unpack_host
from orbitmq.protocol.remoting.commands import HEADERS, RequestCode, ResponseCode
from orbitmq.protocol.remoting.frame import FLAG_ONEWAY, Command, request, response
from orbitmq.protocol.remoting.peer import Peer
from orbitmq.protocol.remoting.tally import Tally
from orbitmq.store.dispatch import Dispatched
from orbitmq.store.store import MessageStore
from orbitmq.store.worker import InlineWorker, Worker
from orbitmq.timing.far.far_timers import FarTimers
from orbitmq.timing.far_table.owner import TableOwner
from orbitmq.timing.recurrence.runner import Recurrences
from orbitmq.timing.timers.timers import Timers

logger = logging.getLogger("orbitmq.broker")

RequestHandler = Callable[[Command, Peer], Command | None]

TABLE_RETRY_NS = 5_000_000_000
"""After a table could not be saved, how long to wait before trying again without a change."""

SENDS = frozenset(
    {
        RequestCode.SEND_MESSAGE,
        RequestCode.SEND_MESSAGE_V2,
        RequestCode.SEND_BATCH_MESSAGE,
        RequestCode.SEND_REPLY_MESSAGE,
        RequestCode.SEND_REPLY_MESSAGE_V2,
    }
)

OFFSETS, CLIENTS, HELD, TABLES = "consumer offsets", "client expiry", "held pulls", "configuration tables"
"""Names of the periodic work."""


class Broker:
    def __init__(
        self,
        settings: BrokerSettings,
        store: MessageStore,
        clock: Clock,
        *,
        tables: Callable[[str], TableFile],
        store_host: bytes,
        worker: Worker | None = None,
        configuration: Callable[[], Mapping[str, str]] | None = None,
        change_configuration: Callable[[bytes], object] | None = None,
        disk_use: Callable[[], Mapping[str, float]] = dict,
        memory_bytes: int | None = None,
        random_below: Callable[[int], int] = random.randrange,
        idempotence: Idempotence | None = None,
        timers: Timers | None = None,
        recurrences: Recurrences | None = None,
        timer_index: PendingIndex | None = None,
        far: FarTimers | None = None,
        table_owner: TableOwner | None = None,
    ) -> None:
        """Load the tables and take over the store's arrivals. Raises `StoreDamagedError` for an unusable table.

        `tables(name)` is the file of a table such as `topics.json`. `store_host` is the packed address that clients
        reach this broker at; it becomes part of every message id. `worker` saves consumer offsets; the store's own.
        `disk_use()` gives the used share per path, for remarks and runtime information.
        Without `idempotence`, which has to be one of the store's derived structures, idempotent sends are refused; the same
        holds for `timers` and timer messages, and for `recurrences`. Without `timer_index` what
        waits is neither found nor changed. `far` takes those that are due late. `table_owner` answers for the far table of the
        cluster, where this broker owns it.
        """
        self.settings = settings
        self.store = store
        self.clock = clock
        self.store_host = store_host
        self.deadlines = Deadlines()
        self.statistics = Statistics(clock.now_ms(), clock.monotonic_ns())
        self.tally = Tally()
        self.change_times = ChangeTimes(clock)
        self.topics = TopicTable(settings, tables("topics.json"), clock)
        self.groups = GroupTable(settings, tables("subscriptionGroup.json"), clock)
        self.offsets = OffsetTable(settings, tables("consumerOffset.json"), clock)
        self.locks = QueueLocks()
        self.clients = ClientRegistry(
            self._notify_members, self._wants_notice, settings.channel_expired_timeout_ms * 1_000_000
        )
        self._disk_use = disk_use
        self._worker: Worker = worker if worker is not None else InlineWorker()
        self._saving_offsets = False
        self._table_failure: str | None = None
        self.topics.load()
        self.groups.load()
        self.offsets.load()

        address, _ = unpack_host(store_host)
        self.admission = Admission(
            settings,
            self.topics,
            self.groups,
            self.locks,
            store,
            store_host=store_host,
            next_unique_key=UniqueIds(clock, address).next,
            unwritable=self.unwritable,
            body_bytes_max=store.settings.max_message_size,
            random_below=random_below,
            idempotence=idempotence,
            timers=TimerIntake(settings, timers, far, clock_rounding_ms=clock.rounding_ms),
            clock_rounding_ms=clock.rounding_ms,
        )
        self.table_owner = table_owner
        self.recurrences = recurrences
        self._recurring = self._recurring_requests(recurrences)
        self.timers: TimerService | None = None
        """Timer messages, where the broker has them."""
        if timers is not None:
            self.timers = TimerService(
                settings,
                self.topics,
                store,
                clock,
                timers,
                timer_index,
                far,
                self.admission.timers,
                next_unique_key=self.admission.next_unique_key,
                unwritable=self.unwritable,
            )
        self.sends = SendProcessor(
            settings,
            self.admission,
            store,
            clock,
            self.statistics,
            self.tally,
            store_host=store_host,
            unwritable=self.unwritable,
        )
        self.pulls = PullProcessor(
            settings,
            self.topics,
            self.groups,
            self.offsets,
            self.clients,
            store,
            clock,
            self.statistics,
            count_max=store.settings.max_transfer_count_on_message_in_memory,
            bytes_max=store.settings.max_transfer_bytes_on_message_in_memory,
        )
        self.administration = Administration(
            settings,
            self.topics,
            self.groups,
            self.offsets,
            self.clients,
            self.locks,
            self.sends,
            self.pulls,
            store,
            clock,
            self.statistics,
            store_host=store_host,
            configuration=configuration or self._own_settings,
            change_configuration=change_configuration,
            disk_use=disk_use,
        )
        if memory_bytes is None:
            memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        self.administration.broker.more_facts.append(self._counts)
        if self.timers is not None:
            self.administration.broker.more_facts.append(self.timers.standing.facts)
        self._handlers = self._table(
            memory_bytes * store.settings.access_message_in_memory_max_ratio // 100, random_below
        )
        self.tally.serve(self._handlers)
        store.arrival = self._arrived
        for name, action in (
            (OFFSETS, self._save_offsets),
            (CLIENTS, self._expire_clients),
            (HELD, self._check_held),
            (TABLES, self._save_tables),
        ):
            self.deadlines.define(name, action)

    def _table(self, young_bytes: int, random_below: Callable[[int], int]) -> dict[int, RequestHandler]:
        """Every request this broker answers. A code without a row is answered "not supported"."""
        settings, store, clock = self.settings, self.store, self.clock
        member = MembershipProcessor(settings, self.topics, self.groups, self.clients, self.locks, clock)
        offset = OffsetProcessor(
            settings,
            self.topics,
            self.groups,
            self.offsets,
            store,
            young_bytes=young_bytes,
            wake_reset=self.pulls.wake_reset,
        )
        query = QueryProcessor(settings, self.clients, store)
        back = SendBackProcessor(
            settings,
            self.topics,
            self.groups,
            self.admission,
            store,
            clock,
            self.statistics,
            store_host=self.store_host,
            unwritable=self.unwritable,
            random_below=random_below,
        )
        reply = ReplyProcessor(
            settings,
            self.admission,
            self.clients,
            store,
            clock,
            self.statistics,
            store_host=self.store_host,
            unwritable=self.unwritable,
        )
        code = RequestCode
        table: dict[RequestCode, RequestHandler] = {
            code.SEND_MESSAGE: self.sends.send,
            code.SEND_MESSAGE_V2: self.sends.send,
            code.SEND_BATCH_MESSAGE: self.sends.send,
            code.SEND_REPLY_MESSAGE: reply.reply,
            code.SEND_REPLY_MESSAGE_V2: reply.reply,
            code.CONSUMER_SEND_MSG_BACK: back.send_back,
            code.PULL_MESSAGE: self.pulls.pull,
            code.LITE_PULL_MESSAGE: self.pulls.pull,
            code.QUERY_MESSAGE: query.by_key,
            code.VIEW_MESSAGE_BY_ID: query.view,
            code.QUERY_CONSUME_QUEUE: query.units,
            code.HEART_BEAT: member.heartbeat,
            code.UNREGISTER_CLIENT: member.unregister,
            code.GET_CONSUMER_LIST_BY_GROUP: member.consumer_list,
            code.CHECK_CLIENT_CONFIG: member.check_client,
            code.LOCK_BATCH_MQ: member.lock,
            code.UNLOCK_BATCH_MQ: member.unlock,
            code.QUERY_CONSUMER_OFFSET: offset.query,
            code.UPDATE_CONSUMER_OFFSET: offset.update,
            code.SEARCH_OFFSET_BY_TIMESTAMP: offset.search,
            code.GET_MAX_OFFSET: offset.maximum,
            code.GET_MIN_OFFSET: offset.minimum,
            code.GET_EARLIEST_MSG_STORETIME: offset.earliest,
            code.GET_ALL_CONSUMER_OFFSET: offset.all_offsets,
            code.INVOKE_BROKER_TO_RESET_OFFSET: offset.reset,
            **self._recurring,
            **FarTableRequests(self.table_owner, settings.far_table_owner, settings.broker_name).handlers(),
            **(OnceRequests(sends, clock).handlers() if (sends := self.admission.idempotence) is not None else {}),
            **(self.timers.handlers if self.timers is not None else {}),
            **self.administration.handlers(),
        }
        times = self.change_times
        for changes, timed in (
            (code.UPDATE_AND_CREATE_TOPIC, lambda handler: times.of_topics(handler, self.topics.is_system)),
            (code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, times.of_groups),
        ):
            table[changes] = timed(table[changes])
        return {int(key): handler for key, handler in table.items()}

    def _recurring_requests(self, recurrences: Recurrences | None) -> dict[RequestCode, RequestHandler]:
        """Let runs happen; what answers requests about them."""
        if recurrences is None:
            return {}
        desk = RunDesk(self.admission, self.topics, self.offsets, self.clock)
        recurrences.attach(self.store, desk)
        requests = RecurringProcessor(self.settings, recurrences, desk, unwritable=self.unwritable)
        return {
            RequestCode.PUT_RECURRING: requests.put,
            RequestCode.GET_RECURRING: requests.get,
            RequestCode.SET_RECURRING_STATE: requests.set_state,
            RequestCode.DELETE_RECURRING: requests.delete,
        }

    # --- the front end's side ---------------------------------------------------------------------------------------

    def handle(self, request: Command, peer: Peer) -> Command | None:
        """The answer; None when it comes later through the peer, or never."""
        handler = self._handlers.get(request.code)
        if handler is None:
            self.tally.unsupported += 1
            answer: Command | None = response(
                request, ResponseCode.REQUEST_CODE_NOT_SUPPORTED, _not_supported(request.code)
            )
        else:
            self.tally.requests[request.code] += 1
            try:
                answer = handler(request, peer)
            except Refusal as refusal:
                fields = refusal.fields
                answer = response(request, refusal.code, refusal.remark, None if fields is None else dict(fields))
            except OrbitError as error:
                answer = response(request, ResponseCode.SYSTEM_ERROR, str(error))
            except Exception as error:
                self.statistics.failed_handler_count += 1
                logger.exception("request code %d from %s failed", request.code, peer.address)
                answer = response(request, ResponseCode.SYSTEM_ERROR, f"{type(error).__name__}: {error}")
            if answer is not None and answer.code:
                self.tally.failed(request.code, answer.code)
        return None if request.flag & FLAG_ONEWAY else answer

    def handle_excess(self, request: Command, peer: Peer) -> Command | None:
        """The answer to a request that finds too many waiting: sends are refused, everything else is served."""
        if request.code in SENDS:
            return self.sends.refuse_excess(request)
        return self.handle(request, peer)

    def end_turn(self) -> None:
        """Save changed tables, write the log, answer what became safe, and arm what is due later."""
        if self.topics.dirty or self.groups.dirty:
            self._save_tables()
        self.store.commit()
        self.admission.timers.turn_ended()
        now_ns = self.clock.monotonic_ns()
        self.statistics.end_turn(now_ns, self.clock.now_ms)
        self._arm(now_ns)

    def peer_closed(self, peer: Peer) -> None:
        """The connection is gone: its clients leave their groups, its held pulls are forgotten."""
        self.pulls.held.drop_owner(peer)
        self.clients.peer_closed(peer)

    # --- time -------------------------------------------------------------------------------------------------------

    @property
    def next_tick_ns(self) -> int | None:
        """Monotonic time of the next periodic work; None while there is none."""
        return self.deadlines.next_ns

    def tick(self) -> None:
        """Do the periodic work that is due."""
        now_ns = self.clock.monotonic_ns()
        self.deadlines.run_due(now_ns)
        self._arm(now_ns)

    def _arm(self, now_ns: int) -> None:
        deadlines = self.deadlines
        if self.offsets.dirty and not self._saving_offsets:
            deadlines.arm(OFFSETS, now_ns + self.settings.flush_consumer_offset_interval_ms * 1_000_000)
        deadlines.move(CLIENTS, self.clients.next_expiry_ns())
        deadlines.move(HELD, self.pulls.held.next_at_ns())

    def _expire_clients(self) -> None:
        for peer in self.clients.expire(self.clock.monotonic_ns()):
            peer.close(f"no heartbeat for {self.settings.channel_expired_timeout_ms} ms")

    def _check_held(self) -> None:
        self.pulls.held.check(self.clock.monotonic_ns(), self.store.max_offset)

    def _save_offsets(self) -> None:
        """Hand a snapshot to the worker; the table is dirty again when that fails."""
        self._saving_offsets = True
        self._worker.submit(self.offsets.snapshot(), self._offsets_saved)

    def _offsets_saved(self, result: object) -> None:
        self._saving_offsets = False
        if isinstance(result, BaseException):
            logger.error("consumer offsets could not be saved: %s; they are tried again", result)
            self.offsets.dirty = True

    def _save_tables(self) -> None:
        """Save what changed. A failure is reported once, and tried again with the next change or a little later."""
        try:
            self.topics.save()
            self.groups.save()
        except OSError as error:
            if self._table_failure is None:
                logger.error("configuration tables could not be saved: %s; they are tried again", error)
            self._table_failure = str(error)
            self.deadlines.arm(TABLES, self.clock.monotonic_ns() + TABLE_RETRY_NS)
        else:
            self._table_failure = None

    def close(self) -> None:
        """Answer what is still held and save every table. The store and its worker are closed afterwards, by the owner.

        Raises `OSError` when a table could not be saved.
        """
        self.pulls.held.release_all()
        self.store.commit()
        if self.offsets.dirty:
            self._save_offsets()
        self.topics.save()
        self.groups.save()

    # --- what the parts need ----------------------------------------------------------------------------------------

    def unwritable(self) -> Refusal:
        """The refusal of a send while the store takes none: why, and how full the disks are."""
        disks = ", ".join(f"{path} {share:.0%} full" for path, share in self._disk_use().items())
        reason = self.store.unwritable_reason or "the write failed"
        return Refusal(
            ResponseCode.SERVICE_NOT_AVAILABLE,
            f"the store of broker {self.settings.broker_name!r} takes no messages: {reason}"
            + (f"; {disks}" if disks else ""),
        )

    def _arrived(self, entries: Sequence[Dispatched]) -> None:
        held = self.pulls.held
        if not len(held):
            return
        waited_for = held.queues
        for entry in entries:
            if (entry.topic, entry.queue_id) in waited_for and entry.has_queue_unit:
                self.pulls.arrived(entry.topic, entry.queue_id, entry.queue_offset + 1, entry.tags_code)

    def _notify_members(self, group: str, peers: Iterable[Peer]) -> None:
        for peer in peers:
            peer.send(request(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, {"consumerGroup": group}, oneway=True))

    def _wants_notice(self, group: str) -> bool:
        if not self.settings.notify_consumer_ids_changed_enable:
            return False
        config = self.groups.known(group)
        return config is None or config.notify_consumer_ids_changed_enable

    def _counts(self) -> Mapping[str, str]:
        """What was refused, lowered or dropped since the start, and how often each periodic work woke the process."""
        counted = self.statistics
        counts = {
            "orbitmqBusyAnswers": counted.busy_count,
            "orbitmqUnsupportedRequests": self.tally.unsupported,
            "orbitmqFailedHandlers": counted.failed_handler_count,
            "orbitmqDeadLetters": counted.dead_letter_count,
            "orbitmqDeliveredBytes": counted.transferred_bytes,
            "orbitmqLoweredDelayLevels": self.admission.clamped_count,
            "orbitmqCrowdedTimerSlots": self.admission.timers.congested_count,
            "orbitmqPullsNotHeld": self.pulls.held.refused_count,
            "orbitmqOffsetsNotKept": self.offsets.refused_count,
            "orbitmqOffsetsBeyondEnd": self.offsets.beyond_end_count,
            "orbitmqQuestionsToClients": self.administration.questions.open_count,
            "orbitmqExpiredClients": self.clients.expired_count,
        }
        if (sends := self.admission.idempotence) is not None:
            counts |= {
                "orbitmqRepeatedSends": sends.repeat_count,
                "orbitmqStaleEpochs": sends.stale_count,
                "orbitmqIdempotenceFull": sends.full_count,
                "orbitmqOnceScopes": sends.memory.scope_count,
                "orbitmqOnceKeys": sends.memory.key_count,
            }
        for name, count in self.deadlines.wakeups.items():
            counts[f"orbitmqWakeups_{name.replace(' ', '_')}"] = count
        return {key: str(count) for key, count in counts.items()}

    def _own_settings(self) -> Mapping[str, str]:
        """The broker's settings under their names in camel case; a server gives its full list instead."""
        return {_camel(name): str(value) for name, value in msgspec.structs.asdict(self.settings).items()}


def _not_supported(code: int) -> str:
    name = f" ({RequestCode(code).name})" if code in HEADERS else ""
    return f"request code {code}{name} is not supported by this broker"


def _camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(word.capitalize() for word in others)
