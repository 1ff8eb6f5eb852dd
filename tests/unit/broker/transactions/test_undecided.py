"""Which transactions are undecided, by records alone: a plain reading of the same records is the judge."""

from __future__ import annotations

import random

import pytest

from orbitmq.broker.transactions.op_progress import OpProgress
from orbitmq.broker.transactions.records import Ending, HalfFacts
from orbitmq.broker.transactions.undecided import Undecided

SEEDS = 2_000


class Plain:
    """Reads records as anybody would: each half message belongs to a first one, and that has ended or not."""

    def __init__(self) -> None:
        self.first_of: dict[int, int] = {}
        self.offset_of: dict[int, int] = {}
        self.newest: dict[int, int] = {}
        self.named: set[int] = set()

    def half(self, facts: HalfFacts) -> None:
        at = facts.physical_offset
        self.offset_of[facts.queue_offset] = at
        first = at if facts.source is None else self.first_of.get(facts.source, -1)
        self.first_of[at] = first
        if facts.source is None or first in self.newest:
            self.newest[first] = at

    def end(self, at: int) -> None:
        """Every copy is to be named with the end, also those that were named when they were replaced."""
        first = self.first_of.get(at, -1)
        if self.newest.pop(first, None) is not None:
            self.named -= {number for number, place in self.offset_of.items() if self.first_of[place] == first}

    def op(self, offsets: list[int], ending: Ending | None) -> None:
        for offset in offsets:
            if ending is not Ending.COPIED:
                self.end(self.offset_of.get(offset, -1))
            self.named.add(offset)


def facts(at: int, offset: int, source: int | None, claimed: int | None = None) -> HalfFacts:
    """`claimed`: what a stranger says that it is a copy of."""
    return HalfFacts(at, offset, 100, 1_000 + at, "orders", "pg", f"U{at}", 0, None, source, claimed)


def one_life(seed: int) -> None:
    rng = random.Random(seed)
    undecided, plain, progress = Undecided(), Plain(), OpProgress()
    position, offset, op_offset = 0, 0, 0
    places: list[int] = []
    for _ in range(rng.randint(5, 60)):
        position += rng.randint(1, 300)
        way = rng.random()
        if way < 0.5:
            source = rng.choice(places) if places and rng.random() < 0.5 else None
            waiting = [known.place.queue_offset for known in undecided]
            claimed = rng.choice([None, offset, offset + 3, *waiting]) if source is None else None
            one = facts(position, offset, source, claimed)
            undecided.half(one)
            plain.half(one)
            places.append(position)
            offset += 1
        elif way < 0.65 and places:
            at = rng.choice(places)
            undecided.committed(at, None)
            plain.end(at)
        elif way < 0.7 and places:
            at = rng.choice(places)
            undecided.replaced(at)
            plain.end(at)
        elif offset:
            ending = rng.choice((*Ending, None))
            offsets = [rng.randrange(offset) for _ in range(rng.randint(1, 4))]
            if ending is Ending.COPIED:  # as it is written: for those alone that have ended
                offsets = [each for each, why in undecided.unnamed.items() if why is Ending.COPIED][:4]
            undecided.named(offsets, ending)
            plain.op(offsets, ending)
            progress.noted(op_offset, offsets)
            op_offset += 1
        pending = [known.place.physical_offset for known in undecided]
        assert pending == sorted(plain.newest.values())
        assert all(undecided.at(place.physical_offset) is known for known in undecided for place in known.places)
        assert all(known in undecided.with_id(known.topic, known.unique_key) for known in undecided)
        assert sum(map(len, undecided._with_id.values())) == len(pending)
        ended = {number for number, at in plain.offset_of.items() if at not in pending}
        assert undecided.unnamed.keys() == ended - plain.named
        assert progress.offset(0) <= op_offset


def test_what_is_undecided_is_what_a_plain_reading_says() -> None:
    for seed in range(SEEDS):
        one_life(seed)


def test_a_copy_that_revives_what_has_ended_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def half(self: Undecided, facts: HalfFacts) -> None:
        self.open(facts, (), facts.store_timestamp)

    monkeypatch.setattr(Undecided, "half", half)
    with pytest.raises(AssertionError):
        test_what_is_undecided_is_what_a_plain_reading_says()


def test_what_claims_to_be_a_copy_of_another_message_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orbitmq.broker.transactions.undecided._is_copy", lambda facts, known: True)
    with pytest.raises(AssertionError):
        test_what_is_undecided_is_what_a_plain_reading_says()


def test_the_op_queue_is_passed_only_where_nothing_undecided_is_named() -> None:
    rng = random.Random(7)
    for limit in (3, 1_000):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("orbitmq.broker.transactions.op_progress.OP_STRETCHES_MAX", limit)
            progress, named = OpProgress(2, 5, 9), [9] * 5
            half = 0
            for op_offset in range(5, 300):
                named.append(rng.randrange(half, half + 20))
                progress.noted(op_offset, [named[-1]])
                half += rng.choice((0, 0, 1, 2))
                needed = [at for at, highest in enumerate(named) if at >= 2 and highest >= half]
                assert progress.offset(half) <= min(needed, default=op_offset + 1)
            assert progress.offset(half + 1_000) == 300


def test_the_first_record_of_a_log_is_committed_by_its_own_message_alone() -> None:
    undecided = Undecided()
    undecided.half(facts(0, 0, None))
    undecided.committed(0, "U7")  # delivered by RocketMQ after a delay: it names nothing
    assert len(undecided) == 1
    undecided.committed(0, "U0")
    assert len(undecided) == 0
