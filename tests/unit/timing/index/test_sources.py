"""A gathering and the run made of it answer alike, and like a sorted list."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from orbitmq.errors import StoreDamagedError
from orbitmq.store.files import OsFiles
from orbitmq.timing.index.entries import KEY_BYTES_MAX, IndexEntry, id_hash, key_bytes, key_hash, split_keys, topic_seed
from orbitmq.timing.index.gathering import Gathering, Source
from orbitmq.timing.index.run import Run
from orbitmq.timing.index.run_format import Marked
from orbitmq.timing.index.run_writing import write_run
from orbitmq.timing.index.search import IndexQuery, find_id, find_key, page

BASE_MS = 1_800_000_000_000


def entries(seed: int, count: int, *, span_ms: int = 3_000, first: int = 7) -> list[IndexEntry]:
    rng = random.Random(seed)
    found = []
    for number in range(count):
        topic = rng.choice("abc")
        keys = tuple({key_bytes(rng.choice(("k", "k1", "k2", "other", "ü"))) for _ in range(rng.randrange(3))})
        hashed = id_hash(topic_seed(topic), f"id{number}") if rng.random() < 0.9 else None
        found.append(IndexEntry(first + 3 * number, BASE_MS + rng.randrange(span_ms), topic, hashed, keys))
    return found


def gathered(known: list[IndexEntry]) -> Gathering:
    gathering = Gathering()
    for entry in known:
        gathering.add(entry)
    return gathering


def run_of(gathering: Gathering, path: Path) -> Run:
    for _ in write_run(OsFiles(), path, gathering):
        pass
    return Run(OsFiles(), path)


@pytest.mark.parametrize("span_ms", [1, 40, 3_000, 1 << 40])
def test_a_run_answers_as_its_gathering_did(tmp_path: Path, span_ms: int) -> None:
    known = entries(span_ms, 5_000, span_ms=span_ms)
    gathering = gathered(known)
    sources = (gathering, run_of(gathering, tmp_path / "1.run"))
    dues = sorted((one.deliver_ms, one.queue_offset) for one in known)
    for source in sources:
        assert list(source.by_due(None, 0, None)) == dues
        for place in (0, 17, 2_500, 4_999):
            assert list(source.by_due(None, 0, dues[place])) == dues[place + 1 :]
            between = (dues[place][0], dues[place][1] + 1)
            assert list(source.by_due(None, dues[place][0], between)) == dues[place + 1 :]
        mine = sorted((one.deliver_ms, one.queue_offset) for one in known if one.topic == "b")
        assert list(source.by_due("b", 0, mine[9])) == mine[10:]
        assert list(source.by_due("nobody", 0, None)) == []
        keyed = sorted((key, one.deliver_ms, one.queue_offset) for one in known if one.topic == "c" for key in one.keys)
        for prefix in (b"", b"k", b"k1", "ü".encode(), b"z"):
            fitting = [one for one in keyed if one[0].startswith(prefix)]
            assert list(source.by_key("c", prefix, None, exact=False)) == fitting
            if len(fitting) > 3:
                assert list(source.by_key("c", prefix, fitting[2], exact=False)) == fitting[3:]
        assert list(source.by_key("c", b"k", None, exact=True)) == [one for one in keyed if one[0] == b"k"]
        for one in known[::97]:
            if one.id_hash is not None:
                assert (one.deliver_ms, one.queue_offset) in list(source.by_id(one.id_hash))
        counted = [found for _, piece in source.all_found() for found in piece]
        assert sorted(counted) == dues


def test_a_run_is_taken_apart_into_what_it_was_made_of(tmp_path: Path) -> None:
    known = entries(3, 9_000)
    run = run_of(gathered(known), tmp_path / "1.run")
    steps = run.entries()
    while True:
        try:
            next(steps)
        except StopIteration as stopped:
            found = stopped.value
            break
    found = [one._replace(keys=tuple(sorted(one.keys))) for one in found]
    assert sorted(found) == sorted(one._replace(keys=tuple(sorted(one.keys))) for one in known)


def test_entries_that_are_over_are_looked_at_once(tmp_path: Path) -> None:
    known = sorted(entries(4, 100), key=lambda one: one.queue_offset)
    gathering = gathered(known)
    run = run_of(gathering, tmp_path / "1.run")
    dues = sorted((one.deliver_ms, one.queue_offset) for one in known)
    pending = {offset for _, offset in dues[40:]}
    assert run.skip_gone(pending.__contains__, 10)
    assert not run.skip_gone(pending.__contains__, 100)
    gathering.skip_gone(pending.__contains__, 1_000)
    assert (run.first, run.left_count) == (40, 60)
    for source in (run, gathering):
        assert list(source.by_due(None, 0, None)) == dues[40:]
    gathering.add(IndexEntry(10_000, BASE_MS - 1, "a", None, ()))
    assert next(gathering.by_due(None, 0, None)) == (BASE_MS - 1, 10_000)


def test_every_damaged_byte_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "1.run"
    run_of(gathered(entries(5, 40)), path)
    content = path.read_bytes()
    rng = random.Random(1)
    for place in rng.sample(range(len(content)), 300):
        damaged = bytearray(content)
        damaged[place] ^= 1 << rng.randrange(8)
        path.write_bytes(bytes(damaged))
        try:
            problem = Run(OsFiles(), path).check()
        except StoreDamagedError:
            continue
        assert problem or not content[place], place  # zeros between columns belong to none
    for length in (0, 5, len(content) // 2, len(content) - 1):
        path.write_bytes(content[:length])
        with pytest.raises(StoreDamagedError):
            Run(OsFiles(), path)


def test_long_and_strange_keys_are_cut_alike_on_both_sides() -> None:
    assert key_bytes("x" * 1_000) == b"x" * KEY_BYTES_MAX
    assert key_bytes("a\0b") == b"a"
    assert split_keys("a  b a") == (b"a", b"b")
    assert split_keys(None) == split_keys("") == ()


def test_pages_are_bounded_and_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orbitmq.timing.index.search.TIMER_SCAN_MAX", 10)
    known = entries(6, 35)
    sources = [gathered(known)]
    assert page(sources, lambda offset: False, IndexQuery()).candidates == []
    found, query, pages = [], IndexQuery(limit=100), 0
    while True:
        answer = page(sources, lambda offset: True, query)
        found += answer.candidates
        pages += 1
        if answer.cursor is None:
            break
        query = query._replace(cursor=answer.cursor)
    assert (len(found), pages) == (35, 4)


@pytest.mark.parametrize("cursor", ["", "x", "!!", "k6FkAQI", "\N{SNOWMAN}"])
def test_a_cursor_of_somebody_else_is_refused(cursor: str) -> None:
    with pytest.raises(ValueError, match="cursor"):
        page([], lambda offset: True, IndexQuery(topic="a", key="k", cursor=cursor))


def test_a_cursor_of_another_order_and_a_key_without_topic_are_refused() -> None:
    sources = [gathered(entries(7, 9))]
    by_due = page(sources, lambda offset: True, IndexQuery(limit=1)).cursor
    with pytest.raises(ValueError, match="due time"):
        page(sources, lambda offset: True, IndexQuery(topic="a", key_prefix="", cursor=by_due))
    with pytest.raises(ValueError, match="topic"):
        page(sources, lambda offset: True, IndexQuery(key="k"))


def test_what_matches_is_found_by_id_and_by_key() -> None:
    gathering = gathered(
        [
            IndexEntry(1, BASE_MS + 9, "a", id_hash(topic_seed("a"), "X"), (b"k",)),
            IndexEntry(2, BASE_MS + 5, "a", id_hash(topic_seed("a"), "k"), ()),
            IndexEntry(3, BASE_MS + 1, "b", id_hash(topic_seed("b"), "k"), (b"k",)),
        ]
    )
    everything = (lambda offset: True,)
    wanted = id_hash(topic_seed("a"), "k")
    assert [one.queue_offset for one in find_id([gathering], *everything, wanted, 10)] == [2]
    assert [one.queue_offset for one in find_key([gathering], *everything, "a", b"k", 10)] == [1]
    assert find_key([gathering], lambda offset: offset != 1, "a", b"k", 9) == []
    assert find_id([gathering], *everything, id_hash(topic_seed("c"), "k"), 10) == []


def test_of_several_matches_the_earliest_are_found(tmp_path: Path) -> None:
    known = entries(11, 3_000)
    sources: list[Source] = [run_of(gathered(known[:2_000]), tmp_path / "1.run"), gathered(known[2_000:])]
    dues = sorted((one.deliver_ms, one.queue_offset) for one in known if one.topic == "b" and b"k1" in one.keys)
    found = find_key(sources, lambda offset: True, "b", b"k1", 40)
    assert [(one.deliver_ms, one.queue_offset) for one in found] == dues[:40]


def test_runs_that_cannot_hold_a_hash_are_not_searched(tmp_path: Path) -> None:
    """Of those it holds a run says so always, of others seldom: one in seventy and what chance adds."""
    known = entries(5, 4_096)
    run = run_of(gathered(known), tmp_path / "1.run")
    bare = run_of(gathered([IndexEntry(1, BASE_MS, "a", None, ())]), tmp_path / "2.run")
    by_id, by_key = (Marked([(getattr(one, name), one) for one in (bare, run)]) for name in ("id_marks", "key_marks"))
    for one in known:
        assert one.id_hash is None or by_id.having(one.id_hash) == [run]
        assert all(by_key.having(key_hash(topic_seed(one.topic), key)) == [run] for key in one.keys)
    strangers = [id_hash(topic_seed("a"), f"stranger {number}") for number in range(10_000)]
    for marked in (by_id, by_key):
        seen = [marked.having(stranger) for stranger in strangers]
        assert sum(map(len, seen)) < 250
        assert not any(bare in runs for runs in seen)


def test_ids_whose_hashes_are_not_spread_are_found(tmp_path: Path) -> None:
    """The place of a hash is guessed from its size; here the guess is wrong."""
    hashes = [5] * 700 + list(range(2**32 - 2_000, 2**32)) + [2**31] * 2 + [0]
    known = [IndexEntry(n, BASE_MS + n, "a", hashed, ()) for n, hashed in enumerate(hashes)]
    run = run_of(gathered(known), tmp_path / "1.run")
    for wanted in {*hashes, 1, 4, 6, 2**30, 2**31 - 1, 2**31 + 1, 2**32 - 2_001}:
        places = [one.queue_offset for one in known if one.id_hash == wanted]
        assert sorted(offset for _, offset in run.by_id(wanted)) == places


def test_a_search_that_was_announced_answers_alike(tmp_path: Path) -> None:
    known = entries(8, 5_000)
    for source in (gathered(known), run_of(gathered(known), tmp_path / "1.run")):
        for topic in (None, "a", "nobody"):
            for due_ms in (0, BASE_MS, BASE_MS + 1_500, BASE_MS + 2_999, BASE_MS + 9_000):
                before = list(source.by_due(topic, due_ms, None))
                source.will_search(topic, due_ms)
                assert list(source.by_due(topic, due_ms, None)) == before


def test_damaged_fences_of_keys_cost_time_and_no_answer(tmp_path: Path) -> None:
    known = [IndexEntry(n, BASE_MS + n, "a", None, (b"%05d" % n,)) for n in range(3_000)]
    path = tmp_path / "1.run"
    run_of(gathered(known), path)
    content = path.read_bytes()
    damaged = content.replace(b"\x81\xa1a\xdc", b"\x81\xa1b\xdc")
    assert damaged != content
    path.write_bytes(damaged)
    run = Run(OsFiles(), path)
    assert run.check() == "column key_fence does not match its sum"
    assert list(run.by_key("a", b"00777", None, exact=True)) == [(b"00777", BASE_MS + 777, 777)]


def test_a_key_is_found_among_many(tmp_path: Path) -> None:
    """Beyond the number from which on some of the keys are remembered."""
    known = [IndexEntry(n, BASE_MS + n, "ab"[n % 2], None, (b"%05d" % (n // 3 * 2),)) for n in range(3_000)]
    run = run_of(gathered(known), tmp_path / "1.run")
    keyed = sorted((key, one.deliver_ms, one.queue_offset) for one in known if one.topic == "a" for key in one.keys)
    for wanted in range(0, 2_002, 7):
        key = b"%05d" % wanted
        assert list(run.by_key("a", key, None, exact=True)) == [one for one in keyed if one[0] == key]
        assert next(run.by_key("a", key[:4], None, exact=False))[0][:4] == key[:4]
    assert list(run.by_key("a", b"", None, exact=False)) == keyed
    assert list(run.by_key("a", b"9", None, exact=False)) == []
