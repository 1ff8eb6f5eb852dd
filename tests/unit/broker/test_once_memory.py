"""The memory of idempotent sends by itself: its tables, its two epochs, its order of forgetting, what it gives back."""

from __future__ import annotations

import pytest

from orbitmq.broker.once.identity import Once
from orbitmq.broker.once.memory import (
    KEY_BYTES,
    SCOPE_BYTES,
    TABLE_KEYS,
    TABLES,
    OnceBounds,
    OnceMemory,
    Place,
    pack,
    unpack,
)
from orbitmq.broker.refusal import Refusal
from orbitmq.protocol.remoting.codes import ResponseCode


def keep(memory: OnceMemory, scope: str, epoch: int, digest: int, now_ms: int = 0) -> bool:
    return memory.keep(Once(scope, epoch, digest), pack(digest, 1, 2), now_ms, now_ms) is not None


def test_a_place_is_one_number() -> None:
    place = Place((1 << 63) - 1, (1 << 63) - 1, 0x7FFFFFFF)
    assert unpack(place.packed()) == place
    assert unpack(pack(0, 0, 0)) == Place(0, 0, 0)


def test_more_keys_than_one_table_holds_are_found_and_taken_out() -> None:
    memory = OnceMemory(OnceBounds())
    count = TABLE_KEYS + 1_000
    for digest in range(1, count + 1):
        assert keep(memory, "s", 0, digest)
    scope = memory.scope("s")
    assert scope is not None
    assert len(scope.current.tables) == 1 + TABLES
    assert all(memory.find(Once("s", 0, digest)) == pack(digest, 1, 2) for digest in range(1, count + 1))
    assert memory.find(Once("s", 0, count + 1)) is None
    for digest in (1, count):
        memory.forget(Once("s", 0, digest), pack(digest, 1, 2))
        assert memory.find(Once("s", 0, digest)) is None
    assert memory.key_count == count - 2
    assert memory.used_bytes == (count - 2) * KEY_BYTES + SCOPE_BYTES


def test_the_first_place_of_a_key_stays() -> None:
    memory = OnceMemory(OnceBounds())
    assert keep(memory, "s", 0, 5)
    assert memory.keep(Once("s", 0, 5), pack(99, 9, 9), 0, 0) is None
    assert memory.find(Once("s", 0, 5)) == pack(5, 1, 2)
    memory.forget(Once("s", 0, 5), pack(99, 9, 9))
    assert memory.find(Once("s", 0, 5)) is not None, "that place is not the one that failed"


def test_an_ended_epoch_is_given_back_a_little_at_a_time() -> None:
    memory = OnceMemory(OnceBounds())
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
    memory = OnceMemory(OnceBounds(transient_idle_ms=60_000, lasting_idle_ms=10_000_000))
    for number, name in enumerate(["~a", "~b", "job"]):
        keep(memory, name, 0, 1, number * 10_000)
    assert not keep(memory, "~a", 0, 1, 50_000)
    assert memory.expire(70_001, 70_001)
    assert [memory.scope(name) is not None for name in ("~a", "~b", "job")] == [True, False, True]
    assert memory.forgotten_count == 1


def test_transient_scopes_age_by_the_clock_that_cannot_be_set() -> None:
    memory = OnceMemory(OnceBounds())
    memory.keep(Once("~a", 0, 1), 1, wall_ms=0, steady_ms=0)
    memory.keep(Once("job", 0, 1), 1, wall_ms=0, steady_ms=0)
    assert memory.expire(wall_ms=73 * 3_600_000, steady_ms=10)
    assert memory.scope("~a") is not None
    assert memory.scope("job") is None


def test_a_crowd_of_idle_scopes_makes_room_step_by_step() -> None:
    memory = OnceMemory(OnceBounds(scopes=100))
    for number in range(100):
        keep(memory, f"~{number}", 0, 1)
    once = Once("~new", 0, 1)
    with pytest.raises(Refusal) as full:
        memory.make_room(once, 1, 59_999, 59_999)
    assert full.value.code == ResponseCode.IDEMPOTENCE_FULL
    memory.make_room(once, 1, 60_000, 60_000)
    assert memory.scope_count < 100


def test_a_new_epoch_counts_what_it_gives_back() -> None:
    memory = OnceMemory(OnceBounds(memory_bytes=SCOPE_BYTES + 20 * KEY_BYTES))
    for epoch in (0, 1):
        for digest in range(1, 11):
            keep(memory, "s", epoch, digest)
    memory.make_room(Once("s", 2, 1), 10, 0, 0)
    with pytest.raises(Refusal):
        memory.make_room(Once("s", 1, 99), 1, 0, 0)
