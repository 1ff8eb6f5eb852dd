"""Round robin, avoidance of a failed broker, and queues by ordering key."""

from __future__ import annotations

import pytest

from orbitmq.client.queue_choice import RoundRobin, choose_by_key
from orbitmq.protocol.remoting.bodies import MessageQueue

QUEUES = [MessageQueue("T", broker, number) for broker in ("a", "b") for number in range(2)]


def test_round_robin_walks_all_queues_in_order() -> None:
    chooser = RoundRobin(start=3)
    assert [chooser.choose(QUEUES) for _ in range(5)] == [QUEUES[3], *QUEUES]


def test_the_counter_wraps_without_leaving_the_list() -> None:
    chooser = RoundRobin(start=0x7FFFFFFF)
    assert chooser.choose(QUEUES) == QUEUES[0x7FFFFFFF % 4]
    assert chooser.choose(QUEUES) == QUEUES[0]


def test_after_a_failure_another_broker_is_chosen() -> None:
    chooser = RoundRobin(start=0)
    assert chooser.choose(QUEUES, failed_broker="a").broker_name == "b"
    assert RoundRobin(start=2).choose(QUEUES, failed_broker="a") == QUEUES[2]


def test_with_one_broker_the_next_queue_is_taken_all_the_same() -> None:
    chooser = RoundRobin(start=0)
    assert chooser.choose(QUEUES[:2], failed_broker="a") in QUEUES[:2]


@pytest.mark.parametrize(
    ("key", "of_eight", "of_six"),
    [
        ("order-1", 6, 2),
        ("order-2", 5, 1),
        ("TagA", 7, 1),
        ("polygenelubricants", 0, 2),  # its hash is -2^31, whose absolute value Java cannot hold
        ("你好", 5, 5),
        ("user_10086", 3, 5),
    ],
)
def test_keys_map_to_the_queue_that_java_selects(key: str, of_eight: int, of_six: int) -> None:
    for count, expected in ((8, of_eight), (6, of_six)):
        queues = [MessageQueue("T", "a", number) for number in range(count)]
        assert choose_by_key(queues, key).queue_id == expected
