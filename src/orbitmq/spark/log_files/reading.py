"""One range of a commit-log file as Arrow batches.

A range that begins where its file does begins with a record, and so does the first one of all. Any other one begins somewhere
inside of one, and searches. The range before it follows its records from their beginning, and arrives at the first one behind
its end: that must be the one that the search finds. So every beginning is proved by the range before it, and none is taken on trust.

Rules of this file
1. What is no record is told; then reading goes on at the next sound record.
2. A batch is between LOG_ROWS_KEPT_BYTES and BATCH_BYTES where there are rows enough, whatever was left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import msgspec
import numpy as np
import pyarrow as pa

from orbitmq.columns.layout import Numbers, RecordLayout
from orbitmq.columns.message_columns import PropertiesForm
from orbitmq.columns.records import examine, record_batches
from orbitmq.errors import DamagedRecordError, StoreDamagedError
from orbitmq.limits.columns import LOG_ROWS_KEPT_BYTES, QUARANTINED_BYTES_MAX
from orbitmq.spark.log_files.chain import Chain, RecordPiece, find_record, is_last_filler
from orbitmq.spark.log_files.log_options import LogOptions
from orbitmq.spark.log_files.places import OpenFile, place_at
from orbitmq.spark.log_files.ranges import LogRange
from orbitmq.spark.quarantine import Quarantine

Tell = Callable[[int, int, str, bytes], None]
"""Of a place that is no whole record: position in the log, size, reason, first bytes."""


class RowRules(msgspec.Struct, frozen=True, kw_only=True):
    """How records become rows; the same for all ranges of a read. Columns in the order of `names`, `properties` in their form."""

    options: LogOptions
    names: tuple[str, ...]
    properties: PropertiesForm


def range_batches(part: LogRange, rules: RowRules, tell: Tell | None = None) -> Iterator[pa.RecordBatch]:
    """The rows of a range, in the order of the log. Damage goes to `tell` where it is given, else where the rules say.

    Raises StoreDamagedError, StoreError.
    """
    with ExitStack() as stack:
        if tell is None:
            tell = _fail_at(part.path)
            if rules.options.quarantine_path is not None:
                aside = place_at(rules.options.quarantine_path).under(f"damage-{part.first:020d}.jsonl")
                tell = tell_into(stack.enter_context(Quarantine(aside)), file=part.path)
        file = stack.enter_context(place_at(rules.options.path)._replace(path=part.path).opened())
        yield from _joined(_LogRangeReader(part, rules, file, tell).batches())


def tell_into(quarantine: Quarantine, **where: str | None) -> Tell:
    """Lines that begin with `where`."""

    def tell(position: int, size: int, reason: str, content: bytes) -> None:
        quarantine.add({**where, "position": position, "size": size}, reason, content)

    return tell


def _fail_at(path: str) -> Tell:
    def fail(position: int, size: int, reason: str, _: bytes) -> None:
        raise StoreDamagedError(
            f"the log is damaged at position {position} ({path}): {reason}; {size} bytes cannot be read",
            remedy="restore the file from a replica or a copy, or read with onDamage=quarantine and a quarantinePath",
        )

    return fail


class _LogRangeReader:
    def __init__(self, part: LogRange, rules: RowRules, file: OpenFile, tell: Tell) -> None:
        self._part = part
        self._rules = rules
        self._file = file
        self._tell = tell
        self._upto = min(part.log_end - part.base, part.size)

    def batches(self) -> Iterator[pa.RecordBatch]:
        part = self._part
        at, end = part.first - part.base, part.end - part.base
        if not part.begins_record:
            at = self._find(at)
        while at < end:
            chain = Chain(self._file, part.base, part.size, at, self._upto)
            for piece in chain:
                owned = piece.starts[piece.starts < end - piece.at]
                yield from self._rows(piece, owned)
                if len(owned) < len(piece.starts):
                    chain.at = piece.at + int(piece.starts[len(owned)])
                    break
                if chain.at >= end:
                    break
            at = chain.at
            if at < end and chain.broken is not None:
                at = self._passed_over(at, chain.broken)
        if part.goes_on:
            self._prove(at, end)

    def _rows(self, piece: RecordPiece, starts: Numbers) -> Iterator[pa.RecordBatch]:
        rules = self._rules
        layout = self._examine(piece, starts)
        wanted = rules.options.selection.rows(pa.py_buffer(piece.data), layout) if layout.count else None
        if wanted is not None:
            layout = layout.select(wanted)
        while layout.count:
            try:
                yield from record_batches(
                    piece.data, layout, rules.names, broker_name=rules.options.broker_name, properties=rules.properties
                )
                return
            except DamagedRecordError as error:
                # Rows before it were given out; those behind it follow.
                row = int(np.searchsorted(layout.starts, error.position))
                self._tell_record(piece, error.position, int(layout.ends[row]), error.why)
                layout = layout.rows(row + 1, layout.count)

    def _examine(self, piece: RecordPiece, starts: Numbers) -> RecordLayout:
        """The sound ones of the records of a piece; the others are told."""
        base = self._part.base + piece.at
        examined = examine(piece.data, starts, base=base, sums=self._rules.options.verify_checksums)
        ends = np.append(piece.starts[1:], piece.end - piece.at)
        for damaged in examined.damaged:
            self._tell_record(piece, damaged.position, int(ends[damaged.row]), damaged.why)
        return examined.layout

    def _tell_record(self, piece: RecordPiece, begin: int, end: int, why: str) -> None:
        self._tell(self._part.base + piece.at + begin, end - begin, why, piece.data[begin:end])

    def _find(self, at: int) -> int:
        return find_record(self._file, self._part.base, at, self._upto, sums=self._rules.options.verify_checksums)

    def _passed_over(self, at: int, why: str) -> int:
        """Tells of the stretch from `at` to the next sound record; where that begins."""
        following = self._find(at + 1)
        self._tell_stretch(at, following, why)
        return following

    def _tell_stretch(self, at: int, end: int, why: str) -> None:
        content = self._file.read(at, min(end - at, QUARANTINED_BYTES_MAX))
        self._tell(self._part.base + at, end - at, why, content)

    def _prove(self, at: int, end: int) -> None:
        """Whether the next range begins where this one arrived."""
        arrived, found = min(at, self._upto), self._find(end)
        if is_last_filler(self._file, arrived, self._part.size):
            arrived = self._upto
        if found < arrived:
            raise StoreDamagedError(
                f"bytes inside of a message look like a record of its own, at position {self._part.base + found} ({self._part.path})",
                remedy=f"read whole files: set maxPartitionBytes to {self._part.size}",
            )
        if found > arrived:
            # The next range passes over what lies between, and nobody else knows that records should begin there.
            chain = Chain(self._file, self._part.base, self._part.size, arrived, found)
            for piece in chain:
                self._examine(piece, piece.starts)
            if chain.at < found:
                self._tell_stretch(chain.at, found, chain.broken or "no record begins here")


def _joined(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same rows in batches that are not too small."""
    kept: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        kept.append(batch)
        size += batch.nbytes
        if size >= LOG_ROWS_KEPT_BYTES:
            yield _one(kept)
            kept, size = [], 0
    if kept:
        yield _one(kept)


def _one(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    if len(batches) == 1:
        return batches[0]
    [joined] = pa.Table.from_batches(batches).combine_chunks().to_batches()
    return joined
