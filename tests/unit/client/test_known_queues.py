"""Brokers that are away are known for as long as a key may be remembered there, and keys lead to few others when brokers change."""

from __future__ import annotations

from collections.abc import Iterable

from orbitmq.client.route import MASTER_ID, Route
from orbitmq.client.sending.known_queues import AwayQueues, broker_of_key
from orbitmq.limits.client import AWAY_BROKER_MS_MAX, AWAY_BROKERS_MAX
from orbitmq.protocol.remoting.bodies import MessageQueue

KEYS = [f"order-{number}" for number in range(3_000)]


def route(**counts: int) -> Route:
    queues = tuple(MessageQueue("T", name, number) for name, count in counts.items() for number in range(count))
    return Route("T", queues, queues, {name: {MASTER_ID: f"{name}:10911"} for name in counts})


def names(queues: Iterable[MessageQueue]) -> list[str]:
    return [f"{queue.broker_name}{queue.queue_id}" for queue in queues]


def test_a_broker_that_left_the_route_is_known_until_it_is_back() -> None:
    known, both, one = AwayQueues(), route(a=2, b=1), route(b=1)
    assert known.with_those_away("T", both.publish_queues, 1_000, 0) is both.publish_queues
    known.changed(both, one, 0)
    assert names(known.with_those_away("T", one.publish_queues, 1_000, 0)) == ["a0", "a1", "b0"]
    assert names(known.with_those_away("U", (), 1_000, 0)) == []
    known.changed(one, route(a=4, b=1), 10)
    assert names(known.with_those_away("T", one.publish_queues, 1_000, 10)) == ["b0"]


def test_a_broker_that_is_away_for_longer_than_a_window_is_not_waited_for_by_its_keys() -> None:
    known, one = AwayQueues(), route(b=1)
    known.changed(route(a=1, b=1), one, 500)
    assert names(known.with_those_away("T", one.publish_queues, 1_000, 1_499)) == ["a0", "b0"]
    assert names(known.with_those_away("T", one.publish_queues, 1_000, 1_500)) == ["b0"]
    known.changed(one, route(b=2), 500 + AWAY_BROKER_MS_MAX)
    assert names(known.with_those_away("T", one.publish_queues, 1 << 40, 500)) == ["b0"]


def test_how_many_brokers_are_remembered_is_bounded() -> None:
    known, one = AwayQueues(), route(b=1)
    many = {f"a{number}": 1 for number in range(AWAY_BROKERS_MAX + 5)}
    known.changed(route(**many, b=1), one, 0)
    assert len(known.with_those_away("T", one.publish_queues, 1_000, 0)) == AWAY_BROKERS_MAX + 1


def test_keys_lead_to_all_brokers_and_stay_when_others_come_and_go() -> None:
    of_three = {key: broker_of_key(["c", "a", "b"], key) for key in KEYS}
    assert all(900 < list(of_three.values()).count(name) < 1_100 for name in "abc")
    assert {key: broker_of_key({"a", "b"}, key) for key in KEYS if of_three[key] != "c"} == {
        key: name for key, name in of_three.items() if name != "c"
    }
    moved = [key for key in KEYS if broker_of_key(["a", "b", "c", "d"], key) != of_three[key]]
    assert 600 < len(moved) < 900, "a fourth one takes a quarter"
    assert broker_of_key(["a"], "\ud800") == "a"


def test_the_broker_of_a_key_is_the_same_in_every_release() -> None:
    brokers = ["broker-a", "broker-b", "broker-c"]
    assert "".join(broker_of_key(brokers, key)[-1] for key in KEYS[:6]) == "aaabbc"
