"""Receives of RocketMQ 5: a stream of messages, each with its handle, or the word that there are none."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest
from tests.unit.broker.messaging.conftest import FrontRig
from tests.worlds.grpc_calls import ListCall
from tests.worlds.grpc_consumers import GrpcConsumer, received

from orbitmq.broker.pop.settling import PopSettling
from orbitmq.broker.topics import WRITE
from orbitmq.limits.grpc import RECEIVED_AT_ONCE_BYTES
from orbitmq.limits.pop import POP_ATTEMPT_ID_CHARS_MAX, POP_MESSAGES_MAX, POP_WAITING_PER_QUEUE_MAX
from orbitmq.protocol.grpc.call_error import GrpcStatus
from orbitmq.protocol.grpc.messages import Broker, Code, Duration, MessageQueue, Resource
from orbitmq.protocol.properties import Property, decode_properties
from orbitmq.protocol.remoting.bodies import SubscriptionGroupConfig, TopicConfig
from orbitmq.protocol.remoting.commands import RequestCode


@pytest.fixture
def rig(front_rig: FrontRig) -> FrontRig:
    config = TopicConfig(topic_name="T", read_queue_nums=2, write_queue_nums=2)
    front_rig.broker.topics.put(config, {})
    front_rig.chosen_queue = 50
    return front_rig


@pytest.fixture
def consumer(rig: FrontRig) -> GrpcConsumer:
    return GrpcConsumer(rig.client())


def orderly(rig: FrontRig, **more: int) -> None:
    rig.broker.groups.put(SubscriptionGroupConfig(group_name="g", consume_message_orderly=True, **more))


def test_a_message_comes_as_it_was_sent_with_a_handle(rig: FrontRig, consumer: GrpcConsumer) -> None:
    rig.sent_ok("T", b"a", {"TAGS": "paid", "UNIQ_KEY": "id", "own": "1"}, queue_id=1)
    answer = consumer.receive()
    (message,) = answer.messages
    system = message.system_properties
    assert (answer.code, message.topic.name, message.body) == (Code.OK, "T", b"a")
    assert (system.message_id, system.tag, dict(message.user_properties)) == ("id", "paid", {"own": "1"})
    assert (system.queue_id, system.queue_offset, system.delivery_attempt) == (1, 0, 1)
    (record,) = rig.records("T", 1)
    assert system.receipt_handle == f"0 {rig.clock.now_ms()} 60000 0 0 broker-a 1 0 {record.physical_offset}"


def test_messages_of_all_queues_come_together_whatever_queue_or_broker_is_named(
    rig: FrontRig, consumer: GrpcConsumer
) -> None:
    for number in range(4):
        rig.sent_ok("T", b"%d" % number, queue_id=number % 2)
    queue = MessageQueue(topic=Resource(name="T"), id=1, broker=Broker(name="no-such-broker"))
    assert sorted(consumer.receive(queue=queue).bodies) == [b"0", b"1", b"2", b"3"]


@pytest.mark.parametrize(("count", "got"), [(3, 3), (POP_MESSAGES_MAX + 1, POP_MESSAGES_MAX), (0, 1), (-5, 1)])
def test_a_receive_brings_what_it_asks_for_and_at_most_32(
    rig: FrontRig, consumer: GrpcConsumer, count: int, got: int
) -> None:
    for _ in range(40):
        rig.sent_ok("T")
    assert len(consumer.receive(count=count).messages) == got


def test_what_is_hidden_comes_again_after_its_time_with_another_attempt(rig: FrontRig, consumer: GrpcConsumer) -> None:
    rig.sent_ok("T", b"a")
    consumer.receive(invisible_ms=10_000)
    rig.advance(9_999)
    waiting = consumer.start()
    assert waiting.answers == []
    rig.advance(1_100)
    answer = received(waiting)
    assert (answer.bodies, answer.attempts) == ([b"a"], [2])
    assert answer.messages[0].topic.name == "T"


# --- waiting ------------------------------------------------------------------------------------------------------------


def test_a_receive_waits_for_its_polling_time_and_no_longer(rig: FrontRig, consumer: GrpcConsumer) -> None:
    call = consumer.start(polling_ms=7_000)
    rig.advance(6_999)
    assert call.answers == []
    rig.advance(1)
    assert received(call).code == Code.MESSAGE_NOT_FOUND


def test_what_the_client_said_of_its_request_timeout_counts(rig: FrontRig, consumer: GrpcConsumer) -> None:
    consumer.connect(request_timeout=Duration(seconds=10))
    call = consumer.start(timeout_ms=20_000)
    rig.advance(14_999)
    assert call.answers == []
    rig.advance(1)
    assert received(call).code == Code.MESSAGE_NOT_FOUND


def test_a_call_without_a_deadline_waits(rig: FrontRig, consumer: GrpcConsumer) -> None:
    call = consumer.start(timeout_ms=None)
    rig.advance(20_000)
    assert received(call).code == Code.MESSAGE_NOT_FOUND


def test_a_deadline_that_is_too_near_is_refused_with_a_whole_stream(consumer: GrpcConsumer) -> None:
    assert consumer.receive(timeout_ms=3_000).code == Code.ILLEGAL_POLLING_TIME


def test_one_arrival_answers_one_receive(rig: FrontRig, consumer: GrpcConsumer) -> None:
    rig.advance(0)
    calls = [consumer.start() for _ in range(3)]
    rig.sent_ok("T", b"a")
    answered = [call for call in calls if call.answers]
    assert [received(call).bodies for call in answered] == [[b"a"]]


def unreadable(rig: FrontRig) -> None:
    rig.broker.topics.put(TopicConfig(topic_name="T", read_queue_nums=2, write_queue_nums=2, perm=WRITE), {})


def disabled(rig: FrontRig) -> None:
    rig.broker.groups.put(SubscriptionGroupConfig(group_name="g", consume_enable=False))


@pytest.mark.parametrize(
    ("change", "code"), [(unreadable, Code.FORBIDDEN), (disabled, Code.FORBIDDEN), (orderly, None)]
)
def test_a_receive_that_waited_takes_nothing_by_what_counted_before(
    rig: FrontRig, consumer: GrpcConsumer, change: Callable[[FrontRig], object], code: Code | None
) -> None:
    rig.sent_ok("T", b"before")
    consumer.ack(*consumer.found())
    waiting = consumer.start()
    change(rig)
    later = GrpcConsumer(rig.client("later")).start() if code is None else None
    rig.send("T", b"a")
    assert received(waiting).code == Code.MESSAGE_NOT_FOUND
    if later is not None:
        assert received(later).bodies[-1:] == [b"a"], "who asked since has not to wait"
    else:
        assert (consumer.receive().code, rig.broker.offsets.query("g", "T", 0)) == (code, 1)


def test_a_deleted_group_has_no_offsets_again_because_somebody_waited(rig: FrontRig, consumer: GrpcConsumer) -> None:
    waiting = consumer.start()
    rig.call(RequestCode.DELETE_SUBSCRIPTIONGROUP, {"groupName": "g", "cleanOffset": True})
    rig.sent_ok("T", b"a")
    assert received(waiting).code == Code.MESSAGE_NOT_FOUND
    assert (rig.broker.groups.known("g"), rig.broker.offsets.query("g", "T", 0)) == (None, None)


def test_too_many_receives_are_not_held(rig: FrontRig, consumer: GrpcConsumer) -> None:
    for _ in range(POP_WAITING_PER_QUEUE_MAX):
        assert consumer.start().answers == []
    assert consumer.receive().code == Code.TOO_MANY_REQUESTS


# --- whom nobody answers any more ---------------------------------------------------------------------------------------


def test_a_cancelled_receive_takes_nothing(rig: FrontRig, consumer: GrpcConsumer) -> None:
    call = consumer.start()
    consumer.caller.cancel(call)
    rig.sent_ok("T", b"a")
    assert (call.answers, call.ends) == ([], 1)
    assert rig.broker.rooms.pops.in_flight.message_count == 0
    assert consumer.receive().bodies == [b"a"]


def test_what_was_taken_for_a_caller_who_is_gone_is_visible_at_once_and_counts_as_no_attempt(
    rig: FrontRig, consumer: GrpcConsumer
) -> None:
    """The news that it is gone waits in the request queue while a message arrives."""
    call = consumer.start(invisible_ms=3_600_000)
    call.is_wanted = False
    rig.sent_ok("T", b"a")
    rig.front.over(call)
    assert (call.answers, call.ends) == ([], 1)
    rig.advance(1_000)
    answer = consumer.receive()
    assert (answer.bodies, answer.attempts) == ([b"a"], [1])


LARGE = [number * (RECEIVED_AT_ONCE_BYTES + 1) for number in (b"0", b"1", b"2")]
"""Bodies that are written one by one."""


@pytest.fixture
def large(rig: FrontRig) -> None:
    for body in LARGE:
        rig.sent_ok("T", body)


def test_a_reader_that_takes_no_more_is_waited_for(large: None, consumer: GrpcConsumer) -> None:
    call = SlowCall.of(consumer, takes=1)
    assert (len(call.answers), call.ends) == (2, 0), "the status and a message"
    call.take_more()
    assert received(call).bodies == LARGE


@pytest.mark.parametrize("takes", [0, 1])
def test_a_slow_reader_that_goes_leaves_everything_to_others(
    large: None, rig: FrontRig, consumer: GrpcConsumer, takes: int
) -> None:
    call = SlowCall.of(consumer, takes=takes, invisible_ms=3_600_000)
    consumer.caller.cancel(call)
    call.take_more()
    assert call.ends == 1
    rig.advance(1_000)
    assert sorted(consumer.receive().bodies) == LARGE


def test_a_stream_that_is_reset_because_too_much_waits_leaves_everything_to_others(
    large: None, rig: FrontRig, consumer: GrpcConsumer
) -> None:
    call = SlowCall.of(consumer, takes=99, fits=1, invisible_ms=3_600_000)
    assert (len(call.answers), call.ends) == (2, 1)
    rig.advance(1_000)
    assert sorted(consumer.receive().bodies) == LARGE


def test_a_stop_breaks_off_what_waits_for_its_reader(large: None, rig: FrontRig, consumer: GrpcConsumer) -> None:
    call = SlowCall.of(consumer, takes=1, invisible_ms=3_600_000)
    rig.front.close()
    call.take_more()
    assert call.error is not None
    assert (call.error.status, call.ends) == (GrpcStatus.UNAVAILABLE, 1)
    rig.advance(1_000)
    assert sorted(consumer.receive().bodies) == LARGE


def test_small_messages_are_written_together(rig: FrontRig, consumer: GrpcConsumer) -> None:
    for number in range(32):
        rig.sent_ok("T", b"%d" % number)
    call = SlowCall.of(consumer, takes=1)
    assert (len(call.answers), call.writes) == (34, 2), "the last item by itself"


@pytest.mark.parametrize("renews", [False, True])
def test_a_stream_that_was_written_and_does_not_leave_goes_to_others(
    rig: FrontRig, consumer: GrpcConsumer, renews: bool
) -> None:
    consumer.connect()
    for number in range(3):
        rig.sent_ok("T", b"%d" % number)
    call = consumer.start(invisible_ms=3_600_000, renews=renews)
    first = received(call).handles[0]
    assert consumer.ack(first).status.code == Code.OK
    assert call.lost is not None
    call.lost()
    rig.advance(1_000)
    again = consumer.receive()
    assert (sorted(again.bodies), again.attempts) == ([b"1", b"2"], [1, 1]), "what was acknowledged is done"
    assert len(rig.front.renewals.held) == 0


def test_a_stream_without_messages_has_nothing_to_lose(rig: FrontRig, consumer: GrpcConsumer) -> None:
    call = consumer.start()
    rig.advance(20_000)
    assert (received(call).code, call.lost) == (Code.MESSAGE_NOT_FOUND, None)


def test_what_is_lost_behind_the_stop_stays_as_it_was_stored(rig: FrontRig, consumer: GrpcConsumer) -> None:
    rig.sent_ok("T", b"a")
    call = consumer.start(invisible_ms=3_600_000)
    rig.front.close()
    assert call.lost is not None
    call.lost()
    rig.advance(2_000)
    assert rig.records("%RETRY%g_T") == []


def test_a_lost_message_of_a_gone_caller_is_noticed(
    rig: FrontRig, consumer: GrpcConsumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A planted bug: what was popped for a caller who is gone is not given back."""

    monkeypatch.setattr(PopSettling, "show", lambda *args, **more: 0)
    with pytest.raises(AssertionError):
        test_what_was_taken_for_a_caller_who_is_gone_is_visible_at_once_and_counts_as_no_attempt(rig, consumer)


def test_nothing_is_popped_for_a_caller_who_takes_no_answers(rig: FrontRig, consumer: GrpcConsumer) -> None:
    """What did not fit would be stored again at once: a message of 4 MiB for a request of a hundred bytes."""
    rig.sent_ok("T", b"a")
    before = SlowCall.of(consumer, takes=0)
    rig.sent_ok("T", b"b")
    assert rig.broker.rooms.pops.in_flight.message_count == 0
    assert consumer.receive(count=1).bodies == [b"a"]
    before.take_more()
    assert received(before).bodies == [b"b"]


def test_a_caller_who_takes_no_answers_any_more_pops_nothing_of_what_he_waited_for(
    rig: FrontRig, consumer: GrpcConsumer
) -> None:
    waiting = SlowCall.of(consumer, takes=1)
    waiting.writable = False
    rig.sent_ok("T", b"a")
    assert rig.broker.rooms.pops.in_flight.message_count == 0
    waiting.take_more()
    assert received(waiting).bodies == [b"a"]


class SlowCall(ListCall):
    """A call whose reader takes so many writes, and then no more until it is told. `fits`: one write more resets the stream."""

    takes = 0
    fits = 99
    writes = 0

    @classmethod
    def of(cls, consumer: GrpcConsumer, *, takes: int, fits: int = 99, **more: int) -> SlowCall:
        caller, made = consumer.caller, []

        def begin(rpc, *, timeout_ms=None):  # type: ignore[no-untyped-def]
            call = cls(rpc, caller._clock.monotonic_ns(), timeout_ms=timeout_ms)
            call.takes, call.fits, call.writable = takes, fits, takes > 0
            made.append(call)
            return call

        whole, caller.begin = caller.begin, begin  # type: ignore[method-assign]
        consumer.start(**more)
        caller.begin = whole  # type: ignore[method-assign]
        return made[0]

    def answer(self, *messages: bytes) -> None:
        if self.writes >= self.fits:
            self.is_wanted = False
            return
        super().answer(*messages)
        self.writes += 1
        self.writable = self.writes < self.takes

    def take_more(self) -> None:
        self.takes, self.writable = 99, True
        calls, self.writable_calls = self.writable_calls, []
        for call in calls:
            call()


# --- what is wanted -----------------------------------------------------------------------------------------------------


def test_only_messages_with_the_tags_come(rig: FrontRig, consumer: GrpcConsumer) -> None:
    for tag in ("A", "B", "C"):
        rig.sent_ok("T", tag.encode(), {"TAGS": tag})
    assert consumer.receive(tags="A || C ||").bodies == [b"A", b"C"]


def test_a_tag_of_the_same_hash_is_acknowledged_and_not_shown(rig: FrontRig, consumer: GrpcConsumer) -> None:
    rig.sent_ok("T", b"x", {"TAGS": "BB"})
    answer = consumer.receive(tags="Aa")  # the hashes of both are equal
    assert (answer.code, answer.messages) == (Code.MESSAGE_NOT_FOUND, [])
    assert rig.broker.rooms.pops.in_flight.message_count == 0
    assert rig.broker.offsets.query("g", "T", 0) == 1


def test_an_expression_of_properties(rig: FrontRig, consumer: GrpcConsumer) -> None:
    for price in ("5", "25"):
        rig.sent_ok("T", price.encode(), {"price": price})
    assert consumer.receive(sql="price > 20").bodies == [b"25"]


@pytest.mark.parametrize("wrong", [{"sql": ""}, {"sql": "price >"}, {"tags": "||"}])
def test_an_expression_that_is_none(consumer: GrpcConsumer, wrong: dict[str, str]) -> None:
    assert consumer.receive(**wrong).code == Code.ILLEGAL_FILTER_EXPRESSION


def test_an_expression_where_they_are_switched_off(rig: FrontRig, consumer: GrpcConsumer) -> None:
    rig.front._receives._broker_settings = msgspec.structs.replace(rig.settings, enable_property_filter=False)
    status = consumer.receive(sql="a = 1").status
    assert (status.code, "enablePropertyFilter" in status.message) == (Code.ILLEGAL_FILTER_EXPRESSION, True)


# --- attempts -----------------------------------------------------------------------------------------------------------


def test_a_message_whose_attempts_are_used_up_becomes_a_dead_letter(rig: FrontRig, consumer: GrpcConsumer) -> None:
    rig.broker.groups.put(SubscriptionGroupConfig(group_name="g", retry_max_times=1))
    rig.sent_ok("T", b"a", {"UNIQ_KEY": "id"})
    for attempt in (1, 2):
        assert consumer.receive(invisible_ms=10_000).attempts == [attempt]
        rig.advance(11_000)
    assert consumer.receive().code == Code.MESSAGE_NOT_FOUND
    rig.broker.end_turn()
    (dead,) = rig.records("%DLQ%g")
    properties = decode_properties(dead.properties)
    assert (dead.body, properties[Property.DLQ_ORIGIN_TOPIC], properties[Property.DLQ_ORIGIN_MESSAGE_ID]) == (
        b"a",
        "T",
        "id",
    )
    assert rig.broker.rooms.pops.in_flight.message_count == 0


# --- orderly groups -----------------------------------------------------------------------------------------------------


def test_an_orderly_group_gets_the_next_messages_of_a_queue_when_those_before_are_done(
    rig: FrontRig, consumer: GrpcConsumer
) -> None:
    orderly(rig)
    for number in range(3):
        rig.sent_ok("T", b"%d" % number)
    first = consumer.receive(count=2)
    assert [handle.split(" ")[3] for handle in first.handles] == ["999", "999"]
    waiting = consumer.start()
    assert consumer.ack(*first.handles).status.code == Code.OK
    assert received(waiting).bodies == [b"2"]


def test_the_same_attempt_gets_the_same_messages_and_counts_once(rig: FrontRig, consumer: GrpcConsumer) -> None:
    orderly(rig)
    rig.sent_ok("T", b"a")
    consumer.receive(attempt="one")
    again = consumer.receive(attempt="one")
    assert (again.bodies, again.attempts) == ([b"a"], [1])
    assert consumer.start(attempt="two").answers == []
    rig.advance(60_000)


def test_one_character_too_many_of_an_attempt(rig: FrontRig, consumer: GrpcConsumer) -> None:
    orderly(rig)
    rig.sent_ok("T", b"a")
    assert consumer.receive(attempt="x" * (POP_ATTEMPT_ID_CHARS_MAX + 1)).code == Code.BAD_REQUEST
    assert consumer.receive(attempt="x" * POP_ATTEMPT_ID_CHARS_MAX).code == Code.OK


def test_attempts_of_an_orderly_group_are_counted_by_the_broker(rig: FrontRig, consumer: GrpcConsumer) -> None:
    orderly(rig, retry_max_times=1)
    rig.sent_ok("T", b"a")
    for attempt in (1, 2):
        assert consumer.receive(invisible_ms=10_000).attempts == [attempt]
        rig.advance(10_000)
    assert consumer.receive().code == Code.MESSAGE_NOT_FOUND
    assert [record.body for record in rig.records("%DLQ%g")] == [b"a"]


# --- what is refused ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("invisible_ms", "text"),
    [
        (9_999, "the invisibleTime is too small"),
        (0, "the invisibleTime is too small"),
        (43_200_001, "the invisibleTime is too large"),
    ],
)
def test_an_invisible_time_that_is_none(consumer: GrpcConsumer, invisible_ms: int, text: str) -> None:
    status = consumer.receive(invisible_ms=invisible_ms).status
    assert (status.code, text in status.message) == (Code.ILLEGAL_INVISIBLE_TIME, True)


@pytest.mark.parametrize("invisible_ms", [10_000, 43_200_000])
def test_the_shortest_and_the_longest_invisible_time(rig: FrontRig, consumer: GrpcConsumer, invisible_ms: int) -> None:
    rig.sent_ok("T")
    assert consumer.receive(invisible_ms=invisible_ms).code == Code.OK


@pytest.mark.parametrize(
    ("topic", "group", "code"),
    [
        ("Nowhere", "g", Code.TOPIC_NOT_FOUND),
        ("", "g", Code.ILLEGAL_TOPIC),
        ("TBW102", "g", Code.ILLEGAL_TOPIC),
        ("T", "", Code.ILLEGAL_CONSUMER_GROUP),
        ("T", "CID_RMQ_SYS_x", Code.ILLEGAL_CONSUMER_GROUP),
    ],
)
def test_names_that_are_none_end_with_a_whole_stream(rig: FrontRig, topic: str, group: str, code: Code) -> None:
    assert GrpcConsumer(rig.client(), topic, group).receive().code == code


def test_a_topic_that_cannot_be_read(rig: FrontRig, consumer: GrpcConsumer) -> None:
    rig.broker.topics.put(TopicConfig(topic_name="T", read_queue_nums=2, write_queue_nums=2, perm=2), {})
    assert consumer.receive().code == Code.FORBIDDEN
    rig.broker.topics.put(TopicConfig(topic_name="T", read_queue_nums=0, write_queue_nums=2, perm=6), {})
    assert consumer.receive().code == Code.FORBIDDEN


def test_a_group_is_not_made_where_that_is_switched_off(rig: FrontRig, consumer: GrpcConsumer) -> None:
    settings = msgspec.structs.replace(rig.settings, auto_create_subscription_group=False)
    rig.broker.core.groups._settings = settings
    assert consumer.receive().code == Code.CONSUMER_GROUP_NOT_FOUND
