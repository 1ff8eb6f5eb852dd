"""Requests 200050 to 200055 and 200151: the remoting side of POP consumption, which is decided in `pops` and `settling`.

Rules of this file
1. Fields become a `Pop`, or the name of a message; what they are told becomes the answer. Nothing else is decided here but whether a
   request came too late to wait.
2. Receipts of ordered pops name the revive queue 999.
3. The answer to a wish that finds nothing has the header of one that finds something: clients read it from either.

Source: RocketMQ remoting, POP family.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Final

from orbitmq.access.gate import LedTo
from orbitmq.broker.pop.in_flight import PopQueue
from orbitmq.broker.pop.ordering import order_count_info
from orbitmq.broker.pop.pops import Pops
from orbitmq.broker.pop.settling import PopName, PopSettling, pop_of
from orbitmq.broker.pop.taking import REVIVE_QUEUE, Pop, PopEnd, PopTaken
from orbitmq.broker.real_topics import first_topic
from orbitmq.broker.refusal import Refusal
from orbitmq.broker.room import RequestHandler, Room
from orbitmq.clock import Clock
from orbitmq.limits.pop import POP_ACK_BITS_BYTES_MAX, POP_ACKS_AT_ONCE_MAX, POP_LATE_REQUEST_MS
from orbitmq.protocol.pop_receipts import (
    ORDER_REVIVE_QUEUE,
    PopSource,
    decode_receipt,
    message_offset_info,
    pop_retry_topic,
    start_offset_info,
)
from orbitmq.protocol.remoting.bodies import BatchAckBody, BatchAckEntry
from orbitmq.protocol.remoting.commands import RequestCode, ResponseCode
from orbitmq.protocol.remoting.frame import FLAG_RESPONSE, Command, response
from orbitmq.protocol.remoting.peer import Peer
from orbitmq.protocol.remoting.versions import OUR_VERSION, Language
from orbitmq.units import NS_PER_MS

_BYTES_WITH_BITS: Final = re.compile(rb"[^\x00]")

FROM_END: Final = 1
"""Value of `initMode`: a group without an offset begins with the last message."""

ENDS: Final = {
    PopEnd.FOUND: ResponseCode.SUCCESS,
    PopEnd.NOTHING: ResponseCode.POLLING_TIMEOUT,
    PopEnd.FULL: ResponseCode.POLLING_FULL,
    PopEnd.FAILED: ResponseCode.SYSTEM_ERROR,
}


class PopRequests(Room):
    def __init__(self, pops: Pops, clock: Clock) -> None:
        self._pops = pops
        self._settling: Final[PopSettling] = pops.settling
        self._clock = clock

    def handlers(self) -> Mapping[RequestCode, RequestHandler]:
        code = RequestCode
        return {
            code.POP_MESSAGE: self.pop,
            code.PEEK_MESSAGE: self.peek,
            code.ACK_MESSAGE: self.ack,
            code.BATCH_ACK_MESSAGE: self.batch_ack,
            code.CHANGE_MESSAGE_INVISIBLETIME: self.change_invisible_time,
            code.NOTIFICATION: self.notification,
            code.POLLING_INFO: self.polling_info,
        }

    def led_to(self) -> Mapping[RequestCode, LedTo]:
        return dict.fromkeys((RequestCode.ACK_MESSAGE, RequestCode.CHANGE_MESSAGE_INVISIBLETIME), first_topic)

    # --- taking -------------------------------------------------------------------------------------------------------

    def pop(self, command: Command, peer: Peer) -> Command | None:
        waits_ns = self._waits_ns(command)
        try:
            if waits_ns < -POP_LATE_REQUEST_MS * NS_PER_MS:
                raise Refusal(ResponseCode.POLLING_TIMEOUT, "the poll time of this pop is over")
            pop = _in_order(_wish(command, peer), command)
            pop.invisible_ms = command.integer("invisibleTime")
            pop.from_end = command.int32("initMode") == FROM_END
            self._pops.take(pop, command.text("exp"), command.text("expType"), waits_ns=waits_ns)
        except Refusal as refusal:
            raise Refusal(refusal.code, refusal.remark, _header()) from refusal
        return None

    def peek(self, command: Command, peer: Peer) -> Command | None:
        pop = _wish(command, peer)
        pop.told = partial(_answer_peek, command.opaque, peer)
        try:
            self._pops.peek(pop)
        except Refusal as refusal:
            raise Refusal(refusal.code, refusal.remark, _header()) from refusal
        return None

    def notification(self, command: Command, peer: Peer) -> Command | None:
        def told(has_message: bool) -> None:
            peer.send(_told(command, PopEnd.FOUND if has_message else PopEnd.NOTHING))

        pop, waits_ns = _in_order(_wish(command, peer), command), self._waits_ns(command)
        end = self._pops.ask(pop, command.text("exp"), command.text("expType"), waits_ns=waits_ns, told=told)
        return None if end is None else _told(command, end)

    def polling_info(self, command: Command, peer: Peer) -> Command:
        count = self._pops.waiting_count(_wish(command, peer))
        return response(command, ResponseCode.SUCCESS, None, {"pollingNum": str(count)})

    def _waits_ns(self, command: Command) -> int:
        """How long the request may wait yet; negative when its poll time is over."""
        now_ms, born_ms, poll_ms = self._clock.now_ms(), command.integer("bornTime"), command.integer("pollTime")
        if born_ms <= 0:
            born_ms = now_ms
        return min(born_ms + poll_ms - now_ms, poll_ms) * NS_PER_MS

    # --- settling -----------------------------------------------------------------------------------------------------

    def ack(self, command: Command, peer: Peer) -> Command:
        self._settling.acknowledge(*self._named(command))
        return response(command, ResponseCode.SUCCESS)

    def batch_ack(self, command: Command, peer: Peer) -> Command:
        body = BatchAckBody.decode(command.body)
        if not body.acks:
            raise Refusal(ResponseCode.NO_MESSAGE, "the request acknowledges nothing", {})
        for entry in body.acks:
            if len(entry.bit_set) > POP_ACK_BITS_BYTES_MAX:
                raise Refusal(
                    ResponseCode.MESSAGE_ILLEGAL,
                    f"a bit set has at most {POP_ACK_BITS_BYTES_MAX} bytes, not {len(entry.bit_set)}",
                )
        count = max(len(body.acks), sum(int.from_bytes(entry.bit_set).bit_count() for entry in body.acks))
        if count > POP_ACKS_AT_ONCE_MAX:
            raise Refusal(
                ResponseCode.MESSAGE_ILLEGAL,
                f"a batch acknowledges at most {POP_ACKS_AT_ONCE_MAX} messages, not {count}",
            )
        for entry in body.acks:
            key = _key_of(entry)
            if key is not None:
                pop = PopName(entry.pop_time, body.broker_name, entry.revive_queue_id == ORDER_REVIVE_QUEUE)
                self._settling.acknowledge_all(key, _offsets_of(entry), pop)
        return response(command, ResponseCode.SUCCESS)

    def change_invisible_time(self, command: Command, peer: Peer) -> Command:
        key, offset, pop = self._named(command)
        invisible_ms, suspended = command.integer("invisibleTime"), command.boolean("suspend")
        hiding = self._settling.hide(key, offset, pop, invisible_ms, suspended=suspended)
        fields = {
            "popTime": str(hiding.popped_ms),
            "invisibleTime": str(hiding.invisible_ms),
            "reviveQid": str(ORDER_REVIVE_QUEUE if pop.is_ordered else REVIVE_QUEUE),
        }
        return response(command, ResponseCode.SUCCESS, None, fields)

    def _named(self, command: Command) -> tuple[PopQueue, int, PopName]:
        """The message that a request names, and the pop that brought it. Raises Refusal, or ProtocolError for no receipt."""
        key = self._settling.queue_of(command.text("topic"), command.text("consumerGroup"), command.int32("queueId"))
        return key, command.integer("offset"), pop_of(decode_receipt(command.text("extraInfo")))


def _wish(command: Command, peer: Peer) -> Pop:
    """Whose messages a request is about, and how many of them."""
    return Pop(
        peer,
        partial(_answer, command.opaque, peer),
        command.text("consumerGroup"),
        command.text("topic"),
        command.int32("queueId"),
        command.int32("maxMsgNums"),
    )


def _in_order(pop: Pop, command: Command) -> Pop:
    pop.is_ordered = command.boolean("order")
    pop.attempt_id = command.text("attemptId") or None
    return pop


def _answer(opaque: int, peer: Peer, pop: Pop, taken: PopTaken, end: PopEnd) -> None:
    if end is PopEnd.FAILED:
        peer.send(_late(opaque, ENDS[end], taken.problem or ""))
        return
    answer = _late(opaque, ENDS[end], "FOUND" if end is PopEnd.FOUND else ENDS[end].name)
    answer.fields = _header(taken.rest_count) | {
        "popTime": str(taken.popped_ms),
        "invisibleTime": str(pop.invisible_ms),
        "startOffsetInfo": start_offset_info(taken.queues),
        "msgOffsetInfo": message_offset_info(taken.queues),
    }
    if pop.is_ordered:
        counts = ";".join(map(order_count_info, taken.given_before))
        answer.fields |= {"reviveQid": str(ORDER_REVIVE_QUEUE), "orderCountInfo": counts}
    if end is PopEnd.FOUND:
        peer.send_parts(answer, taken.records)
    else:
        peer.send(answer)


def _answer_peek(opaque: int, peer: Peer, pop: Pop, taken: PopTaken, end: PopEnd) -> None:
    code = ResponseCode.SUCCESS if end is PopEnd.FOUND else ResponseCode.PULL_NOT_FOUND
    answer = _late(opaque, code, "")
    answer.fields = _header(taken.rest_count)
    peer.send_parts(answer, taken.records)


def _late(opaque: int, code: ResponseCode, remark: str) -> Command:
    return Command(code, opaque, FLAG_RESPONSE, Language.JAVA, OUR_VERSION, remark)


def _told(command: Command, end: PopEnd) -> Command:
    """The answer to a NOTIFICATION."""
    fields = {"hasMsg": str(end is PopEnd.FOUND).lower(), "pollingFull": str(end is PopEnd.FULL).lower()}
    return response(command, ResponseCode.SUCCESS, None, fields)


def _header(rest_count: int = 0) -> dict[str, str]:
    """What an answer says that hides nothing."""
    return {"popTime": "0", "invisibleTime": "0", "reviveQid": str(REVIVE_QUEUE), "restNum": str(rest_count)}


def _key_of(entry: BatchAckEntry) -> PopQueue | None:
    """The queue that acknowledgements are about; None when they name no topic of a pop."""
    try:
        source = PopSource(entry.retry or PopSource.NORMAL)
    except ValueError:
        return None
    return PopQueue(pop_retry_topic(entry.consumer_group, entry.topic, source), entry.consumer_group, entry.queue_id)


def _offsets_of(entry: BatchAckEntry) -> Iterator[int]:
    for found in _BYTES_WITH_BITS.finditer(entry.bit_set):
        for bit in range(8):
            if found[0][0] >> bit & 1:
                yield entry.start_offset + 8 * found.start() + bit
