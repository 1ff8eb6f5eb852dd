"""One decision, two fronts: a message makes the same record, or the same refusal, over remoting and through another front end.

The other front end is a reader of a few lines: it hands a `Sending` to the decision and makes an `Entry` of the outcome. Each front has a
broker of its own, with the same clock, topics and settings; they get the same messages in the same order.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tests.unit.broker.conftest import SMALL_STORE, ListPeer
from tests.unit.broker.pop.conftest import PopRig

from orbitmq.broker.message_types import MESSAGE_TYPE, MessageType, WrongTypeRefusal
from orbitmq.broker.refusal import Refusal
from orbitmq.broker.send_requests import ANSWERS
from orbitmq.broker.sending import Origin, Placement, Sending, StoredSend
from orbitmq.broker.settings import BrokerSettings
from orbitmq.protocol.properties import Property, encode_properties
from orbitmq.protocol.remoting.bodies import TopicConfig
from orbitmq.protocol.remoting.commands import RequestCode, ResponseCode
from orbitmq.protocol.remoting.versions import OUR_VERSION
from orbitmq.store.commit_log import CommitLog
from orbitmq.store.durability import PutStatus

TYPES = {"T": None, "D": MessageType.DELAY, "M": MessageType.MIXED}
"""The topics, and what they take."""


class Entry(NamedTuple):
    """What a front tells its client about one message."""

    code: ResponseCode
    remark: str | None
    queue_id: int = 0
    unique_key: str = ""
    queue_offset: int = 0
    handle: str | None = None
    is_repeat: bool = False


class Front:
    """A front end and its broker."""

    def __init__(self, root: Path, *, enforce_message_type: bool = True) -> None:
        self.rig = PopRig(
            root, BrokerSettings(enforce_message_type=enforce_message_type, enable_mixed_message_type=True), SMALL_STORE
        )
        self.peer = ListPeer(self.rig.clock)
        self.origin = Origin(self.peer.host, OUR_VERSION)
        keys = (f"made here {number}" for number in range(1 << 30))
        self.rig.broker.rooms.admission.next_unique_key = lambda: next(keys)
        for name, taken in TYPES.items():
            changes = {} if taken is None else {f"+{MESSAGE_TYPE}": taken.value}
            self.rig.broker.topics.put(TopicConfig(topic_name=name, read_queue_nums=4, write_queue_nums=2), changes)

    def send(self, sending: Sending) -> Entry:
        raise NotImplementedError

    def record(self, position: int) -> bytes | None:
        found = self.rig.store.log.record(position)
        return None if found is None else bytes(found)


class Remoting(Front):
    """Request 310 and its answer."""

    def send(self, sending: Sending) -> Entry:
        answer = self.rig.try_call(RequestCode.SEND_MESSAGE_V2, _fields(sending), sending.body, peer=self.peer)
        assert answer is not None
        fields = answer.fields
        assert (fields["MSG_REGION"], fields["TRACE_ON"]) == ("DefaultRegion", "true")
        code = ResponseCode(answer.code)
        if "msgId" not in fields:
            return Entry(code, answer.remark)
        return Entry(
            code,
            answer.remark,
            int(fields["queueId"]),
            fields["transactionId"],
            int(fields["queueOffset"]),
            fields.get("recallHandle"),
            "orbitmqRepeat" in fields,
        )


class Other(Front):
    """The second reader of the decision."""

    def send(self, sending: Sending) -> Entry:
        outcomes: list[StoredSend | Refusal] = []
        refusal = self.rig.broker.rooms.sends.send(sending, self.origin, self.rig.clock.monotonic_ns(), outcomes.append)
        self.rig.broker.end_turn()
        (outcome,) = [refusal] if refusal is not None else outcomes
        assert refusal is None or not outcomes, "a refusal is returned or told, never both"
        if isinstance(outcome, Refusal):
            return Entry(outcome.code, outcome.remark)
        place = outcome.queue_id, outcome.unique_key, outcome.queue_offset, outcome.handle
        return Entry(ANSWERS[outcome.status], None, *place, outcome.first is not None)


class WithItsOwnDecision(Other):
    """A planted bug: this front stores what admission places, and so stores a repeat again."""

    def send(self, sending: Sending) -> Entry:
        rig, admission = self.rig, self.rig.broker.rooms.admission
        placed = admission.admit(sending, self.origin, rig.clock.now_ms(), rig.clock.monotonic_ns())
        if isinstance(placed, Refusal):
            return Entry(placed.code, placed.remark)
        placement = placed if isinstance(placed, Placement) else placed.placement
        appended = rig.store.append(placement.message)
        rig.broker.statistics.stored(sending.topic, 1, appended.size)
        rig.broker.end_turn()
        place = placement.queue_id, placement.unique_key, appended.queue_offset, placement.handle
        return Entry(ResponseCode.SUCCESS, None, *place)


def _fields(sending: Sending) -> dict[str, object]:
    named = {
        "b": sending.topic, "e": sending.queue_id, "i": sending.properties, "h": sending.flag, "f": sending.sys_flag,
        "g": sending.born_timestamp, "c": sending.default_topic, "d": sending.default_topic_queues,
        "k": sending.unit_mode, "j": sending.reconsume_times,
    }  # fmt: skip
    limit = sending.max_reconsume_times
    return {"a": "pg", "m": False} | named | ({} if limit is None else {"l": limit})


def differences(first: Front, second: Front, sending: Sending) -> list[str]:
    """What the two fronts do not have in common after this message: nothing."""
    begin = first.rig.store.log.end
    entries = [front.send(sending) for front in (first, second)]
    found = [] if entries[0] == entries[1] else [f"{entries[0]} is not {entries[1]}"]
    ends = [front.rig.store.log.end for front in (first, second)]
    if ends[0] != ends[1]:
        return [*found, f"the logs end at {ends}"]
    records = [front.record(begin) for front in (first, second)]
    if records[0] != records[1]:
        found.append(f"{records[0]!r} is not {records[1]!r}")
    counted = [front.rig.broker.statistics for front in (first, second)]
    if len({(one.put.count, one.put.size, one.put_failed_count, one.busy_count) for one in counted}) > 1:
        found.append("they count differently")
    return found


@pytest.fixture(scope="module")
def fronts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Front, Front]]:
    made = Remoting(tmp_path_factory.mktemp("remoting")), Other(tmp_path_factory.mktemp("other"))
    yield made
    for front in made:
        front.rig.close()


NOW_MS = 1_700_000_000_000
NAMES = st.sampled_from(
    [
        *(Property.KEYS, Property.TAGS, Property.UNIQ_KEY, Property.WAIT, Property.DELAY, Property.POP_CK),
        *(Property.MSG_REGION, Property.TRAN_MSG, Property.TIMER_DELAY_SEC, Property.TIMER_DELIVER_MS),
        *(Property.ONCE_SCOPE, Property.ONCE_EPOCH, Property.ONCE_KEY, Property.PRIORITY, Property.SHARDING_KEY),
        *(Property.LITE_TOPIC, Property.INNER_NUM, Property.TIMER_DEL_UNIQKEY, "a", "ü"),
    ]
)
VALUES = st.sampled_from(
    ["1", "true", "false", "k1 k2", "€", "5", "0", "-3", str(NOW_MS + 9_000), str(NOW_MS - 1), "no"]
)
ONCE = st.builds(
    lambda epoch, key: {Property.ONCE_SCOPE: "s", Property.ONCE_EPOCH: str(epoch), Property.ONCE_KEY: key},
    st.integers(1, 3),
    st.sampled_from("abcd"),
)
PROPERTIES = (
    st.dictionaries(NAMES, VALUES, max_size=4)
    | ONCE
    | st.builds(lambda once, more: once | more, ONCE, st.dictionaries(NAMES, VALUES, max_size=2))
)
SENDINGS = st.builds(
    Sending,
    topic=st.sampled_from([*TYPES, "%RETRY%g", "SCHEDULE_TOPIC_XXXX", "new", "no blank", "", "n" * 128]),
    queue_id=st.integers(-1, 5),
    body=st.sampled_from([b"", b"x", b"x" * 70]),
    properties=PROPERTIES.map(lambda values: encode_properties(values).decode()) | st.text(max_size=12),
    flag=st.integers(0, 3),
    sys_flag=st.sampled_from([0, 1, 4, 0x30, 0x40]),
    born_timestamp=st.just(NOW_MS - 5),
    default_topic=st.sampled_from(["TBW102", ""]),
    reconsume_times=st.sampled_from([0, 0, 20]),
    max_reconsume_times=st.none() | st.integers(0, 3),
)


def once(key: str, body: bytes = b"x") -> Sending:
    values = {Property.UNIQ_KEY: key * 8, Property.ONCE_SCOPE: "s", Property.ONCE_EPOCH: "1", Property.ONCE_KEY: key}
    return Sending("T", 1, body, encode_properties(values).decode(), born_timestamp=NOW_MS - 5)


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@example(sending=once("z"))
@example(sending=once("z"))
@given(sending=SENDINGS)
def test_both_fronts_make_the_same_record_and_the_same_refusal(fronts, sending):
    assert differences(*fronts, sending) == []


def test_a_front_with_a_decision_of_its_own_is_caught(tmp_path):
    first, second = Remoting(tmp_path / "remoting"), WithItsOwnDecision(tmp_path / "other")
    try:
        assert differences(first, second, once("k")) == []
        assert differences(first, second, once("k")), "the repeat was stored again"
    finally:
        first.rig.close()
        second.rig.close()


@pytest.fixture
def front(tmp_path: Path) -> Iterator[Other]:
    made = Other(tmp_path / "store")
    yield made
    made.rig.close()


def test_an_outcome_waits_for_the_end_of_the_turn(front):
    outcomes: list[StoredSend | Refusal] = []
    assert (
        front.rig.broker.rooms.sends.send(once("k"), front.origin, front.rig.clock.monotonic_ns(), outcomes.append)
        is None
    )
    assert outcomes == []
    assert front.rig.broker.rooms.sends.unanswered_count == 1
    front.rig.broker.end_turn()
    (outcome,) = outcomes
    assert isinstance(outcome, StoredSend)
    assert (outcome.status, outcome.unique_key) == (PutStatus.PUT_OK, "k" * 8)
    assert front.rig.broker.rooms.sends.unanswered_count == 0


def test_a_send_that_waited_too_long_is_refused_by_every_front(front):
    """What came 201 ms ago: the age is that of its bytes, whoever read them."""
    received_ns = front.rig.clock.monotonic_ns() - 201_000_000
    refusal = front.rig.broker.rooms.sends.send(once("k"), front.origin, received_ns, None)
    assert refusal is not None
    assert refusal.code == ResponseCode.SYSTEM_BUSY
    assert front.rig.store.log.end == 0


@pytest.mark.parametrize(("topic", "is_taken"), [("T", True), ("D", False), ("M", True)])
def test_a_sender_that_knows_types_is_held_to_them_where_they_are_not_enforced(tmp_path, topic, is_taken):
    front = Other(tmp_path, enforce_message_type=False)
    try:
        sending = msgspec.structs.replace(once("k"), topic=topic)
        for _ in range(2):  # the first teaches admission about the topic
            assert front.send(sending).code == ResponseCode.SUCCESS
        front.origin = Origin(front.peer.host, OUR_VERSION, knows_types=True)
        refusal = front.rig.broker.rooms.sends.send(sending, front.origin, front.rig.clock.monotonic_ns(), None)
        assert (refusal is None) is is_taken
        assert refusal is None or isinstance(refusal, WrongTypeRefusal)
    finally:
        front.rig.close()


def test_a_write_that_fails_is_told_as_a_refusal_and_its_repeat_is_stored(front, monkeypatch):
    def full(log: CommitLog) -> None:
        log.discard()
        raise OSError(28, "no space")

    with monkeypatch.context() as broken:
        broken.setattr(CommitLog, "write", full)
        assert front.send(once("k")).code == ResponseCode.SERVICE_NOT_AVAILABLE
    front.rig.store.allow("space")
    assert front.send(once("k")) == Entry(ResponseCode.SUCCESS, None, 1, "k" * 8)
