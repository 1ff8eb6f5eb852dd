"""One task's rows on their way: read, named, encoded, divided by destination, sent, and answered.

Rules of this file
1. An Arrow batch is checked as a whole before anything of it is sent.
2. The broker of a row follows from what names it (the partition, the row key, the sharding key) and from the set of brokers that the
   epoch began with. The queue follows only where the row asks for one; else requests take turns: a repeat may meet another queue.
3. Nothing is finished while an answer is missing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from orbitmq.client.options import Codec
from orbitmq.client.sending.outgoing import COMPRESSIONS
from orbitmq.errors import MessageIllegalError, StaleEpochError
from orbitmq.limits.spark import SPARK_BATCH_MESSAGES_MAX, SPARK_ENCODED_BYTES, SPARK_EQUAL_ROWS_MAX
from orbitmq.protocol.batches import decode_batch
from orbitmq.protocol.compression import compress
from orbitmq.protocol.javahash import java_hash
from orbitmq.protocol.remoting.idempotence_bodies import FinishEpoch
from orbitmq.protocol.sysflag import with_compression
from orbitmq.spark.writing.encoding import CheckedRows, Ints, RowReader, ScopeIdentity, members
from orbitmq.spark.writing.equal_rows import EqualRows
from orbitmq.spark.writing.row_hashes import Words
from orbitmq.spark.writing.scopes import BrokerSet, Writer, begun, brokers_of, queue_places, share_of
from orbitmq.spark.writing.sending import Frame, RowSink
from orbitmq.spark.writing_options import WriteOptions

log = logging.getLogger("orbitmq.spark")

COMPRESS_FROM_BYTES: Final = 4_096
"""As the client's producers do; smaller bodies gain little."""

MARK_MASK: Final = (1 << 63) - 1

UniqueIds = Callable[[int], tuple[str, int]]
"""`UniqueIds.several`."""


class RowMark(NamedTuple):
    """What a task sent to one broker in one scope, whatever the order: count and sum of the rows' numbers."""

    rows: int
    total: int

    def plus(self, other: RowMark) -> RowMark:
        return RowMark(self.rows + other.rows, (self.total + other.total) & MARK_MASK)

    @property
    def number(self) -> int:
        return (self.total * 0x9E3779B97F4A7C15 + self.rows) & MARK_MASK


Marks = dict[tuple[str, str, str], RowMark]
"""By topic, scope and broker."""


NO_SCOPE: Final = "/@"
"""No scope of a writer begins so: who asks for such only hears whether the brokers are ours."""


class Destination(NamedTuple):
    """Where the rows of one topic go. brokers: those of the epoch. ours: whether all of them are orbitmq's: they recognise repeats, and
    take batches of rows with times of their own. Not asked, and False, where it makes no difference."""

    brokers: BrokerSet
    scope: str | None
    ours: bool


class TaskWriter:
    """Writes the rows of one task. Plain Python around the `RowSink`, so that tests drive it without Spark."""

    def __init__(
        self,
        options: WriteOptions,
        places: dict[str, int],
        writer: Writer | None,
        part: int,
        sink: RowSink,
        unique_ids: UniqueIds,
    ) -> None:
        """writer: None without dedup. part: the number of the partition."""
        self._options = options
        self._writer = writer
        self._part = part
        self._sink = sink
        self._unique_ids = unique_ids
        self._place = f"partition {part}"
        self._by_key = writer is not None and options.row_key is not None
        self._reader = RowReader(
            places,
            topic=options.topic,
            max_message_bytes=options.max_message_bytes,
            place=self._place,
            by_key=self._by_key,
            numbered=writer is not None,
        )
        self._may_wait = bool({"deliverTimestamp", "delaySeconds"} & places.keys())
        self._equal = EqualRows()
        self._destinations: dict[str, Destination] = {}
        self._marks: Marks = {}
        self._turns: dict[tuple[str, int], int] = {}
        self._row_count = 0

    def write(self, batches: Iterable[pa.RecordBatch]) -> tuple[int, Marks]:
        """Send all rows and wait for every answer. How many there were, and the marks of what was sent under a scope."""
        for batch in batches:
            checked: list[CheckedRows] = []
            for piece in _pieces_of(batch, self._reader.body_place):
                checked.append(self._reader.read(piece, self._row_count))
                self._row_count += piece.num_rows
            for rows in checked:
                self._write_rows(rows)
        over = self._sink.finish()
        writer = self._writer
        if writer is not None and writer.ends and not self._by_key:
            end_epochs(self._sink, writer, self._marks, over)
        return self._row_count, self._marks

    # --- rows -------------------------------------------------------------------------------------------------------

    def _write_rows(self, rows: CheckedRows) -> None:
        counts = self._counts(rows)
        if rows.topics is None:
            assert self._options.topic is not None
            self._write_topic(self._options.topic, rows, counts)
            return
        encoded = rows.topics.dictionary_encode()
        codes = np.asarray(encoded.indices)
        for code, topic in enumerate(encoded.dictionary.to_pylist()):
            chosen = np.flatnonzero(codes == code)
            self._write_topic(topic, _taken(rows, chosen), counts[chosen])

    def _counts(self, rows: CheckedRows) -> Ints:
        """How many equal rows came before each. Two rows with one row key are a mistake: `MessageIllegalError`."""
        if self._writer is None:
            return np.zeros(len(rows.bodies), np.int64)
        counts = self._equal.count(rows.numbers)
        if self._by_key and counts.any():
            row = int(np.flatnonzero(counts)[0])
            raise MessageIllegalError(
                f"row {rows.first + row} of {self._place} has the row key of an earlier row",
                remedy=f"the column {self._options.row_key!r} of option rowKey names one row of a batch: choose another, or drop "
                "duplicates",
            )
        if len(counts) and int(counts.max()) > SPARK_EQUAL_ROWS_MAX:
            raise MessageIllegalError(
                f"{self._place} has more than {SPARK_EQUAL_ROWS_MAX} equal rows",
                remedy="divide it into more partitions",
            )
        return counts

    def _write_topic(self, topic: str, rows: CheckedRows, counts: Ints) -> None:
        destination = self._destination(topic)
        rows, packed = self._compressed(rows)
        writer = self._writer
        identity = (
            ScopeIdentity()
            if writer is None or destination.scope is None
            else ScopeIdentity(destination.scope, writer.epoch, self._part)
        )
        items = members(rows, identity, counts, self._unique_ids(len(rows.bodies)), self._place)
        brokers, queues = self._places(topic, rows, destination)
        if identity.scope is not None:
            self._mark(topic, identity.scope, destination.brokers, brokers, rows.numbers)
        ordered = np.asarray(pc.is_valid(rows.ordering)) if rows.ordering is not None else None
        if rows.queues is not None:
            named = rows.queues >= 0
            ordered = named if ordered is None else ordered | named
        single = _single(rows, items, destination.ours, self._options.max_message_bytes)
        runs = None if ordered is None else _runs(brokers, queues, [packed, single], ordered)
        kinds = (brokers, queues, runs, packed, single, ordered)
        columns = [column for column in kinds if isinstance(column, np.ndarray)]
        for chosen in _groups(columns, len(items)):
            row = 0 if chosen is None else int(chosen[0])
            group = RoutedRows(
                items if chosen is None else items.take(pa.array(chosen)),
                chosen,
                destination.brokers.names[int(brokers[row]) if isinstance(brokers, np.ndarray) else brokers],
                int(brokers[row]) if isinstance(brokers, np.ndarray) else brokers,
                int(queues[row]) if isinstance(queues, np.ndarray) else -1,
                packed is not None and bool(packed[row]),
                single is not None and bool(single[row]),
                ordered is not None and bool(ordered[row]),
            )
            self._send(topic, rows, destination, group)

    def _places(
        self, topic: str, rows: CheckedRows, destination: Destination
    ) -> tuple[np.ndarray[Any, Any] | int, np.ndarray[Any, Any] | None]:
        """The broker of each row, as a place in the set, or the one of all; and the queue, -1 for any."""
        brokers = destination.brokers
        count = len(brokers.names)
        epoch = 0 if self._writer is None else self._writer.epoch
        chosen: np.ndarray[Any, Any] | int
        if count == 1:
            chosen = 0
        elif self._by_key:
            chosen = (rows.numbers % np.uint64(count)).astype(np.int64)
        else:
            chosen = share_of(self._part, epoch, brokers)
        queues = rows.queues
        if rows.brokers is not None and rows.brokers.null_count < len(rows.bodies):
            chosen = self._named_brokers(topic, rows, brokers, chosen)
        if queues is not None:
            of_row = np.asarray(brokers.queue_counts)[chosen]
            wrong = queues >= of_row
            if wrong.any():
                row = int(wrong.argmax())
                raise MessageIllegalError(
                    f"row {rows.first + row} of {self._place} has queueId {queues[row]}, and topic {topic!r} has "
                    f"{of_row if np.ndim(of_row) == 0 else of_row[row]} queues at its broker",
                    remedy="leave the column out, or give the topic more queues",
                )
        if rows.ordering is not None and rows.ordering.null_count < len(rows.bodies):
            encoded = rows.ordering.dictionary_encode()
            places = np.asarray(
                queue_places([java_hash(key) for key in encoded.dictionary.to_pylist()], brokers), np.int64
            )
            codes = np.asarray(pc.fill_null(encoded.indices, 0))
            keyed = np.asarray(pc.is_valid(rows.ordering))
            free = np.full(len(codes), -1, np.int64) if queues is None else queues
            keyed = keyed & (free < 0)  # who names a queue gets that one
            chosen = np.where(keyed, places[codes, 0], chosen)
            queues = np.where(keyed, places[codes, 1], free)
        return chosen, queues

    def _named_brokers(
        self, topic: str, rows: CheckedRows, brokers: BrokerSet, otherwise: np.ndarray[Any, Any] | int
    ) -> np.ndarray[Any, Any]:
        assert rows.brokers is not None
        encoded = rows.brokers.dictionary_encode()
        known = {name: place for place, name in enumerate(brokers.names)}
        places = np.asarray([known.get(name, -1) for name in encoded.dictionary.to_pylist()], np.int64)
        found = places[np.asarray(pc.fill_null(encoded.indices, 0))]
        named = np.asarray(pc.is_valid(rows.brokers))
        missing = named & (found < 0)
        if missing.any():
            row = int(missing.argmax())
            raise MessageIllegalError(
                f"row {rows.first + row} of {self._place} has brokerName {rows.brokers[row].as_py()!r}, and topic {topic!r} is "
                f"written at {', '.join(brokers.names)}",
                remedy="leave the column out, or give the topic queues at that broker",
            )
        return np.where(named, found, otherwise)

    def _destination(self, topic: str) -> Destination:
        known = self._destinations.get(topic)
        if known is None:
            known = self._destinations[topic] = self._find(topic)
        return known

    def _find(self, topic: str) -> Destination:
        writer = self._writer
        if writer is None:
            known = self._sink.known(topic, NO_SCOPE if self._may_wait else "")
            ours = self._may_wait and known.scopes is not None
            return Destination(brokers_of(known.queue_counts, self._part), None, ours)
        known = self._sink.known(topic, writer.prefix(topic))
        if known.scopes is None:
            at_least_once(topic)
        earlier = begun(writer, known.scopes or (), topic)
        brokers = earlier or brokers_of(known.queue_counts, writer.epoch)
        return Destination(brokers, writer.scope(topic, brokers), known.scopes is not None)

    def _compressed(self, rows: CheckedRows) -> tuple[CheckedRows, np.ndarray[Any, Any] | None]:
        """Rows with compressed bodies where that makes them smaller, and which these are."""
        if self._options.compression == "none":
            return rows, None
        long = np.flatnonzero(np.asarray(pc.binary_length(rows.bodies)) >= COMPRESS_FROM_BYTES)
        if not len(long):
            return rows, None
        kind = COMPRESSIONS[Codec(self._options.compression)]
        bodies = rows.bodies.to_pylist()
        packed = np.zeros(len(bodies), np.bool_)
        for row in long.tolist():
            body = compress(bodies[row], kind)
            if len(body) < len(bodies[row]):
                bodies[row], packed[row] = body, True
        return rows._replace(bodies=pa.array(bodies, pa.binary())), packed

    # --- requests ---------------------------------------------------------------------------------------------------

    def _send(self, topic: str, rows: CheckedRows, destination: Destination, group: RoutedRows) -> None:
        timed = rows.timed is not None and bool(
            (rows.timed if group.chosen is None else rows.timed[group.chosen]).any()
        )
        sys_flag = with_compression(0, COMPRESSIONS[Codec(self._options.compression)]) if group.packed else 0
        limit = 1 if group.single else SPARK_BATCH_MESSAGES_MAX
        frames: list[Frame] = []
        for begin, end, body in _cut(group.items, 0 if group.single else self._options.batch_bytes, limit):
            first = rows.first + (begin if group.chosen is None else int(group.chosen[begin]))
            queue_id = self._queue(topic, destination.brokers, group)
            frame = Frame(
                topic, group.broker, queue_id, body, first, end - begin, sys_flag,
                is_timed=timed, is_ordered=group.ordered,
            )  # fmt: skip
            if group.single:
                flag, data, properties = decode_batch(body)[0]
                frame = frame._replace(body=data, properties=properties.decode(), flag=flag)
            frames.append(frame)
        self._sink.send(frames)

    def _queue(self, topic: str, brokers: BrokerSet, group: RoutedRows) -> int:
        if group.queue >= 0:
            return group.queue
        place = topic, group.place
        turn = self._turns.get(place)
        if turn is None:
            turn = self._part + (0 if self._writer is None else self._writer.epoch)
        self._turns[place] = turn + 1
        return turn % brokers.queue_counts[group.place]

    def _mark(
        self, topic: str, scope: str, brokers: BrokerSet, places: np.ndarray[Any, Any] | int, numbers: Words
    ) -> None:
        for place, name in enumerate(brokers.names):
            mine = numbers[places == place] if isinstance(places, np.ndarray) else numbers if places == place else None
            if mine is not None and len(mine):
                mark = RowMark(len(mine), int(mine.sum(dtype=np.uint64)) & MARK_MASK)
                key = topic, scope, name
                self._marks[key] = mark.plus(self._marks.get(key, RowMark(0, 0)))


class RoutedRows(NamedTuple):
    """Rows with one destination. chosen: their places, None for all. queue: -1 for any."""

    items: pa.Array
    chosen: np.ndarray[Any, Any] | None
    broker: str
    place: int
    queue: int
    packed: bool
    single: bool
    ordered: bool


def end_epochs(sink: RowSink, writer: Writer, marks: Marks, over: frozenset[tuple[str, str]]) -> None:
    """Tell the brokers that everything was sent. `StaleEpochError` when an earlier attempt had other rows."""
    for (topic, scope, broker), mark in marks.items():
        end = FinishEpoch(scope=scope, epoch=writer.epoch, mark=mark.number, brief=writer.brief)
        try:
            sink.end_epoch(topic, broker, end, needed=(topic, broker) in over)
        except StaleEpochError as error:
            raise StaleEpochError(
                error.code,
                f"{writer.who} was written to topic {topic!r} before, at broker {broker}, with other rows than the {mark.rows} "
                "of now",
                address=error.address,
                remedy="give a job with other rows another idempotencyKey (in foreachBatch under Spark Connect one that holds the id of "
                "the batch, which Spark does not tell its tasks there); where the same rows come in other partitions, name them by the "
                "option rowKey",
            ) from error


_warned: set[str] = set()


def at_least_once(topic: str) -> None:
    """Say once in this process that repeats of tasks are stored again."""
    if topic not in _warned:
        _warned.add(topic)
        log.warning(
            "a broker of topic %s does not recognise repeated sends: rows of tasks that are repeated are stored again "
            "(at least once); each message has its key in the property ORBITMQ_ONCE_KEY",
            topic,
        )


def _single(rows: CheckedRows, items: pa.Array, ours: bool, bytes_max: int) -> np.ndarray[Any, Any] | None:
    """Rows that no batch takes: those with a delay level, at other brokers than ours those with a time, and those of the largest bodies:
    brokers hold a batch to the bound of a body, and it has what stands beside the body as well."""
    large = np.asarray(pc.binary_length(items)) > bytes_max
    single = rows.leveled
    if large.any():
        single = large if single is None else single | large
    if rows.timed is not None and not ours:
        single = rows.timed if single is None else single | rows.timed
    return single


def _runs(
    brokers: np.ndarray[Any, Any] | int,
    queues: np.ndarray[Any, Any] | None,
    ways: Sequence[np.ndarray[Any, Any] | None],
    ordered: np.ndarray[Any, Any],
) -> np.ndarray[Any, Any] | None:
    """For rows that keep an order: a number that rises along a queue wherever one travels in another way than the one before it. Rows of a
    number go together, and those of a lower one before. None where all travel alike."""
    used = [way for way in ways if way is not None and way.any()]
    if not used:
        return None
    count = len(ordered)
    way_of = np.zeros(count, np.int64)
    for way in used:
        way_of = way_of * 2 + way
    order = np.lexsort((np.broadcast_to(-1 if queues is None else queues, count), np.broadcast_to(brokers, count)))
    runs: np.ndarray[Any, Any] = np.empty(count, np.int64)
    runs[order] = np.cumsum(np.concatenate(([False], np.diff(way_of[order]) != 0)))
    return np.where(ordered, runs, 0)


def _groups(columns: Sequence[np.ndarray[Any, Any]], count: int) -> Iterator[np.ndarray[Any, Any] | None]:
    """The rows of each combination of values, in their order; None for all rows when there is one combination."""
    different = [column for column in columns if count and (column != column[0]).any()]
    if not different:
        if count:
            yield None
        return
    codes = np.zeros(count, np.int64)
    for column in different:
        values, code = np.unique(column, return_inverse=True)
        codes = codes * len(values) + code
    order = np.argsort(codes, kind="stable")
    bounds = np.flatnonzero(np.diff(codes[order])) + 1
    yield from np.split(order, bounds)


def _taken(rows: CheckedRows, chosen: np.ndarray[Any, Any]) -> CheckedRows:
    """Some of the rows; `first` stays, so places in errors are those of the topic's rows."""
    places = pa.array(chosen)

    def pick(column: Any) -> Any:
        if column is None:
            return None
        if isinstance(column, np.ndarray):
            return column[chosen] if len(column) > 1 or len(rows.bodies) == 1 else column
        return column.take(places)

    return CheckedRows(rows.first, *(pick(column) for column in rows[1:]))


def _cut(items: pa.Array, limit_bytes: int, limit_count: int) -> Iterator[tuple[int, int, memoryview]]:
    """Runs of members of about that size, at least one member each: where they begin and end, and their bytes."""
    _, offsets_buffer, data = items.buffers()
    offsets = np.frombuffer(offsets_buffer, np.int32, len(items) + 1, 4 * items.offset)
    view, begin = memoryview(data), 0
    while begin < len(items):
        end = int(np.searchsorted(offsets, offsets[begin] + limit_bytes, "right")) - 1
        end = min(max(end, begin + 1), begin + limit_count, len(items))
        yield begin, end, view[int(offsets[begin]) : int(offsets[end])]
        begin = end


def _pieces_of(batch: pa.RecordBatch, body_place: int) -> Iterator[pa.RecordBatch]:
    """An Arrow batch in pieces of some megabytes."""
    count = batch.num_rows
    if not count:
        return
    size = batch.column(body_place).nbytes
    step = max(1, count if size <= SPARK_ENCODED_BYTES else count * SPARK_ENCODED_BYTES // size)
    for begin in range(0, count, step):
        yield batch.slice(begin, min(step, count - begin))
