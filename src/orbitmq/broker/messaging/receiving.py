"""ReceiveMessage: pops for clients of RocketMQ 5, and the stream that they are answered with.

A stream is a status, the messages, and the time of delivery, which is always its last item.

Rules of this file
1. Which messages a client gets, and how long it waits for them, is decided by `Pops`. What is done here is said by the protocol: a tag is
   compared as text where a queue knows its hash only, and a message whose attempts are used up becomes a dead letter.
2. Messages are written as fast as their reader takes them.
3. What was popped for a call that does not get all of it, because it was cancelled, its connection lost or its stream reset before the last
   byte has left, is visible again at once: clients take a stream as a whole or not at all.

Source: RocketMQ gRPC, ReceiveMessage.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Final, NamedTuple

import msgspec

from orbitmq.broker.core import BrokerCore
from orbitmq.broker.messaging.acknowledging import check_invisible
from orbitmq.broker.messaging.forwarding import Forwarding
from orbitmq.broker.messaging.polling_time import polling_ns
from orbitmq.broker.messaging.renewal import Renewals
from orbitmq.broker.messaging.served_calls import ServedCall
from orbitmq.broker.messaging.sessions import Session, Sessions
from orbitmq.broker.messaging.settings import MessagingSettings
from orbitmq.broker.pop.in_flight import PopQueue
from orbitmq.broker.pop.pops import Pops
from orbitmq.broker.pop.settling import PopName, PoppedMessage
from orbitmq.broker.pop.taking import ALL_QUEUES, REVIVE_QUEUE, Pop, PopEnd, PopTaken
from orbitmq.broker.refusal import Refusal
from orbitmq.limits.grpc import RECEIVED_AT_ONCE_BYTES, REQUEST_TIMEOUT_MS
from orbitmq.limits.pop import POP_MESSAGES_MAX
from orbitmq.protocol.filtering.expression import SQL92, TAG
from orbitmq.protocol.filtering.tags import EVERYTHING, TagFilter
from orbitmq.protocol.grpc.call_error import CallError, GrpcStatus
from orbitmq.protocol.grpc.decoding import read_message
from orbitmq.protocol.grpc.delivered_messages import fill_message, timestamp_of
from orbitmq.protocol.grpc.merged_settings import attempts_of, milliseconds_of
from orbitmq.protocol.grpc.messages import (
    Code,
    FilterType,
    ReceiveMessageRequest,
    ReceiveMessageResponse,
    Status,
)
from orbitmq.protocol.grpc.open_call import OpenCall
from orbitmq.protocol.grpc.receipt_handles import handles_of
from orbitmq.protocol.grpc.resource_names import group_of, topic_of
from orbitmq.protocol.grpc.rpcs import Rpc
from orbitmq.protocol.grpc.status import RpcError, status_of
from orbitmq.protocol.pop_receipts import ORDER_REVIVE_QUEUE, PopReceipt, pop_retry_topic
from orbitmq.protocol.properties import Property, decode_properties
from orbitmq.protocol.records import Record, decode_records
from orbitmq.protocol.remoting.bodies import SubscriptionGroupConfig
from orbitmq.store.durability import PutStatus
from orbitmq.store.reads import RecordsNotInMemory

logger = logging.getLogger("orbitmq.broker")

FOUND: Final = ReceiveMessageResponse(status=status_of(Code.OK)).SerializeToString()

MISSED: Final = {
    PopEnd.NOTHING: status_of(Code.MESSAGE_NOT_FOUND),
    PopEnd.FULL: status_of(Code.TOO_MANY_REQUESTS, "too many receives wait for messages of this topic and group"),
}


class _Taken(msgspec.Struct, gc=False):
    """A message that was taken for a receive. `attempts_before`: how often it was delivered."""

    record: Record
    message: PoppedMessage
    handle: str
    attempts_before: int


class _Given(NamedTuple):
    """A message that was written."""

    message: PoppedMessage
    handle: str
    attempts_before: int


class _Receive(msgspec.Struct, eq=False):
    """A receive, from its request to the end of its stream."""

    call: OpenCall
    topic: str
    group: str
    tags: str
    """The expression of tags that are wanted; empty where every one is."""
    session: Session | None
    renews: bool
    """What it brings is renewed while its client is there."""
    left: deque[_Taken] = msgspec.field(default_factory=deque)
    """What was taken and is not written yet."""
    given: list[_Given] = []
    """What was written."""
    wanted: TagFilter | None = None
    popped_ms: int = 0
    attempts_max: int = 0
    """So often a message is delivered; then it is a dead letter."""


class ReceiveCalls:
    def __init__(
        self,
        core: BrokerCore,
        pops: Pops,
        sessions: Sessions,
        renewals: Renewals,
        forwarding: Forwarding,
        settings: MessagingSettings,
    ) -> None:
        self._settings = settings
        self._topics = core.topics
        self._groups = core.groups
        self._clock = core.clock
        self._store = core.store
        self._statistics = core.statistics
        self._broker_settings = core.settings
        self._broker_name = core.settings.broker_name
        self._pops = pops
        self._sessions = sessions
        self._renewals = renewals
        self._forwarding = forwarding
        self._paused: dict[OpenCall, _Receive] = {}
        """Those whose reader takes no more now."""
        self._is_closed = False

    def calls(self) -> Mapping[Rpc, ServedCall]:
        return {Rpc.RECEIVE_MESSAGE: ServedCall(partial(read_message, ReceiveMessageRequest), self.receive, self.over)}

    def close(self) -> None:
        """The broker stops: streams that wait for their readers break off. What is in flight then is stored, and not touched any more."""
        for call, receive in self._paused.items():
            self._give_back(receive)
            call.fail(CallError(GrpcStatus.UNAVAILABLE, "the broker stops"))
        self._paused.clear()
        self._is_closed = True

    # --- the request --------------------------------------------------------------------------------------------------

    def receive(self, call: OpenCall, request: ReceiveMessageRequest) -> None:
        """Raises RpcError for a request that is wrong, Refusal for one that the broker refuses."""
        session = self._sessions.of(call)
        waits_ns = self._waits_ns(call, request, session)
        topic, group = topic_of(request.message_queue.topic), group_of(request.group)
        settings = self._settings
        invisible_ms = settings.renewed_invisible_ms
        if not request.auto_renew:
            invisible_ms = milliseconds_of(request.invisible_duration)
            check_invisible(invisible_ms, settings.invisible_ms_min, settings.invisible_ms_max)
        expression = request.filter_expression.expression
        is_sql = request.filter_expression.type == FilterType.SQL
        if is_sql and not self._broker_settings.enable_property_filter:
            raise RpcError(
                Code.ILLEGAL_FILTER_EXPRESSION, "this broker filters by tags only (enablePropertyFilter=false)"
            )
        config, group_config = self._topics.get(topic), self._groups.known(group)
        if config is not None and config.read_queue_nums <= 0:
            raise RpcError(Code.FORBIDDEN, f"topic {topic!r} has no queue that can be read")
        tags = "" if is_sql or expression == EVERYTHING else expression
        receive = _Receive(call, topic, group, tags, session, request.auto_renew)
        pop = Pop(
            call,
            partial(self._told, receive),
            group,
            topic,
            ALL_QUEUES,
            min(request.batch_size, settings.receive_batch_max, POP_MESSAGES_MAX),
            invisible_ms,
            from_end=True,
            is_ordered=group_config is not None and group_config.consume_message_orderly,
            attempt_id=request.attempt_id or None,
        )
        self._pops.take(pop, expression, SQL92 if is_sql else TAG, waits_ns=waits_ns)

    def over(self, call: OpenCall) -> None:
        """Nobody wants the call any more."""
        self._pops.drop(call)
        receive = self._paused.pop(call, None)
        if receive is not None:
            self._give_back(receive)

    def _waits_ns(self, call: OpenCall, request: ReceiveMessageRequest, session: Session | None) -> int:
        timeout_ns, settings = call.call.timeout_ns, None
        if session is not None and session.settings.HasField("request_timeout"):
            settings = session.settings
        return polling_ns(
            None if timeout_ns is None else timeout_ns - (self._clock.monotonic_ns() - call.received_ns),
            milliseconds_of(request.long_polling_timeout) if request.HasField("long_polling_timeout") else None,
            REQUEST_TIMEOUT_MS if settings is None else milliseconds_of(settings.request_timeout),
            call.call.client_version,
            self._settings.polling_ms_min,
            self._settings.polling_ms_max,
        )

    # --- the stream ---------------------------------------------------------------------------------------------------

    def _told(self, receive: _Receive, pop: Pop, taken: PopTaken, end: PopEnd) -> None:
        """How a pop ended. Nothing escapes from here: whoever tells has others to tell."""
        try:
            if end is PopEnd.FOUND:
                receive.left.extend(self._each(pop, taken))
                config = self._groups.known(receive.group) or SubscriptionGroupConfig()
                receive.attempts_max = attempts_of(config)
                receive.popped_ms = taken.popped_ms
                if receive.tags:
                    receive.wanted = TagFilter.parse(receive.tags)
                self._write(receive)
            elif receive.call.is_wanted:
                self._end(receive, MISSED.get(end) or status_of(Code.INTERNAL_SERVER_ERROR, taken.problem or ""))
        except Exception as error:
            self._statistics.failed_handler_count += 1
            logger.exception("a receive of %s for %s failed", receive.topic, receive.call.address)
            self._end(receive, status_of(Code.INTERNAL_SERVER_ERROR, f"{type(error).__name__}: {error}"))

    def _each(self, pop: Pop, taken: PopTaken) -> Iterator[_Taken]:
        """The messages that a pop has brought, one by one."""
        name = PopName(taken.popped_ms, self._broker_name, pop.is_ordered)
        revive_queue = ORDER_REVIVE_QUEUE if pop.is_ordered else REVIVE_QUEUE
        records = iter(decode_records(b"".join(taken.records)))
        for at, (source, queue_id, start, offsets) in enumerate(taken.queues):
            key = PopQueue(pop_retry_topic(pop.group, pop.topic, source), pop.group, queue_id)
            counts = taken.given_before[at].counts if pop.is_ordered else None
            handle_of = handles_of(
                PopReceipt(
                    start, taken.popped_ms, pop.invisible_ms, revive_queue, source, self._broker_name, queue_id, 0
                )
            )
            for offset, record in zip(offsets, records, strict=False):
                yield _Taken(
                    record,
                    PoppedMessage(key, offset, name),
                    handle_of(offset, record.physical_offset),
                    record.reconsume_times if counts is None else counts.get(offset, 0),
                )

    def _write(self, receive: _Receive) -> None:
        """Write what is left of a stream, as far as its reader takes it."""
        call, left, session = receive.call, receive.left, receive.session
        is_gone = receive.renews and session is not None and not session.is_open
        if is_gone:  # for nobody it would be renewed
            self._give_back(receive)
        while left:
            if not call.is_wanted:
                self._give_back(receive)
                return
            if not call.writable:
                self._paused[call] = receive
                call.when_writable(partial(self._resume, receive))
                return
            self._write_some(receive)
            if not call.is_wanted:  # more waits for this reader than may wait: its stream was reset
                self._give_back(receive)
                call.end()
                return
        if receive.renews and not is_gone:
            given = [(one.handle, one.attempts_before) for one in receive.given]
            self._renewals.hold(session, receive.topic, receive.group, given, receive.popped_ms)
        self._end(receive, None if receive.given else MISSED[PopEnd.NOTHING])

    def _write_some(self, receive: _Receive) -> None:
        """Write the next messages of a stream, in front of the first of them its status."""
        items = [] if receive.given else [FOUND]
        left, size, before = receive.left, 0, len(receive.given)
        while left and size < RECEIVED_AT_ONCE_BYTES:
            taken = left.popleft()
            item = self._item(receive, taken)
            if item is not None:
                items.append(item)
                size += len(item)
                receive.given.append(_Given(taken.message, taken.handle, taken.attempts_before))
        if len(receive.given) > before:
            receive.call.answer(*items)

    def _resume(self, receive: _Receive) -> None:
        if self._paused.pop(receive.call, None) is not None:
            self._write(receive)

    def _item(self, receive: _Receive, taken: _Taken) -> bytes | None:
        """The item of a message; None for one that the client does not get."""
        record = taken.record
        properties = decode_properties(record.properties)
        if receive.wanted is not None and not receive.wanted.accepts_tag(properties.get(Property.TAGS)):
            self._pops.settling.acknowledge(*taken.message)
            return None
        if taken.attempts_before >= receive.attempts_max:
            self._forward(receive, taken)
            return None
        item = ReceiveMessageResponse()
        fill_message(item.message, record, receive.topic, properties, taken.attempts_before, taken.handle)
        return item.SerializeToString()

    def _forward(self, receive: _Receive, taken: _Taken) -> None:
        """Make a dead letter of a message. If that fails it comes back when its invisible time is over, and this is tried again then."""
        try:
            self._forwarding.forward(taken.message, taken.record.physical_offset, receive.topic, _nobody)
        except RecordsNotInMemory as missing:
            self._store.fetch(missing, partial(self._forward, receive, taken))
        except (RpcError, Refusal, OSError) as error:
            logger.warning(
                "message %d of %s/%d cannot be made a dead letter of group %s now: %s",
                taken.message.offset, *taken.message.queue[::2], receive.group, error,
            )  # fmt: skip

    def _give_back(self, receive: _Receive) -> None:
        """Nobody gets what was taken for a call, nor what was written of it."""
        messages = [given.message for given in receive.given] + [taken.message for taken in receive.left]
        receive.left.clear()
        self._pops.figures.call_lost_count += self._pops.settling.show(messages, suspended=True)

    def _end(self, receive: _Receive, status: Status | None) -> None:
        """Write the last item, behind a status where none was written."""
        call = receive.call
        if status is not None:
            call.answer(ReceiveMessageResponse(status=status).SerializeToString())
        call.answer(delivery_item(self._clock.now_ms()))
        call.end(partial(self._lost, receive) if receive.given else None)

    def _lost(self, receive: _Receive) -> None:
        """The stream was written to its end and does not reach its reader."""
        if self._is_closed:
            return
        for one in receive.given:
            self._renewals.drop(self._renewals.find(receive.session, receive.topic, receive.group, one.handle))
        self._give_back(receive)


def delivery_item(now_ms: int) -> bytes:
    """The last item of a stream."""
    return ReceiveMessageResponse(delivery_timestamp=timestamp_of(now_ms)).SerializeToString()


def _nobody(status: PutStatus) -> None:
    """A dead letter that nobody asked for."""
