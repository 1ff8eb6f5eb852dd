"""What becomes of received messages: acknowledged, hidden for another time, made dead letters. A handle reaches its own message only."""

from __future__ import annotations

import pytest
from tests.unit.broker.messaging.conftest import FrontRig
from tests.worlds.grpc_consumers import GrpcConsumer, received

from orbitmq.broker.pop.in_flight import QueueInFlight
from orbitmq.limits.grpc import ACK_ENTRIES_MAX
from orbitmq.protocol.grpc.messages import (
    AckMessageEntry,
    AckMessageRequest,
    AckMessageResponse,
    ChangeInvisibleDurationResponse,
    Code,
    Resource,
)
from orbitmq.protocol.grpc.rpcs import Rpc
from orbitmq.protocol.remoting.bodies import SubscriptionGroupConfig, TopicConfig
from orbitmq.protocol.remoting.commands import RequestCode
from orbitmq.store.durability import PutStatus


@pytest.fixture
def rig(front_rig: FrontRig) -> FrontRig:
    for name in ("T", "Other"):
        front_rig.broker.topics.put(TopicConfig(topic_name=name, read_queue_nums=2, write_queue_nums=2), {})
    front_rig.chosen_queue = 50
    return front_rig


@pytest.fixture
def consumer(rig: FrontRig) -> GrpcConsumer:
    return GrpcConsumer(rig.client())


@pytest.fixture
def handle(rig: FrontRig, consumer: GrpcConsumer) -> str:
    """Of the one message, hidden for a minute."""
    rig.sent_ok("T", b"a", {"UNIQ_KEY": "unique"})
    (handle,) = consumer.found()
    return handle


def orderly(rig: FrontRig) -> None:
    rig.broker.groups.put(SubscriptionGroupConfig(group_name="g", consume_message_orderly=True))


def in_flight(rig: FrontRig) -> int:
    return rig.broker.rooms.pops.in_flight.message_count


def put(handle: str, at: int, word: str) -> str:
    """A handle with another word."""
    words = handle.split(" ")
    words[at] = word
    return " ".join(words)


def codes(answer: AckMessageResponse) -> list[int]:
    return [entry.status.code for entry in answer.entries]


# --- acknowledging ------------------------------------------------------------------------------------------------------


def test_what_is_acknowledged_comes_no_more(rig: FrontRig, consumer: GrpcConsumer, handle: str) -> None:
    answer = consumer.ack(handle)
    (entry,) = answer.entries
    assert (answer.status.code, answer.status.message) == (Code.OK, "OK")
    assert (entry.message_id, entry.receipt_handle, entry.status.code) == ("id-0", handle, Code.OK)
    assert (in_flight(rig), rig.broker.offsets.query("g", "T", 0)) == (0, 1)


def test_acknowledging_twice_is_fine(consumer: GrpcConsumer, handle: str) -> None:
    assert codes(consumer.ack(handle, handle)) == codes(consumer.ack(handle)) * 2 == [Code.OK, Code.OK]


def test_a_message_that_came_back_is_settled_in_the_retry_topic_of_its_group(
    rig: FrontRig, consumer: GrpcConsumer, handle: str
) -> None:
    rig.advance(61_000)
    (again,) = consumer.found()
    assert again.split(" ")[4] == "1"
    assert consumer.ack(again).status.code == Code.OK
    assert in_flight(rig) == 0


def test_an_acknowledgement_that_comes_too_late_says_so_by_name(
    rig: FrontRig, consumer: GrpcConsumer, handle: str
) -> None:
    rig.advance(60_000)
    answer = consumer.ack(handle)
    assert (answer.status.code, answer.status.message) == (Code.INVALID_RECEIPT_HANDLE, "INVALID_RECEIPT_HANDLE")


def test_entries_that_differ_have_many_results_above_them(consumer: GrpcConsumer, handle: str) -> None:
    answer = consumer.ack(handle, "none")
    assert codes(answer) == [Code.OK, Code.INVALID_RECEIPT_HANDLE]
    assert (answer.status.code, answer.status.message) == (Code.MULTIPLE_RESULTS, "MULTIPLE_RESULTS")


def acknowledge(rig: FrontRig, consumer: GrpcConsumer, handle: str) -> None:
    """Without an end of the turn."""
    request = AckMessageRequest(
        topic=Resource(name="T"), group=Resource(name="g"), entries=[AckMessageEntry(receipt_handle=handle)]
    )
    rig.front.message(consumer.caller.begin(Rpc.ACK_MESSAGE), request.SerializeToString())


def test_the_offset_of_a_group_follows_its_acknowledgements_when_the_turn_ends(
    rig: FrontRig, consumer: GrpcConsumer, handle: str
) -> None:
    rig.sent_ok("T", b"b")
    commits: list[int] = []
    commit = rig.broker.offsets.commit
    rig.broker.offsets.commit = lambda *what: commits.append(what[-1]) or commit(*what)  # type: ignore[method-assign, func-returns-value]
    for each in (handle, *consumer.found()):
        acknowledge(rig, consumer, each)
    assert (in_flight(rig), commits) == (0, [])
    rig.broker.end_turn()
    assert (rig.broker.offsets.query("g", "T", 0), commits) == (2, [2])


def test_what_was_acknowledged_in_the_last_turn_of_a_broker_is_committed(
    rig: FrontRig, consumer: GrpcConsumer, handle: str
) -> None:
    acknowledge(rig, consumer, handle)
    rig.broker.close()
    assert rig.broker.offsets.query("g", "T", 0) == 1


@pytest.mark.parametrize("order", [False, True])
def test_an_acknowledgement_of_what_a_crash_forgot_is_not_answered_ok(
    rig: FrontRig, consumer: GrpcConsumer, order: bool
) -> None:
    if order:
        orderly(rig)
    for body in (b"a", b"b"):
        rig.sent_ok("T", body)
    handles = consumer.found()
    rig.advance(100)
    rig.kill()
    consumer = GrpcConsumer(rig.client())
    assert codes(consumer.ack(*handles)) == [Code.INVALID_RECEIPT_HANDLE] * 2
    again = consumer.found()
    assert codes(consumer.ack(*handles)) == [Code.INVALID_RECEIPT_HANDLE] * 2
    assert codes(consumer.ack(*again)) == codes(consumer.ack(*again)) == codes(consumer.ack(*handles)) == [Code.OK] * 2


def test_what_a_checkpoint_kept_over_a_crash_is_settled_by_its_old_handle_as_often_as_it_is_said(
    rig: FrontRig, consumer: GrpcConsumer
) -> None:
    for body in (b"a", b"b"):
        rig.sent_ok("T", body)
    first, second = consumer.found()
    rig.advance(15_000)
    rig.broker.offsets.commit("g", "T", 0, 0)
    rig.kill()
    rig.broker.offsets.commit("g", "T", 0, 0)
    consumer = GrpcConsumer(rig.client())
    assert codes(consumer.ack(second, second)) == [Code.OK, Code.OK]
    assert codes(consumer.ack(first, second, first)) == [Code.OK] * 3
    assert (consumer.start().answers, in_flight(rig)) == ([], 0)


def test_a_handle_from_before_its_topic_was_made_anew_is_not_answered_ok(
    rig: FrontRig, consumer: GrpcConsumer, handle: str
) -> None:
    rig.call(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "T"})
    rig.broker.topics.put(TopicConfig(topic_name="T", read_queue_nums=2, write_queue_nums=2), {})
    rig.sent_ok("T", b"new")
    assert codes(consumer.ack(handle)) == [Code.INVALID_RECEIPT_HANDLE]
    assert consumer.receive().bodies == [b"new"]


@pytest.mark.parametrize(
    "wrong",
    [
        "",
        "x",
        "0 1 2",
        "a b c d e f g h",
        "0 1 60000 0 9 broker-a 0 0 1",
        "\u0663 1 2 0 0 broker-a 0 0",
        "9" * 3_000,
        "0 " * 500,
    ],
)
def test_what_is_no_handle_is_no_error_of_ours(consumer: GrpcConsumer, wrong: str) -> None:
    assert codes(consumer.ack(wrong)) == [Code.INVALID_RECEIPT_HANDLE]
    assert consumer.change(wrong, 10_000).status.code == Code.INVALID_RECEIPT_HANDLE
    assert consumer.forward(wrong) == Code.INVALID_RECEIPT_HANDLE


def test_a_request_without_entries_is_a_bad_one(consumer: GrpcConsumer) -> None:
    assert consumer.ack().status.code == Code.BAD_REQUEST


def test_one_entry_too_many_acknowledges_nothing(rig: FrontRig, consumer: GrpcConsumer, handle: str) -> None:
    assert consumer.ack(*[handle] * (ACK_ENTRIES_MAX + 1)).status.code == Code.BAD_REQUEST
    assert in_flight(rig) == 1
    assert consumer.ack(*[handle] * ACK_ENTRIES_MAX).status.code == Code.OK
    assert in_flight(rig) == 0


def test_very_many_entries_of_two_bytes_are_counted_and_not_taken_apart(consumer: GrpcConsumer) -> None:
    call = consumer.caller.begin(Rpc.ACK_MESSAGE)
    consumer.caller.front.message(call, b"\x1a\x00" * 500_000)
    assert AckMessageResponse.FromString(call.answers[0]).status.code == Code.BAD_REQUEST


# --- handles of others ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("topic", "group"), [("Other", "g"), ("T", "other"), ("Other", "other")])
def test_a_handle_of_another_topic_or_group_reaches_nothing(rig: FrontRig, handle: str, topic: str, group: str) -> None:
    rig.sent_ok("Other", b"other")
    other = GrpcConsumer(rig.client("other"), topic, group)
    before = in_flight(rig)
    other.ack(handle)
    assert other.change(handle, 0).status.code == Code.INVALID_RECEIPT_HANDLE
    assert other.forward(handle) == Code.INVALID_RECEIPT_HANDLE
    rig.advance(1_000)
    assert in_flight(rig) == before
    assert rig.records(f"%DLQ%{group}") == []


@pytest.mark.parametrize(
    ("at", "word"),
    [
        (1, "1700000000001"),
        (4, "1"),
        (4, "2"),
        (5, "broker-b"),
        (6, "1"),
        (6, "2"),
        (6, "99999"),
        (7, "1"),
        (7, "99999"),
        (7, "999999999999999999"),
    ],
)
def test_a_handle_with_another_word_in_it_reaches_nothing(
    rig: FrontRig, consumer: GrpcConsumer, handle: str, at: int, word: str
) -> None:
    wrong = put(handle, at, word)
    assert set(codes(consumer.ack(wrong))) <= {Code.OK, Code.INVALID_RECEIPT_HANDLE}
    assert consumer.change(wrong, 0).status.code == Code.INVALID_RECEIPT_HANDLE
    assert consumer.forward(wrong) == Code.INVALID_RECEIPT_HANDLE
    rig.advance(1_000)
    assert in_flight(rig) == 1
    assert consumer.ack(handle).status.code == Code.OK
    assert in_flight(rig) == 0


@pytest.mark.parametrize(("at", "word"), [(5, "broker-b"), (6, "2"), (7, "99999")])
def test_an_acknowledgement_that_cannot_be_right_is_not_answered_ok(
    consumer: GrpcConsumer, handle: str, at: int, word: str
) -> None:
    assert codes(consumer.ack(put(handle, at, word))) == [Code.INVALID_RECEIPT_HANDLE]


@pytest.mark.parametrize(("topic", "group", "code"), [
    ("Nowhere", "g", Code.TOPIC_NOT_FOUND), ("", "g", Code.ILLEGAL_TOPIC), ("T", "CID_RMQ_SYS_x", Code.ILLEGAL_CONSUMER_GROUP),
])  # fmt: skip
def test_names_that_are_none(rig: FrontRig, topic: str, group: str, code: Code) -> None:
    wrong = GrpcConsumer(rig.client(), topic, group)
    assert wrong.ack("x").status.code == wrong.change("x", 1).status.code == wrong.forward("x") == code


# --- hiding for another time ------------------------------------------------------------------------------------------------


def test_a_changed_time_counts_from_now_and_makes_a_new_handle(
    rig: FrontRig, consumer: GrpcConsumer, handle: str
) -> None:
    rig.advance(50_000)
    answer = consumer.change(handle, 20_000)
    assert (answer.status.code, answer.receipt_handle.split(" ")[1:3]) == (
        Code.OK,
        [str(rig.clock.now_ms()), "20000"],
    )
    rig.advance(19_999)
    assert consumer.start().answers == []
    assert consumer.ack(answer.receipt_handle).status.code == Code.OK
    assert in_flight(rig) == 0


def test_the_old_handle_is_spent(rig: FrontRig, consumer: GrpcConsumer, handle: str) -> None:
    rig.advance(1)
    new = consumer.change(handle, 20_000).receipt_handle
    assert consumer.ack(handle).status.message == "INVALID_RECEIPT_HANDLE"
    assert consumer.change(handle, 20_000).status.code == Code.INVALID_RECEIPT_HANDLE
    assert consumer.forward(handle) == Code.INVALID_RECEIPT_HANDLE
    assert in_flight(rig) == 1
    assert consumer.ack(new).status.code == Code.OK
    assert in_flight(rig) == 0


@pytest.mark.parametrize("hiding", [[0], [1_000], [50_000, 0], [70_000, 0]])
def test_the_old_handle_is_spent_after_its_message_came_back_as_well(
    rig: FrontRig, consumer: GrpcConsumer, handle: str, hiding: list[int]
) -> None:
    new = handle
    for invisible_ms in hiding:
        rig.clock.advance(1)
        new = consumer.change(new, invisible_ms).receipt_handle
    rig.advance(2_000)
    assert codes(consumer.ack(handle)) == [Code.INVALID_RECEIPT_HANDLE]
    (again,) = consumer.found()
    assert codes(consumer.ack(again, again)) == [Code.OK, Code.OK]


def test_the_old_handle_is_as_good_as_the_new_when_that_has_settled_the_message(
    rig: FrontRig, consumer: GrpcConsumer, handle: str
) -> None:
    rig.clock.advance(1)
    new = consumer.change(handle, 20_000).receipt_handle
    assert codes(consumer.ack(new, handle, new)) == [Code.OK] * 3


def test_what_is_given_back_is_not_settled_by_the_handle_that_its_client_did_not_get(
    rig: FrontRig, consumer: GrpcConsumer
) -> None:
    rig.sent_ok("T", b"a")
    call = consumer.start()
    (handle,) = received(call).handles
    rig.clock.advance(1)
    assert call.lost is not None
    call.lost()
    rig.advance(1_000)
    assert codes(consumer.ack(handle)) == [Code.INVALID_RECEIPT_HANDLE]
    assert consumer.receive().bodies == [b"a"]


def test_of_too_many_old_handles_the_first_are_forgotten(
    rig: FrontRig, consumer: GrpcConsumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orbitmq.broker.pop.settling.POP_SHORTENED_MAX", 2)
    for _ in range(3):
        rig.sent_ok("T", b"a")
    handles = consumer.found()
    rig.clock.advance(1)
    for handle in handles:
        consumer.change(handle, 0)
    rig.advance(1_000)
    assert codes(consumer.ack(*handles)) == [Code.OK, Code.INVALID_RECEIPT_HANDLE, Code.INVALID_RECEIPT_HANDLE]


def test_an_old_handle_beside_the_new_is_noticed(
    rig: FrontRig, consumer: GrpcConsumer, handle: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A planted bug: whatever pop a handle names, it settles the message."""
    whole = QueueInFlight._find

    def any_pop(self: QueueInFlight, offset: int, popped_ms: int) -> object:
        found = self.find(offset)
        return whole(self, offset, popped_ms if found is None else found.popped_ms)

    monkeypatch.setattr(QueueInFlight, "_find", any_pop)
    with pytest.raises(AssertionError):
        test_the_old_handle_is_spent(rig, consumer, handle)


def test_no_time_shows_a_message_at_once(rig: FrontRig, consumer: GrpcConsumer, handle: str) -> None:
    assert consumer.change(handle, 0).status.code == Code.OK
    rig.advance(1_000)
    assert consumer.receive().attempts == [2]


def test_a_suspended_message_has_not_used_up_an_attempt(rig: FrontRig, consumer: GrpcConsumer, handle: str) -> None:
    consumer.change(handle, 0, suspend=True)
    rig.advance(1_000)
    assert consumer.receive().attempts == [1]


@pytest.mark.parametrize(
    ("invisible_ms", "text"),
    [(-1, "the invisibleTime is too small"), (43_200_001, "the invisibleTime is too large"), (10**15, "too large")],
)
def test_a_time_that_is_none(consumer: GrpcConsumer, handle: str, invisible_ms: int, text: str) -> None:
    status = consumer.change(handle, invisible_ms).status
    assert (status.code, text in status.message) == (Code.ILLEGAL_INVISIBLE_TIME, True)


def test_the_longest_time(consumer: GrpcConsumer, handle: str) -> None:
    assert consumer.change(handle, 43_200_000).status.code == Code.OK


def test_a_message_in_order_is_hidden_with_the_same_pop(rig: FrontRig, consumer: GrpcConsumer) -> None:
    orderly(rig)
    rig.sent_ok("T", b"a")
    (handle,) = consumer.found()
    rig.advance(10_000)
    new = consumer.change(handle, 100_000).receipt_handle
    assert (new.split(" ")[1], new.split(" ")[3]) == (handle.split(" ")[1], "999")
    rig.advance(99_000)
    assert consumer.start().answers == []
    assert consumer.ack(new).status.code == Code.OK
    assert rig.broker.offsets.query("g", "T", 0) == 1


# --- dead letters -------------------------------------------------------------------------------------------------------------


def test_a_forwarded_message_is_a_dead_letter_and_settled(rig: FrontRig, consumer: GrpcConsumer, handle: str) -> None:
    assert consumer.forward(handle) == Code.OK
    assert [record.body for record in rig.records("%DLQ%g")] == [b"a"]
    assert in_flight(rig) == 0
    dead = GrpcConsumer(rig.client(), "%DLQ%g", "reader").receive().messages[0].system_properties.dead_letter_queue
    assert (dead.topic, dead.message_id) == ("T", "unique")


def test_a_dead_letter_is_answered_when_it_is_stored(rig: FrontRig, consumer: GrpcConsumer, handle: str) -> None:
    caller = consumer.caller
    end_turn, caller._end_turn = caller._end_turn, lambda: None
    call = consumer.start_forward(handle)
    assert (call.answers, call.ends, in_flight(rig)) == ([], 0, 1)
    end_turn()
    assert (len(call.answers), call.ends, in_flight(rig)) == (1, 1, 0)


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (PutStatus.FLUSH_DISK_TIMEOUT, Code.MASTER_PERSISTENCE_TIMEOUT),
        (PutStatus.FLUSH_SLAVE_TIMEOUT, Code.SLAVE_PERSISTENCE_TIMEOUT),
        (PutStatus.SLAVE_NOT_AVAILABLE, Code.HA_NOT_AVAILABLE),
        (PutStatus.UNKNOWN, Code.INTERNAL_SERVER_ERROR),
        (PutStatus.SERVICE_NOT_AVAILABLE, Code.INTERNAL_SERVER_ERROR),
    ],
)
def test_a_dead_letter_that_may_be_lost_is_not_answered_ok(
    rig: FrontRig, consumer: GrpcConsumer, handle: str, status: PutStatus, code: Code, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(rig.store), "wait_durable", lambda self, end, wait, done: done(status))
    assert consumer.forward(handle) == code
    assert in_flight(rig) == (0 if status.satisfies_flush else 1)


@pytest.mark.parametrize("end", ["", " -1", " 5", " 999999999999999999"])
def test_a_place_in_the_log_that_is_not_its_own_reaches_no_record(
    rig: FrontRig, consumer: GrpcConsumer, end: str
) -> None:
    for body in (b"secret", b"a"):
        rig.sent_ok("Other" if body == b"secret" else "T", body)
    (handle,) = consumer.found()
    whole = handle.rsplit(" ", 1)[0]
    assert consumer.forward(whole + end) == Code.INVALID_RECEIPT_HANDLE
    assert consumer.forward(whole + " 0") == Code.INVALID_RECEIPT_HANDLE  # where the secret lies
    assert rig.records("%DLQ%g") == []


def test_a_repeat_is_answered_like_the_first_and_stores_nothing(
    rig: FrontRig, consumer: GrpcConsumer, handle: str
) -> None:
    consumer.forward(handle)
    assert consumer.forward(handle) == Code.OK
    rig.advance(61_000)
    assert consumer.forward(handle) == Code.OK
    assert len(rig.records("%DLQ%g")) == 1
    assert GrpcConsumer(rig.client("other"), "T", "other").forward(handle) == Code.INVALID_RECEIPT_HANDLE


def test_one_repeat_too_old_is_forgotten(
    rig: FrontRig, consumer: GrpcConsumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orbitmq.broker.messaging.acknowledging.FORWARDED_KEPT_MAX", 2)
    for _ in range(3):
        rig.sent_ok("T")
    handles = consumer.found()
    assert [consumer.forward(handle) for handle in handles] == [Code.OK] * 3
    assert [consumer.forward(handle) for handle in handles] == [Code.INVALID_RECEIPT_HANDLE, Code.OK, Code.OK]


def test_an_acknowledged_message_is_not_forwarded(rig: FrontRig, consumer: GrpcConsumer, handle: str) -> None:
    consumer.ack(handle)
    assert consumer.forward(handle) == Code.INVALID_RECEIPT_HANDLE
    assert rig.records("%DLQ%g") == []


def test_a_message_in_order_is_forwarded_and_the_queue_goes_on(rig: FrontRig, consumer: GrpcConsumer) -> None:
    orderly(rig)
    for body in (b"a", b"b"):
        rig.sent_ok("T", body)
    (handle,) = consumer.found(count=1)
    assert consumer.forward(handle) == Code.OK
    assert [record.body for record in rig.records("%DLQ%g")] == [b"a"]
    assert consumer.receive().bodies == [b"b"]


def test_an_answer_to_a_caller_who_is_gone_is_dropped(rig: FrontRig, consumer: GrpcConsumer, handle: str) -> None:
    caller = consumer.caller
    end_turn, caller._end_turn = caller._end_turn, lambda: None
    call = consumer.start_forward(handle)
    caller.cancel(call)
    end_turn()
    assert (call.answers, call.ends, in_flight(rig)) == ([], 1, 0)


def test_an_acknowledgement_of_two_names_only_in_its_request(
    rig: FrontRig, consumer: GrpcConsumer, handle: str
) -> None:
    """The namespace that a client keeps for itself is not looked at."""
    request = AckMessageRequest(topic=Resource(name="T", resource_namespace="ns"), group=Resource(name="g"))
    request.entries.add(receipt_handle=handle)
    answer = consumer.caller.call(Rpc.ACK_MESSAGE, request, AckMessageResponse)
    assert answer.status.code == Code.OK


def test_a_refused_change_has_no_handle(consumer: GrpcConsumer, handle: str) -> None:
    consumer.ack(handle)
    answer: ChangeInvisibleDurationResponse = consumer.change(handle, 10_000)
    assert (answer.status.code, answer.receipt_handle) == (Code.INVALID_RECEIPT_HANDLE, "")
