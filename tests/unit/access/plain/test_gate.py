"""The gate of RocketMQ 4: the order of its checks, the exact failures, and the closed door for every code of the table."""

from __future__ import annotations

import random

import pytest
from tests.callers import (
    ADDRESS,
    CLUSTER,
    GROUP,
    TOPIC,
    CallingCall,
    CallingPeer,
    authorization,
    led_to,
    sample,
    signed,
    signed_call,
)

from orbitmq.access.failures import FailedAttempts
from orbitmq.access.gate import CALLER, Denied, LedTo
from orbitmq.access.needed import Needed
from orbitmq.access.plain.accounts import PlainAccount, PlainFile, read_plain_tree
from orbitmq.access.plain.gate import EXCEPTION, NOT_ALLOWED, PlainGate
from orbitmq.access.plain.table import PlainTable
from orbitmq.access.plain.yaml_text import Value
from orbitmq.access.users import User, UserType
from orbitmq.clock import ManualClock
from orbitmq.limits.access import FAILURES_UNSLOWED_MAX
from orbitmq.protocol.grpc.rpcs import Rpc
from orbitmq.protocol.remoting.codes import RequestCode, ResponseCode
from orbitmq.protocol.remoting.frame import Command, request
from orbitmq.protocol.remoting.requests import REQUESTS, Action, NamedBy, RequestRow, RequestServer, ResourceType

SERVED = [row for row in REQUESTS.values() if RequestServer.BROKER in row.served_by]
NAMES = [row.code.name for row in SERVED]
KEY, SECRET = "key-of-ann", "secret-of-ann"
ANN = User(KEY, SECRET)
ADMIN_CODES = frozenset({17, 25, 200, 207, 215})
"""Those that need an admin with RocketMQ 4.9.8."""

PUBS_AND_SUBS = frozenset({Action.PUB, Action.SUB})
CHANGES = frozenset({Action.CREATE, Action.UPDATE, Action.DELETE})


class PlainDoor:
    """A gate, and one account that has these members."""

    def __init__(self, *, white: tuple[Value, ...] = (), **members: Value) -> None:
        account: Value = {"accessKey": KEY, "secretKey": SECRET, **members}
        tree: Value = {"globalWhiteRemoteAddresses": list(white), "accounts": [account]}
        self.clock = ManualClock(1_700_000_000_000)
        self.table = PlainTable([read_plain_tree(tree, "plain_acl.yml")])
        self.gate = PlainGate(lambda: self.table, CLUSTER, FailedAttempts(self.clock))

    def told(self, command: Command, peer: CallingPeer | None = None, record: LedTo = led_to) -> str | None:
        """What a request is told behind the name of the exception; None when it comes through."""
        try:
            self.gate.admit(command, peer or CallingPeer(), record)  # type: ignore[arg-type]
        except Denied as error:
            denied = error
        else:
            return None
        assert denied.code == ResponseCode.SYSTEM_ERROR
        assert denied.remark.startswith(EXCEPTION)
        assert SECRET not in denied.remark
        return denied.remark.removeprefix(EXCEPTION)

    def call(self, call: CallingCall, *needs: Needed) -> str:
        """The caller of a gRPC call that needs this; what it is told, behind a `!`, where it does not come through."""
        try:
            return self.gate.admit_call(call, lambda: needs)  # type: ignore[arg-type]
        except Denied as error:
            denied = error
        assert SECRET not in denied.remark
        assert "Signature=" not in denied.remark
        return f"!{denied.remark}"

    def told_of_sending(self, topic: str) -> str | None:
        """The same about a send that leads to no other topic."""
        return self.told(signed(send(topic), ANN), record=lambda command: [])


def needs_admin(row: RequestRow) -> bool:
    """Read from the row by hand: something in it is created, changed or deleted, and that is neither publishing nor consuming."""
    return any(need.actions & CHANGES and not need.actions & PUBS_AND_SUBS for need in row.needs)


def pull() -> Command:
    return request(RequestCode.PULL_MESSAGE, {"topic": TOPIC, "consumerGroup": GROUP})


def send(topic: str) -> Command:
    return request(RequestCode.SEND_MESSAGE_V2, {"a": "p", "b": topic})


# --- the closed door --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("row", SERVED, ids=NAMES)
def test_nobody_comes_through_without_a_right_signature(row: RequestRow) -> None:
    door = PlainDoor(admin=True)
    assert door.told(sample(row)) == "No accessKey is configured"
    assert door.told(signed(sample(row), User("nobody-here", SECRET))) == "No acl config for nobody-here"
    assert door.told(signed(sample(row), ANN, "wrong-secret")) == f"Check signature failed for accessKey={KEY}"
    changed = signed(sample(row), ANN)
    changed.fields["more"] = "x"
    assert door.told(changed) == f"Check signature failed for accessKey={KEY}"
    assert door.told(signed(sample(row), ANN)) is None
    assert dict(door.gate.denials) == {"no_name": 1, "unknown_user": 1, "wrong_signature": 2}


def mutated(command: Command, chance: random.Random) -> Command:
    """The same request with one character or byte of what is signed, or of its signature, replaced by another."""
    fields, body = dict(command.fields), bytearray(command.body)
    if body and chance.random() < 0.3:
        body[chance.randrange(len(body))] ^= chance.randrange(1, 256)
    else:
        name = chance.choice([name for name, value in fields.items() if value])
        value, at = fields[name], chance.randrange(len(fields[name]))
        fields[name] = value[:at] + chr(ord(value[at]) ^ chance.randrange(1, 32)) + value[at + 1 :]
    return request(command.code, fields, bytes(body))


@pytest.mark.parametrize("row", SERVED, ids=NAMES)
def test_no_mutated_request_comes_through(row: RequestRow) -> None:
    door, chance, command = PlainDoor(admin=True), random.Random(row.code), signed(sample(row), ANN)
    assert [told for _ in range(250) if (told := door.told(mutated(command, chance))) is None] == []


@pytest.mark.parametrize("row", SERVED, ids=NAMES)
def test_each_permission_alone_opens_what_its_row_says_and_nothing_else(row: RequestRow) -> None:
    command = signed(sample(row), ANN)
    asked = [
        (need.resource.value.lower(), need.actions & PUBS_AND_SUBS)
        for need in row.needs
        if need.actions & PUBS_AND_SUBS
    ]
    if row.code == RequestCode.HEART_BEAT:
        asked.append(("group", frozenset({Action.SUB})))
    asks_for_all = any(need.named_by is NamedBy.ALL and need.actions & PUBS_AND_SUBS for need in row.needs)
    for topic in ("DENY", "PUB", "SUB", "PUB|SUB"):
        for group in ("DENY", "PUB", "SUB", "PUB|SUB"):
            owned = {"topic": topic, "group": group}
            may = all(any(action.value.upper() in owned[kind] for action in actions) for kind, actions in asked)
            for admin in (False, True):
                passes = admin or (may and not needs_admin(row))
                told = PlainDoor(admin=admin, defaultTopicPerm=topic, defaultGroupPerm=group).told(command)
                assert (told is None) == passes, (topic, group, admin, told)
                passes = may and not asks_for_all and (admin or not needs_admin(row))
                explicit = PlainDoor(admin=admin, topicPerms=[f"{TOPIC}={topic}"], groupPerms=[f"{GROUP}={group}"])
                assert (explicit.told(command) is None) == passes, (topic, group, admin)


def test_whoever_needs_an_admin_with_rocketmq_needs_one_here() -> None:
    assert {row.code for row in SERVED if needs_admin(row)} >= ADMIN_CODES
    told = PlainDoor(defaultTopicPerm="PUB|SUB").told(signed(sample(REQUESTS[RequestCode.DELETE_TOPIC_IN_BROKER]), ANN))
    assert told == f"Need admin permission for request code=215, but accessKey={KEY} is not"


@pytest.mark.parametrize(
    "code",
    [
        RequestCode.PULL_MESSAGE,
        RequestCode.QUERY_MESSAGE,
        RequestCode.VIEW_MESSAGE_BY_ID,
        RequestCode.GET_TRANSACTION,
        RequestCode.GET_RECURRING,
        RequestCode.GET_TIMER,
    ],
)
def test_the_content_of_messages_is_for_who_may_consume_their_topic(code: RequestCode) -> None:
    command = signed(sample(REQUESTS[code]), ANN)
    told = PlainDoor(defaultTopicPerm="PUB", defaultGroupPerm="SUB").told(command)
    assert told == f"No default permission for topic:{TOPIC}"
    assert PlainDoor(defaultTopicPerm="SUB", defaultGroupPerm="SUB").told(command) is None


@pytest.mark.parametrize("row", [row for row in SERVED if any(need.named_by is NamedBy.FIELD for need in row.needs)])
def test_a_resource_that_is_not_named_is_missing(row: RequestRow) -> None:
    needs = [need for need in row.needs if need.actions & PUBS_AND_SUBS and need.named_by is NamedBy.FIELD]
    command = signed(request(row.code, {}, b""), ANN)
    told = PlainDoor(defaultTopicPerm="PUB|SUB", defaultGroupPerm="SUB", topicPerms=["x=PUB"], admin=True).told(command)
    assert (told is None) == all(need.optional for need in needs)


@pytest.mark.parametrize("code", [-1, 0, 99_999, RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT])
def test_a_code_whose_row_says_nothing_is_let_through_for_nobody(code: int) -> None:
    assert PlainDoor(admin=True).told(signed(request(code), ANN)) is not None


# --- permissions ------------------------------------------------------------------------------------------------------


def test_an_explicit_permission_wins_over_the_default() -> None:
    door = PlainDoor(defaultTopicPerm="PUB", topicPerms=[f"{TOPIC}=DENY", "other=SUB"])
    assert door.told_of_sending(TOPIC) == f"No default permission for topic:{TOPIC}"
    assert door.told_of_sending("other") == "No default permission for topic:other"
    assert door.told_of_sending("third") is None
    assert door.gate.denials[NOT_ALLOWED] == 2


def test_what_is_about_all_topics_needs_each_of_them() -> None:
    command = signed(request(RequestCode.FAR_LOAD), ANN)
    assert PlainDoor(defaultTopicPerm="PUB", topicPerms=["other=PUB|SUB"]).told(command) is None
    for members in ({"topicPerms": ["other=PUB"]}, {"defaultTopicPerm": "PUB", "topicPerms": ["other=SUB"]}):
        assert PlainDoor(**members).told(command) == "No default permission for topic:*"


def test_pulling_needs_the_topic_and_the_group() -> None:
    assert (
        PlainDoor(topicPerms=[f"{TOPIC}=SUB"]).told(signed(pull(), ANN)) == f"No default permission for group:{GROUP}"
    )
    assert (
        PlainDoor(groupPerms=[f"{GROUP}=SUB"]).told(signed(pull(), ANN)) == f"No default permission for topic:{TOPIC}"
    )
    assert PlainDoor(topicPerms=[f"{TOPIC}=SUB"], groupPerms=[f"{GROUP}=SUB"]).told(signed(pull(), ANN)) is None


def test_a_retry_or_dead_letter_topic_stands_for_its_group() -> None:
    door = PlainDoor(defaultTopicPerm="DENY", groupPerms=[f"{GROUP}=SUB"])
    for topic in (f"%RETRY%{GROUP}", f"%DLQ%{GROUP}"):
        assert door.told_of_sending(topic) is None
    assert door.told_of_sending("%RETRY%other") == "No default permission for group:other"


def test_traces_may_be_left_by_all_that_are_known() -> None:
    door = PlainDoor()
    assert door.told_of_sending("RMQ_SYS_TRACE_TOPIC") is None
    assert door.told(send("RMQ_SYS_TRACE_TOPIC")) == "No accessKey is configured"


def test_an_admin_with_permissions_of_its_own_is_asked_like_everybody() -> None:
    assert PlainDoor(admin=True).told(signed(send(TOPIC), ANN)) is None
    told = PlainDoor(admin=True, topicPerms=["other=PUB"]).told(signed(send(TOPIC), ANN))
    assert told == f"No default permission for topic:{TOPIC}"


def test_a_body_that_cannot_be_read_is_refused() -> None:
    command = signed(request(RequestCode.HEART_BEAT, {}, b"{half"), ANN)
    assert PlainDoor(defaultTopicPerm="SUB").told(command) is not None


def test_who_may_publish_is_shown_transactions_of_the_topic() -> None:
    def may(user: str, topic: str, **members: Value) -> bool:
        return PlainDoor(**members).gate.may_publish(user, "10.0.0.9", topic)

    assert may(KEY, TOPIC, topicPerms=[f"{TOPIC}=PUB"])
    assert not may(KEY, "other", topicPerms=[f"{TOPIC}=PUB"])
    assert not may(KEY, TOPIC, defaultTopicPerm="SUB")
    assert may(KEY, TOPIC, admin=True)
    assert not may("nobody-here", TOPIC, admin=True)
    assert may("", TOPIC)


# --- gRPC calls -------------------------------------------------------------------------------------------------------

TO_SEND = Needed(ResourceType.TOPIC, TOPIC, frozenset({Action.PUB}))
TO_RECEIVE = Needed(ResourceType.TOPIC, TOPIC, frozenset({Action.SUB}))
IN_GROUP = Needed(ResourceType.GROUP, GROUP, frozenset({Action.SUB}))


class TestCalls:
    @pytest.mark.parametrize("rpc", Rpc)
    def test_nobody_comes_through_without_a_right_signature(self, rpc: Rpc) -> None:
        door = PlainDoor(admin=True)
        assert door.call(CallingCall(rpc)) == "!No accessKey is configured"
        assert door.call(signed_call(rpc, User("nobody-here", SECRET))) == "!No acl config for nobody-here"
        assert door.call(signed_call(rpc, ANN, "wrong-secret")) == f"!Check signature failed for accessKey={KEY}"
        undated = CallingCall(rpc, {b"authorization": authorization(ANN)[b"authorization"]})
        assert door.call(undated) == f"!Check signature failed for accessKey={KEY}"
        assert door.call(signed_call(rpc, ANN)) == KEY
        assert dict(door.gate.denials) == {"no_name": 1, "unknown_user": 1, "wrong_signature": 2}

    def test_receiving_needs_the_topic_and_the_group(self) -> None:
        call = signed_call(Rpc.RECEIVE_MESSAGE, ANN)
        topic, group = [f"{TOPIC}=SUB"], [f"{GROUP}=SUB"]
        assert (
            PlainDoor(topicPerms=topic).call(call, IN_GROUP, TO_RECEIVE) == f"!No default permission for group:{GROUP}"
        )
        assert (
            PlainDoor(groupPerms=group).call(call, IN_GROUP, TO_RECEIVE) == f"!No default permission for topic:{TOPIC}"
        )
        assert PlainDoor(topicPerms=topic, groupPerms=group).call(call, IN_GROUP, TO_RECEIVE) == KEY
        assert PlainDoor(topicPerms=[f"{TOPIC}=PUB"], groupPerms=group).call(call, IN_GROUP, TO_RECEIVE) != KEY

    def test_either_permission_is_enough_to_be_told_a_route(self) -> None:
        route = Needed(ResourceType.TOPIC, TOPIC, frozenset({Action.PUB, Action.SUB, Action.GET}))
        called = {
            owned: PlainDoor(defaultTopicPerm=owned).call(signed_call(Rpc.QUERY_ROUTE, ANN), route) == KEY
            for owned in ("PUB", "SUB", "PUB|SUB", "DENY")
        }
        assert called == {"PUB": True, "SUB": True, "PUB|SUB": True, "DENY": False}

    def test_a_retry_topic_stands_for_its_group_and_an_empty_name_for_nothing(self) -> None:
        door, call = PlainDoor(defaultTopicPerm="PUB|SUB"), signed_call(Rpc.RECEIVE_MESSAGE, ANN)
        other = TO_RECEIVE._replace(name="%RETRY%other")
        assert door.call(call, other) == "!No default permission for group:other"
        assert door.call(call, TO_RECEIVE._replace(name="")).startswith("!ReceiveMessage names no topic")

    def test_white_lists_count_as_for_requests(self) -> None:
        call = signed_call(Rpc.SEND_MESSAGE, ANN, "wrong-secret")
        assert PlainDoor(white=(ADDRESS,)).call(CallingCall(Rpc.SEND_MESSAGE), TO_SEND) == ""
        assert PlainDoor(whiteRemoteAddress="10.0.0.*").call(call, TO_SEND) == ""
        assert PlainDoor(whiteRemoteAddress="10.0.0.*").call(CallingCall(Rpc.SEND_MESSAGE), TO_SEND) != ""
        elsewhere = signed_call(Rpc.SEND_MESSAGE, ANN, "wrong-secret", CallingPeer("10.0.1.9"))
        assert PlainDoor(whiteRemoteAddress="10.0.0.*").call(elsewhere, TO_SEND) != ""

    def test_files_that_changed_count_for_streams_that_are_open(self) -> None:
        door, stream = PlainDoor(white=(ADDRESS,)), CallingCall(Rpc.TELEMETRY)
        assert door.call(stream, TO_SEND) == ""
        door.table = PlainDoor(white=("10.9.9.9",)).table
        assert door.call(stream, TO_SEND) == "!No accessKey is configured"

    def test_an_admin_with_permissions_of_its_own_is_asked_like_everybody(self) -> None:
        call = signed_call(Rpc.SEND_MESSAGE, ANN)
        assert PlainDoor(admin=True).call(call, TO_SEND) == KEY
        assert (
            PlainDoor(admin=True, topicPerms=["other=PUB"]).call(call, TO_SEND)
            == f"!No default permission for topic:{TOPIC}"
        )

    def test_failures_count_with_those_of_remoting(self) -> None:
        door = PlainDoor(admin=True)
        for _ in range(FAILURES_UNSLOWED_MAX):
            assert door.told(signed(send(TOPIC), ANN, "wrong-secret")) is not None
        with pytest.raises(Denied) as denied:
            door.gate.admit_call(signed_call(Rpc.HEARTBEAT, ANN, "wrong-secret"), list)  # type: ignore[arg-type]
        assert denied.value.wait_ms == 100
        assert door.call(signed_call(Rpc.HEARTBEAT, ANN)) == KEY


def test_who_may_consume_is_shown_messages_of_the_topic() -> None:
    def may(user: str, topic: str | None, **members: Value) -> bool:
        return PlainDoor(**members).gate.may_consume(user, "10.0.0.9", GROUP, topic)

    assert may(KEY, TOPIC, topicPerms=[f"{TOPIC}=SUB"], groupPerms=[f"{GROUP}=SUB"])
    assert not may(KEY, TOPIC, topicPerms=[f"{TOPIC}=SUB"])
    assert not may(KEY, "other", topicPerms=[f"{TOPIC}=SUB"], groupPerms=[f"{GROUP}=SUB"])
    assert not may(KEY, None, topicPerms=[f"{TOPIC}=SUB"], groupPerms=[f"{GROUP}=SUB"])
    assert may(KEY, None, admin=True)
    assert not may("nobody-here", TOPIC, admin=True)
    assert may("", TOPIC)


# --- failures ---------------------------------------------------------------------------------------------------------


def test_an_address_that_goes_on_failing_waits_and_what_is_right_does_not(caplog: pytest.LogCaptureFixture) -> None:
    door = PlainDoor(admin=True)
    wrong, right = signed(send(TOPIC), ANN, "wrong-secret"), signed(send(TOPIC), ANN)
    for _ in range(FAILURES_UNSLOWED_MAX):
        assert door.told(wrong) is not None
        assert door.told(right) is None
    for wait_ms in (100, 200):
        with pytest.raises(Denied) as denied:
            door.gate.admit(wrong, CallingPeer(), None)
        assert denied.value.wait_ms == wait_ms
    assert door.told(right) is None
    assert len(caplog.records) == 2
    assert "secret-of" not in caplog.text


# --- white lists and callers ------------------------------------------------------------------------------------------


def test_the_global_white_list_is_asked_first() -> None:
    door = PlainDoor(white=(ADDRESS,))
    peer = CallingPeer()
    assert door.told(send(TOPIC), peer) is None
    assert CALLER not in peer.attachments
    assert door.told(send(TOPIC), CallingPeer("10.0.0.10")) == "No accessKey is configured"


def test_the_white_list_of_an_account_needs_its_key_and_no_signature() -> None:
    door = PlainDoor(whiteRemoteAddress="10.0.0.*")
    assert door.told(signed(send(TOPIC), ANN, "wrong-secret")) is None
    assert door.told(send(TOPIC)) == "No accessKey is configured"
    assert door.told(signed(send(TOPIC), ANN, "wrong-secret"), CallingPeer("10.0.1.9")) is not None


def test_files_that_changed_count_for_connections_that_are_open() -> None:
    door, peer = PlainDoor(white=(ADDRESS,)), CallingPeer()
    assert door.told(send(TOPIC), peer) is None
    door.table = PlainDoor(white=("10.9.9.9",)).table
    assert door.told(send(TOPIC), peer) == "No accessKey is configured"
    door.table = PlainTable([])
    assert door.told(signed(send(TOPIC), ANN), peer) == f"No acl config for {KEY}"


def test_the_caller_is_known_while_its_request_is_handled() -> None:
    door, peer = PlainDoor(admin=True), CallingPeer()
    assert door.told(signed(send(TOPIC), ANN), peer) is None
    caller = peer.attachments[CALLER]
    assert isinstance(caller, User)
    assert (caller.name, caller.type) == (KEY, UserType.SUPER)
    assert door.told(send(TOPIC), peer) is not None
    assert CALLER not in peer.attachments


def test_an_older_client_has_not_signed_the_flag_of_unique_keys() -> None:
    command = request(RequestCode.QUERY_MESSAGE, {"topic": TOPIC, "key": "k"})
    command.version = 395
    flagged = signed(command, ANN)
    flagged.version = 395
    flagged.fields["_UNIQUE_KEY_QUERY"] = "true"
    assert PlainDoor(defaultTopicPerm="SUB").told(flagged) is None


def test_a_table_shows_no_secret() -> None:
    table = PlainDoor().table
    assert SECRET not in repr((table, table.accounts, table.users, table.files))
    assert isinstance(table.accounts[KEY], PlainAccount)
    assert isinstance(table.files[0], PlainFile)
