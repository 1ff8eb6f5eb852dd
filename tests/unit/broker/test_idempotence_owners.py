"""Bounds of the memory of idempotent sends: each owner has its own, and who comes new finds room."""

from __future__ import annotations

from unittest import mock

import pytest

from orbitmq.broker.idempotence.epoch_keys import KEY_BYTES
from orbitmq.broker.idempotence.identity import SendIdentity
from orbitmq.broker.idempotence.memory import SCOPE_BYTES, KeyBounds, KeyMemory, pack
from orbitmq.broker.idempotence.owners import Owners
from orbitmq.broker.idempotence.scope_names import ScopeNames
from orbitmq.broker.refusal import Refusal


def fill(memory: KeyMemory, name: str, *, scopes: bool) -> tuple[int, str]:
    """Send under that name until it is refused: how often that went well, and the refusal."""
    for number in range(100_000):
        once = SendIdentity(f"{name}/{number}" if scopes else name, 0, number)
        try:
            memory.make_room(once, 1, 0, 0)
        except Refusal as refusal:
            return number, refusal.remark or ""
        memory.keep(once, pack(number, 0, 0), 0, 0)
    raise AssertionError("there is no bound")


def a_full_owner_harms_nobody_else() -> None:
    memory = KeyMemory(KeyBounds(scopes=100))
    count, remark = fill(memory, "greedy", scopes=True)
    assert count == 75
    assert "the memory of idempotent sends is full: 'greedy' has 75 scopes of 75" in remark
    assert fill(memory, "second", scopes=True)[0] > 15
    memory.make_room(SendIdentity("~producer", 0, 1), 1, 0, 0)


def test_an_owner_with_all_scopes_that_it_may_have_harms_nobody_else() -> None:
    a_full_owner_harms_nobody_else()


@pytest.mark.parametrize(
    ("name", "who"), [("order-{}", "all names without '/' have"), ("~{}", "transient senders have")]
)
def test_a_scope_for_every_message_stops_only_others_of_that_kind(name: str, who: str) -> None:
    memory = KeyMemory(KeyBounds(scopes=100))

    def send(scope: str, number: int) -> None:
        once = SendIdentity(scope, 0, number)
        memory.make_room(once, 1, 0, 0)
        memory.keep(once, pack(number, 0, 0), 0, 0)

    for number in range(75):
        send(name.format(number), number)
    with pytest.raises(Refusal, match=f"full: {who} 75 scopes of 75 that are remembered"):
        send(name.format(75), 75)
    assert memory.scope_count == 75
    for scope in ("job/1/T@b", "query/T@b", "~a producer" if name[0] != "~" else "plain"):
        send(scope, 1)
    memory.expire(73 * 3_600_000, 3_600_000)
    while memory.expire(73 * 3_600_000, 3_600_000):
        pass
    assert (memory.scope_count, memory._owners._crowds) == (0, {})


def test_a_planted_shared_bound_is_caught() -> None:
    def shared(owners: Owners, owner: object, limit: int) -> bool:
        return owners.scope_count < limit

    with mock.patch.object(Owners, "has_scope", shared), pytest.raises(AssertionError):
        a_full_owner_harms_nobody_else()


def test_an_owner_with_all_memory_that_it_may_have_harms_nobody_else() -> None:
    memory = KeyMemory(KeyBounds(memory_bytes=10_000 * KEY_BYTES))
    count, remark = fill(memory, "greedy", scopes=False)
    assert 7_400 < count < 7_510
    assert "'greedy' has" in remark
    assert "idempotenceMemoryMax" in remark
    assert fill(memory, "second", scopes=False)[0] > 1_000
    memory.make_room(SendIdentity("third", 0, 1), 1, 0, 0)


def test_what_is_given_back_is_counted() -> None:
    memory = KeyMemory(KeyBounds())
    for epoch in range(4):
        for digest in range(20_000):
            memory.keep(SendIdentity("job", epoch, digest), pack(digest, 0, 0), 0, 0)
    assert memory.key_count == 40_000
    job = memory.scope("job")
    assert job is not None
    for digest in (1, 19_999):
        memory.take_back(job.current, digest, pack(digest, 0, 0))
    memory.expire(73 * 3_600_000, 0)
    assert (memory.used_bytes, memory.key_count, memory.scope_count) == (0, 0, 0)
    steps = 0
    while memory._going:
        memory.give_back(1_000)
        steps += 1
    assert 40 <= steps <= 90
    memory.keep(SendIdentity("job", 9, 1), 1, 0, 0)
    assert memory.used_bytes == SCOPE_BYTES + KEY_BYTES


def test_names_are_found_by_their_beginning_up_to_an_at() -> None:
    names = ScopeNames()
    everyone = ["q/t@a:1", "q/t@b:1", "q/u@a:1", "j/0/t@x@y:1", "j/1/t@x@y:1", "plain"]
    for name in [*everyone, *everyone]:
        names.add(name)
    assert names.beginning("q/t@") == ["q/t@a:1", "q/t@b:1"]
    assert names.beginning("q/u@") == ["q/u@a:1"]
    assert names.beginning("j/0/t@x@") == names.beginning("j/0/t@") == ["j/0/t@x@y:1"]
    assert names.beginning("/@") == []
    assert names.parts("j/*/t@x@y:1") == ["j/0/t@x@y:1", "j/1/t@x@y:1"]
    for name in [*everyone, *everyone]:
        names.drop(name)
    assert (names._beginnings, names._parts) == ({}, {})


def test_a_name_of_many_ats_takes_no_room_for_each_and_is_found() -> None:
    memory = KeyMemory(KeyBounds())
    name = "@" * 255
    memory.keep(SendIdentity(name, 0, 1), pack(0, 0, 0), 0, 0)
    assert len(memory._names._beginnings) == 4
    for prefix in (name[:1], name[:4], name[:5], name[:-1], name):
        assert [scope.name for scope in memory.scopes(prefix, 9)] == [name]
    memory.expire(73 * 3_600_000, 0)
    assert memory._names._beginnings == {}
