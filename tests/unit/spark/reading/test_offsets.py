"""Where a stream stands, and where it goes next."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.errors import ConfigurationError
from orbitmq.protocol.remoting.bodies import MessageQueue
from orbitmq.spark.reading.offsets import Extent, Loss, advance, check_topics, from_json, losses, share, to_json

A, B, C = (MessageQueue("orders", "broker-a", number) for number in (0, 1, 10))
OTHER = MessageQueue("payments", "broker-b", 0)


def test_the_text_is_the_same_whatever_the_order() -> None:
    one, two = {C: 3, A: 1, OTHER: 9}, {OTHER: 9, A: 1, C: 3}
    assert json.dumps(to_json(one)) == json.dumps(to_json(two))
    assert to_json(one) == {"orders": {"broker-a": {"0": 1, "10": 3}}, "payments": {"broker-b": {"0": 9}}}
    assert from_json(json.loads(json.dumps(to_json(one)))) == one


@pytest.mark.parametrize("foreign", [{"orders": {"0": 17}}, {"logOffset": 3}, [1], None, {"t": {"b": {"x": 1}}}])
def test_offsets_of_another_source_are_refused(foreign: object) -> None:
    with pytest.raises(ConfigurationError, match="checkpoint holds no offsets of this source"):
        from_json(foreign)


def test_a_checkpoint_of_other_topics_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="belongs to a stream of topic orders, this one reads topic payments"):
        check_topics([A, B], ["payments"])
    check_topics([A, OTHER], ["payments"])  # one topic less: its queues are gone, which failOnDataLoss decides
    check_topics([], ["payments"])


def test_everything_is_read_without_a_limit() -> None:
    extents = {A: Extent(0, 10), B: Extent(3, 8)}
    assert advance({A: 4, B: 3}, extents, {}, None) == {A: 10, B: 8}


def test_a_new_queue_enters_without_rows() -> None:
    extents = {A: Extent(0, 10), B: Extent(3, 8)}
    assert advance({A: 10}, extents, {B: 3}, None) == {A: 10, B: 3}


def test_a_queue_that_is_gone_keeps_its_place() -> None:
    assert advance({A: 4, B: 7}, {A: Extent(0, 10)}, {}, None) == {A: 10, B: 7}


def test_a_queue_that_began_anew_is_read_from_its_oldest_message() -> None:
    end = advance({A: 500}, {A: Extent(2, 9)}, {}, None)
    assert end == {A: 2}
    assert advance(end, {A: Extent(2, 9)}, {}, None) == {A: 9}


def test_removed_messages_do_not_use_up_the_limit() -> None:
    assert advance({A: 0}, {A: Extent(90, 100)}, {}, 5) == {A: 95}


def test_losses_are_named() -> None:
    extents = {A: Extent(5, 10), B: Extent(0, 3)}
    assert losses({A: 2, B: 7, C: 1}, extents) == [
        Loss(A, 2, 5, Extent(5, 10)),
        Loss(B, 7, None, Extent(0, 3)),
        Loss(C, 1, None, None),
    ]
    assert losses({A: 10, B: 3}, extents) == []


@given(st.dictionaries(st.sampled_from([A, B, C, OTHER]), st.integers(0, 10**9)), st.none() | st.integers(1, 10**6))
def test_a_limit_is_shared(backlog: dict[MessageQueue, int], limit: int | None) -> None:
    shares = share(backlog, limit)
    waiting = {queue: rows for queue, rows in backlog.items() if rows}
    assert shares.keys() == waiting.keys()
    assert all(1 <= rows <= waiting[queue] for queue, rows in shares.items())
    total = sum(waiting.values())
    if limit is None or total <= limit:
        assert shares == waiting
    else:
        assert sum(shares.values()) == max(limit, len(waiting))


def test_shares_follow_the_backlog() -> None:
    assert share({A: 900, B: 90, C: 10}, 100) == {A: 90, B: 9, C: 1}
