"""Pieces of a buffer as Arrow binary and string columns, without a Python object per piece.

The starts and ends of all pieces, interleaved, are the offsets of a binary array over the whole buffer: its even
elements are the pieces, its odd ones what lies between them. Taking the even ones copies the wanted bytes and nothing else.

Rules of this file
1. Pieces are in order and do not overlap. Empty ones may lie anywhere: the caller need not look where.
2. A string column was checked: Arrow itself believes everything.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Positions = npt.NDArray[np.int64] | npt.NDArray[np.int32]
Flags = npt.NDArray[np.bool_]

_EMPTY: Final = pa.py_buffer(b"")
_BINARY: Final = pa.binary()


def binary_column(buffer: pa.Buffer, starts: Positions, ends: Positions, kind: Any = _BINARY) -> Any:
    """`buffer[starts[i]:ends[i]]` for every i; below 2 GiB. `kind` is string where all of it is known to be UTF-8.
    Cost: about 15 ns and a copy."""
    count = len(starts)
    offsets = np.empty(2 * count, np.int32)
    offsets[0::2] = starts
    offsets[1::2] = ends
    if not count:
        return pa.array([], kind)
    pairs = pa.Array.from_buffers(kind, 2 * count - 1, [None, pa.py_buffer(offsets), buffer])
    return pairs.take(pa.array(np.arange(0, 2 * count - 1, 2, dtype=np.int32)))


def text_column(column: Any) -> tuple[Any, Flags | None]:
    """A binary column as strings, U+FFFD in the place of bytes that are not UTF-8; and which values had such, None when none
    had."""
    try:
        return column.cast(pa.string()), None
    except pa.ArrowInvalid:
        values = column.to_pylist()
        texts = [None if value is None else str(value, "utf-8", "replace") for value in values]
        changed = [text is not None and text.encode() != value for text, value in zip(texts, values, strict=True)]
        return pa.array(texts, pa.string()), np.array(changed, bool)


def repeated_texts(texts: Sequence[bytes], times: int) -> Any:
    """A string column of all the texts, UTF-8, in order, and that so many times. Cost: 3 ns a text and a copy."""
    one = np.frombuffer(b"".join(texts), np.uint8)
    offsets = np.zeros(len(texts) * times + 1, np.int32)
    behind = np.cumsum([len(text) for text in texts], dtype=np.int32)
    np.add(
        np.arange(times, dtype=np.int32)[:, None] * np.int32(len(one)),
        behind,
        out=offsets[1:].reshape(times, len(texts)),
    )
    return pa.Array.from_buffers(
        pa.string(), len(offsets) - 1, [None, pa.py_buffer(offsets), pa.py_buffer(np.tile(one, times))]
    )


def values_of(column: Any) -> tuple[pa.Buffer, npt.NDArray[np.uint8], npt.NDArray[np.int32]]:
    """The bytes of all values of a binary or string column without nulls, as a buffer and as numbers, and its offsets."""
    if not len(column):
        return _EMPTY, np.empty(0, np.uint8), np.zeros(1, np.int32)
    _, offsets_buffer, data = column.buffers()
    offsets = np.frombuffer(offsets_buffer, np.int32)[column.offset : column.offset + len(column) + 1]
    if data is None:
        data = _EMPTY
    return data, np.frombuffer(data, np.uint8)[: offsets[-1]], offsets


def unaligned(data: npt.NDArray[np.uint8], kind: str) -> npt.NDArray[Any]:
    """The number of that kind which begins at each byte of `data`, as a view without a copy."""
    dtype = np.dtype(kind)
    return np.ndarray((max(len(data) - dtype.itemsize + 1, 0),), dtype, data, strides=(1,))
