"""Epochs of a log: who wrote it from which position on, and so where two logs part.

An epoch is the time of one writer. It begins where a broker becomes master, and where a master starts again after it may have lost the end
of its log: what it writes there must not be taken for what was there before. Epoch, start and writer are the same in two logs only if both
have that writer's bytes; so the newest mark that two logs share says how far they are one. In a group the writer has a name: an engine that
was put back to a backup gives an epoch a second time, and two logs may then have it from one position on.

Rules of this file
1. Epochs rise, and so do starts. An epoch that wrote nothing has no mark: the next one takes its place.
2. The oldest marks may be missing, where they became too many. A log that was removed at its beginning keeps the mark that it begins in.
3. A text is checked as a whole. One that is not sound is refused; nothing is read out of it.

    line 1         how many marks
    line 2         CRC-32 of the rest without its top bit, decimal
    line 3 ...     epoch-start, or epoch-start-claim

(RocketMQ controller mode, epoch file, which has no claims.)
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import pairwise
from typing import Final, NamedTuple

from orbitmq.errors import StoreDamagedError
from orbitmq.limits.replication import EPOCH_MARKS_MAX, EPOCH_TEXT_BYTES_MAX
from orbitmq.protocol.checksum import body_crc
from orbitmq.protocol.replication.frames import POSITION_MAX

EPOCH_MAX: Final = 2**31 - 1
_CLAIM: Final = re.compile(r"[!-~]{1,32}")


class EpochMark(NamedTuple):
    epoch: int
    start: int
    claim: str = ""
    """Of the process that wrote, as in the view of its group; empty of a pair."""

    @property
    def text(self) -> str:
        return f"{self.epoch}-{self.start}-{self.claim}" if self.claim else f"{self.epoch}-{self.start}"


def mark_of(text: bytes) -> EpochMark:
    """ValueError where it is none. Another text than `EpochMark.text` may be read as the same mark."""
    epoch, _, rest = text.partition(b"-")
    start, _, claim = rest.partition(b"-")
    return EpochMark(int(epoch), int(start), claim.decode("ascii"))


class SharedLog(NamedTuple):
    """How far two logs are one: `end`, by the marks of both. `is_known` is False where no mark is shared and nothing can be said."""

    end: int
    is_known: bool


class EpochMarks:
    """The epochs of one log, oldest first. ValueError where they do not rise."""

    __slots__ = ("_marks",)

    def __init__(self, marks: Iterable[EpochMark] = ()) -> None:
        self._marks = list(marks)[-EPOCH_MARKS_MAX:]
        for one in self._marks:
            is_sound = not one.claim or _CLAIM.fullmatch(one.claim) is not None
            if not (0 <= one.epoch <= EPOCH_MAX and 0 <= one.start <= POSITION_MAX and is_sound):
                raise ValueError(f"epoch {one.epoch} from {one.start} is out of range")
        for before, after in pairwise(self._marks):
            if not (before.epoch < after.epoch and before.start < after.start):
                raise ValueError(
                    f"epoch {after.epoch} from {after.start} follows epoch {before.epoch} from {before.start}"
                )

    @property
    def marks(self) -> tuple[EpochMark, ...]:
        return tuple(self._marks)

    def begin(self, epoch: int, start: int) -> None:
        """A writer begins at the end of the log. ValueError where its epoch is not new, or the log was longer before."""
        marks = self._marks
        if marks and epoch <= marks[-1].epoch:
            raise ValueError(f"epoch {epoch} is not newer than {marks[-1].epoch}")
        if marks and start < marks[-1].start:
            raise ValueError(
                f"epoch {epoch} would begin at {start}, before epoch {marks[-1].epoch} at {marks[-1].start}"
            )
        kept = [one for one in marks if one.start < start]
        self._marks = EpochMarks([*kept, EpochMark(epoch, start)])._marks

    def cut(self, end: int) -> None:
        """The log ends at `end` now. Epochs that began there or later have nothing left; the newest of them stays, without a byte, so that
        its number is not used again."""
        kept = [one for one in self._marks if one.start < end]
        if len(kept) < len(self._marks):
            kept.append(EpochMark(self._marks[-1].epoch, end))
        self._marks = kept

    def shared(self, our_end: int, theirs: EpochMarks, their_end: int) -> SharedLog:
        """Up to where this log and another are the same. A log that ends before that is a beginning of the other; one that goes on has
        parted from it there."""
        their_places = {mark: place for place, mark in enumerate(theirs._marks)}
        for place in range(len(self._marks) - 1, -1, -1):
            their_place = their_places.get(self._marks[place])
            if their_place is not None:
                ends = (self._end_of(place, our_end), theirs._end_of(their_place, their_end))
                return SharedLog(min(ends), True)
        return SharedLog(0, False)

    def _end_of(self, place: int, log_end: int) -> int:
        """Where the epoch at this place of the list ended."""
        return self._marks[place + 1].start if place + 1 < len(self._marks) else log_end


def encode_marks(marks: EpochMarks) -> bytes:
    """Never longer than what `decode_marks` reads."""
    rest = "".join(f"{one.text}\n" for one in marks.marks).encode()
    return f"{len(marks.marks)}\n{body_crc(rest)}\n".encode() + rest


def decode_marks(data: bytes) -> EpochMarks:
    """StoreDamagedError where it is not, byte for byte, what `encode_marks` gives for the marks in it."""
    if len(data) > EPOCH_TEXT_BYTES_MAX:
        raise _damaged(f"it has {len(data)} bytes")
    try:
        marks = EpochMarks([mark_of(line) for line in data.split(b"\n")[2:-1]])
    except ValueError as error:
        raise _damaged(str(error)) from None
    if encode_marks(marks) != data:
        raise _damaged("its checksum does not fit, or it is no text of epochs")
    return marks


def _damaged(why: str) -> StoreDamagedError:
    return StoreDamagedError(
        f"the list of epochs is damaged: {why}",
        remedy="take the list of another copy with the same log, or have this store copied anew",
    )
