"""Pulling ranges of queues into Arrow batches.

Rules of this file
1. No object is made for a message: a wave of pulls arrives in one buffer, and its records become columns together.
2. While a wave is decoded the next one is under way. The buffer is free when the batches are made: they copy what they keep.
3. Rows come in the order of the queue, each offset once. Tags are compared once more here, the broker knows their hash codes only.
4. What should be there and is not is a loss: an error, or with failOnDataLoss=false a warning. Nothing is passed over in silence.
5. After a failure of the connection the whole wave is asked for again; nothing of it has been given out.
"""

from __future__ import annotations

import logging
import struct
from array import array
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from orbitmq.client.answers import remote_error
from orbitmq.client.bulk.pull_template import PullTemplate
from orbitmq.client.consuming.pull_plan import PullStatus
from orbitmq.client.pulling.pull_request import PullRequest, queue_name
from orbitmq.columns.message_columns import PropertiesForm
from orbitmq.errors import (
    ClientError,
    ConnectionLostError,
    DamagedRecordError,
    DataLostError,
    OrbitError,
    RouteNotFoundError,
)
from orbitmq.limits.client import BULK_BUFFER_BYTES, BULK_PULLS_MAX, BULK_REQUEST_BYTES_MAX
from orbitmq.limits.columns import QUARANTINED_BYTES_MAX
from orbitmq.protocol.filtering.expression import SQL92, TAG
from orbitmq.protocol.filtering.tags import TagFilter
from orbitmq.protocol.records import RECORD_BYTES_MIN
from orbitmq.protocol.remoting.bodies import MessageQueue
from orbitmq.protocol.remoting.frame import Command
from orbitmq.spark.options import ReadOptions
from orbitmq.spark.reading.cluster import Cluster, cluster_of
from orbitmq.spark.reading.offsets import Extent, Loss
from orbitmq.spark.reading.plan import QueueRange
from orbitmq.spark.reading.range_pull import Ask, RangePull
from orbitmq.spark.reading.retrying import RetryClock, Retrying
from orbitmq.spark.reading.row_view import RowView, shaped

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

    from orbitmq.client.bulk.wave_connection import WaveConnection

log = logging.getLogger("orbitmq.spark")

_TAGS: Final = "tags"
_size_at: Final = struct.Struct(">i").unpack_from
_QUEUE_OFFSET_AT: Final = 20
"""Where in a record its queue offset stands, the same in every form of it."""
_PULL_CODES: Final[dict[int, PullStatus]] = {status.value: status for status in PullStatus}


class Fetch(msgspec.Struct, frozen=True, kw_only=True):
    """How to read, whatever the range; travels to the workers. Columns in the order of `names`, `properties` in their form; `view` makes
    others of them."""

    options: ReadOptions
    names: tuple[str, ...]
    properties: PropertiesForm
    view: RowView | None = None


class FetchedRecords(NamedTuple):
    """Records of one answer, in the line's buffer."""

    ask: Ask
    at: int
    end: int
    next_offset: int


def report(text: str, *, fail: bool, may_return: bool = False) -> None:
    """Raises `DataLostError` for messages that are not there, or warns of them. may_return: they may be there again soon."""
    if fail:
        raise DataLostError(
            text,
            may_return=may_return,
            remedy="set failOnDataLoss=false to go on with what is there, or begin again with other startingOffsets",
        )
    log.warning("%s; going on with what is there, because failOnDataLoss=false", text)


def loss_text(loss: Loss, address: str = "") -> str:
    """What is missing where, in one sentence."""
    queue = loss.queue
    wanted = f"offset {loss.begin}" if loss.end is None else f"offsets {loss.begin} to {loss.end - 1}"
    if loss.present is None:
        return f"data loss: {_place(queue, address)} is gone, a read stands there at {wanted}"
    held = "no message" if loss.present.low >= loss.present.high else f"{loss.present.low} to {loss.present.high - 1}"
    return f"data loss: {_place(queue, address)} should have {wanted}; it has {held}"


def _place(queue: MessageQueue, address: str) -> str:
    broker = f"{queue.broker_name!r}{f' ({address})' if address else ''}"
    return f"topic {queue.topic!r}, broker {broker}, queue {queue.queue_id}"


Tell = Callable[[MessageQueue, int, str, bytes], None]
"""Queue and offset of a message that cannot be read, why, and its bytes as the broker sent them."""


def fetch_ranges(
    fetch: Fetch, ranges: tuple[QueueRange, ...], clock: RetryClock | None = None, tell: Tell | None = None
) -> Iterator[pa.RecordBatch]:
    """The messages of all the ranges, one after the other. A batch holds rows of one queue, some MiB of them.

    A damaged message ends the read, unless there is somebody to `tell`; then the others follow.
    """
    batches = _fetched(fetch, ranges, clock, tell)
    return batches if fetch.view is None else shaped(batches, fetch.view)


def _fetched(
    fetch: Fetch, ranges: tuple[QueueRange, ...], clock: RetryClock | None, tell: Tell | None
) -> Iterator[pa.RecordBatch]:
    cluster = cluster_of(fetch.options.name_servers, fetch.options.pull_timeout_ms, fetch.options.connect)
    for found in ranges:
        # the topic was there when the batch was planned: a name server that does not know it has just been started
        retrying = Retrying(fetch.options.retry_timeout_ms, clock, also=(RouteNotFoundError,))
        yield from _QueueRangeReader(fetch, found, cluster, retrying, tell).batches()


class _QueueRangeReader:
    def __init__(
        self, fetch: Fetch, found: QueueRange, cluster: Cluster, retrying: Retrying, tell: Tell | None
    ) -> None:
        options = fetch.options
        self._fetch = fetch
        self._range = found
        self._queue = found.queue
        self._cluster = cluster
        self._retrying = retrying
        self._tell = tell
        self._reported_until = found.begin
        self._filter = TagFilter.parse(options.expression)
        self._unfiltered = self._filter.accepts_all and options.sql is None
        self._template = PullTemplate(
            PullRequest(
                group=options.group,
                queue=found.queue,
                offset=0,
                count=1,
                bytes_count=BULK_BUFFER_BYTES,
                expression=self._filter.expression if options.sql is None else options.sql,
                expression_type=TAG if options.sql is None else SQL92,
            ),
            cluster.credentials,
        )
        self._pull = RangePull(
            found.begin,
            found.end,
            options.pull_count,
            filtered=not self._unfiltered,
            pace=cluster.paces.get(found.queue),
            pulls_max=max(1, min(BULK_PULLS_MAX, BULK_REQUEST_BYTES_MAX // self._template.frame_bytes_max)),
        )

    def batches(self) -> Iterator[pa.RecordBatch]:
        pull = self._pull
        line: WaveConnection | None = None
        pending: dict[int, Ask] = {}
        try:
            while not pull.finished:
                try:
                    if line is None:
                        line = self._cluster.take_line(self._cluster.address(self._queue))
                    if not pending:
                        pending = self._send(line, pull.wave())
                    segments = self._collect(line, pending)
                except OrbitError as error:
                    if line is not None:
                        line.close()
                    line, pending = None, {}
                    self._cluster.forget_routes()
                    try:
                        self._retrying.failed(error, self._doing())
                    except OrbitError:
                        if not self._is_gone():
                            raise
                        lost = Loss(self._queue, pull.next, self._range.end, None)
                        report(loss_text(lost), fail=self._fetch.options.fail_on_data_loss)
                        return
                    continue
                self._retrying.succeeded()
                pull.done()
                if not pull.finished:
                    pending = self._send_ahead(line)
                yield from self._decode(line, segments)
                line.buffer.clear()
            self._cluster.paces[self._queue] = pull.pace
            if line is not None:
                self._cluster.give_back(line)
                line = None
        finally:
            if line is not None:  # given up in the middle: answers are under way that nobody will read
                line.close()

    def _is_gone(self) -> bool:
        """Whether the name servers say so. Those that are away say nothing."""
        try:
            return self._cluster.is_gone(self._queue)
        except OrbitError:
            return False

    # --- asking

    def _send(self, line: WaveConnection, asks: list[Ask]) -> dict[int, Ask]:
        opaques = line.send([self._template.pull(ask.begin, ask.messages) for ask in asks])
        return dict(zip(opaques, asks, strict=True))

    def _send_ahead(self, line: WaveConnection) -> dict[int, Ask]:
        """Ask for the next wave before this one is decoded; a broken connection is noticed when its answers are wanted."""
        try:
            return self._send(line, self._pull.wave())
        except ConnectionLostError:
            return {}

    def _collect(self, line: WaveConnection, pending: dict[int, Ask]) -> list[FetchedRecords]:
        """All answers of a wave, in the order of the queue. `pending` is empty on return."""
        segments: list[FetchedRecords] = []
        while pending:
            for answer in line.receive():
                ask = pending.pop(answer.command.opaque, None)
                if ask is None:
                    continue
                following = self._understand(line, ask, answer.command, answer.body_at, answer.body_end, segments)
                if following is not None:
                    pending.update(self._send(line, [following]))
        segments.sort(key=lambda segment: segment.ask.begin)
        return segments

    def _understand(
        self, line: WaveConnection, ask: Ask, command: Command, at: int, end: int, segments: list[FetchedRecords]
    ) -> Ask | None:
        """What is left to be asked for after this answer."""
        status = _PULL_CODES.get(command.code)
        if status is None:
            raise remote_error(command.code, command.remark, line.address, self._doing())
        next_offset = command.optional_integer("nextBeginOffset")
        if next_offset is None or next_offset < 0:
            raise ClientError(f"the answer to a pull of {queue_name(self._queue)} names no next offset")
        if command.integer("offsetDelta") != 0:
            raise ClientError(
                f"{queue_name(self._queue)} was moved here from another broker (static topic); its offsets cannot be read",
                remedy="read it where it was, or with a consumer",
            )
        present = Extent(command.integer("minOffset"), command.integer("maxOffset"))
        if status is PullStatus.FOUND:
            if next_offset <= ask.begin:
                raise ClientError(
                    f"the answer to a pull of {queue_name(self._queue)} at {ask.begin} leads back to {next_offset}"
                )
            segments.append(FetchedRecords(ask, at, end, next_offset))
            return self._pull.answered(ask, next_offset, end - at)
        if status is not PullStatus.OFFSET_ILLEGAL and ask.begin < next_offset <= present.high:
            if self._unfiltered:
                self._lost(line, ask.begin, min(next_offset, ask.end), present)
            return self._pull.answered(ask, next_offset, 0)
        if status is PullStatus.OFFSET_ILLEGAL and ask.begin < present.low:
            resumed = max(present.low, ask.begin + 1)
            self._lost(line, ask.begin, min(resumed, self._range.end), present)
            return self._pull.answered(ask, resumed, 0)
        if ask.begin >= present.high:
            return self._not_yet(line, ask, present)
        # somebody reset the group's offsets, which concerns consumers only; or the broker just says: again
        self._retrying.wait(self._doing(), remedy="the broker keeps answering without messages; look at its log")
        return ask

    def _not_yet(self, line: WaveConnection, ask: Ask, present: Extent) -> Ask | None:
        """The queue ends before an offset that was there when the batch was planned: a slave that lags, or a queue that began anew."""
        try:
            self._retrying.wait(self._doing())
        except ClientError:
            self._lost(line, min(ask.begin, max(present.high, self._range.begin)), self._range.end, present)
            return self._pull.answered(ask, ask.end, 0)
        return ask

    def _lost(self, line: WaveConnection, begin: int, end: int, present: Extent) -> None:
        if end <= self._reported_until:
            return  # the asks of a wave find the same gap
        self._reported_until = end
        report(
            loss_text(Loss(self._queue, begin, end, present), line.address), fail=self._fetch.options.fail_on_data_loss
        )

    def _doing(self) -> str:
        """What an error says was being done."""
        servers = ";".join(self._fetch.options.name_servers)
        return (
            f"reading topic {self._queue.topic!r}, broker {self._queue.broker_name!r}, queue {self._queue.queue_id} "
            f"at offset {self._pull.next} (name server {servers})"
        )

    # --- decoding

    def _decode(self, line: WaveConnection, segments: list[FetchedRecords]) -> Iterator[pa.RecordBatch]:
        import numpy as np

        from orbitmq.columns.records import examine, record_batches

        found = array("q")
        for segment in segments:
            found += self._starts(line, segment)
        if not found:
            return
        in_order = all(a.at < b.at for a, b in pairwise(segments))
        starts = np.array(found if in_order else sorted(found), np.int64)
        data = line.buffer.data
        examined = examine(data, starts)
        for damaged in examined.damaged:
            self._tell_damaged(line, damaged.position, damaged.why)
        names = self._fetch.names
        wanted = None if self._filter.accepts_all else self._filter.tags
        if wanted is not None and _TAGS not in names:
            names = (*names, _TAGS)
        layout = examined.layout
        while layout.count:
            try:
                batches = record_batches(
                    data,
                    layout,
                    names,
                    broker_name=self._queue.broker_name,
                    properties=self._fetch.properties,
                    batch_bytes=2 * BULK_BUFFER_BYTES,
                )
                if not in_order:
                    batches = _reordered(batches, layout.numbers("queueOffset"))
                for batch in batches:
                    yield batch if wanted is None else _with_tags(batch, wanted, self._fetch.names)
                return
            except DamagedRecordError as error:
                self._tell_damaged(line, error.position, error.why)
                # in order, the rows before it were given out; else none was
                layout = layout.select(layout.starts > error.position if in_order else layout.starts != error.position)

    def _tell_damaged(self, line: WaveConnection, position: int, why: str) -> None:
        if self._tell is None:
            raise self._damaged(line, position, why)
        (size,) = _size_at(line.buffer.data, position)
        content = bytes(line.buffer.data[position : position + min(max(size, RECORD_BYTES_MIN), QUARANTINED_BYTES_MAX)])
        self._tell(self._queue, self._offset_at(line, position), why, content)

    def _starts(self, line: WaveConnection, segment: FetchedRecords) -> array[int]:
        """Where the records of one answer begin that belong to its ask."""
        from orbitmq.columns.records import record_starts

        data = line.buffer.data
        found = record_starts(data, segment.at, segment.end)
        at = segment.at
        if found:
            at = found[-1] + _size_at(data, found[-1])[0]
        if at != segment.end:
            strange = at if segment.end - at >= RECORD_BYTES_MIN or not found else found[-1]
            raise self._damaged(line, strange, "its size does not fit the answer that brought it")
        ask = segment.ask
        if segment.next_offset > ask.end:
            while found and self._offset_at(line, found[-1]) >= ask.end:
                found.pop()
        reached = min(segment.next_offset, ask.end)
        missing = reached - ask.begin - len(found)
        if missing and self._unfiltered:
            report(
                f"data loss: {_place(self._queue, line.address)} lacks {missing} of the messages "
                f"from offset {ask.begin} to {reached - 1}, they were removed or are damaged",
                fail=self._fetch.options.fail_on_data_loss,
            )
        return found

    def _offset_at(self, line: WaveConnection, position: int) -> int:
        return int.from_bytes(line.buffer.data[position + _QUEUE_OFFSET_AT : position + _QUEUE_OFFSET_AT + 8], "big")

    def _damaged(self, line: WaveConnection, position: int, why: str) -> ClientError:
        return ClientError(
            f"{queue_name(self._queue)}: the message at offset {self._offset_at(line, position)} cannot be read: {why}",
            remedy="read the topic in two ranges around it (startingOffsets, endingOffsets), and check the broker's store",
        )


def _reordered(batches: Iterator[pa.RecordBatch], offsets: npt.NDArray[np.int64]) -> Iterator[pa.RecordBatch]:
    """The rows in the order of the queue, where the broker answered in another. `offsets` are those of all rows."""
    import numpy as np
    import pyarrow as pa

    table = pa.Table.from_batches(batches).take(pa.array(np.argsort(offsets, kind="stable")))
    yield from table.combine_chunks().to_batches()


def _with_tags(batch: pa.RecordBatch, tags: frozenset[str], names: tuple[str, ...]) -> pa.RecordBatch:
    """Rows with one of the tags, and the columns asked for."""
    import pyarrow as pa
    import pyarrow.compute as pc

    mask = pc.is_in(batch.column(batch.schema.get_field_index(_TAGS)), value_set=pa.array(sorted(tags), pa.string()))
    return batch.filter(mask).select(list(names))
