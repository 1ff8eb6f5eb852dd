"""Packed keys against a dictionary, and what they take of the memory."""

from __future__ import annotations

import random
import tracemalloc

import pytest

from orbitmq.broker.idempotence.packed_keys import PACKED_KEY_BYTES, PAGE_KEYS, PackedKeys

PLACE_MAX = (1 << 160) - 1


@pytest.mark.parametrize("digest_of", [lambda rng: rng.getrandbits(128), lambda rng: rng.randrange(4_000)])
def test_packed_keys_are_a_dictionary(digest_of) -> None:
    rng = random.Random(7)
    keys, model = PackedKeys(), {}
    for _ in range(6_000):
        digest, place = digest_of(rng), rng.randrange(PLACE_MAX + 1)
        draw = rng.random()
        if draw < 0.7:
            assert keys.put(digest, place) is (digest not in model)
            model[digest] = place
        elif model:
            digest = rng.choice(list(model)) if draw < 0.75 else digest
            assert keys.remove(digest, model.get(digest, 1)) is (digest in model)
            model.pop(digest, None)
        other = digest_of(rng)
        assert keys.get(other) == model.get(other)
    assert keys.count == len(model)
    assert dict(keys.items()) == model
    assert all(keys.get(digest) == place for digest, place in model.items())


def test_a_key_with_another_place_is_not_taken_out() -> None:
    keys = PackedKeys()
    keys.put(1, 5)
    assert not keys.remove(1, 6)
    assert keys.get(1) == 5


def test_a_digest_is_not_found_across_two_others() -> None:
    keys = PackedKeys()
    keys.put(0x11 << 120, 1)
    keys.put(0x22 << 120, 2)
    assert keys.get(int.from_bytes((b"\x11" + bytes(15) + b"\x22" + bytes(15))[8:24])) is None


def test_digests_that_are_all_alike_make_pages_longer_and_the_directory_no_larger(monkeypatch) -> None:
    monkeypatch.setattr("orbitmq.broker.idempotence.packed_keys.KEY_DIRECTORY_BITS_MAX", 4)
    keys = PackedKeys()
    for number in range(3 * PAGE_KEYS):
        assert keys.put(number << 100, number)
    assert all(keys.get(number << 100) == number for number in range(3 * PAGE_KEYS))
    assert len(keys._directory) <= 16


def test_a_key_takes_no_more_memory_than_is_counted() -> None:
    rng = random.Random(3)
    digests = [rng.getrandbits(128) for _ in range(30_000)]
    keys = PackedKeys()
    tracemalloc.start()
    for digest in digests:
        keys.put(digest, digest >> 1)
    used_bytes, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert used_bytes / len(digests) <= PACKED_KEY_BYTES
