"""What every recurring message is at the moment, and which records of the log say so.

The book is written ahead of the log: a change counts from the moment its record has a place. It can be taken back until the log
confirms it, because the write at the end of the turn may fail.

Records are read again at every start, from the oldest definition that holds on. So that these stay few, the oldest definition is
written anew when too many records about others lie behind it (`too_old`); and before its log file goes.

Rules of this file
1. Positions grow with every record. What was noted last is taken back first.
2. A definition holds everything that is known when it is written. Later records of the same message only add progress, so one
   position is all that retention must keep of it.
3. Nothing here reads or writes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

from orbitmq.limits import recurrence as limits
from orbitmq.timing.recurrence.records import Defined, Deleted, Progressed, Record, replay
from orbitmq.timing.recurrence.state import RecurringState


class Kept(NamedTuple):
    """One recurring message, and where the record of its definition is."""

    state: RecurringState
    queue_offset: int
    physical_offset: int
    size: int


class _Noted(NamedTuple):
    """A change that the log has not confirmed, and what held before."""

    physical_offset: int
    name: str
    before: Kept | None
    next_offset: int
    """Queue offset behind the newest record before it."""


class RecurrenceBook:
    """The recurring messages of one broker, oldest definition first."""

    def __init__(self) -> None:
        self._kept: dict[str, Kept] = {}
        self._noted: deque[_Noted] = deque()
        self.bodies_bytes = 0
        """Bytes of all bodies together."""
        self.next_offset = 0
        """Queue offset behind the newest record."""

    def __len__(self) -> int:
        return len(self._kept)

    def __iter__(self) -> Iterator[RecurringState]:
        return (kept.state for kept in self._kept.values())

    def get(self, name: str) -> RecurringState | None:
        kept = self._kept.get(name)
        return None if kept is None else kept.state

    def place_of(self, name: str) -> Kept | None:
        return self._kept.get(name)

    # --- changes ----------------------------------------------------------------------------------------------------

    def note(self, record: Record, queue_offset: int, physical_offset: int, size: int) -> str:
        """A record has its place in the log; answers whose it is."""
        now: Kept | None
        match record:
            case Defined():
                name, now = record.recurring.name, Kept(record.recurring, queue_offset, physical_offset, size)
            case Deleted() | Progressed():
                name = record.name
                kept = self._kept.get(name)
                state = replay(None if kept is None else kept.state, record)
                now = None if kept is None or state is None else kept._replace(state=state)
        self._change(physical_offset, name, now, moves=isinstance(record, Defined))
        self.next_offset = queue_offset + 1
        return name

    def progress(self, state: RecurringState, physical_offset: int) -> None:
        """The log holds a run of this message, which is now in `state`, and no record of its progress yet."""
        kept = self._kept[state.name]
        self._change(physical_offset, state.name, kept._replace(state=state), moves=False)

    def _change(self, physical_offset: int, name: str, now: Kept | None, *, moves: bool) -> None:
        before = self._kept.get(name)
        self._noted.append(_Noted(physical_offset, name, before, self.next_offset))
        self._set(name, now, moves=moves)

    def _set(self, name: str, now: Kept | None, *, moves: bool) -> None:
        before = self._kept.get(name)
        if before is not None:
            self.bodies_bytes -= len(before.state.message.body)
            if moves or now is None:
                del self._kept[name]
        if now is not None:
            self.bodies_bytes += len(now.state.message.body)
            self._kept[name] = now

    def confirm(self, end: int) -> None:
        """The log holds everything below position `end`."""
        noted = self._noted
        while noted and noted[0].physical_offset < end:
            noted.popleft()

    @property
    def is_blank(self) -> bool:
        """There is nothing in it, and nothing that could come back."""
        return not (self._kept or self._noted)

    @property
    def first_noted(self) -> int | None:
        """Log position of the oldest change that is not confirmed."""
        return self._noted[0].physical_offset if self._noted else None

    @property
    def first_name(self) -> str:
        """Whose that is; empty where there is none."""
        return self._noted[0].name if self._noted else ""

    def take_back(self, physical_offset: int) -> list[str]:
        """What was noted at this position or behind it did not reach the log, or is to be read from it; answers whose it was."""
        changed: list[str] = []
        if not self._noted or self._noted[-1].physical_offset < physical_offset:
            return changed
        while self._noted and self._noted[-1].physical_offset >= physical_offset:
            one = self._noted.pop()
            self._set(one.name, one.before, moves=False)
            self.next_offset = one.next_offset
            changed.append(one.name)
        self._kept = dict(sorted(self._kept.items(), key=lambda item: item[1].physical_offset))
        return changed

    # --- what must be kept ------------------------------------------------------------------------------------------

    def oldest(self) -> Kept | None:
        """The oldest definition that holds, or that would hold again if the last changes did not reach the log."""
        oldest = next(iter(self._kept.values()), None)
        for one in self._noted:
            if one.before is not None and (oldest is None or one.before.physical_offset < oldest.physical_offset):
                oldest = one.before
        return oldest

    def below(self, physical_offset: int) -> Iterator[Kept]:
        """Definitions whose records begin below a position, oldest first."""
        for kept in self._kept.values():
            if kept.physical_offset >= physical_offset:
                return
            yield kept

    def too_old(self) -> RecurringState | None:
        """The message whose definition has to be written anew, because a start would read too many records behind it."""
        oldest = next(iter(self._kept.values()), None)
        if oldest is None:
            return None
        allowed = max(
            limits.RECURRENCE_RECORDS_KEPT_MIN, limits.RECURRENCE_RECORDS_PER_DEFINITION_MAX * len(self._kept)
        )
        return oldest.state if self.next_offset - oldest.queue_offset > allowed else None
