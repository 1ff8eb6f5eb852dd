"""Numbers of rows: the same for the same content wherever it lies, different for different content, and the same for ever."""

from __future__ import annotations

import pytest

pa = pytest.importorskip("pyarrow", reason="the extra 'spark' is not installed")
np = pytest.importorskip("numpy", reason="the extra 'spark' is not installed")

from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

from orbitmq.spark.writing.row_hashes import BLOCK_WORDS, number_column, row_hashes  # noqa: E402

BODIES = st.lists(st.binary(max_size=70), min_size=1, max_size=40)


def numbers(*rows: bytes) -> list[int]:
    return row_hashes([pa.array(rows, pa.binary())]).tolist()


def test_the_numbers_of_rows_never_change():
    """Jobs run while somebody upgrades: a repeated task has to find the numbers of the first attempt."""
    assert [f"{number:016x}" for number in numbers(b"", b"a", b"order 1", b"\0" * 8, bytes(range(256)) * 5)] == VECTORS
    several = row_hashes([pa.array([b"ab", b"a"], pa.binary()), pa.array([b"c", b"bc"], pa.binary())])
    assert [f"{number:016x}" for number in several.tolist()] == SEVERAL


@given(BODIES, st.randoms(use_true_random=False))
@settings(deadline=None)
def test_a_number_depends_on_the_row_alone(rows, random):
    order = list(range(len(rows)))
    random.shuffle(order)
    whole = numbers(*rows)
    assert numbers(*(rows[place] for place in order)) == [whole[place] for place in order]
    column = pa.array([b"before", *rows, b"behind"], pa.binary()).slice(1, len(rows))
    assert row_hashes([column]).tolist() == whole
    assert [numbers(row)[0] for row in rows] == whole
    assert len(set(whole)) == len(set(rows))


def test_rows_longer_than_a_block_have_their_number_too():
    long = bytes(range(251)) * (2 * BLOCK_WORDS * 8 // 251)
    assert numbers(b"x", long, b"y", long)[1] == numbers(long)[0] != numbers(long[:-1])[0]


def test_zeros_count():
    assert len(set(numbers(b"", b"\0", b"\0\0", b"\0" * 8, b"\0" * 16))) == 5


@pytest.mark.parametrize(
    "rows",
    [
        [b'{"id": %012d, "name": "user%d"}' % (i, i % 97) for i in range(200_000)],
        [bytes(7) + bytes([i & 255]) + bytes(7) + bytes([i >> 8 & 255]) + bytes(7) + bytes([i >> 16]) for i in range(200_000)],
        [bytes([i & 255]) + bytes(1023) + bytes([i >> 8]) for i in range(20_000)],
    ],
    ids=["text that counts", "high bytes of words", "words that stand far apart"],
)  # fmt: skip
def test_alike_rows_do_not_crowd(rows):
    """Half of the bits of so many rows meet as often as chance wants, about five times for 200,000."""
    found = row_hashes([pa.array(rows, pa.binary())])
    assert len(np.unique(found)) == len(rows)
    for half in (found & np.uint64(0xFFFFFFFF), found >> np.uint64(32)):
        assert len(rows) - len(np.unique(half)) < 25


def test_numbers_as_a_column():
    column = number_column(np.array([0, -1, 2**40]))
    assert column.to_pylist() == [value.to_bytes(8, "little", signed=True) for value in (0, -1, 2**40)]


VECTORS = ["0000000000000000", "3c6a3146058149d7", "d077aead112b3239", "8ba98d915cef7bb9", "44d2bbc5b40b31af"]
SEVERAL = ["ee15afaf015ae229", "a39e3ac9b3a1b000"]
