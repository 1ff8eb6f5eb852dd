"""The closed door: whatever the request, only who has signed it and may do it comes through."""

from __future__ import annotations

import itertools
import logging

import pytest
from tests.callers import (
    ADDRESS,
    CLUSTER,
    DATE,
    GROUP,
    TOPIC,
    CallingCall,
    CallingPeer,
    Grant,
    UsersInMemory,
    authorization,
    grants_for,
    led_to,
    needs_by_hand,
    sample,
    signed,
    signed_call,
)

from orbitmq.access.failures import FailedAttempts
from orbitmq.access.gate import CALLER, Denied
from orbitmq.access.needed import Needed
from orbitmq.access.policies import Decision
from orbitmq.access.users import User, UserStatus, UserType
from orbitmq.access.users_gate import NOT_ALLOWED, GateRules, UsersGate
from orbitmq.clock import ManualClock
from orbitmq.limits.access import CALL_NEEDS_MAX, FAILURES_UNSLOWED_MAX
from orbitmq.protocol.grpc.rpcs import RPCS, Rpc
from orbitmq.protocol.remoting.codes import RequestCode, ResponseCode
from orbitmq.protocol.remoting.frame import Command, request
from orbitmq.protocol.remoting.request_rows import Row
from orbitmq.protocol.remoting.requests import (
    REQUESTS,
    Action,
    NamedBy,
    RequestRow,
    RequestServer,
    ResourceType,
    read_row,
)

ROOT = User("root", "secret-of-root", UserType.SUPER)
ANN = User("ann", "secret-of-ann")
OFF = User("off", "secret-of-off", status=UserStatus.DISABLED)
STRANGER = User("stranger", "secret-of-stranger")
"""Nobody has created this user."""

SERVED = [row for row in REQUESTS.values() if row.served_by - {RequestServer.CLIENT}]
NAMES = [row.code.name for row in SERVED]
SEND = REQUESTS[RequestCode.SEND_MESSAGE_V2]


class Door:
    """A gate, and users who knock."""

    def __init__(self, rules: GateRules | None = None) -> None:
        self.users = UsersInMemory(ROOT, ANN, OFF)
        self.clock = ManualClock(1_700_000_000_000)
        self.gate = UsersGate(self.users, rules or GateRules(CLUSTER), FailedAttempts(self.clock))

    def denial(self, command: Command, peer: CallingPeer | None = None) -> Denied | None:
        """What a request is told; None when it comes through."""
        told = None
        try:
            self.gate.admit(command, peer or CallingPeer(), led_to)  # type: ignore[arg-type]
        except Denied as denied:
            told = denied
        if told is not None:
            assert told.code == ResponseCode.NO_PERMISSION
            assert "secret-of" not in told.remark
        return told

    def lets(self, command: Command) -> bool:
        return self.denial(command) is None

    def call(self, call: CallingCall, *needs: Needed) -> Denied | str:
        """The name of the caller of a gRPC call that needs this, or what the call is told."""
        try:
            return self.gate.admit_call(call, lambda: needs)  # type: ignore[arg-type]
        except Denied as denied:
            told = denied
        assert told.code == ResponseCode.NO_PERMISSION
        assert "secret-of" not in told.remark
        assert "Signature=" not in told.remark
        return told


@pytest.fixture
def door() -> Door:
    return Door()


def everything() -> list[Grant]:
    return [Grant("*", frozenset(Action))]


def test_who_may_publish_is_asked_of_users_who_do_not_call(door: Door) -> None:
    door.users.grant(ANN, Grant(f"Topic:{TOPIC}", frozenset({Action.PUB})))
    door.users.grant(OFF, *everything())
    may = {
        (user, topic)
        for user in ("root", "ann", "off", "nobody", "")
        for topic in (TOPIC, "else")
        if door.gate.may_publish(user, "10.0.0.9", topic)
    }
    assert may == {("root", TOPIC), ("root", "else"), ("ann", TOPIC)}
    assert Door(GateRules(CLUSTER, authorizes=False)).gate.may_publish("", "10.0.0.9", TOPIC)


def test_what_is_hidden_of_one_topic_is_not_shown_while_it_waits_in_the_brokers(door: Door) -> None:
    waiting = signed(request(RequestCode.PULL_MESSAGE, {"topic": "rmq_sys_wheel_timer", "consumerGroup": GROUP}), ANN)
    everywhere = [Grant("Topic:*", frozenset({Action.SUB})), Grant("Group:*", frozenset({Action.SUB}))]
    door.users.grant(ANN, *everywhere)
    assert door.lets(waiting)
    door.users.grant(ANN, *everywhere, Grant(f"Topic:{TOPIC}", frozenset({Action.SUB}), Decision.DENY))
    assert "Topic:*" in (door.denial(waiting) or pytest.fail("it is shown")).remark


# --- who calls --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("row", SERVED, ids=NAMES)
def test_nobody_comes_through_unknown(row: RequestRow) -> None:
    command = sample(row)
    for name, denied in {
        "username cannot be null.": command,
        "User:stranger is not found.": signed(command, STRANGER),
        "User:off is disabled.": signed(command, OFF),
        "check signature failed.": signed(command, ROOT, "wrong"),
    }.items():
        door = Door()
        door.users.grant(ANN, *everything())
        told = door.denial(denied)
        assert told is not None
        assert told.remark.startswith(name)
    assert Door().lets(signed(command, ROOT))


@pytest.mark.parametrize("row", SERVED, ids=NAMES)
def test_who_is_known_and_has_no_policies_may_do_nothing(door: Door, row: RequestRow) -> None:
    assert door.lets(signed(sample(row), ANN)) == (not needs_by_hand(row))


@pytest.mark.parametrize(
    "code", [-1, 0, 99_999, RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, RequestCode.GET_CLIENT_CONFIG]
)
def test_a_code_whose_row_says_nothing_is_let_through_for_nobody(door: Door, code: int) -> None:
    denied = door.denial(signed(request(code), ROOT))
    assert denied is not None
    assert "no row" in denied.remark


def test_a_row_without_a_word_would_be_no_way_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: a code that is served, and whose row forgets to say what it needs."""
    monkeypatch.setitem(REQUESTS, SEND.code, read_row(Row(SEND.code, "broker")))
    assert not Door().lets(signed(sample(SEND), ROOT))


# --- what a caller may do ---------------------------------------------------------------------------------------------

RESOURCES = [
    f"{kind.value}:{name}" for kind, name in itertools.product(ResourceType, [TOPIC, GROUP, CLUSTER, "other", "*"])
]


def allows(resource: str, action: Action, needed: Needed) -> bool:
    return action in needed.actions and resource in (needed.text, f"{needed.resource.value}:*")


@pytest.mark.parametrize("row", SERVED, ids=NAMES)
def test_a_single_policy_opens_nothing_beyond_its_row(row: RequestRow) -> None:
    door, command, needs = Door(), signed(sample(row), ANN), needs_by_hand(row)
    for resource, action in itertools.product(RESOURCES, Action):
        door.users.grant(ANN, Grant(resource, frozenset({action})))
        expected = all(allows(resource, action, needed) for needed in needs)
        assert door.lets(command) == expected, (resource, action, needs)


@pytest.mark.parametrize("row", SERVED, ids=NAMES)
def test_all_that_a_row_says_is_enough_and_each_part_is_needed(row: RequestRow) -> None:
    door, command, grants = Door(), signed(sample(row), ANN), grants_for(needs_by_hand(row))
    door.users.grant(ANN, *grants)
    assert door.lets(command)
    for left_out in grants:
        door.users.grant(ANN, *(grant for grant in grants if grant is not left_out))
        assert not door.lets(command), left_out


EMPTY_BODY_IS_NO_MISTAKE = {
    RequestCode.HEART_BEAT,
    RequestCode.BATCH_ACK_MESSAGE,
    RequestCode.UPDATE_AND_CREATE_TOPIC_LIST,
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,
    RequestCode.LIST_TIMERS,
    RequestCode.COUNT_TIMERS,
}
"""It asks for nothing, or for everything, which then is what the caller needs."""

NAMING = [
    row
    for row in SERVED
    if row.code not in EMPTY_BODY_IS_NO_MISTAKE
    and any(
        need.named_by is NamedBy.BODY or (need.named_by is NamedBy.FIELD and not need.optional) for need in row.needs
    )
]


@pytest.mark.parametrize("body", [b"", b"{}", b"null", b"{", b'{"topic":"","consumerGroup":""}'])
@pytest.mark.parametrize("row", NAMING, ids=[row.code.name for row in NAMING])
def test_a_request_that_names_nothing_is_no_request_without_needs(door: Door, row: RequestRow, body: bytes) -> None:
    """RocketMQ lets such a one pass."""
    door.users.grant(ANN, *everything())
    assert not door.lets(signed(request(row.code, {}, body), ANN))


def test_a_page_of_the_timers_of_all_topics_needs_all_topics(door: Door) -> None:
    for code in (RequestCode.LIST_TIMERS, RequestCode.COUNT_TIMERS):
        command = signed(request(code, {}, b"{}"), ANN)
        door.users.grant(ANN, Grant("Topic:orders", frozenset(Action)))
        assert not door.lets(command)
        door.users.grant(ANN, Grant("Topic:*", frozenset({Action.GET})))
        assert door.lets(command)


def test_a_denial_names_caller_resource_and_address_as_rocketmq_does(door: Door) -> None:
    denied = door.denial(signed(sample(SEND), ANN))
    assert denied is not None
    assert denied.remark == (
        f"User:ann has no permission to access Topic:orders from {ADDRESS}, no matched policies. It needs Pub"
    )
    door.users.grant(ANN, Grant("Topic:orders", frozenset({Action.PUB}), Decision.DENY))
    denied = door.denial(signed(sample(SEND), ANN))
    assert denied is not None
    assert "the decision is deny." in denied.remark


def test_the_source_is_the_address_of_the_connection(door: Door) -> None:
    door.users.grant(ANN, Grant("Topic:orders", frozenset({Action.PUB}), sources=("10.0.0.0/24",)))
    command = signed(sample(SEND), ANN)
    assert door.lets(command)
    assert door.denial(command, CallingPeer("10.0.1.9")) is not None


def test_a_change_counts_for_the_next_request(door: Door) -> None:
    command = signed(sample(SEND), ANN)
    assert not door.lets(command)
    door.users.grant(ANN, *everything())
    assert door.lets(command)
    door.users.granted.clear()
    assert not door.lets(command)


# --- who is exempt ----------------------------------------------------------------------------------------------------


class TestExemptions:
    def test_without_judging_every_known_caller_may_do_everything(self) -> None:
        door = Door(GateRules(CLUSTER, authorizes=False))
        assert door.lets(signed(sample(SEND), ANN))
        assert not door.lets(sample(SEND))

    def test_codes_without_judging(self) -> None:
        door = Door(GateRules(CLUSTER, unjudged=frozenset({SEND.code})))
        assert door.lets(signed(sample(SEND), ANN))
        assert not door.lets(sample(SEND))
        assert not door.lets(signed(sample(REQUESTS[RequestCode.PULL_MESSAGE]), ANN))

    def test_codes_without_a_signature(self) -> None:
        door = Door(GateRules(CLUSTER, authorizes=False, unsigned=frozenset({SEND.code})))
        peer = CallingPeer()
        assert door.denial(signed(sample(SEND), ANN, "wrong"), peer) is None
        assert CALLER not in peer.attachments

    def test_who_is_to_be_judged_has_to_sign(self) -> None:
        """RocketMQ believes the name that such a request carries."""
        door = Door(GateRules(CLUSTER, unsigned=frozenset({SEND.code})))
        door.users.grant(ANN, *everything())
        assert not door.lets(signed(sample(SEND), ANN, "wrong"))
        assert door.lets(signed(sample(SEND), ANN))


def test_the_caller_is_known_while_its_request_is_handled(door: Door) -> None:
    peer = CallingPeer()
    assert door.denial(signed(sample(SEND), ROOT), peer) is None
    assert peer.attachments[CALLER] is ROOT
    assert door.denial(sample(SEND), peer) is not None
    assert CALLER not in peer.attachments


# --- gRPC calls -------------------------------------------------------------------------------------------------------

PUB = Needed(ResourceType.TOPIC, TOPIC, frozenset({Action.PUB}))
SUB = Needed(ResourceType.TOPIC, TOPIC, frozenset({Action.SUB}))
IN_GROUP = Needed(ResourceType.GROUP, GROUP, frozenset({Action.SUB}))


def never_read() -> list[Needed]:
    raise AssertionError("a request is read though nobody is to be judged by it")


class TestCalls:
    @pytest.mark.parametrize("rpc", Rpc)
    def test_nobody_comes_through_unknown(self, rpc: Rpc) -> None:
        named = b"MQv2-HMAC-SHA1 Credential=root, SignedHeaders=x-mq-date-time, Signature="
        dated = {b"x-mq-date-time": DATE}
        for remark, call in (
            ("username cannot be null.", CallingCall(rpc)),
            ("username cannot be null.", CallingCall(rpc, {b"authorization": b"", **dated})),
            (
                "username cannot be null.",
                CallingCall(rpc, authorization(User("", ""))),
            ),  # the Python client without any
            ("User:stranger is not found.", signed_call(rpc, STRANGER)),
            ("User:off is disabled.", signed_call(rpc, OFF)),
            ("check signature failed.", signed_call(rpc, ROOT, "wrong")),
            ("check signature failed.", CallingCall(rpc, {b"authorization": named, **dated})),
            ("check signature failed.", CallingCall(rpc, {b"authorization": named + b"xyz", **dated})),
            ("check signature failed.", CallingCall(rpc, {b"authorization": authorization(ROOT)[b"authorization"]})),
        ):
            with pytest.raises(Denied, match=remark):
                Door().gate.admit_call(call, never_read)  # type: ignore[arg-type]
        assert Door().call(signed_call(rpc, ROOT)) == "root"

    def test_a_super_user_is_not_judged(self, door: Door) -> None:
        assert door.gate.admit_call(signed_call(Rpc.TELEMETRY, ROOT), never_read) == "root"  # type: ignore[arg-type]

    def test_each_need_is_needed(self, door: Door) -> None:
        needs = (SUB, IN_GROUP)
        grants = grants_for(needs)
        door.users.grant(ANN, *grants)
        assert door.call(signed_call(Rpc.RECEIVE_MESSAGE, ANN), *needs) == "ann"
        for left_out in grants:
            door.users.grant(ANN, *(grant for grant in grants if grant is not left_out))
            denied = door.call(signed_call(Rpc.RECEIVE_MESSAGE, ANN), *needs)
            assert isinstance(denied, Denied)
            assert left_out.resource in denied.remark

    def test_one_of_several_actions_is_enough(self, door: Door) -> None:
        route = Needed(ResourceType.TOPIC, TOPIC, frozenset({Action.PUB, Action.SUB}))
        for action in Action:
            door.users.grant(ANN, Grant(f"Topic:{TOPIC}", frozenset({action})))
            assert (door.call(signed_call(Rpc.QUERY_ROUTE, ANN), route) == "ann") == (action in route.actions)

    def test_deny_goes_before_allow_and_the_source_is_the_address_of_the_connection(self, door: Door) -> None:
        send = frozenset({Action.PUB})
        door.users.grant(ANN, Grant("Topic:*", send), Grant(f"Topic:{TOPIC}", send, Decision.DENY, ("10.0.0.0/24",)))
        denied = door.call(signed_call(Rpc.SEND_MESSAGE, ANN), PUB)
        assert isinstance(denied, Denied)
        assert denied.remark == (
            f"User:ann has no permission to access Topic:orders from {ADDRESS}, the decision is deny. It needs Pub"
        )
        assert door.call(signed_call(Rpc.SEND_MESSAGE, ANN, connection=CallingPeer("10.0.1.9")), PUB) == "ann"

    def test_a_retry_or_dead_letter_topic_stands_for_its_group(self, door: Door) -> None:
        door.users.grant(ANN, Grant("Topic:*", frozenset(Action)), Grant(f"Group:{GROUP}", frozenset({Action.SUB})))
        for topic, may in {f"%RETRY%{GROUP}": True, "%RETRY%other": False, "%DLQ%other+orders": False}.items():
            for need in (PUB, SUB):
                call = signed_call(Rpc.RECEIVE_MESSAGE, ANN)
                assert (door.call(call, need._replace(name=topic)) == "ann") == may

    def test_where_messages_of_all_topics_wait_all_topics_are_needed(self, door: Door) -> None:
        waiting = SUB._replace(name="rmq_sys_wheel_timer")
        door.users.grant(ANN, Grant("Topic:rmq_sys_wheel_timer", frozenset(Action)))
        assert isinstance(door.call(signed_call(Rpc.RECEIVE_MESSAGE, ANN), waiting), Denied)

    @pytest.mark.parametrize("name", ["", "%RETRY%", "%DLQ%+orders"])
    def test_a_name_that_is_missing_is_no_need_less(self, door: Door, name: str) -> None:
        door.users.grant(ANN, *everything())
        denied = door.call(signed_call(Rpc.SEND_MESSAGE, ANN), PUB._replace(name=name))
        assert isinstance(denied, Denied)
        assert "SendMessage names no" in denied.remark

    def test_what_one_call_may_name_has_a_bound(self, door: Door) -> None:
        door.users.grant(ANN, *everything())
        call = signed_call(Rpc.TELEMETRY, ANN)
        assert door.call(call, *[PUB] * CALL_NEEDS_MAX) == "ann"
        denied = door.call(call, *[PUB] * (CALL_NEEDS_MAX + 1))
        assert isinstance(denied, Denied)
        assert str(CALL_NEEDS_MAX) in denied.remark

    def test_a_change_counts_for_the_next_message_of_a_stream(self, door: Door) -> None:
        stream = signed_call(Rpc.TELEMETRY, ANN)
        door.users.grant(ANN, *everything())
        assert door.call(stream, PUB) == "ann"
        door.users.granted.clear()
        assert isinstance(door.call(stream, PUB), Denied)
        assert door.call(stream) == "ann"
        door.users.by_name["ann"] = User("ann", ANN.password, status=UserStatus.DISABLED)
        assert isinstance(door.call(stream), Denied)

    def test_without_judging_every_known_caller_may_do_everything(self) -> None:
        door = Door(GateRules(CLUSTER, authorizes=False))
        assert door.gate.admit_call(signed_call(Rpc.SEND_MESSAGE, ANN), never_read) == "ann"  # type: ignore[arg-type]
        assert isinstance(door.call(CallingCall(Rpc.SEND_MESSAGE), PUB), Denied)

    def test_the_lists_exempt_what_they_name_and_nothing_else(self) -> None:
        door = Door(GateRules(CLUSTER, unjudged=frozenset({Rpc.HEARTBEAT, int(RequestCode.SEND_MESSAGE)})))
        assert door.call(signed_call(Rpc.HEARTBEAT, ANN), IN_GROUP) == "ann"
        assert isinstance(door.call(CallingCall(Rpc.HEARTBEAT), IN_GROUP), Denied), "who is unknown is"
        assert isinstance(door.call(signed_call(Rpc.SEND_MESSAGE, ANN), PUB), Denied)
        door = Door(GateRules(CLUSTER, unsigned=frozenset({Rpc.HEARTBEAT})))
        assert isinstance(door.call(CallingCall(Rpc.HEARTBEAT), IN_GROUP), Denied), "who is to be judged has to sign"
        door = Door(GateRules(CLUSTER, authorizes=False, unsigned=frozenset({Rpc.HEARTBEAT})))
        assert door.call(signed_call(Rpc.HEARTBEAT, ANN, "wrong")) == ""
        assert door.call(signed_call(Rpc.HEARTBEAT, ANN)) == "ann", "its other calls are ann's"
        assert not door.gate.denials
        assert isinstance(door.call(CallingCall(Rpc.QUERY_ROUTE)), Denied)

    def test_failures_count_with_those_of_remoting(self, door: Door, caplog: pytest.LogCaptureFixture) -> None:
        waits = []
        for _ in range(FAILURES_UNSLOWED_MAX):
            door.denial(signed(sample(SEND), ANN, "wrong"))
            denied = door.call(signed_call(Rpc.HEARTBEAT, ANN, "wrong"))
            assert isinstance(denied, Denied)
            waits.append(denied.wait_ms)
        assert waits == [0] * (FAILURES_UNSLOWED_MAX // 2) + [200, 800, 3_200, 5_000, 5_000]
        assert door.gate.denials == {"wrong_signature": 2 * FAILURES_UNSLOWED_MAX}
        assert door.call(signed_call(Rpc.HEARTBEAT, ROOT)) == "root"
        assert "a request (Heartbeat) from" in caplog.text
        assert "secret-of" not in caplog.text

    def test_who_is_not_allowed_is_not_slowed(self, door: Door) -> None:
        for _ in range(FAILURES_UNSLOWED_MAX + 5):
            denied = door.call(signed_call(Rpc.SEND_MESSAGE, ANN), PUB)
            assert isinstance(denied, Denied)
            assert denied.wait_ms == 0

    def test_every_rpc_has_a_rule(self) -> None:
        for rpc in RPCS:
            assert isinstance(Door().call(CallingCall(rpc), PUB), Denied)


def test_who_may_consume_is_asked_of_users_who_do_not_call(door: Door) -> None:
    door.users.grant(ANN, Grant(f"Topic:{TOPIC}", SUB.actions), Grant(f"Group:{GROUP}", SUB.actions))
    door.users.grant(OFF, *everything())
    may = {
        (user, group, topic)
        for user in ("root", "ann", "off", "")
        for group in (GROUP, "else")
        for topic in (TOPIC, None)
        if door.gate.may_consume(user, ADDRESS, group, topic)
    }
    assert may == {("ann", GROUP, TOPIC)} | {
        ("root", group, topic) for group in (GROUP, "else") for topic in (TOPIC, None)
    }
    assert Door(GateRules(CLUSTER, authorizes=False)).gate.may_consume("", ADDRESS, GROUP, TOPIC)


# --- failures ---------------------------------------------------------------------------------------------------------


class TestFailures:
    def fail(self, door: Door) -> Denied:
        denied = door.denial(signed(sample(SEND), ANN, "wrong"))
        assert denied is not None
        return denied

    def test_after_too_many_the_answer_waits_and_a_right_signature_does_not(self, door: Door) -> None:
        door.users.grant(ANN, *everything())
        for _ in range(FAILURES_UNSLOWED_MAX):
            assert self.fail(door).wait_ms == 0
        assert [self.fail(door).wait_ms for _ in range(3)] == [100, 200, 400]
        assert door.lets(signed(sample(SEND), ANN))

    def test_each_reason_is_counted(self, door: Door) -> None:
        for command in (
            sample(SEND),
            signed(sample(SEND), STRANGER),
            signed(sample(SEND), OFF),
            signed(sample(SEND), ANN, "wrong"),
            signed(sample(SEND), ANN),
            signed(request(SEND.code, {}), ANN),
        ):
            assert door.denial(command) is not None
        assert door.gate.denials == {
            "no_name": 1, "unknown_user": 1, "disabled": 1, "wrong_signature": 1, NOT_ALLOWED: 2,
        }  # fmt: skip

    def test_the_log_tells_the_first_and_the_one_too_many_without_secrets(
        self, door: Door, caplog: pytest.LogCaptureFixture
    ) -> None:
        with caplog.at_level(logging.INFO, "orbitmq.access"):
            assert door.denial(signed(sample(SEND), User("misplaced", "x"))) is not None
            for _ in range(FAILURES_UNSLOWED_MAX + 5):
                self.fail(door)
        assert len(caplog.records) == 2
        assert "'ann'" in caplog.text
        assert "secret" not in caplog.text
        assert "misplaced" not in caplog.text, "a name that nobody has may be a secret in the wrong place"
