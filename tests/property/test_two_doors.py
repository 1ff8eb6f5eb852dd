"""One decision, two doors: a gate lets a gRPC call through exactly where it lets the remoting request with the same names through.

Each side has a gate of its own over the same users or accounts. What they decide is compared: whom they take the caller for, and the reason
for which they say no.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.callers import (
    CLUSTER,
    CallingCall,
    CallingPeer,
    Grant,
    UsersInMemory,
    signed,
    signed_call,
)

from orbitmq.access.failures import FailedAttempts
from orbitmq.access.gate import Denied, Gate
from orbitmq.access.needed import Needed
from orbitmq.access.plain.accounts import read_plain_tree
from orbitmq.access.plain.gate import PlainGate
from orbitmq.access.plain.table import PlainTable
from orbitmq.access.policies import Decision
from orbitmq.access.users import User, UserStatus, UserType
from orbitmq.access.users_gate import GateRules, UsersGate
from orbitmq.broker.messaging import needs
from orbitmq.broker.real_topics import topic_of_popped
from orbitmq.clock import ManualClock
from orbitmq.protocol.grpc import messages
from orbitmq.protocol.grpc.messages import ClientType, Resource
from orbitmq.protocol.grpc.rpcs import Rpc
from orbitmq.protocol.recall_handles import encode_handle
from orbitmq.protocol.remoting.codes import RequestCode
from orbitmq.protocol.remoting.frame import Command, request
from orbitmq.protocol.remoting.requests import Action

TOPICS = ("mine", "theirs", "", "%RETRY%shop", "%RETRY%other", "%DLQ%other", "%RETRY%shop+mine", "%RETRY%shop_theirs",
          "rmq_sys_wheel_timer", "RMQ_SYS_TRACE_TOPIC", "%RETRY%")  # fmt: skip
GROUPS = ("shop", "other", "", "%RETRY%shop")
ANN, ROOT, OFF = (
    User("ann-of-shop", "secret-of-ann"),
    User("root-of-all", "secret-of-root", UserType.SUPER),
    User("off-duty", "secret-of-off", status=UserStatus.DISABLED),
)
STRANGER = User("stranger", "secret-of-nobody")


class Asked(NamedTuple):
    """The same wish for both doors: a message of gRPC, and the requests of remoting that together name what it names. `leads_to`: the
    topics that these lead to, where their rows say so."""

    rpc: Rpc
    message: Any
    commands: list[Command]
    leads_to: list[str]


def resource(name: str) -> Resource:
    return Resource(name=name)


def heartbeat(groups: Iterable[str], topics: Iterable[str] = ()) -> Command:
    subscriptions = [{"topic": topic, "subString": "*"} for topic in topics]
    consumers = [{"groupName": group, "subscriptionDataSet": subscriptions} for group in groups]
    body = {"clientID": "c", "producerDataSet": [], "consumerDataSet": consumers}
    return request(RequestCode.HEART_BEAT, {}, json.dumps(body).encode())


def sending(topics: Iterable[str]) -> list[Command]:
    return [request(RequestCode.SEND_MESSAGE_V2, {"a": "p", "b": topic}) for topic in topics]


KNOWN = request(RequestCode.CHECK_CLIENT_CONFIG)
"""What needs a caller that is known, and nothing else."""


def asked(rpc: Rpc, topics: list[str], group: str, client_type: int) -> Asked:
    """What a call of this kind asks that names these: the first topic, where it names one."""
    topic, code = topics[0], RequestCode
    named = {"topic": resource(topic), "group": resource(group)}
    settled = [topic_of_popped(topic, group)]
    match rpc:
        case Rpc.QUERY_ROUTE:
            route = request(code.GET_ROUTEINFO_BY_TOPIC, {"topic": topic})
            return Asked(rpc, messages.QueryRouteRequest(topic=resource(topic)), [route], [])
        case Rpc.HEARTBEAT:
            is_producer = client_type <= ClientType.PRODUCER and not group
            beat = messages.HeartbeatRequest(group=resource(group), client_type=client_type)
            return Asked(rpc, beat, [KNOWN if is_producer else heartbeat([group])], [])
        case Rpc.NOTIFY_CLIENT_TERMINATION:
            leave = request(code.UNREGISTER_CLIENT, {"clientID": "c", "consumerGroup": group})
            return Asked(rpc, messages.NotifyClientTerminationRequest(group=resource(group)), [leave], [])
        case Rpc.SEND_MESSAGE:
            sent = [messages.Message(topic=resource(name)) for name in topics]
            return Asked(rpc, messages.SendMessageRequest(messages=sent), sending(topics), [])
        case Rpc.RECALL_MESSAGE:
            handle = encode_handle(topics[-1] or "x", "b", 1, "id")
            recall = request(code.RECALL_MESSAGE, {"topic": topic, "recallHandle": handle})
            message = messages.RecallMessageRequest(topic=resource(topic), recall_handle=handle)
            return Asked(rpc, message, [recall], [topics[-1] or "x"])
        case Rpc.END_TRANSACTION:
            end = request(code.END_TRANSACTION, {"topic": topic})
            # Over remoting a request without a topic is one about its half message; a call without one names nothing.
            return Asked(rpc, messages.EndTransactionRequest(topic=resource(topic)), [end], [topic])
        case Rpc.QUERY_ASSIGNMENT:
            body = json.dumps({"topic": topic, "consumerGroup": group}).encode()
            return Asked(rpc, messages.QueryAssignmentRequest(**named), [request(code.QUERY_ASSIGNMENT, {}, body)], [])
        case Rpc.RECEIVE_MESSAGE:
            pop = request(code.POP_MESSAGE, {"topic": topic, "consumerGroup": group})
            queue = messages.MessageQueue(topic=resource(topic))
            return Asked(rpc, messages.ReceiveMessageRequest(group=resource(group), message_queue=queue), [pop], [])
        case Rpc.ACK_MESSAGE:
            ack = request(code.ACK_MESSAGE, {"topic": topic, "consumerGroup": group})
            return Asked(rpc, messages.AckMessageRequest(**named), [ack], settled)
        case Rpc.CHANGE_INVISIBLE_DURATION:
            change = request(code.CHANGE_MESSAGE_INVISIBLETIME, {"topic": topic, "consumerGroup": group})
            return Asked(rpc, messages.ChangeInvisibleDurationRequest(**named), [change], settled)
        case Rpc.FORWARD_MESSAGE_TO_DEAD_LETTER_QUEUE:
            back = request(code.CONSUMER_SEND_MSG_BACK, {"group": group})
            return Asked(rpc, messages.ForwardMessageToDeadLetterQueueRequest(**named), [back], settled)
        case Rpc.SYNC_LITE_SUBSCRIPTION:
            return Asked(rpc, messages.SyncLiteSubscriptionRequest(**named), [heartbeat([group], [topic])], [])
        case Rpc.TELEMETRY:
            said = messages.Settings()
            if client_type <= ClientType.PRODUCER:
                said.publishing.topics.extend(map(resource, topics))
                return Asked(rpc, messages.TelemetryCommand(settings=said), sending(topics), [])
            said.subscription.group.name = group
            said.subscription.subscriptions.extend(messages.SubscriptionEntry(topic=resource(name)) for name in topics)
            return Asked(rpc, messages.TelemetryCommand(settings=said), [heartbeat([group], topics)], [])
    raise AssertionError(f"{rpc} is not served")


class Caller(NamedTuple):
    """Who signs, with which secret (None: the own one), from where; a `user` of None signs nothing."""

    user: User | None
    secret: str | None
    address: str


def of_call(gate: Gate, asked: Asked, caller: Caller) -> str:
    """Whom a gate takes the caller of the call for, or why it says no."""
    connection = CallingPeer(caller.address)
    call = (
        CallingCall(asked.rpc, connection=connection)
        if caller.user is None
        else signed_call(asked.rpc, caller.user, caller.secret, connection)
    )
    try:
        return gate.admit_call(call, lambda: needs.NEEDS[asked.rpc](asked.message))  # type: ignore[arg-type]
    except Denied:
        return reason(gate)


def of_requests(gate: Gate, asked: Asked, caller: Caller) -> str:
    """The same of the requests: the first no counts."""
    peer = CallingPeer(caller.address)
    for command in asked.commands:
        sent = command if caller.user is None else signed(command, caller.user, caller.secret)
        try:
            gate.admit(sent, peer, lambda _: asked.leads_to)  # type: ignore[arg-type]
        except Denied:
            return reason(gate)
    user = peer.attachments.get("caller")
    return user.name if isinstance(user, User) else ""


def reason(gate: Gate) -> str:
    ((label, count),) = gate.denials.items()
    assert count == 1
    return f"denied: {label}"


ASKED = st.builds(
    asked,
    st.sampled_from(list(needs.NEEDS)),
    st.lists(st.sampled_from(TOPICS), min_size=1, max_size=3),
    st.sampled_from(GROUPS),
    st.integers(0, 6),
)
CALLERS = st.builds(
    Caller,
    st.sampled_from([ANN, ANN, ANN, ANN, ROOT, OFF, STRANGER, None]),
    st.sampled_from([None, None, None, None, "wrong-secret"]),
    st.sampled_from(["10.0.0.9", "10.0.1.9"]),
)
GRANTS = st.lists(
    st.builds(
        Grant,
        st.sampled_from(
            [
                "*",
                "Topic:*",
                "Topic:mine",
                "Topic:theirs",
                "Topic:%*",
                "Topic:rmq_sys_wheel_timer",
                "Group:*",
                "Group:shop",
                "Group:other",
                "Group:shop_*",
                "Topic:RMQ*",
            ]
        ),
        st.sets(st.sampled_from([Action.PUB, Action.SUB, Action.GET]), min_size=1).map(frozenset),
        st.sampled_from([Decision.ALLOW, Decision.ALLOW, Decision.DENY]),
        st.sampled_from([(), (), ("10.0.0.0/24",)]),
    ),
    max_size=8,
    unique_by=lambda grant: grant.resource,
)
PERMISSION = st.sampled_from(["DENY", "PUB", "SUB", "PUB|SUB"])
ACCOUNTS = st.fixed_dictionaries(
    {
        "admin": st.sampled_from([False, False, True]),
        "defaultTopicPerm": PERMISSION,
        "defaultGroupPerm": PERMISSION,
        "whiteRemoteAddress": st.sampled_from(["", "", "10.0.1.*"]),
        "topicPerms": st.dictionaries(st.sampled_from(["mine", "theirs"]), PERMISSION).map(
            lambda owned: [f"{name}={permission}" for name, permission in owned.items()]
        ),
        "groupPerms": st.dictionaries(st.sampled_from(["shop", "other"]), PERMISSION).map(
            lambda owned: [f"{name}={permission}" for name, permission in owned.items()]
        ),
    }
)


def users_gate(grants: list[Grant], *, authorizes: bool) -> Gate:
    users = UsersInMemory(ANN, ROOT, OFF)
    users.grant(ANN, *grants)
    return UsersGate(users, GateRules(CLUSTER, authorizes), FailedAttempts(ManualClock(0)))


def plain_gate(members: dict[str, Any], white: list[str]) -> Gate:
    account = {"accessKey": ANN.name, "secretKey": ANN.password, **members}
    tree: Any = {"globalWhiteRemoteAddresses": white, "accounts": [account]}
    table = PlainTable([read_plain_tree(tree, "plain_acl.yml")])
    return PlainGate(lambda: table, CLUSTER, FailedAttempts(ManualClock(0)))


def agree(made: Callable[[], Gate], asked: Asked, caller: Caller) -> None:
    assert of_call(made(), asked, caller) == of_requests(made(), asked, caller), (asked, caller)


MANY = settings(max_examples=800, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@MANY
@given(ASKED, CALLERS, GRANTS, st.booleans())
def test_users_may_do_the_same_at_both_doors(asked, caller, grants, authorizes):
    agree(lambda: users_gate(grants, authorizes=authorizes), asked, caller)


@MANY
@given(ASKED, CALLERS, ACCOUNTS, st.sampled_from([[], [], ["10.0.1.9"]]))
def test_accounts_may_do_the_same_at_both_doors(asked, caller, members, white):
    agree(lambda: plain_gate(members, white), asked, caller)


# --- planted bugs -----------------------------------------------------------------------------------------------------

FULL = {
    rpc: asked(rpc, ["mine", "theirs"], "shop", client_type)
    for rpc in needs.NEEDS
    for client_type in ([ClientType.SIMPLE_CONSUMER] if rpc is not Rpc.TELEMETRY else [ClientType.PUSH_CONSUMER])
} | {Rpc.PULL_MESSAGE: asked(Rpc.TELEMETRY, ["mine", "theirs"], "shop", ClientType.PRODUCER)}
"""A whole request of each RPC, and settings of a producer (under the name of an RPC that nobody serves)."""

LEFT_OUT = [(name, at) for name, one in FULL.items() for at in range(len(list(needs.NEEDS[one.rpc](one.message))))]


def judged_one_by_one(one: Asked) -> None:
    """Whether both doors agree about who lacks one permission of those that a request needs, who has them all, and who has none."""
    every = [
        Grant(f"{kind}:{name}", frozenset({action}))
        for kind, name in (("Topic", "mine"), ("Topic", "theirs"), ("Group", "shop"))
        for action in (Action.PUB, Action.SUB)
    ]
    for missing in ([], every, *([grant] for grant in every)):
        merged: dict[str, frozenset[Action]] = {}
        for grant in every:
            if grant not in missing:
                merged[grant.resource] = merged.get(grant.resource, frozenset()) | grant.actions
        grants = [Grant(resource, actions) for resource, actions in merged.items()]
        agree(lambda grants=grants: users_gate(grants, authorizes=True), one, Caller(ANN, None, "10.0.0.9"))  # type: ignore[misc]
        plain = {
            f"{kind}Perms": [
                f"{grant.resource.partition(':')[2]}={'|'.join(sorted(action.value.upper() for action in grant.actions))}"
                for grant in grants
                if grant.resource.startswith(kind.title())
            ]
            for kind in ("topic", "group")
        }
        agree(lambda plain=plain: plain_gate(plain, []), one, Caller(ANN, None, "10.0.0.9"))  # type: ignore[misc]


@pytest.mark.parametrize("one", FULL.values(), ids=FULL)
def test_both_doors_want_each_permission(one: Asked) -> None:
    judged_one_by_one(one)


@pytest.mark.parametrize(("name", "at"), LEFT_OUT, ids=[f"{name}-{at}" for name, at in LEFT_OUT])
def test_planted_a_need_that_is_left_out_is_found(name: Rpc, at: int, monkeypatch: pytest.MonkeyPatch) -> None:
    one = FULL[name]
    sound = needs.NEEDS[one.rpc]

    def without_one(request: Any) -> list[Needed]:
        found = list(sound(request))
        return found[:at] + found[at + 1 :]

    monkeypatch.setattr(needs, "NEEDS", {**needs.NEEDS, one.rpc: without_one})
    with pytest.raises(AssertionError):
        judged_one_by_one(one)


def test_planted_a_signature_that_is_compared_by_its_beginning_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty signature is the beginning of every one."""
    one = FULL[Rpc.RECEIVE_MESSAGE]
    unsigned = signed_call(one.rpc, ROOT).call
    name_only = b"MQv2-HMAC-SHA1 Credential=root-of-all, Signature="

    def comes_in() -> bool:
        call = CallingCall(one.rpc, {b"authorization": name_only, b"x-mq-date-time": unsigned.signed_text or b""})
        try:
            users_gate([], authorizes=True).admit_call(call, list)  # type: ignore[arg-type]
        except Denied:
            return False
        return True

    assert not comes_in()
    monkeypatch.setattr("orbitmq.access.authentication.compare_digest", lambda ours, given: ours.startswith(given))
    assert comes_in(), "the test would not see it"
