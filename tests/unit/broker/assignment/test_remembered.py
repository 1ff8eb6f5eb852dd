"""What name servers said: told at once while it is young, asked again beside the answer, and kept while nobody answers."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from orbitmq.broker.assignment import remembered as module
from orbitmq.broker.assignment.remembered import Remembered
from orbitmq.clock import ManualClock
from orbitmq.limits.broker import ROUTE_FRESH_NS, ROUTE_LIFE_NS

FRESH_MS, LIFE_MS = ROUTE_FRESH_NS // 1_000_000, ROUTE_LIFE_NS // 1_000_000


class World:
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.asked: list[tuple[str, Callable[[str | None], None]]] = []
        self.told: list[str | None] = []
        self.remembered: Remembered[str] = Remembered(self.clock, lambda name, took: self.asked.append((name, took)))

    def find(self, name: str = "T") -> list[str | None]:
        """What was told at once."""
        self.told.clear()
        self.remembered.find(name, self.told.append)
        return list(self.told)

    def answer(self, answer: str | None) -> None:
        """A name server answers the only open question."""
        ((_, took),) = self.asked
        self.asked.clear()
        took(answer)

    def learn(self, answer: str, name: str = "T") -> None:
        self.find(name)
        self.answer(answer)


def test_the_first_question_waits_and_later_ones_do_not() -> None:
    world = World()
    assert world.find() == []
    world.answer("here")
    assert world.told == ["here"]
    world.clock.advance(FRESH_MS - 1)
    assert (world.find(), world.asked) == (["here"], [])


def test_everybody_who_waits_is_told_and_one_question_is_asked() -> None:
    world = World()
    told: list[str | None] = []
    for _ in range(3):
        world.remembered.find("T", told.append)
    assert told == []
    world.answer("here")
    assert told == ["here"] * 3


def test_an_older_answer_is_told_at_once_and_asked_for_beside() -> None:
    world = World()
    world.learn("old")
    world.clock.advance(FRESH_MS)
    assert world.find() == ["old"]
    assert world.find() == ["old"], "and nobody asks a second time"
    world.answer("new")
    assert world.told == ["old"]
    assert (world.find(), world.asked) == (["new"], [])


def test_an_answer_that_is_too_old_counts_only_when_nobody_answers() -> None:
    world = World()
    world.learn("old")
    world.clock.advance(LIFE_MS)
    assert world.find() == []
    world.answer(None)
    assert world.told == ["old"]
    world.clock.advance(LIFE_MS)
    assert world.find() == []
    world.answer("new")
    assert world.told == ["new"]


def test_what_nobody_answers_is_unknown_and_asked_again() -> None:
    world = World()
    for _ in range(2):
        assert world.find() == []
        world.answer(None)
        assert world.told == [None]


def test_what_is_forgotten_is_asked_for() -> None:
    world = World()
    world.learn("old")
    world.remembered.forget("T")
    assert world.find() == []
    assert len(world.asked) == 1


def test_an_answer_that_comes_at_once_is_told_once() -> None:
    remembered: Remembered[str] = Remembered(ManualClock(), lambda name, took: took(name))
    told: list[str | None] = []
    remembered.find("T", told.append)
    assert told == ["T"]


def test_the_oldest_answer_goes_when_there_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ROUTES_KEPT_MAX", 2)
    world = World()
    for name in ("A", "B", "C"):
        world.learn("here", name)
    assert [world.find(name) for name in ("B", "C", "A")] == [["here"], ["here"], []]


def test_one_question_more_than_may_be_open_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ROUTES_ASKED_MAX", 1)
    world = World()
    world.learn("old", "B")
    world.clock.advance(LIFE_MS)
    assert world.find("A") == []
    assert world.find("B") == ["old"], "what was known counts"
    assert world.find("C") == [None]
    assert [name for name, _ in world.asked] == ["A"]
