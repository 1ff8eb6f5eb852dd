"""Routes that are sent again as they were made, and never what is true no longer."""

from __future__ import annotations

import pytest
from tests.unit.broker.messaging.conftest import FrontRig
from tests.unit.broker.messaging.test_routes import OTHERS, assignment, make, route

from orbitmq.broker.assignment.routes import TopicBroker
from orbitmq.broker.messaging import routes
from orbitmq.broker.messaging.kept_routes import KeptRoutes, RouteKey
from orbitmq.limits.grpc import ROUTES_KEPT_BYTES_MAX
from orbitmq.protocol.grpc.messages import Code, MessageType, Permission
from orbitmq.protocol.grpc.rpcs import Rpc
from orbitmq.protocol.remoting.bodies import SubscriptionGroupConfig


class Makers:
    """How often routes and assignments were made."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        for name in ("routed_queues", "assignments"):
            monkeypatch.setattr(routes, name, self._counting(getattr(routes, name)))

    def _counting(self, make):
        def counted(*args, **more):
            self.count += 1
            return make(*args, **more)

        return counted


@pytest.fixture
def makers(monkeypatch: pytest.MonkeyPatch) -> Makers:
    return Makers(monkeypatch)


def test_a_route_is_made_once_however_often_it_is_asked_for(front_rig: FrontRig, makers: Makers) -> None:
    make(front_rig, reads=1_000, writes=1_000)
    answers = [route(front_rig) for _ in range(5)]
    assert [len(answer.message_queues) for answer in answers] == [1_000] * 5
    assert answers.count(answers[0]) == 5
    assert makers.count == 1
    assert [len(assignment(front_rig).assignments) for _ in range(5)] == [1] * 5
    assert makers.count == 2


def test_what_an_answer_is_made_of_makes_another_one(front_rig: FrontRig, makers: Makers) -> None:
    make(front_rig)
    assert len(route(front_rig).message_queues) == 2
    make(front_rig, reads=4, writes=4)
    assert len(route(front_rig).message_queues) == 4
    make(front_rig, reads=4, writes=4, perm=4)
    assert {queue.permission for queue in route(front_rig).message_queues} == {Permission.READ}
    make(front_rig, kind="FIFO")
    assert list(route(front_rig).message_queues[0].accept_message_types) == [MessageType.FIFO]
    assert route(front_rig, at=OTHERS).message_queues[0].broker.endpoints == OTHERS
    make(front_rig, "T2", kind="FIFO")
    assert route(front_rig, "T2").message_queues[0].topic.name == "T2"
    assert makers.count == 6
    front_rig.broker.groups.put(SubscriptionGroupConfig(group_name="ordered", consume_message_orderly=True))
    assert [len(assignment(front_rig, group=group).assignments) for group in ("free", "ordered", "free")] == [1, 2, 1]
    assert makers.count == 8


def test_a_topic_that_was_deleted_or_made_is_noticed_at_once(front_rig: FrontRig) -> None:
    assert route(front_rig).status.code == Code.TOPIC_NOT_FOUND
    make(front_rig)
    assert route(front_rig).status.code == Code.OK
    front_rig.broker.topics.delete("T")
    assert route(front_rig).status.code == assignment(front_rig).status.code == Code.TOPIC_NOT_FOUND


def test_what_is_kept_is_bounded_in_bytes_and_the_oldest_goes_first() -> None:
    kept, made = KeptRoutes(), []
    broker = TopicBroker("b", "", 1, 1, 6)

    def find(name: bytes, size: int, brokers: tuple[TopicBroker, ...] = (broker,)) -> None:
        def make() -> bytes:
            made.append(name)
            return bytes(size)

        assert len(kept.find(RouteKey(Rpc.QUERY_ROUTE, name, b"", brokers, ""), make)) == size

    beside = RouteKey(Rpc.QUERY_ROUTE, b"a", b"", (broker,), "").memory_bytes
    half = ROUTES_KEPT_BYTES_MAX // 2 - beside
    for name in (b"a", b"b", b"a", b"b", b"a"):
        find(name, half)
    assert made == [b"a", b"b"]
    assert kept.memory_bytes == ROUTES_KEPT_BYTES_MAX
    find(b"c", 1)
    find(b"a", half)
    find(b"c", 1)
    assert made == [b"a", b"b", b"c"], "who was asked for last stays"
    find(b"b", half)
    assert made.pop() == b"b", "and the other one has gone"
    assert kept.memory_bytes <= ROUTES_KEPT_BYTES_MAX
    made.clear()
    for _ in range(2):
        find(b"d", ROUTES_KEPT_BYTES_MAX - beside + 1)
        find(b"e", 1, ())
    assert made == [b"d", b"e", b"d", b"e"], "what is too large, and what is nowhere, is made anew"
    find(b"b", half)
    assert made[4:] == [], "and nothing went for it"


def test_all_that_is_kept_may_be_one_answer() -> None:
    kept, broker = KeptRoutes(), TopicBroker("b", "", 1, 1, 6)
    for number in range(40):
        key = RouteKey(Rpc.QUERY_ROUTE, b"%d" % number, b"", (broker,), "")
        kept.find(key, lambda: bytes(1_000_000))
    key = RouteKey(Rpc.QUERY_ROUTE, b"all", b"", (broker,), "")
    whole = bytes(ROUTES_KEPT_BYTES_MAX - key.memory_bytes)
    assert kept.find(key, lambda: whole) is whole
    assert (len(kept._answers), kept.memory_bytes) == (1, ROUTES_KEPT_BYTES_MAX)
