"""Pops through two fronts: over remoting and through another front end the same messages come, with receipts that mean the same.

The other front end is a reader of a few lines: it makes a `Pop` of a wish, and a receipt for each message of what it is told. Each front
has a broker of its own, with the same clock, messages and settings; they take the same steps.

The front end of RocketMQ 5 takes them too, as far as its calls can say them: it receives of all queues, waits for five seconds at least,
asks the group whether it receives in order, and refuses a handle whose time is over.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.broker.conftest import SMALL_STORE, ListPeer
from tests.unit.broker.pop.conftest import PopRig
from tests.worlds.grpc_calls import Caller, ListCall
from tests.worlds.grpc_consumers import GrpcConsumer, received

from orbitmq.broker.messaging.front import MessagingFront
from orbitmq.broker.messaging.settings import MessagingSettings
from orbitmq.broker.pop.settling import PopName
from orbitmq.broker.pop.taking import ALL_QUEUES, REVIVE_QUEUE, Pop, PopEnd, PopTaken, single_records
from orbitmq.broker.refusal import Refusal
from orbitmq.broker.settings import BrokerSettings
from orbitmq.protocol.grpc.messages import Code, ReceiveMessageResponse, Status, Timestamp
from orbitmq.protocol.pop_receipts import (
    ORDER_REVIVE_QUEUE,
    PopReceipt,
    PopSource,
    decode_receipt,
    decode_start_offset_info,
    pop_retry_topic,
)
from orbitmq.protocol.properties import Property, decode_properties
from orbitmq.protocol.records import decode_record
from orbitmq.protocol.remoting.bodies import SubscriptionGroupConfig, TopicConfig
from orbitmq.protocol.remoting.commands import RequestCode, ResponseCode
from orbitmq.protocol.remoting.frame import Command

Told = tuple[PopEnd | ResponseCode, list[tuple[bytes, str]]]
"""How a pop ended, and its messages with their receipts."""

INVISIBLE_MS = 60_000


class PopFront:
    """A front end and its broker. A consumer of group `g` pops through it."""

    def __init__(self, root: Path) -> None:
        self.rig = PopRig(root, BrokerSettings(), SMALL_STORE)
        self.rig.chosen_queue = 50
        self.peer = ListPeer(self.rig.clock)

    def pop(self, topic: str, queue_id: int, max_count: int, waits_ms: int, attempt: str | None) -> None:
        """Pop of one queue or all; in order where `attempt` names the try."""
        raise NotImplementedError

    def told(self) -> list[Told]:
        """The ends of pops since the last call."""
        raise NotImplementedError

    def acknowledge(self, topic: str, receipt: PopReceipt) -> ResponseCode:
        raise NotImplementedError

    def hide(self, topic: str, receipt: PopReceipt, invisible_ms: int) -> PopReceipt | ResponseCode:
        """The new receipt."""
        raise NotImplementedError


class RemotingPops(PopFront):
    def pop(self, topic: str, queue_id: int, max_count: int, waits_ms: int, attempt: str | None) -> None:
        fields = {
            "consumerGroup": "g", "topic": topic, "queueId": queue_id, "maxMsgNums": max_count, "bornTime": 0,
            "invisibleTime": INVISIBLE_MS, "pollTime": waits_ms, "initMode": 0, "expType": "TAG", "exp": "*",
            "order": attempt is not None, "attemptId": attempt or "",
        }  # fmt: skip
        answer = self.rig.try_call(RequestCode.POP_MESSAGE, fields, peer=self.peer)
        if answer is not None:
            self.peer.sent.append(answer)

    def told(self) -> list[Told]:
        return [self._read(answer) for answer in self.peer.take()]

    def _read(self, answer: Command) -> Told:
        """As RocketMQ's client makes receipts of the header."""
        ends = {ResponseCode.SUCCESS: PopEnd.FOUND, ResponseCode.POLLING_TIMEOUT: PopEnd.NOTHING}
        fields, found = answer.fields, []
        starts = decode_start_offset_info(fields.get("startOffsetInfo", ""))
        for part in single_records([bytes(answer.body)]):
            record = decode_record(part)
            receipt = decode_properties(record.properties).get(Property.POP_CK)
            if receipt is None:
                receipt = PopReceipt(
                    starts[PopSource.NORMAL, record.queue_id], int(fields["popTime"]), int(fields["invisibleTime"]),
                    int(fields["reviveQid"]), PopSource.NORMAL, "broker-a", record.queue_id, record.queue_offset,
                ).encode()  # fmt: skip
            found.append((record.body, receipt))
        return ends.get(ResponseCode(answer.code), ResponseCode(answer.code)), found

    def _about(self, code: RequestCode, topic: str, receipt: PopReceipt, **more: Any) -> Command:
        fields = {
            "consumerGroup": "g", "topic": pop_retry_topic("g", topic, receipt.source), "queueId": receipt.queue_id,
            "extraInfo": receipt.encode(), "offset": receipt.queue_offset,
        }  # fmt: skip
        return self.rig.call(code, fields | more, peer=self.peer)

    def acknowledge(self, topic: str, receipt: PopReceipt) -> ResponseCode:
        return ResponseCode(self._about(RequestCode.ACK_MESSAGE, topic, receipt).code)

    def hide(self, topic: str, receipt: PopReceipt, invisible_ms: int) -> PopReceipt | ResponseCode:
        code = RequestCode.CHANGE_MESSAGE_INVISIBLETIME
        answer = self._about(code, topic, receipt, invisibleTime=invisible_ms)
        if answer.code:
            return ResponseCode(answer.code)
        popped_ms, invisible_ms, revive = (
            int(answer.fields[name]) for name in ("popTime", "invisibleTime", "reviveQid")
        )
        return msgspec.structs.replace(receipt, popped_ms=popped_ms, invisible_ms=invisible_ms, revive_queue=revive)


class OtherPops(PopFront):
    """The second reader."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.pops = self.rig.broker.rooms.pops
        self._told: list[Told] = []

    def pop(self, topic: str, queue_id: int, max_count: int, waits_ms: int, attempt: str | None) -> None:
        wish = Pop(self.peer, self._read, "g", topic, queue_id, max_count, INVISIBLE_MS)
        wish.is_ordered, wish.attempt_id = attempt is not None, attempt
        try:
            self.pops.take(wish, "*", "TAG", waits_ns=waits_ms * 1_000_000)
        except Refusal as refusal:
            self._told.append((refusal.code, []))
        self.rig.broker.end_turn()

    def _read(self, pop: Pop, taken: PopTaken, end: PopEnd) -> None:
        revive = ORDER_REVIVE_QUEUE if pop.is_ordered else REVIVE_QUEUE
        places = [(queue, offset) for queue in taken.queues for offset in queue.offsets]
        bodies = [decode_record(record).body for record in single_records(taken.records)]
        receipts = [
            PopReceipt(
                queue.start_offset,
                taken.popped_ms,
                pop.invisible_ms,
                revive,
                queue.source,
                "broker-a",
                queue.queue_id,
                offset,
            ).encode()
            for queue, offset in places
        ]
        self._told.append((end, list(zip(bodies, receipts, strict=True))))

    def told(self) -> list[Told]:
        told, self._told = self._told, []
        return told

    def acknowledge(self, topic: str, receipt: PopReceipt) -> ResponseCode:
        try:
            key = self.pops.settling.queue_of(pop_retry_topic("g", topic, receipt.source), "g", receipt.queue_id)
            self.pops.settling.acknowledge(key, receipt.queue_offset, _name(receipt))
        except Refusal as refusal:
            return refusal.code
        finally:
            self.rig.broker.end_turn()
        return ResponseCode.SUCCESS

    def hide(self, topic: str, receipt: PopReceipt, invisible_ms: int) -> PopReceipt | ResponseCode:
        try:
            key = self.pops.settling.queue_of(pop_retry_topic("g", topic, receipt.source), "g", receipt.queue_id)
            hiding = self.pops.settling.hide(key, receipt.queue_offset, _name(receipt), invisible_ms)
        except Refusal as refusal:
            return refusal.code
        finally:
            self.rig.broker.end_turn()
        return msgspec.structs.replace(receipt, popped_ms=hiding.popped_ms, invisible_ms=hiding.invisible_ms)


class GrpcPops(PopFront):
    """The front end of RocketMQ 5. `hide` and `acknowledge` answer in the words of remoting."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        broker = self.rig.broker
        front = MessagingFront(broker.core, broker.rooms, MessagingSettings())
        self._consumer = GrpcConsumer(Caller(front, self.rig.clock, broker.end_turn))
        self._calls: list[ListCall] = []
        self._places: dict[str, str] = {}
        """Receipt -> handle, which says where the message lies in the log as well."""

    @property
    def waits(self) -> bool:
        """Whether a pop waits for messages."""
        return any(not call.ends for call in self._calls)

    def pop(self, topic: str, queue_id: int, max_count: int, waits_ms: int, attempt: str | None) -> None:
        config = SubscriptionGroupConfig(group_name="g", consume_message_orderly=attempt is not None)
        self.rig.broker.groups.put(config)
        self._consumer.topic = topic
        call = self._consumer.start(
            count=max_count, invisible_ms=INVISIBLE_MS, polling_ms=max(waits_ms, 5_000), attempt=attempt or ""
        )
        self.rig.broker.groups.put(SubscriptionGroupConfig(group_name="g"))  # pops that wait are those of such a group
        if call.ends or waits_ms:
            self._calls.append(call)
            return
        self._consumer.caller.cancel(call)
        call.answers, call.ends = [_NOTHING, _LAST], 1
        self._calls.append(call)

    def told(self) -> list[Told]:
        ended = [call for call in self._calls if call.ends]
        self._calls = [call for call in self._calls if not call.ends]
        return [self._read(call) for call in ended]

    def _read(self, call: ListCall) -> Told:
        answer = received(call)
        found = []
        for body, handle in zip(answer.bodies, answer.handles, strict=True):
            receipt = handle.rsplit(" ", 1)[0]
            self._places[receipt] = handle
            found.append((body, receipt))
        return (PopEnd.FOUND if answer.code == Code.OK else PopEnd.NOTHING), found

    def acknowledge(self, topic: str, receipt: PopReceipt) -> ResponseCode:
        self._consumer.topic = topic
        code = self._consumer.ack(self._places[receipt.encode()]).status.code
        return ResponseCode.SUCCESS if code == Code.OK else ResponseCode.NO_MESSAGE

    def hide(self, topic: str, receipt: PopReceipt, invisible_ms: int) -> PopReceipt | ResponseCode:
        self._consumer.topic = topic
        answer = self._consumer.change(self._places[receipt.encode()], invisible_ms)
        if answer.status.code != Code.OK:
            wrong_time = answer.status.code == Code.ILLEGAL_INVISIBLE_TIME
            return ResponseCode.INVALID_PARAMETER if wrong_time else ResponseCode.NO_MESSAGE
        renewed = decode_receipt(answer.receipt_handle)
        self._places[renewed.encode()] = answer.receipt_handle
        return renewed


_NOTHING: Final = ReceiveMessageResponse(status=Status(code=Code.MESSAGE_NOT_FOUND)).SerializeToString()
_LAST: Final = ReceiveMessageResponse(delivery_timestamp=Timestamp(seconds=1)).SerializeToString()
"""What a receive is answered that finds nothing, here without waiting for it."""


class KeepsTheOldReceipt(OtherPops):
    """A planted bug: a message that is hidden again keeps the receipt that it had."""

    def hide(self, topic: str, receipt: PopReceipt, invisible_ms: int) -> PopReceipt | ResponseCode:
        hidden = super().hide(topic, receipt, invisible_ms)
        return hidden if isinstance(hidden, ResponseCode) else receipt


class KeepsTheOldHandle(GrpcPops):
    """The same bug."""

    def hide(self, topic: str, receipt: PopReceipt, invisible_ms: int) -> PopReceipt | ResponseCode:
        hidden = super().hide(topic, receipt, invisible_ms)
        return hidden if isinstance(hidden, ResponseCode) else receipt


def _name(receipt: PopReceipt) -> PopName:
    return PopName(receipt.popped_ms, receipt.broker_name, receipt.revive_queue == ORDER_REVIVE_QUEUE)


class Pair:
    """Two fronts that take the same steps. `steps` fails where they differ."""

    def __init__(self, root: Path, other: type[PopFront]) -> None:
        self.fronts = RemotingPops(root / "remoting"), other(root / "other")
        self._topics = count()
        self._bodies = count()

    def begin(self) -> None:
        """A topic of its own for the steps to come."""
        self.topic = f"T{next(self._topics)}"
        self.receipts: list[tuple[PopReceipt, PopReceipt]] = []
        for front in self.fronts:
            front.told()
            front.rig.broker.topics.put(TopicConfig(topic_name=self.topic, read_queue_nums=2, write_queue_nums=2), {})

    def steps(self, steps: Sequence[tuple[str, int]]) -> None:
        for name, number in steps:
            self._step(name, number)

    def _step(self, name: str, number: int) -> None:
        getattr(self, f"_{name}")(number)
        first, second = (front.told() for front in self.fronts)
        assert first == second
        for _, messages in first:
            self.receipts += [(decode_receipt(text), decode_receipt(text)) for _, text in messages]
        committed = [
            [front.rig.broker.offsets.query("g", self.topic, queue_id) for queue_id in range(2)]
            for front in self.fronts
        ]
        assert committed[0] == committed[1]

    def _send(self, number: int) -> None:
        body = str(next(self._bodies)).encode()
        for front in self.fronts:
            front.rig.sent_ok(self.topic, body, queue_id=number % 2)

    def _pop(self, number: int) -> None:
        for front in self.fronts:
            front.pop(self.topic, (0, 1, ALL_QUEUES, 7)[number % 4], (1, 3, 32, 33)[number // 4 % 4], 0, None)

    def _wait(self, number: int) -> None:
        for front in self.fronts:
            front.pop(self.topic, ALL_QUEUES, 32, 1_000, None)

    def _pop_in_order(self, number: int) -> None:
        for front in self.fronts:
            front.pop(self.topic, number % 2, 2, 0, "ab"[number // 2 % 2])

    def _acknowledge(self, number: int) -> None:
        if self.receipts:
            receipts = self.receipts[number % len(self.receipts)]
            codes = [front.acknowledge(self.topic, one) for front, one in zip(self.fronts, receipts, strict=True)]
            assert codes[0] == codes[1]

    def _hide(self, number: int) -> None:
        if self.receipts:
            at, invisible_ms = number % len(self.receipts), (0, 5_000, -1)[number % 3]
            first, second = (
                front.hide(self.topic, one, invisible_ms)
                for front, one in zip(self.fronts, self.receipts[at], strict=True)
            )
            if isinstance(first, ResponseCode) or isinstance(second, ResponseCode):
                assert self._refuse_alike(first, second)
            else:
                self.receipts[at] = first, second

    def _refuse_alike(self, first: object, second: object) -> bool:
        return first == second

    def _let_pass(self, number: int) -> None:
        for front in self.fronts:
            front.rig.advance((10, 1_100, 61_000)[number % 3])

    def close(self) -> None:
        for front in self.fronts:
            front.rig.close()


class GrpcPair(Pair):
    """Steps that both can say."""

    def _pop(self, number: int) -> None:
        for front in self.fronts:
            front.pop(self.topic, ALL_QUEUES, (1, 3, 32, 0)[number % 4], 0, None)

    def _wait(self, number: int) -> None:
        for front in self.fronts:
            front.pop(self.topic, ALL_QUEUES, 32, 5_000, None)

    def _pop_in_order(self, number: int) -> None:
        """Not while one waits without order: a group is one or the other, and what waits by the other rule ends."""
        if isinstance(other := self.fronts[1], GrpcPops) and other.waits:
            return
        for front in self.fronts:
            front.pop(self.topic, ALL_QUEUES, 2, 0, "ab"[number // 2 % 2])

    def _acknowledge(self, number: int) -> None:
        if self._is_in_time(number):
            receipts = self.receipts[number % len(self.receipts)]
            codes = [front.acknowledge(self.topic, one) for front, one in zip(self.fronts, receipts, strict=True)]
            assert codes[0] == ResponseCode.SUCCESS or codes[1] != ResponseCode.SUCCESS

    def _hide(self, number: int) -> None:
        if self._is_in_time(number):
            super()._hide(number)

    def _refuse_alike(self, first: object, second: object) -> bool:
        """A handle that was replaced is known as that; of a receipt its topic is looked up before."""
        return isinstance(first, ResponseCode) and isinstance(second, ResponseCode)

    def _is_in_time(self, number: int) -> bool:
        if not self.receipts:
            return False
        receipt = self.receipts[number % len(self.receipts)][0]
        return self.fronts[0].rig.clock.now_ms() < receipt.popped_ms + receipt.invisible_ms


STEPS = st.sampled_from(
    ["send", "send", "pop", "pop", "wait", "pop_in_order", "acknowledge", "acknowledge", "hide", "let_pass"]
)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    made = Pair(tmp_path_factory.mktemp("pops"), OtherPops)
    yield made
    made.close()


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(STEPS, st.integers(0, 63)), max_size=25))
def test_both_fronts_give_the_same_messages_and_settle_them_alike(pair: Pair, steps: list[tuple[str, int]]) -> None:
    pair.begin()
    pair.steps(steps)


HIDDEN_AND_SETTLED = [("send", 0), ("pop", 0), ("hide", 1), ("acknowledge", 0), ("let_pass", 0)]


def test_a_message_that_is_hidden_again_is_settled_by_its_new_receipt(pair: Pair) -> None:
    pair.begin()
    pair.steps(HIDDEN_AND_SETTLED)
    assert [front.rig.broker.offsets.query("g", pair.topic, 0) for front in pair.fronts] == [1, 1]


def test_a_front_that_keeps_the_old_receipt_is_caught(tmp_path: Path) -> None:
    planted = Pair(tmp_path, KeepsTheOldReceipt)
    planted.begin()
    try:
        with pytest.raises(AssertionError):
            planted.steps(HIDDEN_AND_SETTLED)
    finally:
        planted.close()


@pytest.fixture(scope="module")
def grpc_pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    made = GrpcPair(tmp_path_factory.mktemp("pops"), GrpcPops)
    yield made
    made.close()


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(STEPS, st.integers(0, 63)), max_size=25))
def test_both_protocols_give_the_same_messages_and_settle_them_alike(
    grpc_pair: Pair, steps: list[tuple[str, int]]
) -> None:
    grpc_pair.begin()
    grpc_pair.steps(steps)


def test_a_front_of_rocketmq_5_that_keeps_the_old_receipt_is_caught(tmp_path: Path) -> None:
    planted = GrpcPair(tmp_path, KeepsTheOldHandle)
    planted.begin()
    try:
        with pytest.raises(AssertionError):
            planted.steps(HIDDEN_AND_SETTLED)
    finally:
        planted.close()


def test_a_caller_that_is_gone_is_told_nothing(tmp_path: Path) -> None:
    """A call ends before its connection does: what it waits for goes with it."""
    front = OtherPops(tmp_path)
    front.rig.sent_ok("T", b"a")
    front.pop("T", 1, 1, 60_000, None)
    front.pops.drop(front.peer)
    front.rig.sent_ok("T", b"b", queue_id=1)
    assert front.told() == []
    assert front.pops.in_flight.message_count == 0
    front.rig.close()
