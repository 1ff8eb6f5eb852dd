"""Frames between members of a group: whole, cut anywhere, flipped, too long, of nobody."""

from __future__ import annotations

import random
import struct

import pytest

from orbitmq.errors import ReplicationFrameError
from orbitmq.limits.group import MEMBER_FRAME_BYTES_MAX, MEMBER_HELLO_BYTES_MAX
from orbitmq.protocol.checksum import crc32
from orbitmq.protocol.replication.member_frames import (
    HELLO_KIND,
    FrameReader,
    MemberHello,
    encode_frame,
    greeting,
    read_greeting,
)
from orbitmq.replication import replica_steps as steps
from orbitmq.replication.epoch_marks import EpochMark
from orbitmq.server.replication.group.member_messages import KINDS, check, encode

SESSION = ("life", 3)
MESSAGES = [
    steps.Hello("a", 4, SESSION),
    steps.Welcome("a", 4, SESSION, (EpochMark(1, 0), EpochMark(3, 900)), 1_200, 0),
    steps.Follow("a", 4, SESSION, 900),
    steps.Records("a", 4, SESSION, 900, b"\0\1" * 200, 880, 1_790_000_000_000),
    steps.Records("a", 4, SESSION, 1_300, b"", 1_300, 1_790_000_000_000),
    steps.Report("a", 4, SESSION, 1_300),
    steps.Standing("a", 4, True, 3, 1_300),
    steps.YourTurn("a", 4),
]
HELLO = MemberHello(1, "cluster", "trio", "a", "b", "0" * 32, "life", 4)


def reader() -> FrameReader:
    made = FrameReader(KINDS)
    made.hello_came()
    return made


def taken(frames: FrameReader) -> list[object]:
    found = []
    while (message := frames.take()) is not None:
        found.append(message)
    return found


@pytest.mark.parametrize("seed", range(3))
def test_messages_come_whole_however_they_are_cut(seed: int) -> None:
    chance, frames, found = random.Random(seed), reader(), []
    stream = b"".join(map(encode, MESSAGES))
    while stream:
        size = chance.choice((1, 2, 7, 50, 400))
        frames.receive(stream[:size])
        stream = stream[size:]
        found += taken(frames)
    assert found == MESSAGES


def test_every_flipped_bit_is_noticed_or_waits_for_more() -> None:
    whole = encode(MESSAGES[3])
    for bit in range(8 * len(whole)):
        flipped = bytearray(whole)
        flipped[bit // 8] ^= 1 << bit % 8
        frames = reader()
        frames.receive(bytes(flipped))
        try:
            assert frames.take() is None, "a longer frame is waited for"
        except ReplicationFrameError:
            continue


@pytest.mark.parametrize(
    ("frame", "why"),
    [
        (struct.pack(">iI", 0, 0), "announces 0 bytes"),
        (struct.pack(">iI", -1, 0), "announces -1 bytes"),
        (struct.pack(">iI", MEMBER_FRAME_BYTES_MAX + 1, 0), "announces"),
        (struct.pack(">iI", 1, crc32(b"\x63")) + b"\x63", "the kind 99"),
        (struct.pack(">iI", 2, crc32(b"\x01\x90")) + b"\x01\x90", "cannot be read"),
        (encode_frame(1, ("a", -1, SESSION)), "epoch"),  # type: ignore[arg-type]
        (encode_frame(1, ("a" * 200, 1, SESSION)), "200 characters"),  # type: ignore[arg-type]
        (encode_frame(1, ("a", 1, ("", 1))), "session"),  # type: ignore[arg-type]
        (encode_frame(5, ("a", 1, SESSION, -5)), "end"),  # type: ignore[arg-type]
        (encode_frame(5, ("a", 1, SESSION, "5")), "cannot be read"),  # type: ignore[arg-type]
    ],
)
def test_what_breaks_the_protocol_is_refused(frame: bytes, why: str) -> None:
    frames = reader()
    frames.receive(frame)
    with pytest.raises(ReplicationFrameError, match=why):
        frames.take()


def test_before_the_hello_no_long_frame_is_kept() -> None:
    frames = FrameReader(KINDS)
    frames.receive(struct.pack(">iI", MEMBER_HELLO_BYTES_MAX + 1, 0))
    with pytest.raises(ReplicationFrameError):
        frames.take()


def test_a_hello_is_proved_with_the_secret_and_the_nonce() -> None:
    nonce = bytes(range(16))
    frames = FrameReader(KINDS)
    frames.receive(encode_frame(HELLO_KIND, HELLO.proved(nonce, "secret")))
    said = frames.take()
    assert isinstance(said, MemberHello)
    assert said.is_proved(nonce, "secret")
    assert not said.is_proved(nonce, "another")
    assert not said.is_proved(bytes(16), "secret"), "overheard at another connection"
    assert not said._replace(sender="c").is_proved(nonce, "secret")
    assert not HELLO.is_proved(nonce, "secret")
    assert read_greeting(greeting(nonce)) == nonce
    with pytest.raises(ReplicationFrameError):
        read_greeting(b"HTTP/1.1 400 Bad Request"[:24])


def test_messages_are_their_senders_and_marks_rise() -> None:
    for message in MESSAGES:
        assert check(message, "a") == message
        with pytest.raises(ReplicationFrameError, match="sent a message of 'a'"):
            check(message, "b")
    with pytest.raises(ReplicationFrameError, match="a second hello"):
        check(HELLO, "a")
    falling = steps.Welcome("a", 4, SESSION, (EpochMark(3, 0), EpochMark(1, 900)), 1_200)
    with pytest.raises(ReplicationFrameError, match="epochs"):
        check(falling, "a")
    with pytest.raises(ReplicationFrameError, match="begins at 5"):
        check(steps.Welcome("a", 4, SESSION, (), 4, 5), "a")
