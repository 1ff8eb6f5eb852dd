"""Answers of name servers, remembered: whoever asks again is told at once, and nobody asks the same twice at a time.

Rules of this file
1. An answer that is young is told. One that is older is told too, and asked for again for those who come later. One that is too old is
   told only when no name server answers: then what was known counts, however old.
2. What nothing is known of, and what cannot be asked for because too much is, is None.

Source: RocketMQ broker, server-side assignment; RocketMQ gRPC, QueryRoute.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Generic, TypeVar

from orbitmq.clock import Clock
from orbitmq.limits.broker import ROUTE_FRESH_NS, ROUTE_LIFE_NS, ROUTES_ASKED_MAX, ROUTES_KEPT_MAX

Answer = TypeVar("Answer")


class Remembered(Generic[Answer]):
    """What name servers say about one kind of thing, by its name."""

    def __init__(self, clock: Clock, ask: Callable[[str, Callable[[Answer | None], None]], None]) -> None:
        """`ask(name, took)` asks them, and calls `took` once: with None when none of them answers."""
        self._clock = clock
        self._ask = ask
        self._known: Final[dict[str, tuple[int, Answer]]] = {}
        """When it was learnt, and the answer; the oldest first."""
        self._waiting: Final[dict[str, list[Callable[[Answer | None], None]]]] = {}
        """Who waits for what is being asked."""

    def find(self, name: str, took: Callable[[Answer | None], None]) -> None:
        """Call `took` with the answer, at once or when a name server has answered; None where it is unknown."""
        learnt_ns, answer = self._known.get(name, (0, None))
        age_ns = self._clock.monotonic_ns() - learnt_ns
        if answer is not None and age_ns < ROUTE_LIFE_NS:
            took(answer)
            if age_ns >= ROUTE_FRESH_NS and name not in self._waiting and len(self._waiting) < ROUTES_ASKED_MAX:
                self._begin(name)
        elif name in self._waiting:
            self._waiting[name].append(took)
        elif len(self._waiting) < ROUTES_ASKED_MAX:
            self._begin(name, took)
        else:
            took(answer)

    def forget(self, name: str) -> None:
        """The next question goes to a name server."""
        self._known.pop(name, None)

    def _begin(self, name: str, *took: Callable[[Answer | None], None]) -> None:
        self._waiting[name] = [*took]
        self._ask(name, lambda answer: self._answered(name, answer))

    def _answered(self, name: str, answer: Answer | None) -> None:
        known = self._known.pop(name, None)
        if answer is not None:
            known = self._clock.monotonic_ns(), answer
        if known is not None:
            self._known[name] = known
            if len(self._known) > ROUTES_KEPT_MAX:
                del self._known[next(iter(self._known))]
        for took in self._waiting.pop(name):
            took(None if known is None else known[1])
