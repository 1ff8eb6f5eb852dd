"""Renewal: what a push consumer has stays hidden while the client is there, and comes back when it goes."""

from __future__ import annotations

import pytest
from tests.unit.broker.messaging.conftest import FrontRig
from tests.unit.broker.pop.test_surviving import said
from tests.worlds.grpc_calls import ListCall
from tests.worlds.grpc_consumers import GrpcConsumer, received

from orbitmq.broker.messaging.renewal import RENEWALS
from orbitmq.broker.pop.settling import PopSettling
from orbitmq.broker.refusal import Refusal
from orbitmq.limits.grpc import RENEWED_AT_ONCE_MAX
from orbitmq.limits.pop import POP_MESSAGES_MAX
from orbitmq.protocol.grpc.messages import (
    ClientType,
    Code,
    HeartbeatRequest,
    HeartbeatResponse,
    NotifyClientTerminationRequest,
    NotifyClientTerminationResponse,
    Resource,
)
from orbitmq.protocol.grpc.rpcs import Rpc
from orbitmq.protocol.pop_records import PopCheckpoint
from orbitmq.protocol.remoting.bodies import SubscriptionGroupConfig, TopicConfig
from orbitmq.protocol.remoting.codes import ResponseCode

MINUTE = 60_000
HOUR = 60 * MINUTE


@pytest.fixture
def rig(front_rig: FrontRig) -> FrontRig:
    front_rig.broker.topics.put(TopicConfig(topic_name="T", read_queue_nums=1, write_queue_nums=1), {})
    front_rig.broker.groups.put(SubscriptionGroupConfig(group_name="g"))
    front_rig.chosen_queue = 50
    return front_rig


@pytest.fixture
def push(rig: FrontRig) -> GrpcConsumer:
    consumer = GrpcConsumer(rig.client())
    consumer.connect(ClientType.PUSH_CONSUMER)
    return consumer


@pytest.fixture
def handle(rig: FrontRig, push: GrpcConsumer) -> str:
    rig.sent_ok("T", b"a", {"UNIQ_KEY": "unique"})
    (handle,) = push.found(renews=True)
    return handle


@pytest.fixture
def other(rig: FrontRig) -> GrpcConsumer:
    return GrpcConsumer(rig.client("other"))


def stay(push: GrpcConsumer, rig: FrontRig, ms: int) -> None:
    """Let time pass in which the client sends heartbeats."""
    request = HeartbeatRequest(group=Resource(name="g"), client_type=ClientType.PUSH_CONSUMER)
    while ms > 0:
        push.caller.call(Rpc.HEARTBEAT, request, HeartbeatResponse)
        rig.advance(min(ms, MINUTE))
        ms -= MINUTE


def is_hidden(rig: FrontRig) -> bool:
    return rig.broker.rooms.pops.in_flight.message_count == 1 and rig.records("%RETRY%g_T") == []


def stop(push: GrpcConsumer) -> None:
    request = NotifyClientTerminationRequest(group=Resource(name="g"))
    push.caller.call(Rpc.NOTIFY_CLIENT_TERMINATION, request, NotifyClientTerminationResponse)


# --- hidden for longer ------------------------------------------------------------------------------------------------


def test_a_receive_that_is_renewed_begins_with_a_minute(handle: str) -> None:
    assert handle.split(" ")[2] == "60000"


def test_what_a_client_has_stays_hidden(rig: FrontRig, push: GrpcConsumer, handle: str) -> None:
    stay(push, rig, 2 * HOUR)
    assert is_hidden(rig)
    assert (
        rig.broker.rooms.pops.figures.renewed_count == 7
    )  # hidden for 1, 1, 3, 5, 10, 30 and twice 60 minutes, each renewed shortly before


def test_it_is_renewed_within_the_last_ten_seconds(rig: FrontRig, push: GrpcConsumer, handle: str) -> None:
    rig.advance(49_999)
    assert rig.broker.rooms.pops.figures.renewed_count == 0
    rig.advance(5_001)
    assert rig.broker.rooms.pops.figures.renewed_count == 1


def test_the_first_handle_acknowledges_an_hour_later(rig: FrontRig, push: GrpcConsumer, handle: str) -> None:
    stay(push, rig, HOUR)
    assert push.ack(handle).status.code == Code.OK
    assert rig.broker.rooms.pops.in_flight.message_count == 0
    assert rig.broker.core.deadlines._due_ns.get(RENEWALS) is None or len(rig.front.renewals.held) == 0


def test_the_first_handle_hides_for_another_time_and_is_spent_then(
    rig: FrontRig, push: GrpcConsumer, handle: str
) -> None:
    stay(push, rig, HOUR)
    answer = push.change(handle, 20_000)
    assert answer.status.code == Code.OK
    assert push.ack(handle).status.code == Code.INVALID_RECEIPT_HANDLE
    assert push.change(handle, 20_000).status.code == Code.INVALID_RECEIPT_HANDLE
    rig.advance(21_000)
    assert push.receive().attempts == [2], "what a client hides itself is renewed no more"


def test_the_first_handle_makes_a_dead_letter(rig: FrontRig, push: GrpcConsumer, handle: str) -> None:
    stay(push, rig, HOUR)
    assert push.forward(handle) == Code.OK
    assert [record.body for record in rig.records("%DLQ%g")] == [b"a"]
    assert len(rig.front.renewals.held) == 0


def test_a_handle_is_replaced_for_its_client_only(
    rig: FrontRig, push: GrpcConsumer, other: GrpcConsumer, handle: str
) -> None:
    stay(push, rig, HOUR)
    assert other.ack(handle).status.code == Code.INVALID_RECEIPT_HANDLE
    for wrong in (GrpcConsumer(push.caller, "T", "other"), GrpcConsumer(push.caller, "%RETRY%g", "g")):
        assert wrong.ack(handle).status.code != Code.OK
    assert is_hidden(rig)


def test_what_is_acknowledged_is_renewed_no_more(rig: FrontRig, push: GrpcConsumer, handle: str) -> None:
    push.ack(handle)
    stay(push, rig, 2 * MINUTE)
    assert (len(rig.front.renewals.held), rig.broker.rooms.pops.figures.renewed_count) == (0, 0)


def test_after_three_hours_it_comes_again_after_the_delay_of_its_group(
    rig: FrontRig, push: GrpcConsumer, handle: str
) -> None:
    stay(push, rig, 3 * HOUR)
    assert is_hidden(rig)
    stay(push, rig, HOUR)
    assert len(rig.front.renewals.held) == 0
    assert push.receive().attempts == [2]


def test_a_message_whose_group_is_gone_is_held_no_more(rig: FrontRig, push: GrpcConsumer, handle: str) -> None:
    rig.broker.groups.delete("g")
    rig.advance(MINUTE)
    assert (len(rig.front.renewals.held), rig.broker.rooms.pops.figures.renewed_count) == (0, 0)


def test_messages_in_order_are_renewed_with_their_pop(rig: FrontRig, push: GrpcConsumer, other: GrpcConsumer) -> None:
    rig.broker.groups.put(SubscriptionGroupConfig(group_name="g", consume_message_orderly=True))
    for body in (b"a", b"b"):
        rig.sent_ok("T", body)
    (first,) = push.found(renews=True, count=1)
    stay(push, rig, HOUR)
    waiting = other.start()
    assert waiting.answers == []
    assert push.ack(first).status.code == Code.OK
    assert received(waiting).bodies == [b"b"]


# --- what is not renewed ----------------------------------------------------------------------------------------------


def test_a_client_without_settings_gets_a_minute_and_is_counted(rig: FrontRig, other: GrpcConsumer) -> None:
    rig.sent_ok("T", b"a")
    assert other.receive(renews=True).bodies == [b"a"]
    assert (len(rig.front.renewals.held), rig.broker.rooms.pops.figures.not_renewed_count) == (0, 1)
    rig.advance(61_000)
    assert other.receive().attempts == [2]


def test_what_does_not_fit_is_received_and_not_renewed(rig: FrontRig, push: GrpcConsumer) -> None:
    rig.front.renewals.held._of_client_max = 2
    for _ in range(3):
        rig.sent_ok("T")
    assert len(push.receive(renews=True).messages) == 3
    assert (len(rig.front.renewals.held), rig.broker.rooms.pops.figures.not_renewed_count) == (2, 1)
    rig.advance(61_000)
    assert len(push.receive().messages) == 1


def test_a_renewal_that_fails_is_tried_again_and_given_up(
    rig: FrontRig, push: GrpcConsumer, handle: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(*args: object, **more: object) -> None:
        raise Refusal(ResponseCode.SERVICE_NOT_AVAILABLE, "the disk is full")

    whole = PopSettling.hide
    monkeypatch.setattr(PopSettling, "hide", refuses)
    rig.advance(51_000)
    assert len(rig.front.renewals.held) == 1
    monkeypatch.setattr(PopSettling, "hide", whole)
    rig.advance(5_000)
    assert (is_hidden(rig), rig.broker.rooms.pops.figures.renewed_count) == (True, 1)
    monkeypatch.setattr(PopSettling, "hide", refuses)
    rig.advance(2 * MINUTE)
    assert (len(rig.front.renewals.held), rig.broker.rooms.pops.figures.given_up_count) == (0, 1)


# --- given back -------------------------------------------------------------------------------------------------------


@pytest.fixture(params=["by its word", "by silence"])
def gone(request: pytest.FixtureRequest, rig: FrontRig, push: GrpcConsumer, handle: str) -> None:
    """The client goes when it has had a message for an hour."""
    stay(push, rig, HOUR)
    if request.param == "by its word":
        stop(push)
    else:
        rig.advance(rig.settings.channel_expired_timeout_ms)


def test_a_client_that_goes_leaves_its_messages_to_others_at_once(
    gone: None, rig: FrontRig, other: GrpcConsumer
) -> None:
    rig.advance(1_100)
    answer = other.receive()
    assert (answer.bodies, answer.attempts) == ([b"a"], [2])
    assert rig.broker.rooms.pops.figures.client_gone_count == 1


def test_what_is_given_back_is_not_forgotten_for_another_receive(
    rig: FrontRig, push: GrpcConsumer, other: GrpcConsumer, handle: str
) -> None:
    stop(push)
    rig.sent_ok("T", b"b")
    assert other.receive(renews=True).bodies == [b"b"], "which is not renewed, as its client is not known"
    rig.advance(1_100)
    assert other.receive().bodies == [b"a"]


def test_a_stop_leaves_messages_to_the_next_start(rig: FrontRig, push: GrpcConsumer, handle: str) -> None:
    rig.front.close()
    rig.reopen()
    rig.advance(2_000)
    assert GrpcConsumer(rig.client("other")).receive().bodies == [b"a"]


def test_an_acknowledgement_that_crosses_the_end_of_its_client_counts(
    rig: FrontRig, push: GrpcConsumer, handle: str
) -> None:
    stop(push)
    assert push.ack(handle).status.code == Code.OK
    rig.advance(2_000)
    assert (rig.broker.rooms.pops.in_flight.message_count, rig.broker.rooms.pops.figures.client_gone_count) == (0, 0)
    assert rig.records("%RETRY%g_T") == []


def test_very_many_are_given_back_in_steps(rig: FrontRig, push: GrpcConsumer) -> None:
    count = RENEWED_AT_ONCE_MAX + 1
    for _ in range(count):
        rig.sent_ok("T")
    got = 0
    while got < count:
        got += len(push.receive(renews=True).messages)
    stop(push)
    rig.broker.tick()
    assert rig.broker.rooms.pops.figures.client_gone_count == RENEWED_AT_ONCE_MAX
    rig.advance(1)
    assert rig.broker.rooms.pops.figures.client_gone_count == count


def test_a_stop_stores_one_record_for_neighbours_that_are_given_back(rig: FrontRig, push: GrpcConsumer) -> None:
    """A hundred thousand records took six seconds of a stop, and as many of the next start."""
    count, got = 100, []
    for number in range(count):
        rig.sent_ok("T", b"%d" % number)
    while len(got) < count:
        got += push.found(renews=True)
        rig.advance(7)
    push.ack(got[50])
    rig.front.close()
    assert rig.broker.rooms.pops.figures.client_gone_count == count - 1
    rig.reopen()
    assert len([one for one in said(rig) if isinstance(one, PopCheckpoint)]) == -(-count // POP_MESSAGES_MAX)
    other, found = GrpcConsumer(rig.client("other")), []
    rig.advance(1_100)
    while answer := other.receive(polling_ms=5_000).messages if len(found) < count - 1 else ():
        found += answer
    assert sorted(int(one.body) for one in found) == [number for number in range(count) if number != 50]
    assert {one.system_properties.delivery_attempt for one in found} == {2}


def test_what_is_stored_settled_or_in_order_is_given_back_by_itself(
    rig: FrontRig, push: GrpcConsumer, other: GrpcConsumer
) -> None:
    for number in range(6):
        rig.sent_ok("T", b"%d" % number)
    push.found(count=2, renews=True)
    rig.advance(15_000)
    assert rig.broker.rooms.pops.checkpoints.stored_count == 1
    push.ack(push.found(count=2, renews=True)[0])
    push.found(count=2, renews=True)
    ordered = GrpcConsumer(rig.client("in order"), group="ordered")
    rig.broker.groups.put(SubscriptionGroupConfig(group_name="ordered", consume_message_orderly=True))
    ordered.connect(ClientType.PUSH_CONSUMER)
    ordered.found(count=3, renews=True)
    rig.front.sessions.end_all("both go")
    rig.advance(1_100)
    assert rig.broker.rooms.pops.figures.client_gone_count == 5 + 3
    assert sorted(other.receive().bodies) == [b"0", b"1", b"3", b"4", b"5"]
    assert GrpcConsumer(rig.client("next"), group="ordered").receive().bodies[:3] == [b"0", b"1", b"2"]


def test_a_receive_that_finds_something_for_a_client_that_is_gone_releases_it(
    rig: FrontRig, push: GrpcConsumer, other: GrpcConsumer
) -> None:
    waiting = push.start(renews=True)
    stop(push)
    rig.sent_ok("T", b"a")
    assert received(waiting).code == Code.MESSAGE_NOT_FOUND
    rig.advance(1_100)
    assert other.receive().attempts == [1]


# --- cost -------------------------------------------------------------------------------------------------------------


def test_nothing_wakes_while_nothing_is_held(rig: FrontRig, push: GrpcConsumer) -> None:
    assert RENEWALS not in rig.broker.core.deadlines._due_ns
    rig.sent_ok("T")
    handles = push.found(renews=True)
    assert RENEWALS in rig.broker.core.deadlines._due_ns
    push.ack(*handles)
    rig.advance(5_000)
    assert RENEWALS not in rig.broker.core.deadlines._due_ns


def test_streams_of_gone_calls_hold_nothing(rig: FrontRig, push: GrpcConsumer) -> None:
    waiting: ListCall = push.start(renews=True)
    waiting.is_wanted = False
    rig.sent_ok("T", b"a")
    assert len(rig.front.renewals.held) == 0
