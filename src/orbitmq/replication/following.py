"""A follower's session: compare the two logs, cut what is ours alone, then take the leader's bytes in order.

    begin  ->  Welcome  ->  (cut)  ->  matched: bytes from our end on, reports

Rules of this file
1. Logs are compared by marks (epoch, start, who wrote): equal marks say that both have the bytes of that writer. Lengths say nothing.
2. What was confirmed here is never cut. A leader that lacks it leads after a loss that somebody accepted, or after a disk that forgot.
3. Bytes are taken at our end only. A gap ends the session; what came before comes again, and is passed over.
"""

from __future__ import annotations

from orbitmq.replication.epoch_marks import EpochMarks, SharedLog
from orbitmq.replication.replica_steps import LogIs, Records, StopMember, Welcome


class FollowerSession:
    __slots__ = ("confirmed", "cutting", "expected", "is_matched", "number")

    def __init__(self, written: int) -> None:
        self.number = 0
        """Of the session; rises."""
        self.is_matched = False
        """Our log is a beginning of the leader's."""
        self.cutting: int | None = None
        """Where our log is being cut."""
        self.expected = written
        """Where the next bytes of the leader belong."""
        self.confirmed = 0
        """As the leader says in this session."""

    def end(self) -> None:
        self.is_matched, self.cutting = False, None

    def begin(self) -> None:
        self.end()
        self.number += 1

    def compare(self, log: LogIs, confirmed: int, leader: Welcome) -> int | StopMember:
        """Up to where our log is the leader's: where to cut it, if it goes on. Or why it cannot follow."""
        shared = EpochMarks(log.marks).shared(log.written, EpochMarks(leader.marks), leader.end)
        if not log.marks:  # before the first mark lies what the founder had: nobody has written that in two ways
            shared = SharedLog(min(log.written, leader.marks[0].start if leader.marks else leader.end), True)
        if not shared.is_known and log.marks:
            return StopMember(
                "its log has nothing in common with its leader's", "put its store aside, and have it copied anew"
            )
        if shared.end < confirmed:
            return StopMember(
                f"its leader's log is another one from {shared.end} on, and {confirmed} was confirmed here",
                "a loss was accepted, or a disk has lost what it had: put its store aside, and have it copied anew",
            )
        if log.written and shared.end < leader.start:
            return StopMember(
                f"it has the log up to {shared.end}, its leader's begins at {leader.start}",
                "put its store aside, and have it copied anew",
            )
        return shared.end

    def match(self, written: int) -> None:
        self.is_matched, self.cutting = True, None
        self.expected, self.confirmed = written, 0

    def has_cut(self, written: int) -> bool:
        """Whether the cut that was asked for is made."""
        return self.cutting is not None and written <= self.cutting

    def takes(self, said: Records) -> bool:
        """Whether these bytes go to the end of our log; then the next ones are expected behind them."""
        self.confirmed = max(self.confirmed, said.confirmed)
        if not said.data or said.position != self.expected:
            return False
        self.expected += len(said.data)
        return True
