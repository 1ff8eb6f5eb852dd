"""Properties of many messages at once: all names and values found by where the separators stand.

The property strings of all messages lie one behind the other in one buffer. In a regular one the bytes 0x01 and 0x02
take turns, every string ends in 0x02, and no name or value is empty: then the positions of the separators are those of
names and values. Anything else is sorted out entry by entry, still for all messages together.

Rules of this file
1. The outcome is that of `protocol.properties.decode_properties` for each message: what it drops is dropped, what is not
   UTF-8 becomes U+FFFD, and of two entries with one name the later one counts.
2. A map has a name once; Spark does not look, and would count it twice.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from orbitmq.columns.slices import binary_column, repeated_texts, text_column, unaligned, values_of
from orbitmq.limits.columns import REPEATED_NAMES_LOOKED_AT
from orbitmq.protocol.properties import decode_properties

Numbers = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

_STRING: Final = pa.string()
_NAME_END: Final = 1
_ENTRY_END: Final = 2
_PREFIX_BYTES: Final = 8
_MASKS: Final = np.array([(1 << 8 * size) - 1 for size in range(_PREFIX_BYTES)] + [2**64 - 1], np.uint64)
"""By the length of a name: which of the eight bytes from its beginning belong to it."""
_TO_ESCAPE: Final = r'[\x00\x03-\x1f"\\]'
"""What JSON does not take as it is; the separators are replaced anyway."""


@dataclass(slots=True)
class Entries:
    """The entries of all messages that count, in order."""

    texts: Any
    """The properties of each message, UTF-8."""
    buffer: pa.Buffer
    data: npt.NDArray[np.uint8]
    starts: Numbers
    """Where names begin."""
    marks: Numbers
    """The 0x01 behind each name."""
    ends: Numbers
    """Behind each value."""
    offsets: Numbers
    """Which entries are those of a message: from its element to the next."""
    is_regular: bool
    """Nothing was dropped, every text ends in 0x02 or is empty, and no value contains 0x01."""
    _prefixes: npt.NDArray[np.uint64] | None = field(default=None, repr=False)
    _common: tuple[bytes, ...] | None = field(default=None, repr=False)

    @property
    def common_names(self) -> tuple[bytes, ...]:
        """The names of each message, where all have the same ones in the same order, as those of one producer have; else
        empty. Cost: 20 ns for each property, once."""
        if self._common is None:
            self._common = self._find_common_names()
        return self._common

    def _find_common_names(self) -> tuple[bytes, ...]:
        count = len(self.offsets) - 1
        each = len(self.starts) // max(count, 1)
        if not each or each > REPEATED_NAMES_LOOKED_AT or each * count != len(self.starts):
            return ()
        if not (np.diff(self.offsets) == each).all():
            return ()
        sizes = (self.marks - self.starts).reshape(count, each)
        prefixes = self.prefixes.reshape(count, each)
        if not ((sizes == sizes[0]).all() and (prefixes == prefixes[0]).all()):
            return ()
        names = tuple(
            self.data[start:mark].tobytes()
            for start, mark in zip(self.starts[:each].tolist(), self.marks[:each].tolist(), strict=True)
        )
        for place, name in enumerate(names):
            for position in range(_PREFIX_BYTES, len(name)):
                if not (self.data[self.starts[place::each] + position] == name[position]).all():
                    return ()
        return names

    @property
    def prefixes(self) -> npt.NDArray[np.uint64]:
        """The first eight bytes of every name, as a number; zeros behind a shorter one."""
        if self._prefixes is None:
            padded = np.zeros(len(self.data) + _PREFIX_BYTES, np.uint8)
            padded[: len(self.data)] = self.data
            numbers = unaligned(padded, "<u8")[self.starts]
            sizes = np.minimum(self.marks - self.starts, _PREFIX_BYTES)
            self._prefixes = numbers & _MASKS[sizes]
        return self._prefixes

    def values(self, name: str) -> Any:
        """The value of one property by message, null where it has none."""
        encoded = name.encode()
        common = self.common_names
        if common and encoded not in common:
            return pa.nulls(len(self.offsets) - 1, pa.string())
        if common.count(encoded) == 1:
            of_name = slice(common.index(encoded), None, len(common))
            return binary_column(self.buffer, self.marks[of_name] + 1, self.ends[of_name], _STRING)
        prefix = np.uint64(int.from_bytes(encoded[:_PREFIX_BYTES], "little"))
        found = np.flatnonzero((self.prefixes == prefix) & (self.marks - self.starts == len(encoded)))
        for position in range(_PREFIX_BYTES, len(encoded)):
            found = found[self.data[self.starts[found] + position] == encoded[position]]
        count = len(self.offsets) - 1
        if len(found) == count and (found >= self.offsets[:-1]).all() and (found < self.offsets[1:]).all():
            return binary_column(self.buffer, self.marks[found] + 1, self.ends[found], _STRING)
        chosen = np.full(count, -1, np.int64)
        # Of several with one name the last assignment stays, and that is the last entry.
        chosen[np.searchsorted(self.offsets, found, side="right") - 1] = found
        missing = chosen < 0
        if not len(self.starts) or missing.all():
            return pa.nulls(count, pa.string())
        present = chosen[~missing]
        column = binary_column(self.buffer, self.marks[present] + 1, self.ends[present], _STRING)
        return column.take(pa.array(np.cumsum(~missing) - 1, mask=missing))

    def as_map(self) -> Any:
        """Name to value by message. Cost: about 0.15 us for each property."""
        entries = self.without_repeats()
        offsets = pa.array(entries.offsets.astype(np.int32))
        names = entries._names()
        values = binary_column(entries.buffer, entries.marks + 1, entries.ends, _STRING)
        return pa.MapArray.from_arrays(offsets, names, values)

    def _names(self) -> Any:
        """The names of all entries, one behind the other."""
        common = self.common_names
        if not common:
            return binary_column(self.buffer, self.starts, self.marks, _STRING)
        return repeated_texts(common, len(self.offsets) - 1)

    def as_json(self) -> Any:
        """A JSON object in text by message."""
        entries = self.without_repeats()
        texts = entries.texts
        if not entries.is_regular or entries is not self:
            return pa.array([_json(text) for text in texts.to_pylist()], pa.string())
        odd = pc.match_substring_regex(texts, _TO_ESCAPE)
        plain = pc.replace_substring(pc.utf8_rtrim(texts, "\x02"), "\x02", '","')
        plain = pc.replace_substring(plain, "\x01", '":"')
        objects = pc.binary_join_element_wise('{"', plain, '"}', "")
        objects = pc.if_else(pc.equal(texts, ""), "{}", objects)
        if pc.any(odd).as_py():
            escaped = pa.array([_json(text) for text in texts.filter(odd).to_pylist()], pa.string())
            objects = pc.replace_with_mask(objects, odd, escaped)
        return objects

    def without_repeats(self) -> Entries:
        """The same without entries whose name comes again later in their message; itself when there are none."""
        common = self.common_names
        if common and len(set(common)) == len(common):
            return self
        counts = np.diff(self.offsets)
        most = int(counts.max(initial=0))
        if most <= REPEATED_NAMES_LOOKED_AT and not self._may_repeat(most):
            return self
        rows = np.repeat(np.arange(len(counts)), counts)
        names = binary_column(self.buffer, self.starts, self.marks).dictionary_encode()
        keys = rows * (len(names.dictionary) + 1) + names.indices.to_numpy()
        order = np.argsort(keys, kind="stable")
        again = np.zeros(len(keys), bool)
        again[order[:-1]] = keys[order[1:]] == keys[order[:-1]]
        if not again.any():
            return self
        keep = ~again
        offsets = np.concatenate(([0], np.cumsum(np.bincount(rows[keep], minlength=len(counts)))))
        return Entries(
            self.texts, self.buffer, self.data, self.starts[keep], self.marks[keep], self.ends[keep], offsets, False
        )

    def _may_repeat(self, most: int) -> bool:
        """Whether any message may have a name twice: names of one length and beginning."""
        marks = self.prefixes * np.uint64(31) + (self.marks - self.starts).astype(np.uint64)
        rows: Numbers | None = None
        for distance in range(1, most):
            same = np.flatnonzero(marks[distance:] == marks[:-distance])
            if len(same):
                if rows is None:
                    rows = np.repeat(np.arange(len(self.offsets) - 1), np.diff(self.offsets))
                if (rows[same] == rows[same + distance]).any():
                    return True
        return False


def split(stored: Any) -> Entries:
    """The entries of a binary column of stored properties, without nulls."""
    texts, _ = text_column(stored)
    buffer, data, offsets = values_of(texts)
    regular = _split_regular(texts, buffer, data, offsets.astype(np.int64))
    return regular or _split_any(texts, buffer, data, offsets.astype(np.int64))


def _split_regular(texts: Any, buffer: pa.Buffer, data: npt.NDArray[np.uint8], offsets: Numbers) -> Entries | None:
    """None when anything is not regular."""
    separators = np.flatnonzero((data - np.uint8(_NAME_END)) < 2)
    if len(separators) % 2:
        return None
    marks, ends = separators[0::2], separators[1::2]
    if not ((data[marks] == _NAME_END).all() and (data[ends] == _ENTRY_END).all()):
        return None
    filled = offsets[1:][np.diff(offsets) > 0]
    if not (data[filled - 1] == _ENTRY_END).all():
        return None
    starts = np.empty(len(marks), np.int64)
    if len(starts):
        starts[0] = 0
        starts[1:] = ends[:-1] + 1
    if not ((marks > starts).all() and (ends > marks + 1).all()):
        return None
    return Entries(texts, buffer, data, starts, marks, ends, np.searchsorted(ends, offsets), True)


def _split_any(texts: Any, buffer: pa.Buffer, data: npt.NDArray[np.uint8], offsets: Numbers) -> Entries:
    count = len(offsets) - 1
    separators = np.flatnonzero(data == _ENTRY_END)
    # A text without its last 0x02 ends where the next one begins.
    open_rows = np.flatnonzero((np.diff(offsets) > 0) & (data.take(offsets[1:] - 1, mode="clip") != _ENTRY_END))
    rows = np.concatenate((np.searchsorted(offsets, separators, side="right") - 1, open_rows))
    ends = np.concatenate((separators, offsets[open_rows + 1]))
    order = np.lexsort((ends, rows))
    rows, ends = rows[order], ends[order]
    starts = offsets[rows]
    again = rows[1:] == rows[:-1]
    starts[1:][again] = ends[:-1][again] + 1
    ones = np.flatnonzero(data == _NAME_END)
    marks = np.append(ones, len(data) + 1)[np.searchsorted(ones, starts)]
    counts = (marks > starts) & (ends > marks + 1)
    rows = rows[counts]
    entry_offsets = np.concatenate(([0], np.cumsum(np.bincount(rows, minlength=count))))
    return Entries(texts, buffer, data, starts[counts], marks[counts], ends[counts], entry_offsets, False)


def _json(text: str) -> str:
    return json.dumps(decode_properties(text), ensure_ascii=False, separators=(",", ":"))
