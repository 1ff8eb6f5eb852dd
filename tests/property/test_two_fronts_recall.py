"""Recalls through two fronts: over remoting and over gRPC they have the same outcome, told in the words of each.

Each front has a broker of its own, with the same clock, topics and messages; they take the same steps. What is compared is what a client is
told and what is delivered in the end.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.unit.broker.conftest import SMALL_STORE
from tests.unit.broker.messaging.conftest import FrontRig

from orbitmq.broker.message_types import MESSAGE_TYPE
from orbitmq.broker.settings import BrokerSettings
from orbitmq.broker.timers.recalls import REMARKS
from orbitmq.errors import ProtocolError
from orbitmq.protocol.grpc.messages import Code, RecallMessageRequest, RecallMessageResponse, Resource
from orbitmq.protocol.grpc.rpcs import Rpc
from orbitmq.protocol.properties import Property, decode_properties
from orbitmq.protocol.recall_handles import decode_handle, encode_handle
from orbitmq.protocol.remoting.bodies import TopicConfig
from orbitmq.protocol.remoting.commands import RequestCode, ResponseCode
from orbitmq.protocol.remoting.timer_bodies import ChangeTimers, TimerSelector

TOPICS = "T", "U"


class Outcome(NamedTuple):
    """What a client is told of a recall. `remark`: what went wrong."""

    code: Code
    remark: str
    message_id: str


class RecallFront:
    """A front end and its broker."""

    def __init__(self, root: Path) -> None:
        self.rig = FrontRig(root, BrokerSettings(), SMALL_STORE)
        for name in TOPICS:
            config = TopicConfig(topic_name=name, read_queue_nums=1, write_queue_nums=1)
            self.rig.broker.topics.put(config, {f"+{MESSAGE_TYPE}": "DELAY"})

    def recall(self, topic: str, handle: str) -> Outcome:
        raise NotImplementedError


class RemotingRecalls(RecallFront):
    """Request 370."""

    def recall(self, topic: str, handle: str) -> Outcome:
        fields = {"producerGroup": "g", "topic": topic, "recallHandle": handle}
        answer = self.rig.call(RequestCode.RECALL_MESSAGE, fields)
        remark = answer.remark or ""
        if answer.code == ResponseCode.SUCCESS:
            return Outcome(Code.OK, remark, answer.fields["msgId"])
        if answer.code == ResponseCode.TOPIC_NOT_EXIST:
            return Outcome(Code.TOPIC_NOT_FOUND, remark, "")
        assert answer.code == ResponseCode.ILLEGAL_OPERATION
        is_sound = remark.startswith(tuple(REMARKS.values()))
        return Outcome(Code.NOT_FOUND if is_sound else Code.BAD_REQUEST, remark, "")


class GrpcRecalls(RecallFront):
    """RecallMessage."""

    def recall(self, topic: str, handle: str) -> Outcome:
        request = RecallMessageRequest(topic=Resource(name=topic), recall_handle=handle)
        answer = self.rig.client().call(Rpc.RECALL_MESSAGE, request, RecallMessageResponse)
        code = Code(answer.status.code)
        return Outcome(code, "" if code == Code.OK else answer.status.message, answer.message_id)


class SaysYes(GrpcRecalls):
    """A planted bug, which RocketMQ has: a recall is a success whatever became of the message."""

    def recall(self, topic: str, handle: str) -> Outcome:
        outcome = super().recall(topic, handle)
        return Outcome(Code.OK, "", decode_handle(handle).message_id) if outcome.code == Code.NOT_FOUND else outcome


class Pair:
    """Two fronts that take the same steps. `steps` fails where they differ."""

    def __init__(self, root: Path, other: type[RecallFront]) -> None:
        self.fronts = RemotingRecalls(root / "remoting"), other(root / "other")
        self._names = count()

    def begin(self) -> None:
        self.handles: list[str] = []
        self._round = next(self._names)

    def send(self, topic: str, key: int, after_ms: int) -> None:
        """A timed message; one with a key that was sent before is a copy of it."""
        handles = set()
        for front in self.fronts:
            due_ms = front.rig.clock.now_ms() + after_ms
            values = {"UNIQ_KEY": f"{self._round}-{key}", "TIMER_DELIVER_MS": str(due_ms)}
            handles.add(front.rig.sent_ok(topic, b"b", values).fields.get("recallHandle", ""))
        (handle,) = handles
        if handle:
            self.handles.append(handle)

    def advance(self, ms: int) -> None:
        for front in self.fronts:
            front.rig.advance(ms)
            front.rig.broker.end_turn()

    def reschedule(self, number: int, delay_ms: int) -> None:
        if self.handles:
            handle = self.handles[number % len(self.handles)]
            body = ChangeTimers(TimerSelector(handle=handle), None, delay_ms).encode()
            for front in self.fronts:
                front.rig.call(RequestCode.RESCHEDULE_TIMERS, None, body)

    def recall(self, topic: str, number: int, bend: str) -> None:
        handle = self.handles[number % len(self.handles)] if self.handles else "nothing was sent"
        handle = bent(handle, bend)
        outcomes = [front.recall(topic, handle) for front in self.fronts]
        assert outcomes[0] == outcomes[1]

    def end(self) -> None:
        """In the end the same messages were delivered at the same times."""
        self.advance(400_000)
        delivered = [
            [
                (topic, decode_properties(record.properties)[Property.UNIQ_KEY], record.store_timestamp)
                for topic in TOPICS
                for record in front.rig.records(topic)
            ]
            for front in self.fronts
        ]
        assert delivered[0] == delivered[1]

    def close(self) -> None:
        for front in self.fronts:
            front.rig.close()


def bent(handle: str, bend: str) -> str:
    """A handle as somebody else might have it."""
    try:
        said = decode_handle(handle)
    except ProtocolError:
        return handle
    if bend == "broker":
        return encode_handle(said.topic, "elsewhere", said.timestamp_ms - 1, said.message_id)
    if bend == "message":
        return encode_handle(said.topic, said.broker_name, said.timestamp_ms - 1, said.message_id + "x")
    if bend == "cut":
        return handle[: len(handle) // 2]
    return handle


topics, numbers = st.sampled_from(TOPICS), st.integers(0, 9)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("send"), topics, st.integers(0, 2), st.sampled_from((0, 700, 5_000, 90_000))),
        st.tuples(st.just("advance"), st.sampled_from((300, 1_000, 6_000, 100_000))),
        st.tuples(st.just("reschedule"), numbers, st.sampled_from((0, 2_000, 200_000))),
        st.tuples(
            st.just("recall"),
            st.sampled_from((*TOPICS, "Nowhere")),
            numbers,
            st.sampled_from(("", "", "", "broker", "message", "cut")),
        ),
    ),
    max_size=14,
)


def run(pair: Pair, steps: list[tuple[object, ...]]) -> None:
    pair.begin()
    for name, *arguments in steps:
        getattr(pair, str(name))(*arguments)
    pair.end()


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    made = Pair(tmp_path_factory.mktemp("recalls"), GrpcRecalls)
    yield made
    made.close()


@example([("send", "T", 0, 700), ("advance", 6_000), ("recall", "T", 0, "")])
@example([("send", "T", 0, 5_000), ("send", "T", 0, 90_000), ("advance", 6_000), ("recall", "T", 0, "")])
@example([("send", "T", 0, 5_000), ("recall", "T", 0, ""), ("advance", 6_000), ("recall", "T", 0, "")])
@given(STEPS)
@settings(max_examples=60, deadline=None)
def test_both_fronts_tell_the_same_of_every_recall(pair: Pair, steps: list[tuple[object, ...]]) -> None:
    run(pair, steps)


def test_a_front_that_always_says_yes_is_caught(tmp_path: Path) -> None:
    planted = Pair(tmp_path, SaysYes)
    with pytest.raises(AssertionError):
        run(planted, [("send", "T", 0, 700), ("advance", 6_000), ("recall", "T", 0, "")])
    planted.close()
