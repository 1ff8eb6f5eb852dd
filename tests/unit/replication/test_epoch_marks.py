"""Where two logs part, and the text that epochs are kept in."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.errors import StoreDamagedError
from orbitmq.limits.replication import EPOCH_MARKS_MAX, EPOCH_TEXT_BYTES_MAX
from orbitmq.replication.epoch_marks import EpochMark, EpochMarks, decode_marks, encode_marks


def marks(*pairs: tuple[int, int]) -> EpochMarks:
    return EpochMarks(EpochMark(*pair) for pair in pairs)


@pytest.mark.parametrize(
    ("ours", "our_end", "theirs", "their_end", "shared"),
    [
        # the same history; the other one is behind, level, ahead
        ([(1, 0)], 100, [(1, 0)], 60, (60, True)),
        ([(1, 0), (2, 50)], 100, [(1, 0), (2, 50)], 100, (100, True)),
        ([(1, 0)], 100, [(1, 0)], 120, (100, True)),
        # we lost an end that the other one has, and went on with an epoch of our own
        ([(1, 0), (2, 80)], 200, [(1, 0)], 100, (80, True)),
        ([(1, 0), (2, 80)], 200, [(1, 0)], 80, (80, True)),
        ([(1, 0), (2, 80)], 200, [(1, 0)], 70, (70, True)),
        # both went on by themselves
        ([(1, 0), (2, 80)], 200, [(1, 0), (3, 90)], 300, (80, True)),
        ([(1, 0), (2, 80)], 200, [(1, 0), (2, 90)], 300, (80, True)),
        ([(1, 0), (2, 80), (4, 150)], 200, [(1, 0), (2, 80), (3, 120)], 300, (120, True)),
        # the oldest marks of one are gone
        ([(7, 500), (8, 600)], 700, [(6, 400), (7, 500)], 650, (600, True)),
        # nothing in common, nothing known
        ([(7, 500)], 700, [(6, 400)], 450, (0, False)),
        ([(1, 0)], 100, [], 100, (0, False)),
        ([], 100, [], 100, (0, False)),
    ],
)
def test_where_two_logs_part(
    ours: list[tuple[int, int]], our_end: int, theirs: list[tuple[int, int]], their_end: int, shared: tuple[int, bool]
) -> None:
    assert marks(*ours).shared(our_end, marks(*theirs), their_end) == shared
    assert marks(*theirs).shared(their_end, marks(*ours), our_end) == shared


def test_an_epoch_without_a_byte_has_no_mark() -> None:
    epochs = marks((1, 0))
    epochs.begin(2, 100)
    epochs.begin(3, 100)
    assert epochs.marks == marks((1, 0), (3, 100)).marks


@pytest.mark.parametrize(("epoch", "start"), [(2, 200), (1, 200), (3, 99), (2**31, 200), (3, 2**63)])
def test_an_epoch_that_cannot_begin(epoch: int, start: int) -> None:
    epochs = marks((1, 0), (2, 100))
    with pytest.raises(ValueError, match="epoch"):
        epochs.begin(epoch, start)
    assert epochs.marks == marks((1, 0), (2, 100)).marks


def test_a_number_is_not_used_again_after_a_cut() -> None:
    """Else a second epoch 3 from 150 would be taken for the first one, whose bytes another copy may have."""
    epochs = marks((1, 0), (2, 100), (3, 150))
    epochs.cut(160)
    assert epochs.marks == marks((1, 0), (2, 100), (3, 150)).marks
    epochs.cut(150)
    assert epochs.marks == marks((1, 0), (2, 100), (3, 150)).marks
    epochs.cut(120)
    assert epochs.marks == marks((1, 0), (2, 100), (3, 120)).marks
    with pytest.raises(ValueError, match="not newer"):
        epochs.begin(3, 150)
    epochs.begin(4, 120)
    assert epochs.marks == marks((1, 0), (2, 100), (4, 120)).marks


def test_the_oldest_mark_goes_when_there_are_too_many() -> None:
    epochs = marks(*((number, number * 10) for number in range(EPOCH_MARKS_MAX)))
    epochs.begin(EPOCH_MARKS_MAX, EPOCH_MARKS_MAX * 10)
    assert len(epochs.marks) == EPOCH_MARKS_MAX
    assert epochs.marks[0] == EpochMark(1, 10)


def test_the_text() -> None:
    assert encode_marks(marks((1, 0), (2, 4096))) == b"2\n%d\n1-0\n2-4096\n" % 1694929738
    assert encode_marks(marks()) == b"0\n0\n"
    of_a_group = EpochMarks([EpochMark(1, 0), EpochMark(2, 4096, "c1a1-m")])
    assert encode_marks(of_a_group).endswith(b"\n1-0\n2-4096-c1a1-m\n")
    assert decode_marks(encode_marks(of_a_group)).marks == of_a_group.marks
    with pytest.raises(ValueError, match="out of range"):
        EpochMarks([EpochMark(1, 0, "a\nb")])


@given(st.lists(st.tuples(st.integers(1, 1_000), st.integers(1, 1 << 40)), max_size=20))
def test_what_is_written_is_read(steps: list[tuple[int, int]]) -> None:
    epochs = EpochMarks()
    for epoch, start in steps:
        last = epochs.marks[-1] if epochs.marks else EpochMark(0, 0)
        epochs.begin(last.epoch + epoch, last.start + start)
    assert decode_marks(encode_marks(epochs)).marks == epochs.marks


def test_the_longest_text_can_be_read() -> None:
    last = 2**31 - 1 - EPOCH_MARKS_MAX
    longest = [(last + n, 2**63 - 1 - EPOCH_MARKS_MAX + n, "c" * 32) for n in range(EPOCH_MARKS_MAX)]
    text = encode_marks(EpochMarks(EpochMark(*one) for one in longest))
    assert len(text) <= EPOCH_TEXT_BYTES_MAX
    assert len(decode_marks(text).marks) == EPOCH_MARKS_MAX


def test_every_flipped_bit_is_noticed() -> None:
    text = encode_marks(marks((1, 0), (2, 4096), (9, 1 << 40)))
    for bit in range(len(text) * 8):
        flipped = bytearray(text)
        flipped[bit // 8] ^= 1 << bit % 8
        with pytest.raises(StoreDamagedError, match="list of epochs is damaged"):
            decode_marks(bytes(flipped))
    for size in range(len(text)):
        with pytest.raises(StoreDamagedError, match="damaged"):
            decode_marks(text[:size])


def summed(rest: bytes, count: int) -> bytes:
    from orbitmq.protocol.checksum import body_crc

    return b"%d\n%d\n" % (count, body_crc(rest)) + rest


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (summed(b"1-0\n2-50\n", 3), "no text of epochs"),
        (summed(b"1-0\n2-50", 2), "no text of epochs"),
        (summed(b"1-0\nx-50\n", 2), "invalid literal"),
        (summed(b"1-0\n250\n", 2), "invalid literal"),
        (summed(b"1-0\n02-50\n", 2), "no text of epochs"),
        (summed(b"1-0\n 2-50\n", 2), "no text of epochs"),
        (summed("1-0\n٢-50\n".encode(), 2), "invalid literal"),
        (summed(b"2-0\n1-50\n", 2), "follows epoch"),
        (summed(b"1-50\n2-50\n", 2), "follows epoch"),
        (summed(b"1-9223372036854775808\n", 1), "out of range"),
        (b"1" * (EPOCH_TEXT_BYTES_MAX + 1), "it has 65537 bytes"),
    ],
)
def test_a_sum_that_fits_is_not_enough(text: bytes, words: str) -> None:
    with pytest.raises(StoreDamagedError, match=words):
        decode_marks(text)
