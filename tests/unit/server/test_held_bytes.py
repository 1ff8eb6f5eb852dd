"""Who holds most, found without a look at everybody."""

from __future__ import annotations

from random import Random

from orbitmq.server.connections.held_bytes import HeldBytes

MOST = 1_000


class Holder:
    """`looks`: how often somebody asked what any of them holds."""

    looks = 0

    def __init__(self) -> None:
        self.bytes = 0

    @property
    def held_bytes(self) -> int:
        Holder.looks += 1
        return self.bytes


def test_nobody_is_named_until_it_is_too_much_and_then_the_one_with_the_most() -> None:
    small, large = Holder(), Holder()
    holders = {small, large}
    held = HeldBytes(holders, MOST)
    large.bytes = MOST - 1
    assert held.grew(large, MOST - 1) is None
    small.bytes = 1
    assert held.grew(small, MOST) is None, "as much as may be held"
    small.bytes = 2
    assert held.grew(small, MOST + 1) is large
    large.bytes = 0
    small.bytes = MOST + 1
    assert held.grew(small, MOST + 1) is small
    holders.clear()
    assert held.grew(small, MOST + 1) is None


def test_the_same_is_named_as_by_looking_at_each() -> None:
    random = Random(7)
    holders = {Holder() for _ in range(30)}
    held, named = HeldBytes(holders, MOST), 0
    for _ in range(20_000):
        one = random.choice(sorted(holders, key=id))
        if random.random() < 0.02:
            holders.discard(one)
            holders.add(Holder())
            continue
        before, one.bytes = one.bytes, random.choice((0, one.bytes // 2, one.bytes + random.randrange(200)))
        if one.bytes > before:
            total = sum(each.bytes for each in holders)
            most = held.grew(one, total)
            assert (most is not None) == (total > MOST)
            if most is not None:
                named += 1
                assert most.bytes == max(each.bytes for each in holders)
                most.bytes = 0
        assert len(held._order) <= 4 * len(holders)
    assert named > 1_000


def test_thousands_that_are_cut_one_by_one_cost_a_few_looks_each() -> None:
    holders = {Holder() for _ in range(4_000)}
    held, total, cut = HeldBytes(holders, 1_000_000), 0, 0
    Holder.looks = 0
    for holder in list(holders):
        holder.bytes, total = 500, total + 500
        most = held.grew(holder, total)
        if most is not None:
            cut, total = cut + 1, total - most.bytes
            most.bytes = 0
    assert cut == 2_000
    assert Holder.looks < 10 * len(holders)


def test_nothing_is_kept_once_little_is_held() -> None:
    holders = {Holder() for _ in range(100)}
    held = HeldBytes(holders, MOST)
    for holder in holders:
        holder.bytes = 20
    assert held.grew(next(iter(holders)), 100 * 20)
    assert held._order
    held.grew(next(iter(holders)), MOST // 2 - 1)
    assert not held._order
