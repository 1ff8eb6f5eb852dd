"""From a name server's answer to queues and addresses."""

from __future__ import annotations

from orbitmq.client.route import build_route, early_pause_ms
from orbitmq.protocol.remoting.bodies import BrokerData, MessageQueue, QueueData, TopicRouteData


def data(*, perm: int = 6, order: str | None = None) -> TopicRouteData:
    return TopicRouteData(
        queue_datas=[
            QueueData(broker_name="b", read_queue_nums=1, write_queue_nums=2, perm=perm),
            QueueData(broker_name="a", read_queue_nums=2, write_queue_nums=1, perm=perm),
        ],
        broker_datas=[
            BrokerData(broker_name="a", broker_addrs={0: "a:1", 1: "a:2"}),
            BrokerData(broker_name="b", broker_addrs={1: "b:2", 3: "b:3"}),
        ],
        order_topic_conf=order,
    )


def test_sending_needs_a_master_reading_does_not() -> None:
    route = build_route("T", data())
    assert route.publish_queues == (MessageQueue("T", "a", 0),)
    assert route.subscribe_queues == (
        MessageQueue("T", "a", 0),
        MessageQueue("T", "a", 1),
        MessageQueue("T", "b", 0),
    )


def test_permissions() -> None:
    assert build_route("T", data(perm=4)).publish_queues == ()
    assert build_route("T", data(perm=2)).subscribe_queues == ()


def test_a_template_route_is_limited_to_the_queues_asked_for() -> None:
    wide = TopicRouteData(
        queue_datas=[QueueData(broker_name="a", read_queue_nums=8, write_queue_nums=8, perm=7)],
        broker_datas=[BrokerData(broker_name="a", broker_addrs={0: "a:1"})],
    )
    assert len(build_route("T", wide, queues_max=4).publish_queues) == 4
    assert len(build_route("T", wide, queues_max=16).publish_queues) == 8


def test_an_order_configuration_decides_the_publish_queues() -> None:
    route = build_route("T", data(order="b:2;nonsense;a:1"))
    assert route.ordered
    assert route.publish_queues == (MessageQueue("T", "b", 0), MessageQueue("T", "b", 1), MessageQueue("T", "a", 0))


def test_which_member_is_read() -> None:
    route = build_route("T", data())
    assert route.reader("a") == "a:1"
    assert route.reader("a", 1) == "a:2"
    assert route.reader("b", 2) == "b:3"  # a missing slave's next one
    assert route.reader("b", 9) == "b:2"
    assert route.reader("c") is None
    assert route.master("b") is None


def test_equal_answers_give_equal_routes() -> None:
    assert build_route("T", data()) == build_route("T", data())
    assert build_route("T", data()) != build_route("T", data(perm=4))


def test_routes_are_asked_for_often_while_a_group_finds_another_leader_and_seldom_of_what_stays_away() -> None:
    assert [early_pause_ms(elapsed_ms) for elapsed_ms in (0, 400, 1_000, 4_000, 8_000, 80_000)] == [
        100,
        100,
        250,
        1_000,
        1_000,
        10_000,
    ]


def test_an_outage_of_a_minute_costs_few_questions() -> None:
    elapsed_ms, questions = 0, 0
    while elapsed_ms < 60_000:
        elapsed_ms, questions = elapsed_ms + early_pause_ms(elapsed_ms), questions + 1
    assert questions <= 40
