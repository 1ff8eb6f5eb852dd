"""What each RPC needs, by its request: every name counts, and one that is missing is no need less."""

from __future__ import annotations

from typing import Any

import pytest

from orbitmq.access.needed import Needed
from orbitmq.broker.messaging.needs import NEEDS
from orbitmq.protocol.grpc import messages
from orbitmq.protocol.grpc.messages import (
    AckMessageRequest,
    ChangeInvisibleDurationRequest,
    ClientType,
    EndTransactionRequest,
    ForwardMessageToDeadLetterQueueRequest,
    HeartbeatRequest,
    Message,
    MessageQueue,
    NotifyClientTerminationRequest,
    Publishing,
    QueryAssignmentRequest,
    QueryRouteRequest,
    RecallMessageRequest,
    ReceiveMessageRequest,
    Resource,
    SendMessageRequest,
    Settings,
    Subscription,
    SubscriptionEntry,
    SyncLiteSubscriptionRequest,
    TelemetryCommand,
    VerifyMessageResult,
)
from orbitmq.protocol.grpc.rpcs import RPCS, Rpc
from orbitmq.protocol.properties import REFUSED_TO_USERS, Property
from orbitmq.protocol.recall_handles import encode_handle

TOPIC, GROUP = Resource(name="orders"), Resource(name="shop", resource_namespace="not looked at")
SETTLED = {"topic": TOPIC, "group": GROUP}
SUBSCRIBED = Subscription(
    group=GROUP, subscriptions=[SubscriptionEntry(topic=TOPIC), SubscriptionEntry(topic=Resource(name="more"))]
)

CASES: list[tuple[Rpc, Any, list[str]]] = [
    (Rpc.QUERY_ROUTE, QueryRouteRequest(topic=TOPIC), ["Topic:orders Get|Pub|Sub"]),
    (Rpc.HEARTBEAT, HeartbeatRequest(group=GROUP, client_type=ClientType.PUSH_CONSUMER), ["Group:shop Sub"]),
    (Rpc.HEARTBEAT, HeartbeatRequest(group=GROUP), ["Group:shop Sub"]),
    (Rpc.HEARTBEAT, HeartbeatRequest(group=GROUP, client_type=ClientType.PRODUCER), ["Group:shop Sub"]),
    (Rpc.HEARTBEAT, HeartbeatRequest(client_type=ClientType.PRODUCER), []),
    (Rpc.NOTIFY_CLIENT_TERMINATION, NotifyClientTerminationRequest(group=GROUP), ["Group:shop Sub"]),
    (Rpc.NOTIFY_CLIENT_TERMINATION, NotifyClientTerminationRequest(group=Resource()), []),
    (Rpc.NOTIFY_CLIENT_TERMINATION, NotifyClientTerminationRequest(), []),
    (Rpc.SEND_MESSAGE, SendMessageRequest(messages=[Message(topic=TOPIC)]), ["Topic:orders Pub"]),
    (
        Rpc.SEND_MESSAGE,
        SendMessageRequest(messages=[Message(topic=Resource(name=name)) for name in ("orders", "more", "orders", "")]),
        ["Topic:orders Pub", "Topic:more Pub", "Topic: Pub"],
    ),
    (Rpc.END_TRANSACTION, EndTransactionRequest(topic=TOPIC), ["Topic:orders Pub"]),
    (
        Rpc.RECALL_MESSAGE,
        RecallMessageRequest(topic=TOPIC, recall_handle=encode_handle("more", "b", 1, "id")),
        ["Topic:orders Pub", "Topic:more Pub"],
    ),
    (Rpc.RECALL_MESSAGE, RecallMessageRequest(topic=TOPIC, recall_handle="none"), ["Topic:orders Pub"]),
    (
        Rpc.RECEIVE_MESSAGE,
        ReceiveMessageRequest(group=GROUP, message_queue=MessageQueue(topic=TOPIC)),
        ["Group:shop Sub", "Topic:orders Sub"],
    ),
    (Rpc.QUERY_ASSIGNMENT, QueryAssignmentRequest(**SETTLED), ["Group:shop Sub", "Topic:orders Sub"]),
    (Rpc.ACK_MESSAGE, AckMessageRequest(**SETTLED), ["Group:shop Sub", "Topic:orders Sub"]),
    (
        Rpc.ACK_MESSAGE,
        AckMessageRequest(group=GROUP, topic=Resource(name="%RETRY%shop_orders")),
        ["Group:shop Sub", "Topic:orders Sub"],
    ),
    (
        Rpc.ACK_MESSAGE,
        AckMessageRequest(group=GROUP, topic=Resource(name="%RETRY%other+orders")),
        ["Group:shop Sub", "Topic:%RETRY%other+orders Sub"],
    ),
    (
        Rpc.CHANGE_INVISIBLE_DURATION,
        ChangeInvisibleDurationRequest(**SETTLED),
        ["Group:shop Sub", "Topic:orders Sub"],
    ),
    (
        Rpc.FORWARD_MESSAGE_TO_DEAD_LETTER_QUEUE,
        ForwardMessageToDeadLetterQueueRequest(**SETTLED),
        ["Group:shop Sub", "Topic:orders Sub"],
    ),
    (Rpc.SYNC_LITE_SUBSCRIPTION, SyncLiteSubscriptionRequest(**SETTLED), ["Group:shop Sub", "Topic:orders Sub"]),
    (
        Rpc.TELEMETRY,
        TelemetryCommand(settings=Settings(publishing=Publishing(topics=[TOPIC, Resource(name="more")]))),
        ["Topic:orders Pub", "Topic:more Pub"],
    ),
    (
        Rpc.TELEMETRY,
        TelemetryCommand(settings=Settings(subscription=SUBSCRIBED)),
        ["Group:shop Sub", "Topic:orders Sub", "Topic:more Sub"],
    ),
    (Rpc.TELEMETRY, TelemetryCommand(settings=Settings()), []),
    (Rpc.TELEMETRY, TelemetryCommand(verify_message_result=VerifyMessageResult(nonce="1")), []),
]


def shown(needs: list[Needed]) -> list[str]:
    return [f"{needed.text} {'|'.join(sorted(action.value for action in needed.actions))}" for needed in needs]


@pytest.mark.parametrize(
    ("rpc", "request_", "needs"), CASES, ids=[f"{rpc}-{at}" for at, (rpc, _, _) in enumerate(CASES)]
)
def test_a_request_needs_what_it_names(rpc: Rpc, request_: Any, needs: list[str]) -> None:
    assert shown(list(NEEDS[rpc](request_))) == needs


def test_every_rpc_that_is_served_has_needs() -> None:
    assert set(NEEDS) == {rpc for rpc, row in RPCS.items() if row.is_served}


EMPTY: list[tuple[Rpc, Any, int]] = [
    (Rpc.QUERY_ROUTE, QueryRouteRequest(), 1),
    (Rpc.HEARTBEAT, HeartbeatRequest(client_type=ClientType.SIMPLE_CONSUMER), 1),
    (Rpc.HEARTBEAT, HeartbeatRequest(client_type=ClientType.LITE_PUSH_CONSUMER), 1),
    (Rpc.HEARTBEAT, HeartbeatRequest(client_type=99), 1),
    (Rpc.SEND_MESSAGE, SendMessageRequest(), 1),
    (Rpc.SEND_MESSAGE, SendMessageRequest(messages=[Message()]), 1),
    (Rpc.END_TRANSACTION, EndTransactionRequest(), 1),
    (Rpc.RECALL_MESSAGE, RecallMessageRequest(), 1),
    (Rpc.RECEIVE_MESSAGE, ReceiveMessageRequest(), 2),
    (Rpc.QUERY_ASSIGNMENT, QueryAssignmentRequest(), 2),
    (Rpc.ACK_MESSAGE, AckMessageRequest(), 2),
    (Rpc.CHANGE_INVISIBLE_DURATION, ChangeInvisibleDurationRequest(), 2),
    (Rpc.FORWARD_MESSAGE_TO_DEAD_LETTER_QUEUE, ForwardMessageToDeadLetterQueueRequest(), 2),
    (Rpc.SYNC_LITE_SUBSCRIPTION, SyncLiteSubscriptionRequest(), 2),
    (Rpc.TELEMETRY, TelemetryCommand(settings=Settings(publishing=Publishing(topics=[Resource()]))), 1),
    (Rpc.TELEMETRY, TelemetryCommand(settings=Settings(subscription=Subscription())), 1),
    (
        Rpc.TELEMETRY,
        TelemetryCommand(settings=Settings(subscription=Subscription(subscriptions=[SubscriptionEntry()]))),
        2,
    ),
]


@pytest.mark.parametrize(
    ("rpc", "request_", "count"), EMPTY, ids=[f"{rpc}-{at}" for at, (rpc, _, _) in enumerate(EMPTY)]
)
def test_a_name_that_is_missing_is_a_need_that_nobody_has(rpc: Rpc, request_: Any, count: int) -> None:
    assert [needed.name for needed in NEEDS[rpc](request_)] == [""] * count


FROM_THE_SERVER = ("recover_orphaned_transaction_command", "verify_message_command")
"""Commands that name topics and say nothing when a client sends them."""


def filled(message: Any, choice: int, names: list[str], path: str) -> None:
    """Name something wherever a message can name a topic or a group; of what is one of several things that one."""
    for field in message.DESCRIPTOR.fields:
        kind, of = field.message_type, field.containing_oneof
        if kind is None or field.name in FROM_THE_SERVER or kind.GetOptions().map_entry:
            continue
        count = 1 if of is None else len(of.fields)
        if of is not None and of.fields[choice % count].name != field.name:
            continue
        inner = getattr(message, field.name)
        inner = inner.add() if field.is_repeated else inner
        if kind.name == "Resource":
            inner.name = f"{path}.{field.name}"
            names.append(inner.name)
        else:
            inner.SetInParent()
            filled(inner, choice // count, names, f"{path}.{field.name}")


@pytest.mark.parametrize("choice", range(16))
@pytest.mark.parametrize("rpc", NEEDS)
def test_whatever_a_request_can_name_is_judged(rpc: Rpc, choice: int) -> None:
    """By the definitions themselves: a field that a newer version of them adds is not passed over."""
    request, names = getattr(messages, RPCS[rpc].request)(), list[str]()
    filled(request, choice, names, rpc)
    assert set(names) <= {needed.name for needed in NEEDS[rpc](request)}
    if rpc is not Rpc.TELEMETRY:
        assert names


def test_no_property_of_a_user_leads_a_send_to_another_topic() -> None:
    assert {Property.TIMER_DEL_UNIQKEY, Property.ONCE_SCOPE, Property.ONCE_EPOCH, Property.ONCE_KEY} <= REFUSED_TO_USERS


def test_a_namespace_makes_no_other_name() -> None:
    """Handlers look at the name alone, so a name is judged alone."""
    for rpc, request_, _ in CASES:
        assert all("not looked at" not in (needed.name or "") for needed in NEEDS[rpc](request_))
