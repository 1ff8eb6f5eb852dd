"""Which frames carry which messages of the core, and which of them come from the member that is at the other end.

Rules of this file
1. A number stays with its message. What an older program does not know it answers by closing the connection.
"""

from __future__ import annotations

from typing import Any, Final

from orbitmq.errors import ReplicationFrameError
from orbitmq.protocol.replication.member_frames import encode_frame
from orbitmq.replication import replica_steps as steps
from orbitmq.replication.epoch_marks import EpochMarks
from orbitmq.replication.replica_steps import Message

KINDS: Final[dict[int, type[Any]]] = {
    1: steps.Hello, 2: steps.Welcome, 3: steps.Follow, 4: steps.Records, 5: steps.Report, 6: steps.Standing, 7: steps.YourTurn,
}  # fmt: skip

_NUMBERS: Final = {made: kind for kind, made in KINDS.items()}


def encode(message: Message) -> bytes:
    return encode_frame(_NUMBERS[type(message)], message)


def check(message: Any, sender: str) -> Message:
    """A message as it was read from the connection of `sender`. ReplicationFrameError where it is none, or another one's."""
    if type(message) not in _NUMBERS:
        raise ReplicationFrameError("a second hello came")
    if message.sender != sender:
        raise ReplicationFrameError(f"{sender} sent a message of {message.sender!r}")
    if isinstance(message, steps.Welcome):
        try:
            EpochMarks(message.marks)
        except ValueError as error:
            raise ReplicationFrameError(f"the epochs of a leader's log: {error}") from error
        if not message.start <= message.end:
            raise ReplicationFrameError(f"a log begins at {message.start} and ends at {message.end}")
    read: Message = message
    return read
