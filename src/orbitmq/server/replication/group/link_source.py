"""What a member says of itself and of its log to the others: who it is, what may be sent, where they are.

Rules of this file
1. Where the others are the engine says; what was heard last is kept, so that a group finds itself while the engine is away.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from orbitmq.clock import Clock
from orbitmq.protocol.records import BLANK_BYTES_MIN, CheckStatus, check_record
from orbitmq.protocol.replication.member_frames import HELLO_KIND, LINK_VERSION, MemberHello, encode_frame
from orbitmq.replication import replica_steps as steps
from orbitmq.replication.classic.log_extent import LogExtent, LogRead
from orbitmq.replication.classic.whole_records import unsound_at
from orbitmq.replication.replica import Replica
from orbitmq.replication.replica_steps import FollowSession
from orbitmq.server.process.surroundings import Surroundings
from orbitmq.store.store import MessageStore
from orbitmq.store.worker import Worker


class OwnName(NamedTuple):
    """Who this member is: `store` is the id of its directory, `claim` its process."""

    cluster: str
    group: str
    name: str
    store: str
    claim: str


class LinkSource:
    """What senders ask of a member: its log, what it says of itself, and where others are."""

    def __init__(
        self,
        process: Surroundings,
        store: MessageStore,
        own: OwnName,
        worker: Worker,
        *,
        places: Callable[[], Mapping[str, str]],
        suspect: Callable[[int], bool],
        refused: Callable[[str], None],
        address_failed: Callable[[str], None],
    ) -> None:
        """`places()`: ports for members, by their names. `suspect(position)`: what was to be sent is no sound record. `refused(name)`: no
        process of that member is there. `address_failed(name)`: it may be elsewhere by now."""
        self.clock: Final[Clock] = process.clock
        self.own: Final = own
        self._places = places
        self.replica: Replica | None = None
        self.refused: Final = refused
        self.address_failed: Final = address_failed
        self.tls: Final[Callable[[], ssl.SSLContext | None]] = process.calling.tls
        self._credentials = process.calling.credentials
        self._store = store
        self._worker = worker
        self._suspect = suspect
        self._read: tuple[int, LogRead, bytes] = 0, LogRead(0, 0), b""
        """Epoch, place and bytes of the last read: the next follower wants the same."""

    @property
    def places(self) -> Mapping[str, str]:
        """Ports for members, by their names."""
        return self._places()

    def address_of(self, name: str) -> str:
        """Empty where nobody said it."""
        return self.places.get(name, "")

    def hello(self, to: str, nonce: bytes) -> bytes:
        """The frame that says who we are."""
        own, epoch = self.own, 0 if self.replica is None else self.replica.epoch
        said = MemberHello(LINK_VERSION, own.cluster, own.group, own.name, to, own.store, own.claim, epoch)
        if self._credentials is not None:
            said = said.proved(nonce, self._credentials.secret_key)
        return encode_frame(HELLO_KIND, said)

    def records(self, session: FollowSession, position: int, data: bytes) -> steps.Records:
        replica = self.replica
        assert replica is not None, "a stream is the leader's"
        confirmed, now_ms = replica.confirmed, self.clock.now_ms()
        return steps.Records(replica.name, replica.epoch, session, position, data, confirmed, now_ms)

    def acknowledged(self, name: str) -> int | None:
        return None if self.replica is None else self.replica.counting.end_of(name)

    # --- the log --------------------------------------------------------------------------------------------------------

    def extent(self) -> LogExtent:
        log = self._store.log
        return LogExtent(log.start, log.written_end, log.sequence.segment_size)

    def begins_record(self, position: int) -> bool:
        """Whether a sound record of ours begins there, or the filler of a file, or the log ends. Two reads that may wait for the disk, once
        for each session. Raises OSError."""
        log = self._store.log
        if position in (log.start, log.written_end):
            return True
        head = log.read_written(position, BLANK_BYTES_MIN)
        data = None if head is None else log.read_written(position, int.from_bytes(head[:4], "big"))
        if data is None:
            return False
        found = check_record(memoryview(data), 0, len(data), expect_physical_offset=position).status
        return found in (CheckStatus.VALID, CheckStatus.BLANK)

    def read_now(self, read: LogRead) -> bytes | None:
        """None where it is not in memory."""
        epoch = 0 if self.replica is None else self.replica.epoch
        if self._read[:2] == (epoch, read):  # within an epoch nothing of a leader's log is cut
            return self._read[2]
        data = self._store.log.read_written_now(read.position, read.size)
        if data is None:
            return None
        self._read = epoch, read, bytes(data)
        return self._read[2]

    def read_cold(self, read: LogRead, done: Callable[[bytes | str], None]) -> None:
        """`done` is told the bytes, or why there are none."""
        log = self._store.log

        def was_read(data: bytes | BaseException | None) -> None:
            if isinstance(data, bytes) and len(data) == read.size:
                done(data)
            else:
                self._suspect(read.position)
                done(f"the log at {read.position}: {data if isinstance(data, BaseException) else 'it is gone'}")

        self._worker.submit(lambda: log.read_written(read.position, read.size), was_read)

    def damaged_at(self, position: int, data: bytes) -> int | None:
        """What was not written by this process lately is checked before it is sent: where a record of it is damaged."""
        damaged_at = unsound_at(data, position) if position < self._store.warm_from else None
        if damaged_at is not None:
            self._suspect(damaged_at)
        return damaged_at
