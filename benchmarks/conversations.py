"""Programs at a broker, many at once in one thread: each is a generator that yields requests and is sent their answers.

Rules of this file
1. A program has a connection of its own, and goes on when all answers to what it yielded have come, in the order of the requests.
2. An answer with an unexpected code ends the measurement: `Unexpected` is raised, nothing is averaged.
"""

from __future__ import annotations

import selectors
from collections.abc import Generator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import rigpath  # noqa: F401

# isort: split
from rig.wire import SUCCESS, frame

from lateness import Lane

RESPONSE: Final = 1
WAIT_LIMIT_S: Final = 120.0


class Asked(NamedTuple):
    """One request. fine: codes that are no failure."""

    code: int
    fields: Mapping[str, object]
    body: bytes = b""
    fine: tuple[int, ...] = (SUCCESS,)


class Answer(NamedTuple):
    code: int
    fields: dict[str, str]
    body: bytes


Conversation = Generator[Sequence[Asked], list[Answer], None]


class Unexpected(Exception):
    """A broker answered what a measurement cannot use, or nothing."""


class _Speaker:
    """A program, its connection, and what it waits for."""

    def __init__(self, program: Conversation, lane: Lane) -> None:
        self._program, self._lane = program, lane
        self._opaque = 0
        self._asked: Sequence[Asked] = ()
        self._answers: dict[int, Answer] = {}
        self.is_over = False

    def begin(self) -> None:
        self._say(next(self._program, None))

    def _say(self, asked: Sequence[Asked] | None) -> None:
        if asked is None:
            self.is_over = True
            return
        self._asked, self._answers = asked, {}
        self._lane.write(
            b"".join(
                frame(one.code, {name: str(value) for name, value in one.fields.items()}, self._opaque + at, one.body)
                for at, one in enumerate(asked)
            )
        )

    def hear(self) -> None:
        for head, body in self._lane.frames():
            if head["flag"] & RESPONSE:
                self._take(head, body)

    def _take(self, head: dict[str, Any], body: bytes) -> None:
        at = head["opaque"] - self._opaque
        if head["code"] not in self._asked[at].fine:
            raise Unexpected(f"{self._asked[at]} was answered {head}")
        self._answers[at] = Answer(head["code"], head.get("extFields") or {}, body)
        if len(self._answers) == len(self._asked):
            self._opaque += len(self._asked)
            answers = [self._answers[each] for each in range(len(self._asked))]
            try:
                self._say(self._program.send(answers))
            except StopIteration:
                self.is_over = True


def converse(port: int, programs: Sequence[Conversation]) -> None:
    """Run programs side by side until all are over. Raises Unexpected."""
    with selectors.DefaultSelector() as selector:
        speakers: dict[Lane, _Speaker] = {}
        for program in programs:
            lane = Lane("127.0.0.1", port, selector)
            speakers[lane] = _Speaker(program, lane)
        for speaker in speakers.values():
            speaker.begin()
        while not all(speaker.is_over for speaker in speakers.values()):
            ready = selector.select(WAIT_LIMIT_S)
            if not ready:
                raise Unexpected(f"nothing came for {WAIT_LIMIT_S:.0f} s")
            for key, mask in ready:
                if mask & selectors.EVENT_WRITE:
                    key.data.push()
                if mask & selectors.EVENT_READ:
                    speakers[key.data].hear()
        for lane in speakers:
            lane.close()
