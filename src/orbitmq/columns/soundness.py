"""What is wrong with records whose form is right: texts, ends that were never written, checksums.

Rules of this file
1. The rules are those of `protocol.records.check_record`; this says which records break them, that says how.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from orbitmq.columns.layout import Bytes, Flags, Layout
from orbitmq.columns.slices import binary_column, is_text, text_column, values_of
from orbitmq.protocol.checksum import crc32

_TOP_BIT_OFF = 0x7FFFFFFF


def wrong_texts(buffer: pa.Buffer, data: Bytes, layout: Layout, *, written: bool) -> Flags:
    """Records whose topic is not UTF-8; with `written` also those that run out into zeros, in topic or properties."""
    wrong = np.zeros(layout.count, bool)
    if not layout.count:
        return wrong
    topics = binary_column(buffer, layout.topic_at, layout.topic_end)
    if not is_text(topics):
        changed = text_column(topics)[1]
        assert changed is not None
        wrong |= changed
    if written:
        wrong |= (layout.ends > layout.properties_at) & (data[layout.ends - 1] == 0)
        _, topic_bytes, offsets = values_of(topics)
        zeros = np.flatnonzero(topic_bytes == 0)
        wrong[np.searchsorted(offsets, zeros, side="right") - 1] = True
    return wrong


def wrong_sums(data: memoryview, layout: Layout) -> Flags:
    """Records whose body has another checksum than they say; an empty body has none. Cost: 0.25 us a record and the sum."""
    said = layout.numbers("bodyCrc").astype(np.uint32)
    bodies = map(data.__getitem__, map(slice, layout.body_at.tolist(), layout.body_end.tolist()))
    computed: npt.NDArray[np.uint32] = np.fromiter(map(crc32, bodies), np.uint32, layout.count)
    wrong: Flags = ((computed & np.uint32(_TOP_BIT_OFF)) != said) & (layout.body_end > layout.body_at)
    return wrong
