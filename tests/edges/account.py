"""The account of an edge: every send with its answer, every message that came, and what must not have been.

Rules of this file
1. What was answered SEND_OK must be received, unless it was recalled with a true answer; every other answer promises nothing
   and is counted by its kind.
2. Nothing is received before its due time, and nothing is stored twice.
3. What a machine loses by design, as unsynced messages with asynchronous flush, is taken out by name (`excuse`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from tests.chaos.account import Account, Fate, Place

from orbitmq.protocol.remoting.commands import ResponseCode


def name_of(code: int) -> str:
    try:
        return ResponseCode(code).name
    except ValueError:
        return str(code)


@dataclass
class EdgeAccount(Account):
    answers: Counter[str] = field(default_factory=Counter)
    """How often each request was answered how, as `send SUCCESS`."""
    due: dict[int, int] = field(default_factory=dict)
    recalled: set[int] = field(default_factory=set)
    early: list[tuple[int, int]] = field(default_factory=list)
    """Messages with the milliseconds that they came too soon."""
    _copies: dict[int, set[Place]] = field(default_factory=dict)

    def answered(self, request: str, code: int | None) -> None:
        """code: None when no answer came."""
        self.answers[f"{request} {'no answer' if code is None else name_of(code)}"] += 1

    def send_answered(self, number: int, code: int | None, due_ms: int = 0) -> None:
        self.answered("send", code)
        self.sent(number, Fate.STORED if code == ResponseCode.SUCCESS else Fate.PERHAPS)
        if due_ms:
            self.due[number] = due_ms

    def excuse(self, numbers: Iterable[int]) -> None:
        """These may be lost, as documented."""
        for number in numbers:
            self.fates[number] = Fate.PERHAPS

    def received(self, number: int, place: Place, now_ms: int) -> None:
        """now_ms: the true time, whatever the server's clock says."""
        self.delivered(number, place)
        self._copies.setdefault(number, set()).add(place)
        if now_ms < self.due.get(number, 0):
            self.early.append((number, self.due[number] - now_ms))

    def missing(self) -> list[int]:
        return [number for number in super().missing() if number not in self.recalled]

    def findings(self, *, ordered: bool = True) -> list[str]:
        twice = [number for number, places in self._copies.items() if len(places) > 1]
        recalled = sorted(self.recalled & set(self.deliveries))
        found = [
            ("stored more than once", sorted(twice)),
            ("received although they had been recalled", recalled),
            ("received before their time (number, ms)", self.early),
        ]
        more = [f"{len(items)} {what}: {items[:5]}" for what, items in found if items]  # type: ignore[misc, index]
        return super().findings(ordered=ordered) + more

    def summary(self) -> str:
        answers = ", ".join(f"{count} x {kind}" for kind, count in sorted(self.answers.items()))
        return f"{super().summary()}; answers: {answers}"
