"""Requests that lead to topics which they do not name: by a place in the log, a handle, a key, a name. Who calls here may do anything with
the topic `mine`, and nothing with the topic `theirs`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs
from tests.unit.broker.conftest import NOW_MS, SMALL_STORE, STORE_HOST
from tests.unit.broker.timers.conftest import TimerRig
from tests.unit.broker.transactions.conftest import COMMIT, GROUP, ROLLBACK, TransactionRig

from orbitmq.access.gate import CALLER, Denied, LedTo
from orbitmq.access.users import User
from orbitmq.broker import real_topics
from orbitmq.broker.settings import BrokerSettings
from orbitmq.errors import OrbitError
from orbitmq.protocol.batches import BatchItem, encode_batch
from orbitmq.protocol.ids import encode_offset_id
from orbitmq.protocol.names import HALF_TOPIC, RECURRING_TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC
from orbitmq.protocol.properties import encode_properties
from orbitmq.protocol.records import Record, encode_record, iter_records
from orbitmq.protocol.remoting.codes import RequestCode, ResponseCode
from orbitmq.protocol.remoting.frame import Command, request
from orbitmq.protocol.remoting.idempotence_bodies import FinishEpoch, ScopeQuery, topic_mark
from orbitmq.protocol.remoting.peer import Peer
from orbitmq.protocol.remoting.recurring_bodies import RecurringChangeBody, RecurringDefinition, RecurringQuery
from orbitmq.protocol.remoting.requests import REQUESTS, Action, NamedBy, RequestServer
from orbitmq.protocol.remoting.timer_bodies import ChangeTimers, TimerSelector
from orbitmq.protocol.remoting.transaction_bodies import TransactionName, TransactionQuery
from orbitmq.timing.recurrence.runner import Recurrences

DENIED = ResponseCode.NO_PERMISSION
TIMED = {"UNIQ_KEY": "U1", "KEYS": "order-1", "TIMER_DELIVER_MS": str(NOW_MS + 60_000)}


class RecordGate:
    """Asks for what requests lead to, and for nothing else. Lets everything through while nothing is `allowed`."""

    def __init__(self) -> None:
        self.allowed: dict[str, frozenset[Action]] | None = None

    def admit(self, command: Command, peer: Peer, led_to: LedTo | None) -> None:
        for need in REQUESTS[RequestCode(command.code)].needs:
            if need.named_by is NamedBy.RECORD and self.allowed is not None:
                assert led_to is not None
                for topic in led_to(command):
                    if topic is None or not need.actions & self.allowed.get(topic, frozenset()):
                        raise Denied(DENIED, f"nobody may do that with {topic}")

    def may_publish(self, user: str, ip: str, topic: str) -> bool:
        return user == "owner"

    def may_consume(self, user: str, ip: str, group: str, topic: str | None) -> bool:
        return True


class LedRig(TransactionRig):
    """A broker with every room, and a gate."""

    def more_derived(self) -> list[Any]:
        self.recurrences = Recurrences(self.clock)
        return [*super().more_derived(), *TimerRig.more_derived(self), self.recurrences]  # type: ignore[arg-type]

    def more_parts(self) -> dict[str, Any]:
        self.timers.store = self.store  # type: ignore[attr-defined]
        return {**super().more_parts(), "timers": self.timers, "recurrences": self.recurrences}  # type: ignore[attr-defined]

    @contextmanager
    def judged(self, **allowed: frozenset[Action]) -> Iterator[None]:
        """Everybody may do with topics what stands here, and nothing else."""
        self.gate.allowed = {"mine": frozenset(Action)} | allowed
        yield
        self.gate.allowed = None

    def code(self, code: RequestCode, fields: dict[str, Any] | None = None, body: bytes = b"") -> int:
        """The code of the answer to somebody who is judged; nothing is in the log that was not there when that is DENIED."""
        end = self.store.log.end
        with self.judged():
            answer = self.call(code, fields, body)
        assert answer.code != DENIED or self.store.log.end == end
        return answer.code

    def place(self, topic: str, queue_id: int = 0) -> int:
        """Log position of the newest message of a queue."""
        return self.records(topic, queue_id)[-1].physical_offset


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[LedRig]:
    class Gated(LedRig):
        gate = RecordGate()

    rig = Gated(tmp_path / "store", BrokerSettings(recall_message_enable=True, broker_name="broker-a"), SMALL_STORE)
    yield rig
    rig.close()


# --- by a place in the log --------------------------------------------------------------------------------------------


def forge(rig: LedRig, covered: Sequence[bytes]) -> int:
    """Send to `mine` a message whose body is the head of a record, and to `theirs` messages with the bodies `covered`, which that record
    takes for its properties. Answers where it lies: where the next record begins, and its size but the body, are those of the last."""
    rig.sent_ok("mine", b"x")
    last = rig.records("mine")[-1]
    bare = last.total_size - 1
    behind = 1 + len("mine") + 2 + len(last.properties)
    place = rig.store.log.end + bare - behind
    size = behind + sum(bare + len("theirs") - len("mine") + len(body) for body in covered)
    forged = structs.replace(last, physical_offset=place, body=b"", body_crc=0, properties=bytes(size))
    rig.sent_ok("mine", encode_record(forged)[:-size])
    for body in covered:
        rig.sent_ok("theirs", body)
    assert rig.store.log.end == place + len(encode_record(forged))
    return place


def judge_forged(rig: LedRig) -> None:
    """Whether bytes in a body that look like a record give access to the records behind them."""
    place = forge(rig, [b"secret 1", b"secret 2"])
    assert b"secret 2" in bytes(rig.store.record_at(place) or b"")
    message_id = encode_offset_id(STORE_HOST, place)
    assert view(rig, place) == DENIED
    assert rig.code(RequestCode.CONSUMER_SEND_MSG_BACK, {"offset": place, "group": "g", "delayLevel": 0}) == DENIED
    direct = {"consumerGroup": "g", "clientId": "c0", "msgId": message_id, "topic": "mine"}
    assert rig.code(RequestCode.CONSUME_MESSAGE_DIRECTLY, direct) == DENIED
    assert rig.code(RequestCode.RESUME_CHECK_HALF_MESSAGE, {"msgId": message_id}) == DENIED


def test_a_body_that_looks_like_a_record_gives_no_access_to_what_lies_behind_it(rig: LedRig) -> None:
    judge_forged(rig)


def test_planted_a_queue_is_not_asked_what_lies_at_a_place(rig: LedRig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(real_topics, "is_in_queue", lambda store, record, place: True)
    with pytest.raises(AssertionError):
        judge_forged(rig)


def test_a_message_of_a_deleted_topic_is_for_who_may_read_all_topics(rig: LedRig) -> None:
    rig.sent_ok("mine")
    place = rig.place("mine")
    rig.call(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "mine"})
    assert rig.call(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": place}).code == ResponseCode.SUCCESS
    assert view(rig, place) == DENIED


def view(rig: LedRig, place: int) -> int:
    return rig.code(RequestCode.VIEW_MESSAGE_BY_ID, {"topic": "mine", "offset": place})


def test_a_message_is_shown_to_who_may_read_its_topic_whatever_topic_the_request_names(rig: LedRig) -> None:
    rig.sent_ok("mine")
    rig.sent_ok("theirs")
    assert view(rig, rig.place("mine")) == ResponseCode.SUCCESS
    assert view(rig, rig.place("theirs")) == DENIED
    assert view(rig, 1 << 40) == ResponseCode.SYSTEM_ERROR  # there is none, and its handler says so


def waits_elsewhere(rig: LedRig, topic: str) -> list[tuple[str, int]]:
    """A message of a topic that waits in each of the topics for that, and its place."""
    rig.sent_ok(topic, b"timed", TIMED)
    rig.sent_ok(topic, b"delayed", {"DELAY": "3"})
    rig.half(topic)
    return [
        (TIMER_TOPIC, rig.place(TIMER_TOPIC)),
        (SCHEDULE_TOPIC, rig.place(SCHEDULE_TOPIC, 2)),
        (HALF_TOPIC, rig.place(HALF_TOPIC)),
    ]


def judge_what_waits(rig: LedRig) -> None:
    """Whether what waits is judged by its real topic: not by that in which it waits, which nobody may read but this caller."""
    for waiting, place in waits_elsewhere(rig, "theirs"):
        with rig.judged(**{waiting: frozenset(Action)}):
            assert rig.call(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": place}).code == DENIED
    for _, place in waits_elsewhere(rig, "mine"):
        assert view(rig, place) == ResponseCode.SUCCESS


def test_what_waits_for_a_time_or_a_commit_is_judged_by_its_real_topic(rig: LedRig) -> None:
    judge_what_waits(rig)


def test_planted_the_real_topic_of_a_timer_is_not_looked_at(rig: LedRig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(real_topics, "PASSED_THROUGH", frozenset())
    with pytest.raises(AssertionError):
        judge_what_waits(rig)


def test_no_sender_says_what_real_topic_its_message_has(rig: LedRig) -> None:
    said = {"REAL_TOPIC": "mine", "REAL_QID": "0", "TIMER_OUT_MS": "1"}
    rig.sent_ok("theirs", b"plain", said)
    rig.sent_ok("theirs", b"delayed", {"DELAY": "3"} | said)
    rig.half("theirs", **said)
    assert view(rig, rig.place("theirs")) == DENIED
    assert view(rig, rig.place(SCHEDULE_TOPIC, 2)) == DENIED
    assert view(rig, rig.place(HALF_TOPIC)) == DENIED


def test_the_brokers_own_records_belong_to_its_own_topics(rig: LedRig) -> None:
    rig.call(RequestCode.PUT_RECURRING, None, definition("mine"))
    assert view(rig, rig.place(RECURRING_TOPIC)) == DENIED


def test_only_who_may_read_a_message_sends_it_back(rig: LedRig) -> None:
    def send_back(topic: str) -> int:
        rig.sent_ok(topic)
        return rig.code(RequestCode.CONSUMER_SEND_MSG_BACK, {"offset": rig.place(topic), "group": "g", "delayLevel": 0})

    assert (send_back("mine"), send_back("theirs")) == (ResponseCode.SUCCESS, DENIED)


def test_only_who_may_read_a_message_has_a_consumer_process_it(rig: LedRig) -> None:
    peer = rig.peer()
    rig.heartbeat(peer, "c0", "g", ["mine"])

    def asked(topic: str) -> None:
        rig.sent_ok(topic)
        message_id = encode_offset_id(STORE_HOST, rig.place(topic))
        with rig.judged():
            rig.try_call(
                RequestCode.CONSUME_MESSAGE_DIRECTLY, {"consumerGroup": "g", "clientId": "c0", "msgId": message_id}
            )

    asked("theirs")
    assert peer.questions == []
    asked("mine")
    assert len(peer.questions) == 1


def test_a_key_finds_no_message_of_another_topic_with_the_same_hash(rig: LedRig) -> None:
    rig.sent_ok("topicAa", b"shown", {"KEYS": "k"})
    rig.sent_ok("topicBB", b"secret", {"KEYS": "k"})  # Java's hash of topicAa#k is that of topicBB#k
    asked = {"topic": "topicAa", "key": "k", "maxNum": 32, "beginTimestamp": 0, "endTimestamp": NOW_MS * 2}
    found: list[Record] = list(iter_records(bytes(rig.call(RequestCode.QUERY_MESSAGE, asked).body)))
    assert [bytes(record.body) for record in found] == [b"shown"]


# --- timers -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["handle", "message_id", "key", "all"])
@pytest.mark.parametrize(
    "code",
    [RequestCode.RECALL_TIMERS, RequestCode.RESCHEDULE_TIMERS, RequestCode.TIMER_STATUS, RequestCode.GET_TIMER],
)
def test_who_may_not_publish_to_a_topic_cannot_touch_its_timers_by_handle_by_key_or_in_bulk(
    rig: LedRig, code: RequestCode, how: str
) -> None:
    for topic, expected in (("theirs", DENIED), ("mine", ResponseCode.SUCCESS)):
        handle = rig.sent_ok(topic, b"timed", TIMED).fields["recallHandle"]
        selector = {
            "handle": TimerSelector(handle=handle),
            "message_id": TimerSelector(topic=topic, message_id="U1"),
            "key": TimerSelector(topic=topic, key="order-1"),
            "all": TimerSelector(topic=topic, key="order-1", all=True),
        }[how]
        later = NOW_MS + 90_000 if code is RequestCode.RESCHEDULE_TIMERS else None
        assert rig.code(code, None, ChangeTimers(selector, later).encode()) == expected


def test_a_handle_of_their_topic_recalls_nothing_however_the_request_names_the_topic(rig: LedRig) -> None:
    theirs = rig.sent_ok("theirs", b"timed", TIMED).fields["recallHandle"]
    mine = rig.sent_ok("mine", b"timed", TIMED).fields["recallHandle"]
    for topic in ("mine", "theirs"):
        assert rig.code(RequestCode.RECALL_MESSAGE, {"topic": topic, "recallHandle": theirs}) == DENIED
    assert rig.code(RequestCode.RECALL_MESSAGE, {"topic": "mine", "recallHandle": mine}) == ResponseCode.SUCCESS


@pytest.mark.parametrize(
    "code", [RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE]
)
@pytest.mark.parametrize(
    ("key", "expected"),
    [("theirs+U1", DENIED), ("U1", DENIED), ("mine+U1", ResponseCode.SUCCESS), ("mine+", ResponseCode.SUCCESS)],
)
def test_a_send_that_cancels_a_timer_by_its_key_needs_the_topic_of_that_timer(
    rig: LedRig, code: RequestCode, key: str, expected: int
) -> None:
    """A key without a topic cancels messages of any topic, so it needs all of them."""
    rig.sent_ok("mine")
    with rig.judged():
        answer = rig.send("mine", b"x", TIMED | {"TIMER_DEL_UNIQKEY": key}, code=code)
    assert answer is not None
    assert answer.code == expected


@pytest.mark.parametrize("code", [RequestCode.SEND_REPLY_MESSAGE, RequestCode.SEND_REPLY_MESSAGE_V2])
def test_a_reply_cancels_no_more_than_a_send(rig: LedRig, code: RequestCode) -> None:
    text = encode_properties(TIMED | {"TIMER_DEL_UNIQKEY": "theirs+U1"}).decode()
    assert rig.code(code, {"topic": "mine", "b": "mine", "properties": text, "i": text}, b"x") == DENIED


# --- transactions -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", [COMMIT, ROLLBACK])
@pytest.mark.parametrize("named", ["mine", "theirs", ""])
def test_only_who_may_publish_to_the_topic_of_a_half_message_decides_it(rig: LedRig, state: int, named: str) -> None:
    sent = rig.half("theirs")
    with rig.judged():
        answer = rig.end(sent, state, topic=named)
    assert answer is not None
    assert answer.code == DENIED
    assert rig.undecided == 1
    own = rig.half("mine")
    with rig.judged():
        answer = rig.end(own, state, topic=named)
    assert answer is not None
    assert answer.code == ResponseCode.SUCCESS


def test_what_became_of_a_transaction_is_told_to_who_could_decide_it(rig: LedRig) -> None:
    sent = rig.half("theirs")
    assert rig.ended(sent, COMMIT) == (ResponseCode.SUCCESS, None)
    with rig.judged():
        answer = rig.end(sent, COMMIT)
    assert answer is not None
    assert answer.code == DENIED


def test_checks_begin_again_only_for_who_may_change_the_topic(rig: LedRig) -> None:
    for topic, expected in (("theirs", DENIED), ("mine", ResponseCode.SUCCESS)):
        message_id = rig.half(topic).fields["msgId"]
        assert rig.code(RequestCode.RESUME_CHECK_HALF_MESSAGE, {"topic": "mine", "msgId": message_id}) == expected


@pytest.mark.parametrize("name", ["msgId", "transactionId"])
@pytest.mark.parametrize("is_over", [False, True])
def test_a_transaction_is_shown_by_neither_id_to_who_may_not_read_its_topic(
    rig: LedRig, name: str, is_over: bool
) -> None:
    for topic, expected in (("theirs", DENIED), ("mine", ResponseCode.SUCCESS)):
        sent = rig.half(topic)
        if is_over:
            rig.end(sent, ROLLBACK)
        assert rig.code(RequestCode.GET_TRANSACTION, None, TransactionName(sent.fields[name]).encode()) == expected


def test_a_list_of_transactions_is_of_one_topic_or_needs_all(rig: LedRig) -> None:
    for topic, expected in (("mine", ResponseCode.SUCCESS), ("theirs", DENIED), (None, DENIED)):
        body = TransactionQuery(topic=topic, group=GROUP).encode()
        assert rig.code(RequestCode.LIST_TRANSACTIONS, None, body) == expected


def test_a_half_message_is_shown_to_no_producer_who_may_not_publish_to_its_topic(rig: LedRig) -> None:
    """Whoever says so in a heartbeat is a producer of the group."""
    thief, owner = rig.peer(), rig.peer()
    for peer, name in ((thief, "thief"), (owner, "owner")):
        peer.attachments[CALLER] = User(name, "a password")
        rig.heartbeat(peer, name, producer=GROUP)
    for _ in range(4):
        rig.half("theirs")
    rig.advance(7_000)
    assert (len(rig.questions(thief)), len(rig.questions(owner))) == (0, 4)


# --- recurring messages -----------------------------------------------------------------------------------------------


def definition(topic: str, name: str = "daily") -> bytes:
    return RecurringDefinition(name, topic, b"x", interval_ms=60_000).encode()


def test_nobody_takes_the_name_of_another_topics_recurring_message(rig: LedRig) -> None:
    rig.call(RequestCode.PUT_RECURRING, None, definition("theirs"))
    assert rig.code(RequestCode.PUT_RECURRING, None, definition("mine")) == DENIED
    assert rig.code(RequestCode.PUT_RECURRING, None, definition("mine", "nightly")) == ResponseCode.SUCCESS
    assert rig.code(RequestCode.PUT_RECURRING, None, definition("mine", "nightly")) == ResponseCode.SUCCESS


def test_a_recurring_message_is_shown_paused_and_deleted_by_who_has_its_topic(rig: LedRig) -> None:
    for name, expected in (("theirs", DENIED), ("mine", ResponseCode.SUCCESS)):
        rig.call(RequestCode.PUT_RECURRING, None, definition(name, name))
        assert rig.code(RequestCode.GET_RECURRING, None, RecurringQuery(name=name).encode()) == expected
        assert rig.code(RequestCode.GET_RECURRING, None, RecurringQuery(name=name, topic="mine").encode()) == expected
        for code in (RequestCode.SET_RECURRING_STATE, RequestCode.DELETE_RECURRING):
            assert rig.code(code, None, RecurringChangeBody(name, paused=True).encode()) == expected


def test_a_page_of_recurring_messages_is_of_one_topic_or_needs_all(rig: LedRig) -> None:
    for topic, expected in (("mine", ResponseCode.SUCCESS), ("theirs", DENIED), (None, DENIED)):
        assert rig.code(RequestCode.GET_RECURRING, None, RecurringQuery(topic=topic).encode()) == expected


# --- groups -----------------------------------------------------------------------------------------------------------


def test_progress_of_a_group_without_a_topic_is_that_of_all_its_topics(rig: LedRig) -> None:
    rig.sent_ok("mine")
    rig.sent_ok("theirs")
    rig.pull("mine", group="g")
    rig.broker.offsets.commit("g", "mine", 0, 1)
    asked = {"consumerGroup": "g"}
    assert rig.code(RequestCode.GET_CONSUME_STATS, asked) == ResponseCode.SUCCESS
    rig.broker.offsets.commit("g", "theirs", 0, 1)
    assert rig.code(RequestCode.GET_CONSUME_STATS, asked) == DENIED
    assert rig.code(RequestCode.GET_CONSUME_STATS, asked | {"topicList": ";"}) == DENIED
    assert rig.code(RequestCode.GET_CONSUME_STATS, asked | {"topic": "mine"}) == ResponseCode.SUCCESS


def test_offsets_are_cloned_where_every_topic_may_be_changed(rig: LedRig) -> None:
    for topic in ("mine", "theirs"):
        rig.sent_ok(topic)
        rig.broker.offsets.commit("source", topic, 0, 1)
    asked = {"srcGroup": "source", "destGroup": "g"}
    assert rig.code(RequestCode.CLONE_GROUP_OFFSET, asked) == DENIED
    assert rig.code(RequestCode.CLONE_GROUP_OFFSET, asked | {"topic": " "}) == DENIED
    assert rig.code(RequestCode.CLONE_GROUP_OFFSET, asked | {"topic": "theirs"}) == DENIED
    assert rig.code(RequestCode.CLONE_GROUP_OFFSET, asked | {"topic": "mine"}) == ResponseCode.SUCCESS


@pytest.mark.parametrize("code", [RequestCode.ACK_MESSAGE, RequestCode.CHANGE_MESSAGE_INVISIBLETIME])
def test_a_receipt_of_a_message_that_came_back_is_of_its_first_topic(rig: LedRig, code: RequestCode) -> None:
    """Clients name the retry topic of group and topic; a group of that name is nobody whom an administrator knows."""
    assert code_of_ack(rig, code, "mine") != DENIED
    assert code_of_ack(rig, code, "theirs") == DENIED
    for between in "_+":
        assert code_of_ack(rig, code, f"%RETRY%g{between}mine") != DENIED
        assert code_of_ack(rig, code, f"%RETRY%g{between}theirs") == DENIED
        assert code_of_ack(rig, code, f"%RETRY%other{between}mine") == DENIED


def code_of_ack(rig: LedRig, code: RequestCode, topic: str) -> int:
    fields = {"consumerGroup": "g", "topic": topic, "queueId": 0, "extraInfo": "0 0 0 0 0 broker-a 0 0", "offset": 0}
    return rig.code(code, fields)


# --- idempotent sends -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [RequestCode.FIND_SCOPES, RequestCode.FINISH_EPOCH])
def test_scopes_of_a_topic_are_for_who_may_publish_to_it_and_others_for_who_may_publish_to_all(
    rig: LedRig, code: RequestCode
) -> None:
    def asked(topic: str | None, name: str) -> int:
        found = code is RequestCode.FIND_SCOPES
        body = ScopeQuery(prefix=name) if found else FinishEpoch(scope=name, epoch=1, mark=1)
        return rig.code(code, None if topic is None else {"topic": topic}, body.encode())

    mine, theirs = topic_mark("mine"), topic_mark("theirs")
    assert asked("mine", f"query/{mine}@b:1") == asked("mine", f"job/*/{mine}@b:1") == ResponseCode.SUCCESS
    assert asked("mine", f"query/{theirs}@b:1") == asked("theirs", f"query/{theirs}@b:1") == DENIED
    assert asked(None, f"query/{mine}@b:1") == asked("mine", "query") == asked("mine", "q") == DENIED


@pytest.mark.parametrize("is_batch", [False, True])
@pytest.mark.parametrize("code", [RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2])
def test_nobody_sends_in_the_scope_of_another_topic(rig: LedRig, code: RequestCode, is_batch: bool) -> None:
    """A later epoch would end the one in which its own sender sends."""

    def sent(scope: str) -> int:
        said = {"ORBITMQ_SCOPE": scope, "ORBITMQ_EPOCH": "9", "ORBITMQ_ONCE_KEY": "k", "UNIQ_KEY": "U"}
        body, own = (encode_batch([BatchItem(0, b"x", encode_properties(said))]), {}) if is_batch else (b"x", said)
        with rig.judged():
            answer = rig.send("mine", body, own, code=code, batch=is_batch)
        assert answer is not None
        return answer.code

    assert sent(f"query/{topic_mark('theirs')}@b:1") == DENIED
    for scope in (f"query/{topic_mark('mine')}@b:1", "query/0", "team/somebody@example.org", "~own"):
        assert sent(scope) == ResponseCode.SUCCESS


# --- all of them ------------------------------------------------------------------------------------------------------


def leading(rig: LedRig) -> dict[RequestCode, LedTo]:
    return {code: led_to for room in rig.broker.rooms.all for code, led_to in room.led_to().items()}


def test_every_row_of_the_broker_that_says_so_has_somebody_who_knows_where_it_leads(rig: LedRig) -> None:
    rows = {
        code
        for code, row in REQUESTS.items()
        if RequestServer.BROKER in row.served_by and any(need.named_by is NamedBy.RECORD for need in row.needs)
    }
    assert leading(rig).keys() == rows


def test_a_request_that_leads_nowhere_says_so_by_nothing_or_an_error_and_changes_nothing(rig: LedRig) -> None:
    sizes = rig.store.log.end, len(rig.broker.topics.names())
    for code, led_to in leading(rig).items():
        for fields in (
            {},
            {"offset": "x", "msgId": "0", "commitLogOffset": "-5", "recallHandle": "?", "i": "\x01\x02"},
        ):
            for body in (b"", b"{", b"[]", b'{"name":null}', b'{"selector":{}}'):
                try:
                    found = [*led_to(request(code, fields, body))]
                except OrbitError:
                    continue
                assert found in ([], [None], [""])  # nobody may do anything with a topic without a name
    assert (rig.store.log.end, len(rig.broker.topics.names())) == sizes
