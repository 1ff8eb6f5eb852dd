"""Keys to entries: the hash of every key agrees with the plain one, and words are told apart as RocketMQ does."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.limits import store as limits
from orbitmq.protocol.javahash import index_key_hash
from orbitmq.store import index_batch
from orbitmq.store.dispatch import Dispatched
from orbitmq.store.index_batch import KeyHasher


def entry(
    offset: int = 0,
    unique_key: str | None = None,
    keys: str | None = None,
    *,
    topic: str = "TopicTest",
    time: int = 1_700_000_000_123,
    size: int = 100,
    sys_flag: int = 0,
) -> Dispatched:
    return Dispatched(offset, size, topic, 0, 0, 0, time, unique_key, keys, sys_flag, 0, b"")


def hashes(*entries: Dispatched) -> list[int]:
    found: list[int] = []
    KeyHasher().hash_entries(entries, found, [], [])
    return found


def test_golden_hash() -> None:
    assert hashes(entry(keys="k1")) == [2_746_024]


def test_unique_key_comes_first_then_each_word_and_the_lists_stay_parallel() -> None:
    found: list[int] = []
    offsets: list[int] = []
    times: list[int] = []
    KeyHasher().hash_entries([entry(7, "U", "a  b ", time=5), entry(9, None, "c", time=6)], found, offsets, times)
    assert found == [index_key_hash("TopicTest", key) for key in ("U", "a", "b", "c")]
    assert offsets == [7, 7, 7, 9]
    assert times == [5, 5, 5, 6]


def test_rolled_back_records_have_no_keys_and_prepared_ones_do() -> None:
    assert hashes(entry(keys="k", sys_flag=0xC)) == []
    assert hashes(entry(keys="k", sys_flag=0x4)) == [index_key_hash("TopicTest", "k")]
    assert hashes(entry(), entry(unique_key="", keys="")) == []


KEYS = st.text(st.characters(exclude_characters=" "), min_size=1, max_size=40)


@given(st.lists(st.tuples(st.sampled_from(["a", "TopicTest", "%RETRY%групп", "😀"]), KEYS), max_size=20))
def test_every_key_hashes_as_the_plain_function_does(keys: list[tuple[str, str]]) -> None:
    found = hashes(*(entry(unique_key=key, topic=topic) for topic, key in keys))
    assert found == [index_key_hash(topic, key) for topic, key in keys]


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_batch, "INDEX_HASH_CHUNKS_MAX", 8)
    monkeypatch.setattr(index_batch, "INDEX_HASH_PREFIXES_MAX", 4)
    monkeypatch.setattr(index_batch, "INDEX_HASH_TOPICS_MAX", 2)
    hasher = KeyHasher()
    rows = [(f"T{n % 5}", f"{n * 7919:025d}") for n in range(200)]
    found: list[int] = []
    hasher.hash_entries([entry(unique_key=key, topic=topic) for topic, key in rows], found, [], [])
    assert found == [index_key_hash(topic, key) for topic, key in rows]
    assert len(hasher._chunks) <= 8
    assert len(hasher._topics) <= 2
    assert all(len(prefixes) <= 4 for prefixes in hasher._topics.values())
    assert limits.INDEX_HASH_TOPICS_MAX > 2
