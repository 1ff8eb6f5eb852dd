"""The marker in the log that a leader begins with: which epoch it is, where the log ended before it, and which process leads.

A record of the topic `orbitmq_sys_epochs`, queue 0, whose body is text: `epoch-start-claim`. The start is not always where the record
lies: where it did not fit into a file, a filler comes first, which is the new leader's as well.

Rules of this file
1. A body that is not, byte for byte, what `encode_marker` gives is none.
"""

from __future__ import annotations

from orbitmq.errors import RecordError
from orbitmq.replication.epoch_marks import EPOCH_MAX, EpochMark, mark_of


def encode_marker(mark: EpochMark) -> bytes:
    return mark.text.encode()


def decode_marker(body: bytes, physical_offset: int) -> EpochMark:
    """Of the record at that log position. RecordError where it is no marker of ours."""
    try:
        mark = mark_of(body)
    except ValueError:
        mark = EpochMark(-1, -1)
    if encode_marker(mark) != body or not (0 < mark.epoch <= EPOCH_MAX and 0 <= mark.start <= physical_offset):
        raise RecordError(f"the record at {physical_offset} names no epoch: {body[:64]!r}")
    return mark
