"""Routes and assignments as clients of RocketMQ 5 are told them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from tests.unit.broker.conftest import SMALL_STORE
from tests.unit.broker.messaging.conftest import FrontRig

from orbitmq.broker.message_types import MESSAGE_TYPE
from orbitmq.broker.settings import BrokerSettings
from orbitmq.limits.grpc import (
    ENDPOINTS_BYTES_MAX,
    RESOURCE_BYTES_MAX,
    ROUTED_QUEUES_MAX,
    ROUTED_QUEUES_PER_BROKER_MIN,
    ROUTES_ANSWERED_AT_ONCE_MAX,
)
from orbitmq.protocol.grpc.messages import (
    Address,
    AddressScheme,
    Code,
    Endpoints,
    MessageType,
    Permission,
    QueryAssignmentRequest,
    QueryAssignmentResponse,
    QueryRouteRequest,
    QueryRouteResponse,
    Resource,
)
from orbitmq.protocol.grpc.routes import endpoints_of
from orbitmq.protocol.grpc.rpcs import Rpc
from orbitmq.protocol.ids import unpack_host
from orbitmq.protocol.remoting.bodies import (
    BrokerData,
    QueueData,
    SubscriptionGroupConfig,
    TopicConfig,
    TopicRouteData,
)

USED = endpoints_of("mq.example", 443)
OTHERS = endpoints_of("10.0.0.2", 9_000)


class Servers:
    """Name servers that know the brokers `names`, and topic `T` on each; they answer when told to."""

    def __init__(self, own: str, *others: str) -> None:
        self.names = (own, *others)
        self.waiting: list[Callable[[], None]] = []

    def ask_route(self, topic: str, took: Callable[[TopicRouteData | None], None]) -> None:
        names = self.names if topic in ("T", "Theirs") else ()
        route = TopicRouteData(
            [QueueData(broker_name=name, read_queue_nums=2, write_queue_nums=2, perm=6) for name in names],
            [BrokerData(broker_name=name, broker_addrs={0: "10.0.0.3:10911"}) for name in names],
        )
        self.waiting.append(lambda: took(route))

    def ask_brokers(self, took: Callable[[Mapping[str, str] | None], None]) -> None:
        self.waiting.append(lambda: took(dict.fromkeys(self.names, "10.0.0.2:9000")))

    def answer(self) -> None:
        waiting, self.waiting = self.waiting, []
        for call in waiting:
            call()


def make(rig: FrontRig, topic: str = "T", kind: str = "", *, reads: int = 2, writes: int = 2, perm: int = 6) -> None:
    config = TopicConfig(topic_name=topic, read_queue_nums=reads, write_queue_nums=writes, perm=perm)
    rig.broker.topics.put(config, {f"+{MESSAGE_TYPE}": kind} if kind else {})


def route(rig: FrontRig, topic: str = "T", at: Endpoints = USED) -> QueryRouteResponse:
    request = QueryRouteRequest(topic=Resource(name=topic), endpoints=at)
    answer: QueryRouteResponse = rig.client().call(Rpc.QUERY_ROUTE, request, QueryRouteResponse)
    return answer


def assignment(rig: FrontRig, topic: str = "T", group: str = "G", at: Endpoints = USED) -> QueryAssignmentResponse:
    request = QueryAssignmentRequest(topic=Resource(name=topic), group=Resource(name=group), endpoints=at)
    answer: QueryAssignmentResponse = rig.client().call(Rpc.QUERY_ASSIGNMENT, request, QueryAssignmentResponse)
    return answer


# --- one broker ---------------------------------------------------------------------------------------------------------


def test_the_queues_of_a_topic_are_at_the_address_that_the_client_used(front_rig: FrontRig) -> None:
    make(front_rig)
    answer = route(front_rig)
    assert answer.status.code == Code.OK
    for number, queue in enumerate(answer.message_queues):
        assert (queue.id, queue.topic.name, queue.permission) == (number, "T", Permission.READ_WRITE)
        assert (queue.broker.name, queue.broker.id) == (front_rig.broker.settings.broker_name, 0)
        assert queue.broker.endpoints == USED
        assert list(queue.accept_message_types) == [MessageType.NORMAL]
    assert len(answer.message_queues) == 2


def test_who_does_not_say_what_it_used_is_told_the_address_of_the_broker(front_rig: FrontRig) -> None:
    make(front_rig)
    host = unpack_host(front_rig.broker.core.facilities.store_host)[0]
    for queue in route(front_rig, at=Endpoints()).message_queues:
        assert queue.broker.endpoints == endpoints_of(host, 0)


def test_many_addresses_come_back_as_they_were_said(front_rig: FrontRig) -> None:
    make(front_rig)
    used = Endpoints(scheme=AddressScheme.IPv4, addresses=[Address(host=f"10.0.0.{n}", port=8081) for n in range(3)])
    assert {queue.broker.endpoints.SerializeToString() for queue in route(front_rig, at=used).message_queues} == {
        used.SerializeToString()
    }


@pytest.mark.parametrize(
    ("kind", "told"),
    [
        ("NORMAL", ["NORMAL"]),
        ("FIFO", ["FIFO"]),
        ("DELAY", ["DELAY"]),
        ("TRANSACTION", ["TRANSACTION"]),
        ("PRIORITY", ["PRIORITY"]),
        ("MIXED", ["NORMAL", "FIFO", "DELAY", "TRANSACTION"]),
    ],
)
def test_types_are_those_of_the_topic(tmp_path: Path, kind: str, told: list[str]) -> None:
    rig = FrontRig(tmp_path, BrokerSettings(enable_mixed_message_type=True), SMALL_STORE)
    make(rig, kind=kind)
    for queue in route(rig).message_queues:
        assert [MessageType(number).name for number in queue.accept_message_types] == told
    rig.close()


def test_permissions_are_those_of_topic_and_broker(front_rig: FrontRig) -> None:
    make(front_rig, perm=4)
    assert {queue.permission for queue in route(front_rig).message_queues} == {Permission.READ}


@pytest.mark.parametrize("topic", ["", " ", "T/x", "x" * 128, "TBW102", "SCHEDULE_TOPIC_XXXX", "rmq_sys_x"])
def test_a_name_that_is_none_or_belongs_to_the_broker_is_illegal(front_rig: FrontRig, topic: str) -> None:
    assert route(front_rig, topic).status.code == Code.ILLEGAL_TOPIC
    assert assignment(front_rig, topic).status.code == Code.ILLEGAL_TOPIC


def test_an_unknown_topic_is_not_found_and_not_made(front_rig: FrontRig) -> None:
    for answer in (route(front_rig, "Nowhere"), assignment(front_rig, "Nowhere")):
        assert answer.status.code == Code.TOPIC_NOT_FOUND
        assert "'Nowhere'" in answer.status.message
    assert "Nowhere" not in front_rig.broker.topics.names()


def test_what_every_queue_would_repeat_is_bounded(front_rig: FrontRig) -> None:
    make(front_rig)
    for size, code in ((ENDPOINTS_BYTES_MAX, Code.OK), (ENDPOINTS_BYTES_MAX + 1, Code.ILLEGAL_ACCESS_POINT)):
        used = endpoints_of("h" * (size - endpoints_of("h" * 900, 1).ByteSize() + 900), 1)
        assert used.ByteSize() == size
        assert route(front_rig, at=used).status.code == assignment(front_rig, at=used).status.code == code
    for size, code in ((RESOURCE_BYTES_MAX, Code.OK), (RESOURCE_BYTES_MAX + 1, Code.ILLEGAL_TOPIC)):
        around = Resource(name="T", resource_namespace="n" * 400).ByteSize() - 400
        topic = Resource(name="T", resource_namespace="n" * (size - around))
        assert topic.ByteSize() == size
        answer = front_rig.client().call(
            Rpc.QUERY_ROUTE, QueryRouteRequest(topic=topic, endpoints=USED), QueryRouteResponse
        )
        assert answer.status.code == code
        assert all(queue.topic == topic for queue in answer.message_queues), "the namespace comes back"


# --- assignments --------------------------------------------------------------------------------------------------------


def test_a_group_that_consumes_in_no_order_pops_all_queues_of_a_broker_at_once(front_rig: FrontRig) -> None:
    make(front_rig)
    (given,) = assignment(front_rig).assignments
    assert (given.message_queue.id, given.message_queue.broker.endpoints) == (-1, USED)
    assert front_rig.broker.groups.known("G") is None, "asking makes no group"


def test_a_group_that_consumes_in_order_pops_queue_by_queue(front_rig: FrontRig) -> None:
    make(front_rig, reads=3)
    front_rig.broker.groups.put(SubscriptionGroupConfig(group_name="G", consume_message_orderly=True))
    assert [given.message_queue.id for given in assignment(front_rig).assignments] == [0, 1, 2]


def test_where_nothing_can_be_read_nothing_is_assigned(front_rig: FrontRig) -> None:
    make(front_rig, perm=2)
    make(front_rig, "Empty", reads=0)
    for topic in ("T", "Empty"):
        assert assignment(front_rig, topic).status.code == Code.FORBIDDEN


def test_an_illegal_group_is_refused(front_rig: FrontRig) -> None:
    make(front_rig)
    assert assignment(front_rig, group="a/b").status.code == Code.ILLEGAL_CONSUMER_GROUP


# --- several brokers ----------------------------------------------------------------------------------------------------


def asked(rig: FrontRig, servers: Servers, topic: str = "T") -> tuple[QueryRouteResponse, QueryAssignmentResponse]:
    """What a client is told after the name servers have answered."""
    rig.broker.rooms.assignment.routes.ask_at(servers)
    client, answers = rig.client(), []
    for rpc, request in (
        (Rpc.QUERY_ROUTE, QueryRouteRequest(topic=Resource(name=topic), endpoints=USED)),
        (
            Rpc.QUERY_ASSIGNMENT,
            QueryAssignmentRequest(topic=Resource(name=topic), group=Resource(name="G"), endpoints=USED),
        ),
    ):
        call = client.start(rpc, request)
        if rpc is Rpc.QUERY_ROUTE:
            assert (call.answers, call.ends) == ([], 0), "it waits for the name servers"
            servers.answer()
        assert (call.ends, call.error) == (1, None)
        answers.append(call.answers[0])
    return QueryRouteResponse.FromString(answers[0]), QueryAssignmentResponse.FromString(answers[1])


def test_where_there_are_several_each_is_named_by_what_it_publishes_this_one_too(front_rig: FrontRig) -> None:
    """A client asks any of them for its assignments, and says the address that it began with: it may be another's."""
    make(front_rig)
    own = front_rig.broker.settings.broker_name
    here = endpoints_of(unpack_host(front_rig.broker.core.facilities.store_host)[0], 0)
    routed, assigned = asked(front_rig, Servers(own, "z"))
    found = [(queue.broker.name, queue.broker.endpoints) for queue in routed.message_queues]
    assert found == [(own, here)] * 2 + [("z", OTHERS)] * 2
    found = [(one.message_queue.broker.name, one.message_queue.broker.endpoints) for one in assigned.assignments]
    assert found == [(own, here), ("z", OTHERS)]


def test_every_broker_names_the_queues_in_the_same_order(front_rig: FrontRig) -> None:
    make(front_rig)
    own = front_rig.broker.settings.broker_name
    routed, _ = asked(front_rig, Servers(own, "z", "a"))
    assert [queue.broker.name for queue in routed.message_queues] == ["a", "a", own, own, "z", "z"]


def test_a_topic_that_is_elsewhere_takes_what_its_broker_says(front_rig: FrontRig) -> None:
    routed, assigned = asked(front_rig, Servers("z"), "Theirs")
    assert [(queue.broker.name, queue.broker.endpoints) for queue in routed.message_queues] == [("z", OTHERS)] * 2
    types = [MessageType(number).name for number in routed.message_queues[0].accept_message_types]
    assert types == ["NORMAL", "FIFO", "DELAY", "TRANSACTION"]
    assert len(assigned.assignments) == 1


def test_a_broker_that_publishes_no_address_is_left_out(front_rig: FrontRig, monkeypatch: pytest.MonkeyPatch) -> None:
    make(front_rig)
    own = front_rig.broker.settings.broker_name
    servers = Servers(own, "z")
    monkeypatch.setattr(servers, "ask_brokers", lambda took: took({own: "", "z": "not an address"}))
    routed, _ = asked(front_rig, servers)
    assert {queue.broker.name for queue in routed.message_queues} == {own}


def said(names: list[str], queues: int) -> TopicRouteData:
    """What a name server says: so many queues on each of these brokers."""
    return TopicRouteData(
        [QueueData(broker_name=name, read_queue_nums=queues, write_queue_nums=queues, perm=6) for name in names],
        [BrokerData(broker_name=name, broker_addrs={0: "10.0.0.3:10911"}) for name in names],
    )


@pytest.mark.parametrize("is_late", [False, True])
@pytest.mark.parametrize(
    ("most", "more"),
    [
        (said(["z"], ROUTED_QUEUES_MAX), said(["z"], ROUTED_QUEUES_MAX + 1)),
        (
            said(["z"] * (ROUTED_QUEUES_MAX // ROUTED_QUEUES_PER_BROKER_MIN), 1),
            said(["z"] * (ROUTED_QUEUES_MAX // ROUTED_QUEUES_PER_BROKER_MIN + 1), 1),
        ),
        (said(["z"], 2), said(["z"], 2**31 - 1)),
        (said(["z"], 1), said(["z", "y"], 2**30)),
    ],
)
def test_a_route_that_no_client_could_take_is_not_made(
    front_rig: FrontRig, most: TopicRouteData, more: TopicRouteData, is_late: bool
) -> None:
    servers = Servers("z")
    topics = {"Most": most, "More": more}

    def ask_route(topic: str, took: Callable[[TopicRouteData | None], None]) -> None:
        servers.waiting.append(lambda: took(topics[topic]))
        if not is_late:
            servers.answer()

    servers.ask_route = ask_route  # type: ignore[method-assign]
    front_rig.broker.rooms.assignment.routes.ask_at(servers)
    client = front_rig.client()
    for topic, code in (("Most", Code.OK), ("More", Code.INTERNAL_SERVER_ERROR)):
        for rpc, request, kind in (
            (Rpc.QUERY_ROUTE, QueryRouteRequest(topic=Resource(name=topic)), QueryRouteResponse),
            (
                Rpc.QUERY_ASSIGNMENT,
                QueryAssignmentRequest(topic=Resource(name=topic), group=Resource(name="G")),
                QueryAssignmentResponse,
            ),
        ):
            call = client.start(rpc, request)
            servers.answer()
            assert (call.ends, call.error) == (1, None)
            told = kind.FromString(call.answers[0]).status
            assert told.code == code
            assert topic == "Most" or f"at most {ROUTED_QUEUES_MAX} are told" in told.message


def test_a_late_answer_that_cannot_be_made_ends_its_call_and_no_other(front_rig: FrontRig) -> None:
    make(front_rig)
    servers = Servers(front_rig.broker.settings.broker_name, "z")
    servers.ask_brokers = lambda took: servers.waiting.append(lambda: took({"z": "\ud800:1"}))  # type: ignore[method-assign]
    front_rig.broker.rooms.assignment.routes.ask_at(servers)
    client = front_rig.client()
    calls = [
        client.start(Rpc.QUERY_ROUTE, QueryRouteRequest(topic=Resource(name=topic))) for topic in ("T", "T", "Nowhere")
    ]
    servers.answer()
    codes = [QueryRouteResponse.FromString(call.answers[0]).status.code for call in calls]
    assert codes == [Code.INTERNAL_SERVER_ERROR, Code.INTERNAL_SERVER_ERROR, Code.TOPIC_NOT_FOUND]
    assert [call.ends for call in calls] == [1, 1, 1]
    assert front_rig.broker.statistics.failed_handler_count == 2


def test_nobody_is_answered_who_has_gone_while_name_servers_were_asked(front_rig: FrontRig) -> None:
    make(front_rig)
    servers = Servers(front_rig.broker.settings.broker_name)
    front_rig.broker.rooms.assignment.routes.ask_at(servers)
    client = front_rig.client()
    call = client.start(Rpc.QUERY_ROUTE, QueryRouteRequest(topic=Resource(name="T")))
    client.cancel(call)
    servers.answer()
    assert (call.answers, call.ends) == ([], 1)


def test_many_for_whom_a_name_server_was_asked_are_answered_in_steps(front_rig: FrontRig) -> None:
    """A client that asks for a route of a thousand queues three thousand times does not hold the loop for twelve seconds."""
    make(front_rig)
    servers = Servers(front_rig.broker.settings.broker_name)
    front_rig.broker.rooms.assignment.routes.ask_at(servers)
    client, request = front_rig.client(), QueryRouteRequest(topic=Resource(name="T"), endpoints=USED)
    calls = [client.start(Rpc.QUERY_ROUTE, request) for _ in range(2 * ROUTES_ANSWERED_AT_ONCE_MAX + 1)]
    servers.answer()
    ended = [sum(call.ends for call in calls)]
    for _ in range(2):
        front_rig.broker.tick()
        ended.append(sum(call.ends for call in calls))
    assert ended == [ROUTES_ANSWERED_AT_ONCE_MAX, 2 * ROUTES_ANSWERED_AT_ONCE_MAX, len(calls)]
    assert len({call.answers[0] for call in calls}) == 1
