"""A machine of a group in a model: its disk, its process, and a log of records of one size.

Rules of this file
1. What is synced survives everything but a lost disk; of the rest a beginning survives a power cut, and all of it a kill.
2. Effects are done as a driver has to do them: in order, before the next step, and nothing else.
"""

from __future__ import annotations

import random
from collections import deque
from typing import Final

from orbitmq.replication.epoch_marks import EpochMark
from orbitmq.replication.member import TimedReplica
from orbitmq.replication.replica import Replica
from orbitmq.replication.replica_steps import FollowSession, Input, KeptEpoch, LogIs

RECORD_BYTES: Final = 8
MARKER, MESSAGE = b"M", b"m"


class ModelLog:
    def __init__(self) -> None:
        self.data = bytearray()
        self.synced = 0
        self.marks: list[EpochMark] = []

    def append_marker(self, epoch: int) -> None:
        self.append(MARKER + epoch.to_bytes(RECORD_BYTES - 1, "big"))

    def append_message(self, number: int) -> None:
        self.append(MESSAGE + number.to_bytes(RECORD_BYTES - 1, "big"))

    def append(self, data: bytes) -> None:
        """Whole records."""
        for at in range(0, len(data), RECORD_BYTES):
            if data[at : at + 1] == MARKER:
                epoch = int.from_bytes(data[at + 1 : at + RECORD_BYTES], "big")
                self.marks.append(EpochMark(epoch, len(self.data) + at))
        self.data += data

    def cut(self, to: int) -> None:
        del self.data[to:]
        self.synced = min(self.synced, to)
        while self.marks and self.marks[-1].start >= to:
            self.marks.pop()

    def state(self) -> LogIs:
        return LogIs(len(self.data), self.synced, tuple(self.marks))


class Machine:
    """`member` is None while no process runs. `kept` and `saved_confirmed` are on the disk."""

    def __init__(self, name: str, names: tuple[str, ...], rng: random.Random, *, in_memory: bool) -> None:
        self.name: Final = name
        self.names = names
        self.rng = rng
        self.in_memory = in_memory
        self.log = ModelLog()
        self.kept = KeptEpoch()
        self.saved_confirmed = 0
        self.boots = self.lives = 0
        self.life = f"{name}0"
        """Name of the process."""
        self.member: TimedReplica | None = None
        self.inputs: deque[Input] = deque()
        """What the process is told next."""
        self.is_paused = self.is_busy = False
        self.keeping_ms = 0
        """When what it keeps will be on the disk: one write after the other."""
        self.stopped = ""
        self.dispatched = 0
        self.streams: dict[str, tuple[FollowSession, int]] = {}
        """Where the log goes on for each follower."""
        self.waiting: list[int] = []
        """Ends of messages whose senders wait."""
        self.rate = rng.choice((1.0, 1.0, 0.9, 1.1))
        self.wall_off_ms = rng.choice((0, 0, 20, -700, 5_000))

    @property
    def confirmed(self) -> int:
        assert self.member is not None
        return self.member.replica.confirmed

    log_start = 0

    @property
    def log_end(self) -> int:
        return len(self.log.data)

    def log_bytes(self, begin: int, end: int) -> bytes:
        return bytes(self.log.data[begin:end])

    def now_ns(self, now_ms: int) -> int:
        return int(now_ms * self.rate * 1_000_000)

    def _live(self) -> None:
        self.lives += 1
        self.life = f"{self.name}{self.lives}"

    def start(self, now_ms: int) -> None:
        self._live()
        self.stopped, self.is_paused = "", False
        self.saved_confirmed = self.dispatched = min(self.saved_confirmed, len(self.log.data))
        if not self.in_memory:
            self.log.synced = len(self.log.data)  # as a start of a store does it
        replica = Replica(
            self.name,
            self.life,
            self.names,
            self.kept,
            self.log.state(),
            self.saved_confirmed,
            boot=f"boot{self.boots}",
            in_memory=self.in_memory,
        )
        self.member = TimedReplica(replica, self.now_ns(now_ms))

    def kill(self) -> None:
        self.member = None
        self._live()
        self.streams.clear()
        self.inputs.clear()
        self.waiting.clear()

    def power(self) -> None:
        self.kill()
        self.boots += 1
        records = (len(self.log.data) - self.log.synced) // RECORD_BYTES
        self.log.cut(self.log.synced + RECORD_BYTES * self.rng.randint(0, records))
        self.log.synced = len(self.log.data)

    def lose_disk(self) -> None:
        """Another disk, with nothing on it."""
        self.kill()
        self.boots += 1
        self.log, self.kept, self.saved_confirmed = ModelLog(), KeptEpoch(), 0
