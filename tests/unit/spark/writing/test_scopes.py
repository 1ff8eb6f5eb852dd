"""Scopes of writers: the brokers that they name, and which of them an earlier attempt began with."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.errors import StaleEpochError
from orbitmq.limits.broker import ONCE_SCOPE_BYTES_MAX
from orbitmq.protocol.remoting.idempotence_bodies import ScopeView
from orbitmq.spark.writing.scopes import (
    BrokerSet,
    Writer,
    begun,
    brokers_of,
    job_writer,
    queue_places,
    share_of,
    stream_writer,
)

QUERY = "0b1f2c3d-0000-1111-2222-333344445555"
TWO = BrokerSet(("a", "b"), (4, 4))
ONE = BrokerSet(("b",), (4,))


def view(scope: str, epoch: int, previous: int | None = None) -> ScopeView:
    return ScopeView(scope=scope, epoch=epoch, keys=1, previous_epoch=previous)


@given(
    st.dictionaries(st.text(min_size=1, max_size=20), st.integers(1, 65535), min_size=1, max_size=8), st.integers(0, 99)
)
def test_a_set_of_brokers_is_read_as_it_was_written(counts, turn):
    brokers = brokers_of(counts, turn)
    assert BrokerSet.parse(brokers.text) == brokers
    assert set(brokers.names) <= set(counts)
    assert list(brokers.names) == sorted(brokers.names)


@pytest.mark.parametrize("text", ["", "a", "a:", ":4", "a:0", "a:x", "a:4,", "a:99999"])
def test_nonsense_is_no_set(text):
    assert BrokerSet.parse(text) is None


def test_of_a_large_cluster_some_brokers_are_taken_and_others_another_time():
    counts = {f"broker-{number:03}": 8 for number in range(40)}
    first, second = brokers_of(counts, 0), brokers_of(counts, 20)
    assert 5 < len(first.names) < 12
    assert not set(first.names) & set(second.names)
    job = job_writer("j" * 64, 999_999, brief=False)
    assert len(job.scope("t", first).encode()) <= ONCE_SCOPE_BYTES_MAX


def test_what_was_begun_keeps_its_brokers_when_the_route_changes():
    writer = stream_writer(QUERY, 7)
    assert begun(writer, [], "t") is None
    known = [view(writer.scope("t", TWO), 7, 6)]
    assert begun(writer, known, "t") == TWO
    assert begun(stream_writer(QUERY, 6), known, "t") == TWO  # the batch before may be repeated
    assert begun(stream_writer(QUERY, 8), known, "t") is None  # the next one takes the brokers of today
    assert begun(writer, known, "another topic") is None


def test_of_several_sets_everybody_takes_the_same():
    writer = stream_writer(QUERY, 7)
    known = [view(writer.scope("t", ONE), 7), view(writer.scope("t", TWO), 7)]
    assert begun(writer, known, "t") == begun(writer, known[::-1], "t") == TWO


@pytest.mark.parametrize("known", [[(9, 8)], [(9, 7)], [(8, None)]])
def test_a_batch_that_was_overtaken_is_refused(known):
    writer = stream_writer(QUERY, 7)
    views = [view(writer.scope("t", TWO), *epochs) for epochs in known]
    with pytest.raises(StaleEpochError, match=r"batch 7 of query .* is over"):
        begun(writer, views, "t")


def test_a_finished_job_is_found_again():
    writer = job_writer("night", 3, brief=False)
    assert begun(writer, [view(writer.scope("t", ONE), 1)], "t") == ONE
    assert begun(job_writer("night", 33, brief=False), [view(writer.scope("t", ONE), 1)], "t") is None


def test_rows_with_a_key_share_one_scope():
    assert job_writer("night", None, brief=True).who == "night/rows"


def test_batches_that_follow_each_other_may_have_other_brokers() -> None:
    """As in a stream: a broker that has left the route is needed for the batch that it has rows of, and for no later one."""
    batch = Writer("key~1f/3", 7, ends=True, follows=True)
    before, now, later = (view(batch.scope("t", TWO), epoch) for epoch in (6, 7, 8))
    assert begun(batch, [before], "t") is None
    assert begun(batch, [now], "t") == TWO
    assert begun(batch, [later], "t") == TWO, "an old batch that comes again is refused by who knows it"
    assert begun(batch._replace(follows=False), [before], "t") == TWO


def test_partitions_and_batches_take_turns():
    assert [share_of(part, 0, TWO) for part in range(4)] == [0, 1, 0, 1]
    assert [share_of(0, epoch, TWO) for epoch in range(4)] == [0, 1, 0, 1]


def test_a_sharding_key_goes_where_a_java_producer_sends_it():
    brokers = BrokerSet(("a", "b"), (2, 3))
    assert queue_places([0, 1, 2, 4, 5, -7], brokers) == [(0, 0), (0, 1), (1, 0), (1, 2), (0, 0), (1, 0)]
