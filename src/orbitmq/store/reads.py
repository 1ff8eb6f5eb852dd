"""Reading for the owner of the store: what is in memory at once, everything else on the worker.

Rules of this file
1. The owner's thread never waits for the disk: the system tells what is in memory, and what is not is read by a job.
2. What the system says is in memory leaves as views of the mapping, everything else is copied by positioned reads. What this process
   did not write lately is checked before it is served.
3. A read that fails is the error of whoever asked. Only a record that was read whole and failed its check is passed over; it is
   counted and reported.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, cast

import msgspec

from orbitmq.clock import Clock
from orbitmq.errors import JobRefusedError
from orbitmq.limits.store import FETCH_ROUNDS_MAX, FETCHED_BYTES_MAX, REGION_KNOWN_NS, REGIONS_KNOWN_MAX
from orbitmq.protocol.checksum import crc32
from orbitmq.store import reading
from orbitmq.store.commit_log import NOT_HAD, CommitLog
from orbitmq.store.files import Buffer
from orbitmq.store.queues import ConsumeQueues
from orbitmq.store.reading import Cold, GetResult, Records
from orbitmq.store.segments import Segment

logger = logging.getLogger("orbitmq.store")

WARM_WINDOW_BYTES: Final = 512 * 1024 * 1024
"""The newest part of the log needs no check when this process wrote it; what is older is checked before it is served."""

REGION_BYTES: Final = 1024 * 1024
"""The system is asked about so much of a mapping at once: asking costs 2.4 us for a page and 3 us for this, 25 us before its first use."""


NEAR_BYTES: Final = 4 * REGION_BYTES
"""Records in a stretch of this size are taken from the mapping; where they lie farther apart, a copy of each costs less than asking."""

AHEAD_BYTES: Final = 8 * REGION_BYTES
"""Fetched from the disk at once for who reads on: 10 ms of a disk with 800 MB a second, and what 8,000 messages of 1 KB take."""


Submit = Callable[[Callable[[], object], Callable[[object], None]], None]
ReadProblem = OSError | JobRefusedError
"""Why something could not be read."""

Fetched = bytes | ReadProblem | None


class RecordsNotInMemory(Exception):
    """Records at these log positions have to be fetched from the disk: `Reads.fetch`, then ask again."""

    def __init__(self, positions: Sequence[int]) -> None:
        super().__init__(f"records at {positions[0]} and {len(positions) - 1} others are not in memory")
        self.positions = tuple(positions)


def being_fetched(position: int) -> OSError:
    """Why a damaged record is neither served nor passed over."""
    return OSError(errno.EIO, f"the record at {position} is damaged here, and asked for at another copy")


def _nobody_has_it(position: int) -> bool:
    return False


class Reads:
    """All reading of one store, by its owner."""

    def __init__(self, log: CommitLog, queues: ConsumeQueues, clock: Clock) -> None:
        self._log = log
        self._queues = queues
        self._clock = clock
        self._written_from = log.written_end
        self._regions: dict[int, int] = {}
        self._ahead = 0, 0
        """What the system was told lately to fetch for who reads on, from, to."""
        self._fetched: dict[int, Fetched] = {}
        """What was fetched for the request that is being handled again."""
        self._rounds = 0
        """How often it was."""
        self.damaged = 0
        """Records that failed their check when read; each was reported and not served."""
        self.failed = 0
        """Reads that failed; whoever asked was told."""
        self.suspect: Callable[[int], bool] = _nobody_has_it
        """Told of a log position whose record failed its check or cannot be read. True: another copy may have it, and whoever asked is to
        ask again."""

    @property
    def warm_from(self) -> int:
        """Log position from which on this process wrote everything, and lately."""
        return max(self._written_from, self._log.written_end - WARM_WINDOW_BYTES)

    # --- messages of a queue ----------------------------------------------------------------------------------------

    def get(
        self, topic: str, queue_id: int, offset: int, max_count: int, max_bytes: int, accepts: reading.Accepts
    ) -> GetResult:
        """See `MessageStore.get`."""
        queue = self._queues.get(topic, queue_id)
        if queue is None:
            return reading.no_queue()
        return reading.get_records(self._log, queue, offset, max_count, max_bytes, accepts, self._in_memory)

    def _in_memory(self, spans: list[tuple[int, int]]) -> Records | None:
        """See `reading.InMemory`."""
        log, begin, end = self._log, spans[0][0], spans[-1][1]
        if (end - begin <= NEAR_BYTES or len(spans) == 1) and end <= log.readable_end:
            segment = log.sequence.find(begin)
            if segment is not None and end <= segment.end and self._is_mapped(segment, begin, end):
                check = None if begin >= self.warm_from else crc32
                return cast(Records | None, reading.log_slices(segment.view, segment.base, spans, check))
        return self._copied(spans)

    def _copied(self, spans: list[tuple[int, int]]) -> Records | None:
        """As `_in_memory`, one copy for each span: where the records lie far apart, or the system does not tell about a mapping."""
        log, warm_from = self._log, self.warm_from
        records: Records = []
        for begin, end in spans:
            segment = log.sequence.find(begin)
            if segment is None or end > min(segment.end, log.readable_end):
                return None
            data = segment.file.pread_now(end - begin, begin - segment.base)
            if data is None or (
                begin < warm_from and reading.sound_prefix(memoryview(data), begin, crc32) != end - begin
            ):
                return None
            records.append(data)
        return records

    def _is_mapped(self, segment: Segment, begin: int, end: int) -> bool:
        """Whether a range can be sent from the mapping now."""
        regions = self._regions
        now_ns = self._clock.monotonic_ns()
        for region in range(begin // REGION_BYTES, (end - 1) // REGION_BYTES + 1):
            if regions.get(region, 0) > now_ns:
                continue
            first = max(region * REGION_BYTES, segment.base)
            last = min((region + 1) * REGION_BYTES, segment.end, self._log.written_end)
            if segment.file.size() < segment.size:  # a page beyond the end may still count as one in memory
                return False
            if not reading.is_in_memory(segment.view, first - segment.base, last - segment.base):
                return False
            self._note(region, now_ns + REGION_KNOWN_NS)
        return True

    def _note(self, region: int, known_until_ns: int) -> None:
        if len(self._regions) >= REGIONS_KNOWN_MAX:
            self._regions.clear()
        self._regions[region] = known_until_ns

    def _to_fetch(self, spans: list[tuple[int, int]]) -> tuple[int, int]:
        """From where on, and how many bytes, the system is to fetch for a read of these spans: all of them at once where they are near
        each other, and what follows where somebody read just before them."""
        begin, end = spans[0][0], spans[-1][1]
        region = begin // REGION_BYTES
        first, until = self._ahead
        if first <= begin < until - AHEAD_BYTES // 2:
            return begin, 0  # it is on its way
        if first <= begin < until:
            self._ahead = first, until + AHEAD_BYTES
            return until, AHEAD_BYTES
        if region in self._regions or region - 1 in self._regions:
            self._ahead = region * REGION_BYTES, region * REGION_BYTES + AHEAD_BYTES
            return region * REGION_BYTES, AHEAD_BYTES
        self._note(region, 0)
        return begin, end - begin if end - begin <= NEAR_BYTES else 0

    def read_cold(self, submit: Submit, result: GetResult, done: Callable[[GetResult | ReadProblem], None]) -> None:
        """See `MessageStore.read_cold`."""
        cold = result.cold
        assert cold is not None
        if cold.units is not None:
            submit(cold.units, lambda units: self._resume(submit, cold, units, done))
        else:
            fetched = self._to_fetch(cold.spans)
            submit(lambda: self._read(cold, *fetched), lambda read: self._settle(result, cold, read, done))

    def _resume(
        self, submit: Submit, cold: Cold, units: object, done: Callable[[GetResult | ReadProblem], None]
    ) -> None:
        """Units of the queue have been read: go on with the records that they name."""
        if isinstance(units, bytes | bytearray):
            assert cold.resume is not None
            try:
                result = cold.resume(units)
            except OSError as error:
                done(self._failure(error))
                return
            if result.cold is not None:
                self.read_cold(submit, result, done)
            else:
                done(result)
        else:
            done(self._failure(units))

    def _read(self, cold: Cold, fetched_from: int, fetched_bytes: int) -> Records | reading.ColdRead:
        """On the worker: all spans, or record by record up to the first that fails its check. The system fetches more meanwhile."""
        self._log.will_need(fetched_from, fetched_bytes)
        return reading.read_spans(self._log, cold) or reading.read_and_verify(self._log, cold.ranges)

    def _settle(
        self, result: GetResult, cold: Cold, read: object, done: Callable[[GetResult | ReadProblem], None]
    ) -> None:
        if isinstance(read, list):
            done(msgspec.structs.replace(result, records=read, cold=None))
        elif isinstance(read, reading.ColdRead):
            if read.damaged_at is not None:
                self.damaged += 1
                logger.error("the record at %d fails its check and is not served", read.damaged_at)
                if self.suspect(read.damaged_at) and not read.records:
                    done(self._failure(being_fetched(read.damaged_at)))
                    return
            done(reading.settle_cold(result, cold, read))
        else:
            if isinstance(read, OSError):
                for begin, _ in cold.spans:
                    self.suspect(begin)
            done(self._failure(read))

    def _failure(self, problem: object) -> ReadProblem:
        """What a read failed with, as the error of whoever asked."""
        self.failed += 1
        if isinstance(problem, OSError | JobRefusedError):
            return problem
        return OSError(errno.EIO, f"{type(problem).__name__}: {problem}")

    # --- records by position ----------------------------------------------------------------------------------------

    def record_at(self, position: int) -> Buffer | None:
        """See `MessageStore.record_at`."""
        record = self._had(position)
        if record is NOT_HAD:
            raise RecordsNotInMemory([position])
        if record is None or self._is_sound(record, position, reading.names_place(record, position)):
            return cast(Buffer | None, record)
        return None

    def records_at(self, positions: Sequence[int]) -> Iterator[Buffer]:
        """See `MessageStore.records_at`."""
        for number, position in enumerate(positions):
            record = self._had(position)
            if record is NOT_HAD:
                raise RecordsNotInMemory(positions[number:])
            if self._is_sound(record, position, is_place=True):
                yield record

    def _is_sound(self, record: Buffer | None, position: int, is_place: bool) -> bool:
        """Whether this may be answered; OSError where another copy is asked for it. `is_place`: a record is known to begin there, whatever
        a client says: damage is named."""
        if record is not None and reading.is_sound(record, position):
            return True
        if is_place and self.suspect(position):
            raise being_fetched(position)
        return False

    def head_at(self, position: int) -> Buffer | None:
        """See `reading.HeadAt`. Raises as `record_at`."""
        if position not in self._fetched:
            if self._log.room_at(position) < reading.HEAD_BYTES:
                return None
            head = self._log.read_now(position, reading.HEAD_BYTES)
            if head is not None:
                return head
        record: Any = self._had(position)
        if record is NOT_HAD:
            raise RecordsNotInMemory([position])
        return cast(Buffer | None, record)

    def _had(self, position: int) -> Any:
        """The record at a position, unchecked; None when there is none; NOT_HAD when the disk must be asked."""
        if position in self._fetched:
            fetched = self._fetched[position]
            if isinstance(fetched, OSError | JobRefusedError):
                raise fetched
            return fetched
        return self._log.record_now(position) if self._rounds < FETCH_ROUNDS_MAX else self._log.record(position)

    def fetch(self, submit: Submit, missing: RecordsNotInMemory, again: Callable[[], None]) -> None:
        """Have the worker read what was missing, then run `again`: within it the records are there, or raise what they could not be
        read for."""
        known, log, round_number = dict(self._fetched), self._log, self._rounds + 1

        def job() -> dict[int, Fetched]:
            found: dict[int, Fetched] = {}
            room = FETCHED_BYTES_MAX
            for position in missing.positions:
                try:
                    record: Fetched = log.record(position)
                except OSError as error:
                    record = error
                found[position] = record
                room -= len(record) if isinstance(record, bytes) else 0
                if room < 0:
                    break
            return found

        def done(found: object) -> None:
            if isinstance(found, dict):
                self.failed += sum(isinstance(record, OSError) for record in found.values())
                known.update(found)
            else:
                known.update(dict.fromkeys(missing.positions, self._failure(found)))
            before, self._fetched = self._fetched, known
            rounds, self._rounds = self._rounds, round_number
            try:
                again()
            finally:
                self._fetched, self._rounds = before, rounds

        submit(job, done)
