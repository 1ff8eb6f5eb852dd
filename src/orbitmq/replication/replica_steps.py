"""What a replica is told, and what it wants done: messages between members, inputs and effects. Values only.

Positions are those of the log, in bytes, at ends of records. `sender`, `to` and other members are names; `session` is one attempt of a
follower to follow, by the name of its process and a number that rises.
"""

from __future__ import annotations

import enum
from typing import Final, NamedTuple

from orbitmq.replication.epoch_marks import EpochMark
from orbitmq.replication.view import View

FollowSession = tuple[str, int]

NEW_DIRECTORY: Final = "new directory"
"""In the place of a run of the machine: whatever this member had before is gone. The founder of a group is no such member."""


class ReplicaRole(enum.Enum):
    FOLLOWING = "following"
    LEADING = "leading"
    STOPPED = "stopped"


class KeptEpoch(NamedTuple):
    """What a member finds of its former life on the disk. As an effect: write it so that a power failure leaves it, then say `EpochKept`.
    `boot` is the run of the machine in which this log counts with what is in its memory; empty where only its disk counts."""

    epoch: int = 0
    serial: int = 0
    boot: str = NEW_DIRECTORY


# --- messages between members: each names its sender and the epoch that it was said in -----------------------------------


class Hello(NamedTuple):
    """Whoever leads, let me follow; or: there is a newer epoch than yours."""

    sender: str
    epoch: int
    session: FollowSession


class Welcome(NamedTuple):
    """I lead, and my log is this one."""

    sender: str
    epoch: int
    session: FollowSession
    marks: tuple[EpochMark, ...]
    end: int
    start: int = 0
    """Where the log begins: what was before it has been removed."""


class Follow(NamedTuple):
    """My log is yours up to `position`, where it ends: go on from there."""

    sender: str
    epoch: int
    session: FollowSession
    position: int


class Records(NamedTuple):
    """Whole records of the leader's log, or none of them: a heartbeat."""

    sender: str
    epoch: int
    session: FollowSession
    position: int
    data: bytes
    confirmed: int
    wall_ms: int


class Report(NamedTuple):
    """I have your log up to `end`, as safe as acknowledgements have to be."""

    sender: str
    epoch: int
    session: FollowSession
    end: int
    is_clock_off: bool = False
    """My clock is not yours."""


class Standing(NamedTuple):
    """I miss the leader of this epoch. Who has the longest log goes first, and last whoever should rather not lead."""

    sender: str
    epoch: int
    goes_last: bool
    """My clock is not the leader's, or my disk is full."""
    last_epoch: int
    """Of the last mark in the sender's log."""
    end: int


class YourTurn(NamedTuple):
    """The leader asks a member that has all of its log to lead."""

    sender: str
    epoch: int


Message = Hello | Welcome | Follow | Records | Report | Standing | YourTurn


# --- inputs ------------------------------------------------------------------------------------------------------------


class Heard(NamedTuple):
    """A message came. Who its sender is, and that it is one of this group, was proved before."""

    message: Message


class LogIs(NamedTuple):
    """After a write, a sync or a cut: where the log ends, up to where it is on the disk, and who wrote it from where on, by its markers."""

    written: int
    synced: int
    marks: tuple[EpochMark, ...]
    start: int = 0
    """Where it begins; 0 too where nothing was removed."""


class DispatchedTo(NamedTuple):
    """Everything that is confirmed before `end` has been dispatched."""

    end: int


class EpochKept(NamedTuple):
    """What was to be kept is on the disk."""

    epoch: int


class EngineHolds(NamedTuple):
    """Answer to a question: what the engine held after it. `view` is None and `revision` 0 where it holds nothing of this group."""

    number: int
    view: View | None
    revision: int


class EngineFailed(NamedTuple):
    """No answer, or none that can be believed. Whether the engine acted is not known."""

    number: int


class SayHello(NamedTuple):
    """Follow, or follow anew."""


class ReadEngine(NamedTuple):
    """Something may have changed there."""


class SeekLead(NamedTuple):
    """The leader is missed, and it is this member's turn to lead."""


class DropMember(NamedTuple):
    """It was silent or late for too long."""

    member: str


class AdmitMember(NamedTuple):
    """It has caught up."""

    member: str


class SwitchTo(NamedTuple):
    """A person wants another leader; "" where that took too long."""

    member: str


Input = (
    Heard
    | LogIs
    | DispatchedTo
    | EpochKept
    | EngineHolds
    | EngineFailed
    | SayHello
    | ReadEngine
    | SeekLead
    | DropMember
    | AdmitMember
    | SwitchTo
)

# --- effects, to be done in their order ----------------------------------------------------------------------------------


class AskEngine(NamedTuple):
    """Put `view` in the place of what has `revision`, or only read where it is None. The answer is `EngineHolds` with the value
    afterwards, of this read and no cache, or `EngineFailed`."""

    number: int
    revision: int
    view: View | None


class SendMessage(NamedTuple):
    to: str
    message: Message


class StreamLog(NamedTuple):
    """Send this follower the log from `position` on, in whole records and as it grows, in this session and none before."""

    to: str
    session: FollowSession
    position: int


class EndStream(NamedTuple):
    to: str


class CutLog(NamedTuple):
    """Take out what begins at `to` or behind it, then say `LogIs`. Never below what was confirmed."""

    to: int


class BeginLog(NamedTuple):
    """An empty log is to begin at `start`, as its leader's does: who wrote what was before it."""

    start: int
    marks: tuple[EpochMark, ...]


class AppendBytes(NamedTuple):
    """The leader's bytes, at the end of the log; then say `LogIs`."""

    position: int
    data: bytes


class ConfirmTo(NamedTuple):
    """What ends at `end` or before it is confirmed: to be dispatched, and its senders answered with success."""

    end: int


class AppendMarker(NamedTuple):
    """This member leads. The first record of its epoch, which names it, goes to the end of the log; then say `LogIs`. Nothing else is
    appended before `Serve`."""

    epoch: int


class Serve(NamedTuple):
    """What a leader does begins: sends are taken, what is due is released."""

    epoch: int


class StepDown(NamedTuple):
    """It ends, at once. Whoever waits is answered that it is not known what becomes of their message."""

    epoch: int


class AnswerUnknown(NamedTuple):
    """Who waits for what ends at `end` or before has waited long enough: it is not known what becomes of it."""

    end: int


class StopMember(NamedTuple):
    """This member takes part no more, and keeps its files: a person has to look."""

    reason: str
    remedy: str


Effect = (
    KeptEpoch
    | AskEngine
    | SendMessage
    | StreamLog
    | EndStream
    | CutLog
    | BeginLog
    | AppendBytes
    | ConfirmTo
    | AppendMarker
    | Serve
    | StepDown
    | AnswerUnknown
    | StopMember
)
