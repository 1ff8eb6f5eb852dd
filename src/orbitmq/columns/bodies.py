"""Bodies of many messages: those stored as they are in one piece, compressed ones restored.

Rules of this file
1. What comes out is bounded: by body, as everywhere, and by batch.
2. A body that cannot be restored is a damaged record, with its position.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from orbitmq.columns.layout import RecordLayout
from orbitmq.columns.slices import binary_column
from orbitmq.errors import DamagedRecordError, ProtocolError
from orbitmq.limits.columns import COLUMN_BYTES_MAX
from orbitmq.protocol.compression import decompress
from orbitmq.protocol.sysflag import SysFlag, compression_of

_COMPRESSED = SysFlag.COMPRESSED.value


def is_compressed(layout: RecordLayout) -> npt.NDArray[np.bool_]:
    """Which bodies are."""
    flags: npt.NDArray[np.bool_] = (layout.numbers("sysFlag") & _COMPRESSED) != 0
    return flags


def restored(data: memoryview, layout: RecordLayout, row: int, sys_flag: int) -> bytes:
    """The original of one compressed body. Raises DamagedRecordError."""
    body = data[int(layout.body_at[row]) : int(layout.body_end[row])]
    try:
        compression = compression_of(sys_flag)
        return bytes(body) if compression is None else decompress(body, compression)
    except ProtocolError as error:
        raise DamagedRecordError(int(layout.starts[row]), f"its body cannot be restored: {error}") from error


def body_column(buffer: pa.Buffer, layout: RecordLayout, restored_before: dict[int, bytes]) -> Any:
    """The bodies. `restored_before` has those by row that were restored already."""
    compressed = is_compressed(layout)
    if not compressed.any():
        return binary_column(buffer, layout.body_at, layout.body_end)
    rows = np.flatnonzero(compressed)
    data, flags = memoryview(buffer), layout.numbers("sysFlag")
    originals: list[bytes] = []
    size = int((layout.body_end - layout.body_at)[~compressed].sum())
    for row in rows.tolist():
        original = restored_before.get(row)
        if original is None:
            original = restored(data, layout, row, int(flags[row]))
        size += len(original)
        if size > COLUMN_BYTES_MAX:
            raise DamagedRecordError(
                int(layout.starts[row]),
                f"the bodies of one batch grow beyond {COLUMN_BYTES_MAX} bytes when restored",
                remedy="decode fewer records at a time",
            )
        originals.append(original)
    plain = binary_column(buffer, layout.body_at, np.where(compressed, layout.body_at, layout.body_end))
    places = np.arange(len(compressed))
    places[rows] = len(compressed) + np.arange(len(rows))
    return pa.concat_arrays([plain, pa.array(originals, pa.binary())]).take(pa.array(places))
