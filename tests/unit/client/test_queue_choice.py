"""Round robin, random queues, machine rooms, avoidance of a failed broker, and queues by ordering key."""

from __future__ import annotations

import pytest

from orbitmq.client.sending.queue_choice import MachineRoom, RandomQueue, RoundRobin, choose_by_key, elsewhere
from orbitmq.errors import ConfigurationError
from orbitmq.protocol.remoting.bodies import MessageQueue

QUEUES = [MessageQueue("T", broker, number) for broker in ("a", "b") for number in range(2)]
ROOMS = [MessageQueue("T", broker, number) for broker in ("r1@a", "r2@b", "c") for number in range(2)]


def robin(start: int) -> RoundRobin:
    return RoundRobin(lambda bits: start)


def test_round_robin_walks_all_queues_in_order() -> None:
    choose = robin(3)
    assert [choose(QUEUES) for _ in range(5)] == [QUEUES[3], *QUEUES]


def test_topics_sent_to_in_turn_each_use_all_their_queues() -> None:
    choose = robin(0)
    others = [MessageQueue("U", "a", number) for number in range(2)]
    used = {choose(queues) for _ in range(4) for queues in (QUEUES, others)}
    assert used == {*QUEUES, *others}


def test_the_counter_wraps_without_leaving_the_list() -> None:
    choose = robin(0x7FFFFFFF)
    assert choose(QUEUES) == QUEUES[0x7FFFFFFF % 4]
    assert choose(QUEUES) == QUEUES[0]


def test_after_a_failure_other_brokers_are_offered_if_there_are_any() -> None:
    assert elsewhere(QUEUES, ("a",)) == QUEUES[2:]
    assert elsewhere(QUEUES, ()) is QUEUES
    assert elsewhere(QUEUES[:2], ("a",)) == QUEUES[:2]


def test_a_random_queue_is_the_one_that_was_drawn() -> None:
    assert RandomQueue(lambda below: below - 1)(QUEUES) == QUEUES[3]
    assert {RandomQueue()(QUEUES) for _ in range(200)} == set(QUEUES)


def test_the_nearest_room_is_used_while_it_has_queues() -> None:
    choose = MachineRoom("r1", "r3")
    assert {choose(ROOMS) for _ in range(6)} == set(ROOMS[:2])
    assert {choose(ROOMS[2:]) for _ in range(8)} == set(ROOMS[2:])


@pytest.mark.parametrize("rooms", [(), ("",), ("a@b",)])
def test_rooms_need_names(rooms: tuple[str, ...]) -> None:
    with pytest.raises(ConfigurationError):
        MachineRoom(*rooms)


@pytest.mark.parametrize("selector", [robin(7), RandomQueue(), MachineRoom("none")])
def test_every_selector_keeps_a_key_in_its_queue(selector: RoundRobin) -> None:
    assert {selector(QUEUES, "order-1") for _ in range(5)} == {choose_by_key(QUEUES, "order-1")}


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
