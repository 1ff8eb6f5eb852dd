"""Recalls of RocketMQ 5: a timed message is taken back by its handle, and the answer is the truth."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.unit.broker.conftest import SMALL_STORE
from tests.unit.broker.messaging.conftest import FrontRig
from tests.worlds.grpc_calls import ListCall

from orbitmq.broker.message_types import MESSAGE_TYPE
from orbitmq.broker.messaging.front import MessagingFront
from orbitmq.broker.messaging.settings import MessagingSettings
from orbitmq.broker.settings import BrokerSettings
from orbitmq.limits.timers import TIMER_QUESTION_WAITS_MS
from orbitmq.limits.wire import RECALL_HANDLE_CHARS_MAX
from orbitmq.protocol.grpc.messages import (
    Code,
    Message,
    RecallMessageRequest,
    RecallMessageResponse,
    Resource,
    SendMessageRequest,
    SendMessageResponse,
    SystemProperties,
    Timestamp,
)
from orbitmq.protocol.grpc.rpcs import Rpc
from orbitmq.protocol.recall_handles import decode_handle, encode_handle
from orbitmq.protocol.remoting.bodies import TopicConfig
from orbitmq.timing.far.queries import FarPage
from orbitmq.timing.far.tier import FarTierError

TYPES = {"D": "DELAY", "E": "DELAY", "N": "NORMAL"}


def make_rig(root: Path, **settings: Any) -> FrontRig:
    rig = FrontRig(root, BrokerSettings(enable_mixed_message_type=True, **settings), SMALL_STORE)
    for name, taken in {**TYPES, "M": "MIXED"}.items():
        config = TopicConfig(topic_name=name, read_queue_nums=1, write_queue_nums=1)
        rig.broker.topics.put(config, {f"+{MESSAGE_TYPE}": taken})
    return rig


@pytest.fixture
def rig(tmp_path: Path) -> Any:
    rig = make_rig(tmp_path)
    yield rig
    rig.close()


def send_timed(rig: FrontRig, after_ms: int = 10_000, message_id: str = "id-1", topic: str = "D") -> str:
    """The handle."""
    due_ms = rig.clock.now_ms() + after_ms
    system = SystemProperties(message_id=message_id, delivery_timestamp=Timestamp(seconds=due_ms // 1_000))
    request = SendMessageRequest(messages=[Message(topic=Resource(name=topic), body=b"b", system_properties=system)])
    (entry,) = rig.client().call(Rpc.SEND_MESSAGE, request, SendMessageResponse).entries
    assert entry.status.code == Code.OK
    handle: str = entry.recall_handle
    return handle


def start(rig: FrontRig, handle: str, topic: str = "D") -> ListCall:
    request = RecallMessageRequest(topic=Resource(name=topic), recall_handle=handle)
    return rig.client().start(Rpc.RECALL_MESSAGE, request)


def read(call: ListCall) -> RecallMessageResponse:
    assert (call.ends, call.error) == (1, None)
    (answer,) = call.answers
    return RecallMessageResponse.FromString(answer)


def recall(rig: FrontRig, handle: str, topic: str = "D") -> RecallMessageResponse:
    return read(start(rig, handle, topic))


# --- what becomes of it -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("topic", ["D", "M"])
def test_a_message_that_waits_is_not_delivered(rig: FrontRig, topic: str) -> None:
    handle = send_timed(rig, topic=topic)
    answer = recall(rig, handle, topic)
    assert (answer.status.code, answer.status.message, answer.message_id) == (Code.OK, "OK", "id-1")
    rig.advance(60_000)
    assert rig.records(topic) == []


def test_a_second_recall_is_told_that_it_is_not_delivered_as_well(rig: FrontRig) -> None:
    handle = send_timed(rig)
    assert recall(rig, handle) == recall(rig, handle)
    rig.advance(60_000)
    assert recall(rig, handle).status.code == Code.OK, "long after its time, too"


def test_what_was_delivered_is_not_found(rig: FrontRig) -> None:
    handle = send_timed(rig)
    rig.advance(10_000)
    answer = recall(rig, handle)
    assert (answer.status.code, answer.message_id) == (Code.NOT_FOUND, "")
    assert answer.status.message == "the message has been delivered already"


def test_what_was_never_sent_is_not_found(rig: FrontRig) -> None:
    due_ms = rig.clock.now_ms() + 10_000
    answer = recall(rig, encode_handle("D", rig.broker.settings.broker_name, due_ms, "nobody"))
    assert (answer.status.code, answer.status.message) == (Code.NOT_FOUND, "no message with this handle is pending")


def test_nothing_is_answered_before_the_recall_is_in_the_log(rig: FrontRig) -> None:
    handle, client = send_timed(rig), rig.client()
    call = client.begin(Rpc.RECALL_MESSAGE)
    request = RecallMessageRequest(topic=Resource(name="D"), recall_handle=handle)
    rig.front.message(call, request.SerializeToString())
    assert (call.answers, call.ends) == ([], 0)
    rig.broker.end_turn()
    assert read(call).status.code == Code.OK


def test_who_gives_up_meanwhile_is_not_answered(rig: FrontRig) -> None:
    handle, client = send_timed(rig), rig.client()
    call = client.begin(Rpc.RECALL_MESSAGE)
    request = RecallMessageRequest(topic=Resource(name="D"), recall_handle=handle)
    rig.front.message(call, request.SerializeToString())
    client.cancel(call)
    assert (call.answers, call.ends) == ([], 1)
    assert recall(rig, handle).status.code == Code.OK, "it was recalled"


# --- what is wrong ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "handle", ["", " ", "nonsense", "djEgRA==", "\x00", "ü", "A" * 100_000, "A" * (RECALL_HANDLE_CHARS_MAX + 1)]
)
def test_a_text_that_is_no_handle_is_a_bad_request(rig: FrontRig, handle: str) -> None:
    answer = recall(rig, handle)
    assert answer.status.code == Code.BAD_REQUEST
    assert "recall handle" in answer.status.message


def test_a_handle_of_another_topic_or_broker_is_a_bad_request(rig: FrontRig) -> None:
    handle = send_timed(rig)
    answer = recall(rig, handle, "E")
    assert (answer.status.code, "'D', not of 'E'" in answer.status.message) == (Code.BAD_REQUEST, True)
    said = decode_handle(handle)
    answer = recall(rig, encode_handle("D", "elsewhere", said.timestamp_ms - 1, said.message_id))
    assert (answer.status.code, "'elsewhere'" in answer.status.message) == (Code.BAD_REQUEST, True)
    rig.advance(10_000)
    assert len(rig.records("D")) == 1


def test_a_topic_without_timed_messages_has_nothing_to_recall(rig: FrontRig) -> None:
    assert recall(rig, "nonsense", "N").status.code == Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE
    rig.front = MessagingFront(rig.broker.core, rig.broker.rooms, MessagingSettings(checks_types=False))
    assert recall(rig, "nonsense", "N").status.code == Code.BAD_REQUEST


@pytest.mark.parametrize(
    ("topic", "code"),
    [
        ("", Code.ILLEGAL_TOPIC),
        ("a/b", Code.ILLEGAL_TOPIC),
        ("TBW102", Code.ILLEGAL_TOPIC),
        ("X", Code.TOPIC_NOT_FOUND),
    ],
)
def test_a_topic_that_is_none(rig: FrontRig, topic: str, code: Code) -> None:
    assert recall(rig, "nonsense", topic).status.code == code


def test_a_broker_that_recalls_nothing_says_so(tmp_path: Path) -> None:
    rig = make_rig(tmp_path, recall_message_enable=False)
    handle = send_timed(rig)
    answer = recall(rig, handle)
    assert (answer.status.code, "recallMessageEnable" in answer.status.message) == (Code.FORBIDDEN, True)
    rig.advance(10_000)
    assert len(rig.records("D")) == 1
    rig.close()


# --- later --------------------------------------------------------------------------------------------------------------


def test_a_recall_waits_a_little_for_the_index(rig: FrontRig, monkeypatch: pytest.MonkeyPatch) -> None:
    assert rig.broker.rooms.timers is not None
    handle, index = send_timed(rig), type(rig.broker.rooms.timers.index)
    monkeypatch.setattr(index, "is_ready", False)
    call = start(rig, handle)
    assert (call.answers, call.ends) == ([], 0)
    monkeypatch.undo()
    rig.advance(TIMER_QUESTION_WAITS_MS)
    rig.broker.end_turn()
    assert read(call).status.code == Code.OK


class LaterFar:
    """A far tier with nothing in it, which says so, or fails, when told to."""

    is_needed = True
    damaged_files = ()

    def __init__(self) -> None:
        self.waiting: list[Any] = []

    def may_hold(self, until_ms: int) -> bool:
        return True

    def find(self, query: object, done: Any) -> None:
        self.waiting.append(done)


@pytest.fixture
def far(rig: FrontRig, monkeypatch: pytest.MonkeyPatch) -> LaterFar:
    far = LaterFar()
    assert rig.broker.rooms.timers is not None
    monkeypatch.setattr(rig.broker.rooms.timers.finder, "_far", far)
    return far


def test_a_recall_that_has_to_ask_the_far_tier_is_answered_when_it_has(rig: FrontRig, far: LaterFar) -> None:
    call = start(rig, send_timed(rig))
    assert (call.answers, call.ends) == ([], 0)
    far.waiting.pop()(FarPage([], False))
    rig.broker.end_turn()
    assert (read(call).status.code, read(call).message_id) == (Code.OK, "id-1")


def test_what_nobody_finds_is_said_later_as_well(rig: FrontRig, far: LaterFar) -> None:
    due_ms = rig.clock.now_ms() + 10_000
    call = start(rig, encode_handle("D", rig.broker.settings.broker_name, due_ms, "nobody"))
    far.waiting.pop()(FarPage([], False))
    assert read(call).status.code == Code.NOT_FOUND


def test_a_far_tier_that_cannot_be_asked_is_told(rig: FrontRig, far: LaterFar) -> None:
    call = start(rig, send_timed(rig))
    far.waiting.pop()(FarTierError("its process is away"))
    answer = read(call)
    assert answer.status.code == Code.INTERNAL_SERVER_ERROR
    assert "its process is away" in answer.status.message
