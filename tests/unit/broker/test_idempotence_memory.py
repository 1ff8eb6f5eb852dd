"""The memory of idempotent sends by itself: its tables, its two epochs, its order of forgetting, what it gives back."""

from __future__ import annotations

import pytest

from orbitmq.broker.idempotence.ended_topics import EndedTopics
from orbitmq.broker.idempotence.epoch_keys import KEY_BYTES, TABLE_KEYS
from orbitmq.broker.idempotence.finished import Finished
from orbitmq.broker.idempotence.identity import SendIdentity
from orbitmq.broker.idempotence.memory import SCOPE_BYTES, KeyBounds, KeyMemory, SentPlace, pack, unpack
from orbitmq.broker.idempotence.packed_keys import PACKED_KEY_BYTES
from orbitmq.broker.refusal import Refusal
from orbitmq.protocol.remoting.codes import ResponseCode


def keep(memory: KeyMemory, scope: str, epoch: int, digest: int, now_ms: int = 0) -> bool:
    return memory.keep(SendIdentity(scope, epoch, digest), pack(digest, 1, 2), now_ms, now_ms) is not None


def take_back(memory: KeyMemory, scope: str, epoch: int, digest: int, place: int) -> None:
    known = memory.scope(scope)
    keys = None if known is None else known.keys_of(epoch)
    assert keys is not None
    memory.take_back(keys, digest, place)


def test_a_place_is_one_number() -> None:
    place = SentPlace((1 << 63) - 1, (1 << 63) - 1, 0x7FFFFFFF)
    assert unpack(place.packed()) == place
    assert unpack(pack(0, 0, 0)) == SentPlace(0, 0, 0)


def test_more_keys_than_one_table_holds_are_found_and_taken_out() -> None:
    memory = KeyMemory(KeyBounds())
    count = TABLE_KEYS + 1_000
    for digest in range(1, count + 1):
        assert keep(memory, "s", 0, digest)
    scope = memory.scope("s")
    assert scope is not None
    assert scope.current.packed is not None
    assert all(memory.find(SendIdentity("s", 0, digest), "T") == pack(digest, 1, 2) for digest in range(1, count + 1))
    assert memory.find(SendIdentity("s", 0, count + 1), "T") is None
    for digest in (1, count):
        take_back(memory, "s", 0, digest, pack(digest, 1, 2))
        assert memory.find(SendIdentity("s", 0, digest), "T") is None
    assert memory.key_count == count - 2
    assert memory.used_bytes == (TABLE_KEYS - 1) * KEY_BYTES + 999 * PACKED_KEY_BYTES + SCOPE_BYTES
    assert sorted(scope.current.items())[:2] == [(2, pack(2, 1, 2)), (3, pack(3, 1, 2))]


def test_the_first_position_stays_when_all_keys_of_the_table_were_taken_out() -> None:
    memory = KeyMemory(KeyBounds())
    for digest in range(1, TABLE_KEYS + 2):
        keep(memory, "s", 0, digest)
    for digest in range(1, TABLE_KEYS + 1):
        take_back(memory, "s", 0, digest, pack(digest, 1, 2))
    keep(memory, "s", 0, TABLE_KEYS + 9)
    first = memory.first_position()
    assert first is not None
    assert first <= TABLE_KEYS + 1


@pytest.mark.parametrize("others", [0, TABLE_KEYS + 10])
def test_a_key_stands_for_the_last_record_with_it_and_counts_once(others: int) -> None:
    memory = KeyMemory(KeyBounds())
    assert keep(memory, "s", 0, 5)
    for digest in range(100, 100 + others):
        keep(memory, "s", 0, digest)
    assert not keep(memory, "s", 0, 5)
    memory.keep(SendIdentity("s", 0, 5), pack(99, 9, 9), 0, 0)
    assert memory.key_count == 1 + others
    assert memory.find(SendIdentity("s", 0, 5), "T") == pack(99, 9, 9)
    take_back(memory, "s", 0, 5, pack(5, 1, 2))
    assert memory.find(SendIdentity("s", 0, 5), "T") is not None, "that place is not the one that failed"


def test_the_end_of_a_topic_ends_what_was_sent_to_it_before_and_nothing_else() -> None:
    memory = KeyMemory(KeyBounds())
    keep(memory, "s", 0, 50)
    memory.ended.add("T", 50)
    assert memory.find(SendIdentity("s", 0, 50), "T") == pack(50, 1, 2), "it came after the deletion"
    memory.ended.add("T", 51)
    assert memory.find(SendIdentity("s", 0, 50), "T") is None
    assert memory.find_all([SendIdentity("s", 0, 50)], "T") == [None]
    assert memory.find(SendIdentity("s", 0, 50), "Other") is not None
    keep(memory, "s", 1, 60)
    assert memory.find(SendIdentity("s", 1, 60), "T") is not None


def test_an_end_is_forgotten_with_the_last_send_before_it() -> None:
    memory = KeyMemory(KeyBounds())
    keep(memory, "s", 0, 50)
    keep(memory, "s", 1, 70)
    for topic, position in (("A", 50), ("B", 51), ("C", 80)):
        memory.ended.add(topic, position)
    memory.ended.forget_below(memory.first_position())
    assert dict(memory.ended.items()) == {"B": 51, "C": 80}
    keep(memory, "s", 2, 90)
    memory.ended.forget_below(memory.first_position())
    assert dict(memory.ended.items()) == {"C": 80}
    memory.finish("s", Finished(2, 0, False), 0)
    memory.ended.forget_below(memory.first_position())
    assert not memory.ended


def test_when_too_many_topics_ended_the_oldest_end_stands_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orbitmq.broker.idempotence.ended_topics.ONCE_ENDED_TOPICS_MAX", 3)
    ended = EndedTopics()
    for number in range(10):
        ended.add(f"T{number}", 100 + number)
        ended.keep_few()
    assert len(ended.items()) == 3
    assert [ended.position(topic) for topic in ("T9", "T8", "T0", "Other")] == [109, 108, 107, 107]


def test_an_ended_epoch_is_given_back_a_little_at_a_time() -> None:
    memory = KeyMemory(KeyBounds())
    for digest in range(1, 1_001):
        keep(memory, "s", 0, digest)
    keep(memory, "s", 1, 1)
    keep(memory, "s", 2, 1)
    assert memory.key_count == 2, "they count no more"
    left = []
    while memory._going:
        left.append(sum(map(len, memory._going)))
        memory.give_back(300)
    assert left == [1_000, 700, 400, 100]


def test_the_scope_that_rested_longest_goes_first_and_a_repeat_is_no_rest() -> None:
    memory = KeyMemory(KeyBounds(transient_idle_ms=60_000, lasting_idle_ms=10_000_000))
    for number, name in enumerate(["~a", "~b", "job"]):
        keep(memory, name, 0, 1, number * 10_000)
    assert not keep(memory, "~a", 0, 1, 50_000)
    assert memory.expire(70_001, 70_001)
    assert [memory.scope(name) is not None for name in ("~a", "~b", "job")] == [True, False, True]
    assert memory.forgotten_count == 1


def test_transient_scopes_age_by_the_clock_that_cannot_be_set() -> None:
    memory = KeyMemory(KeyBounds())
    memory.keep(SendIdentity("~a", 0, 1), 1, wall_ms=0, steady_ms=0)
    memory.keep(SendIdentity("job", 0, 1), 1, wall_ms=0, steady_ms=0)
    assert memory.expire(wall_ms=73 * 3_600_000, steady_ms=10)
    assert memory.scope("~a") is not None
    assert memory.scope("job") is None


def test_a_crowd_of_idle_scopes_makes_room_step_by_step() -> None:
    memory = KeyMemory(KeyBounds(scopes=100))
    for number in range(100):
        keep(memory, f"~{number}", 0, 1)
    once = SendIdentity("~new", 0, 1)
    with pytest.raises(Refusal) as full:
        memory.make_room(once, 1, 59_999, 59_999)
    assert full.value.code == ResponseCode.IDEMPOTENCE_FULL
    memory.make_room(once, 1, 60_000, 60_000)
    assert memory.scope_count < 100


def test_a_new_epoch_counts_what_it_gives_back() -> None:
    memory = KeyMemory(KeyBounds(memory_bytes=SCOPE_BYTES + 20 * KEY_BYTES))
    for epoch in (0, 1):
        for digest in range(1, 11):
            keep(memory, "s", epoch, digest)
    memory.make_room(SendIdentity("s", 2, 1), 10, 0, 0)
    with pytest.raises(Refusal):
        memory.make_room(SendIdentity("s", 1, 99), 1, 0, 0)
