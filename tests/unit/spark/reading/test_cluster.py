"""What a read asks a cluster besides messages."""

from __future__ import annotations

import socket
from datetime import timedelta

import pytest

from orbitmq.client import MessageQueue
from orbitmq.errors import ConnectionLostError, RouteNotFoundError
from orbitmq.spark.reading.cluster import Cluster, cluster_of
from orbitmq.spark.reading.offsets import Extent
from orbitmq.spark.reading.retrying import RetryClock
from orbitmq.testing import SyncEmbeddedBroker

A, B = MessageQueue("orders", "broker-a", 0), MessageQueue("orders", "broker-a", 1)


class Shown(RetryClock):
    at_ms = 0

    def now_ms(self) -> int:
        return self.at_ms


@pytest.fixture
def nobody() -> str:
    """An address where nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return f"127.0.0.1:{listener.getsockname()[1]}"


def test_one_for_a_process() -> None:
    assert cluster_of(("a:1",), 3_000) is cluster_of(("a:1",), 3_000)
    assert cluster_of(("a:1",), 3_000) is not cluster_of(("a:1", "b:1"), 3_000)


def test_bounds_times_and_published_offsets(broker: SyncEmbeddedBroker) -> None:
    cluster = Cluster((broker.address,), 3_000)
    with broker.connect() as mq:
        mq.admin.create_topic("orders", queues_count=2)
        assert cluster.extents(["orders"]) == {A: Extent(0, 0), B: Extent(0, 0)}
        mq.send("orders", b"1", queue=A)
        broker.advance(timedelta(minutes=1))
        at = int(broker.now.timestamp() * 1000)
        mq.send("orders", b"2", queue=A)
        assert cluster.extents(["orders"]) == {A: Extent(0, 2), B: Extent(0, 0)}
        assert cluster.offsets_at({A: at, B: at}) == {A: 1, B: 0}
        mq.pull_consumer("reports").pull(A, 0)
        cluster.publish("reports", {A: 2, B: 0})
        assert mq.pull_consumer("reports").committed(A) == 2
    cluster.close()


def test_patterns_leave_out_what_is_no_topic_of_a_user(broker: SyncEmbeddedBroker) -> None:
    cluster = Cluster((broker.address,), 3_000)
    with broker.connect() as mq:
        for topic in ("orders", "orders-old", "%DLQ%reports"):
            mq.admin.create_topic(topic, queues_count=1)
    assert cluster.matching("orders") == ["orders"]
    assert cluster.matching(".*") == ["orders", "orders-old"]
    assert cluster.matching("%DLQ%.*") == ["%DLQ%reports"]


def test_connections_that_died_meanwhile_are_made_again(broker: SyncEmbeddedBroker) -> None:
    cluster = Cluster((broker.address,), 3_000)
    with broker.connect() as mq:
        mq.admin.create_topic("orders", queues_count=1)
    assert list(cluster.extents(["orders"])) == [A]
    broker.restart()
    assert list(cluster.extents(["orders"])) == [A]


def test_another_name_server_is_asked(broker: SyncEmbeddedBroker, nobody: str) -> None:
    with broker.connect() as mq:
        mq.admin.create_topic("orders", queues_count=1)
    assert list(Cluster((nobody, broker.address), 3_000).extents(["orders"])) == [A]
    with pytest.raises(
        ConnectionLostError, match=f"no name server answered while looking up topic 'orders': .*{nobody}"
    ):
        Cluster((nobody,), 3_000).extents(["orders"])


def test_a_route_holds_for_a_while(broker: SyncEmbeddedBroker) -> None:
    clock = Shown()
    cluster = Cluster((broker.address,), 3_000, clock=clock)
    with pytest.raises(RouteNotFoundError, match="know no topic 'orders'"):
        cluster.extents(["orders"])
    with broker.connect() as mq:
        mq.admin.create_topic("orders", queues_count=1)
        assert list(cluster.extents(["orders"])) == [A]
        mq.admin.create_topic("orders", queues_count=2)
    assert list(cluster.extents(["orders"])) == [A]
    clock.at_ms += 10_000
    assert list(cluster.extents(["orders"])) == [A, B]


def test_a_broker_that_is_not_in_the_route(broker: SyncEmbeddedBroker) -> None:
    with broker.connect() as mq:
        mq.admin.create_topic("orders", queues_count=1)
    with pytest.raises(ConnectionLostError, match="topic 'orders' has no broker 'broker-z' at present"):
        Cluster((broker.address,), 3_000).address(MessageQueue("orders", "broker-z", 0))
