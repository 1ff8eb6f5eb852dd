"""Assignment by the broker: shares as RocketMQ gives them, modes that are kept, queues of all brokers."""

from __future__ import annotations

import json

import pytest

from orbitmq.broker.assignment.routes import readable_queues
from orbitmq.broker.assignment.shares import ALLOCATIONS, pop_share, pull_share
from orbitmq.protocol.remoting.bodies import (
    BrokerData,
    MessageQueue,
    QueryAssignmentRequest,
    QueueData,
    SubscriptionGroupConfig,
    TopicRouteData,
)
from orbitmq.protocol.remoting.commands import RequestCode, ResponseCode

AVERAGE, CIRCLE = ALLOCATIONS["AVG"], ALLOCATIONS["AVG_BY_CIRCLE"]


def queues(count, *, broker="b"):
    return [MessageQueue(topic="T", broker_name=broker, queue_id=queue_id) for queue_id in range(count)]


def members(count):
    return [f"c{number}" for number in range(count)]


def popped(queue_count, member_count, share_count, allocate=AVERAGE):
    given = queues(queue_count)
    return [
        [queue.queue_id for queue in pop_share(allocate, name, members(member_count), given, share_count)]
        for name in members(member_count)
    ]


def test_a_pop_share_is_that_of_the_member_and_of_those_behind_it():
    assert popped(8, 4, 1) == [[0, 1, 2, 3], [2, 3, 4, 5], [4, 5, 6, 7], [6, 7, 0, 1]]
    assert popped(4, 4, 1, CIRCLE) == [[0, 1], [1, 2], [2, 3], [3, 0]]


@pytest.mark.parametrize("share_count", [-1, 0, 3, 4])
def test_a_share_that_reaches_round_all_members_is_every_queue_of_each_broker(share_count):
    assert popped(8, 4, share_count) == [[-1]] * 4
    both = pop_share(AVERAGE, "c0", members(4), queues(2, broker="a") + queues(3, broker="b"), share_count)
    assert [(queue.broker_name, queue.queue_id) for queue in both] == [("a", -1), ("b", -1)]


def test_with_more_members_than_queues_each_has_one():
    assert popped(2, 5, 1) == [[0], [1], [0], [1], [0]]


def test_pull_shares_are_those_that_clients_compute():
    given = [[queue.queue_id for queue in pull_share(AVERAGE, name, members(3), queues(8))] for name in members(3)]
    assert given == [[0, 1, 2], [3, 4, 5], [6, 7]]
    given = [[queue.queue_id for queue in pull_share(CIRCLE, name, members(3), queues(8))] for name in members(3)]
    assert given == [[0, 3, 6], [1, 4, 7], [2, 5]]
    assert pull_share(AVERAGE, "stranger", members(3), queues(8)) == []


def test_brokers_without_a_master_or_permission_give_no_queues():
    route = TopicRouteData(
        queue_datas=[
            QueueData(broker_name=name, read_queue_nums=2, write_queue_nums=2, perm=perm)
            for name, perm in (("a", 6), ("b", 2), ("c", 6))
        ],
        broker_datas=[
            BrokerData(broker_name="a", broker_addrs={0: "x"}),
            BrokerData(broker_name="b", broker_addrs={0: "x"}),
            BrokerData(broker_name="c", broker_addrs={1: "x"}),
        ],
    )
    assert readable_queues("T", route) == queues(2, broker="a")


# --- at a broker ----------------------------------------------------------------------------------------------------


def ask(rig, topic="T", *, client_id="me", strategy="AVG", model="CLUSTERING", group="g"):
    """The assignments: (broker, queue id, mode) of each, or None."""
    body = {
        "topic": topic,
        "consumerGroup": group,
        "clientId": client_id,
        "strategyName": strategy,
        "messageModel": model,
    }
    answer = rig.try_call(RequestCode.QUERY_ASSIGNMENT, None, json.dumps(body).encode())
    return None if answer is None else read(answer)


def read(answer):
    assert answer.code == ResponseCode.SUCCESS
    listed = json.loads(bytes(answer.body)).get("messageQueueAssignments")
    if listed is None:
        return None
    return [(one["messageQueue"]["brokerName"], one["messageQueue"]["queueId"], one["mode"]) for one in listed]


def set_mode(rig, mode="POP", *, topic="T", group="g", share=0):
    body = {"topic": topic, "consumerGroup": group, "mode": mode, "popShareQueueNum": share}
    return rig.call(RequestCode.SET_MESSAGE_REQUEST_MODE, None, json.dumps(body).encode()).code


@pytest.fixture
def served(rig):
    rig.sent_ok("T")
    for client_id in ("me", "other"):
        rig.heartbeat(rig.peer(), client_id, "g", ["T"])
    return rig


def test_two_members_share_the_queues(served):
    assert ask(served) == [("broker-a", 0, "PULL"), ("broker-a", 1, "PULL")]
    assert ask(served, client_id="other", strategy="AVG_BY_CIRCLE") == [
        ("broker-a", 1, "PULL"),
        ("broker-a", 3, "PULL"),
    ]
    assert ask(served, client_id="stranger") == []
    assert len(ask(served, model="BROADCASTING")) == 4


def test_what_is_unknown_is_skipped(served):
    assert ask(served, "unknown") is None
    assert ask(served, strategy="CONSISTENT_HASH") is None
    assert ask(served, group="unknown") is None


def test_modes_are_kept_and_retry_topics_are_pulled(served):
    assert set_mode(served) == ResponseCode.SUCCESS
    assert ask(served) == [("broker-a", -1, "POP")]
    served.reopen()
    served.heartbeat(served.peer(), "me", "g", ["T"])
    assert ask(served) == [("broker-a", -1, "POP")]
    listed = json.loads(bytes(served.call(RequestCode.GET_ALL_MESSAGE_REQUEST_MODE).body))
    mode = {"consumerGroup": "g", "mode": "POP", "popShareQueueNum": 0, "topic": "T"}
    assert listed == {"messageRequestModeMap": {"T": {"g": mode}}}
    file = json.loads((served.root / "config" / "messageRequestMode.json").read_text())
    assert file == listed
    assert {one[2] for one in ask(served, "%RETRY%g")} == {"PULL"}
    assert set_mode(served, "PULL") == ResponseCode.SUCCESS
    assert len(ask(served)) == 4


def test_modes_that_cannot_be_set(make_rig):
    rig = make_rig(auto_create_subscription_group=False)
    rig.sent_ok("T")
    rig.broker.groups.put(SubscriptionGroupConfig(group_name="g"))
    assert set_mode(rig, topic="%RETRY%g") == ResponseCode.NO_PERMISSION
    assert set_mode(rig, topic="unknown") == ResponseCode.TOPIC_NOT_EXIST
    assert set_mode(rig, group="unknown") == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
    assert set_mode(rig) == ResponseCode.SUCCESS


def test_settings_decide_where_nobody_has_said_anything(make_rig):
    rig = make_rig(default_message_request_mode="POP", default_pop_share_queue_num=1)
    rig.sent_ok("T")
    for number in range(4):
        rig.heartbeat(rig.peer(), f"c{number}", "g", ["T"])
    assert ask(rig, client_id="c3") == [("broker-a", 3, "POP"), ("broker-a", 0, "POP")]
    rig = make_rig(server_load_balancer_enable=False)
    rig.sent_ok("T")
    assert len(ask(rig)) == 4


class NameServers:
    """Answer when told to."""

    def __init__(self):
        self.asked = []

    def ask_route(self, topic, took):
        self.asked.append((topic, took))


def test_queues_of_other_brokers_come_from_the_name_server_and_are_remembered(served):
    name_servers = NameServers()
    served.broker.rooms.assignment.routes.ask_at(name_servers)
    peer = served.peer()
    question = QueryAssignmentRequest(topic="T", consumer_group="g", client_id="me", strategy_name="AVG").encode()
    for _ in range(2):
        assert served.try_call(RequestCode.QUERY_ASSIGNMENT, None, question, peer=peer) is None
    ((topic, took),) = name_servers.asked
    names = ("broker-a", "broker-b")
    took(
        TopicRouteData(
            queue_datas=[QueueData(broker_name=name, read_queue_nums=1, write_queue_nums=1, perm=6) for name in names],
            broker_datas=[BrokerData(broker_name=name, broker_addrs={0: "x"}) for name in names],
        )
    )
    assert topic == "T"
    assert [read(answer) for answer in peer.take()] == [[("broker-a", 0, "PULL")]] * 2
    assert ask(served, client_id="other") == [("broker-b", 0, "PULL")]
    assert len(name_servers.asked) == 1


@pytest.mark.parametrize("route", [None, TopicRouteData()])
def test_an_unknown_topic_is_skipped(served, route):
    name_servers = NameServers()
    served.broker.rooms.assignment.routes.ask_at(name_servers)
    peer = served.peer()
    question = QueryAssignmentRequest(topic="T", consumer_group="g", client_id="me", strategy_name="AVG").encode()
    assert served.try_call(RequestCode.QUERY_ASSIGNMENT, None, question, peer=peer) is None
    name_servers.asked.pop()[1](route)
    assert [read(answer) for answer in peer.take()] == [None]
