"""What a member asks the engine: one question at a time, and whether the answer can be believed.

Rules of this file
1. A question that was given up has no answer: what comes for it later may be older than what is known. It may act all the same.
2. An answer with less than what was seen when the question was asked comes from an engine that was put back to a backup, or from another
   one. What was heard of newer epochs while the question was under way does not count for that.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from orbitmq.replication.replica_steps import AskEngine, EngineHolds, KeptEpoch, StopMember
from orbitmq.replication.view import View

RESTORED: Final = "it was put back to a backup, or is another one: stop all members, and say with accept-loss which has the log that counts"


class Asked(NamedTuple):
    """A question that the engine has, and what was seen when it was asked."""

    number: int
    seen: KeptEpoch


class EngineQuestions:
    """`revision` is that of the view which was heard last."""

    __slots__ = ("_number", "asked", "has_gone_back", "revision")

    def __init__(self) -> None:
        self._number = 0
        self.asked: Asked | None = None
        self.revision = 0
        self.has_gone_back = False
        """The engine has forgotten what it said: only a person can say which log counts."""

    def ask(self, view: View | None, seen: KeptEpoch) -> AskEngine:
        """While none is asked."""
        self._number += 1
        self.asked = Asked(self._number, seen)
        return AskEngine(self._number, self.revision, view)

    def failed(self, number: int) -> bool:
        """The question is given up; False where it was before."""
        if self.asked is None or self.asked.number != number:
            return False
        self.asked = None
        return True

    def answered(self, given: EngineHolds) -> View | StopMember | None:
        """What is believed of an answer; None: nothing new. Or what the engine has forgotten."""
        asked, view = self.asked, given.view
        if asked is None or asked.number != given.number:
            return None
        self.asked = None
        seen = f"epoch {asked.seen.epoch} and change {asked.seen.serial} were seen"
        if view is None:
            self.has_gone_back, what = asked.seen.serial > 0, "knows nothing of this group"
        else:
            self.has_gone_back = view.lies_before(asked.seen.epoch, asked.seen.serial)
            what = f"has gone back to epoch {view.epoch} and change {view.serial}"
        if self.has_gone_back:
            return StopMember(f"the engine {what}, and {seen}", RESTORED)
        self.revision = given.revision
        return view
