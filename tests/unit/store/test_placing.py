"""Encoded messages get queue offsets, log positions and store time as if they had been appended one by one."""

from __future__ import annotations

from pathlib import Path

import pytest

from orbitmq.errors import RecordError
from orbitmq.protocol.records import decode_record, encode_stored
from orbitmq.store.commit_log import CommitLog
from orbitmq.store.dispatch import Dispatched, dispatched_from_record
from orbitmq.store.files import OsFiles
from orbitmq.store.message import LOCAL_HOST, EncodedMessage
from orbitmq.store.placing import place_encoded
from orbitmq.store.queues import ConsumeQueues

FILE_BYTES = 1024


def message(topic: str = "Topic", queue_id: int = 0, body: bytes = b"body") -> EncodedMessage:
    properties = b"UNIQ_KEY\x01K\x02"
    record = encode_stored(
        topic.encode(), queue_id, 0, -1, -1, 0, 7, LOCAL_HOST, -1, LOCAL_HOST, 0, 41, body, properties, 0
    )
    return bytearray(record), topic, queue_id, 0, "K", None, 0, 41, properties


class Little:
    def __init__(self, root: Path) -> None:
        self.log = CommitLog(OsFiles(), root / "commitlog", FILE_BYTES)
        self.queues = ConsumeQueues(OsFiles(), root / "consumequeue", 800)

    def place(self, *messages: EncodedMessage, stamp: int = 1_000) -> list[Dispatched]:
        self.log.place(len(messages[0][0]))
        return place_encoded(self.log, self.queues, messages, stamp)

    def written(self) -> list[Dispatched]:
        """What the files say, record by record."""
        self.log.write()
        self.log.readable_end = self.log.written_end
        found, at = [], 0
        while (view := self.log.record(at)) is not None:
            record = decode_record(view)
            found.append(dispatched_from_record(record, at, lambda properties, stamp: 0))
            at += len(view)
        return found


@pytest.fixture
def little(tmp_path: Path) -> Little:
    return Little(tmp_path)


def test_each_queue_counts_on_and_records_follow_each_other(little: Little) -> None:
    first = little.place(message(queue_id=1), message(queue_id=2), message(queue_id=1))
    second = little.place(message(queue_id=1), stamp=1_005)
    assert [entry.queue_offset for entry in first + second] == [0, 0, 1, 2]
    assert [entry.physical_offset for entry in (first + second)[1:]] == [entry.end_offset for entry in first]
    assert [entry.store_timestamp for entry in first + second] == [1_000, 1_000, 1_000, 1_005]


def test_the_entries_are_those_of_the_written_records(little: Little) -> None:
    placed = little.place(message(), message("Other", 3, b"x" * 100))
    assert little.written() == placed


def test_what_does_not_fit_the_file_is_left_for_the_next_call(little: Little) -> None:
    many = [message(body=b"x" * 150) for _ in range(6)]
    placed = little.place(*many)
    size = len(many[0][0])
    assert len(placed) == (FILE_BYTES - 8) // size < 6, "the end of a file takes 8 bytes"
    rest = little.place(*many[len(placed) :])
    assert rest[0].physical_offset == FILE_BYTES
    assert rest[0].queue_offset == len(placed)


def test_a_record_that_fits_no_file_is_refused_and_takes_no_place(little: Little) -> None:
    with pytest.raises(RecordError):
        little.place(message(body=b"x" * FILE_BYTES))
    assert [entry.queue_offset for entry in little.place(message())] == [0]
