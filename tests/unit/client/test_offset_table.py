"""Offsets in memory: growth, freezing, what has to be written; and where a group starts."""

from __future__ import annotations

import pytest

from orbitmq.client.consuming.offset_table import Lookup, OwnedOffsets, start_lookup
from orbitmq.client.options import ConsumeFrom
from orbitmq.protocol.remoting.bodies import MessageQueue

QUEUE = MessageQueue("T", "a", 0)
OTHER = MessageQueue("T", "a", 1)


def started(offset: int = 5) -> OwnedOffsets:
    table = OwnedOffsets()
    table.start(QUEUE, offset, is_stored=True)
    return table


def test_progress_only_grows_and_only_for_owned_queues() -> None:
    table = started()
    table.advance(QUEUE, 4)
    table.advance(OTHER, 9)
    assert table.get(QUEUE) == 5
    assert table.get(OTHER) is None
    assert table.changed() == {}
    table.advance(QUEUE, 8)
    assert table.changed() == {QUEUE: 8}


def test_what_was_written_is_not_written_again_unless_it_grew_meanwhile() -> None:
    table = started()
    table.advance(QUEUE, 8)
    table.advance(QUEUE, 9)
    table.written(QUEUE, 8)
    assert table.changed() == {QUEUE: 9}
    table.written(QUEUE, 9)
    assert table.changed() == {}


def test_a_frozen_offset_may_go_back_and_stays() -> None:
    table = started()
    table.freeze(QUEUE, 2)
    table.advance(QUEUE, 100)
    assert table.changed([QUEUE]) == {QUEUE: 2}
    table.remove(QUEUE)
    table.start(QUEUE, 2, is_stored=True)
    table.advance(QUEUE, 3)
    assert table.get(QUEUE) == 3


def test_a_start_that_nobody_has_stored_is_to_be_written() -> None:
    table = OwnedOffsets()
    table.start(QUEUE, 5, is_stored=False)
    assert table.changed() == {QUEUE: 5}
    table.written(QUEUE, 5)
    assert table.changed() == {}


def test_offsets_by_topic() -> None:
    table = started()
    table.start(MessageQueue("U", "a", 0), 1, is_stored=True)
    assert table.of_topic("T") == {QUEUE: 5}


@pytest.mark.parametrize(
    ("consume_from", "normal"),
    [(ConsumeFrom.LAST, Lookup.MAX), (ConsumeFrom.FIRST, Lookup.ZERO), (ConsumeFrom.TIMESTAMP, Lookup.BY_TIME)],
)
def test_start_without_a_stored_offset(consume_from: ConsumeFrom, normal: Lookup) -> None:
    assert start_lookup(consume_from, retry_topic=False) is normal
    assert start_lookup(consume_from, retry_topic=True) is Lookup.ZERO
