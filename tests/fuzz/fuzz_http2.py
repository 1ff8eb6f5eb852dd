"""Fuzzer of HTTP/2. Run: `python tests/fuzz/fuzz_http2.py --count 1000000 --seed 7`.

An input is what a client sends behind its preface and settings. Nothing but an Http2Error escapes, cutting changes nothing, and what our
connection takes, libnghttp2 or h2 takes as well and reads the same. Passed over is what both refuse and RFC 9113 does not: requests without
an authority, and `OTHER_RULES`.
"""

from __future__ import annotations

import struct
import sys
from pathlib import Path

from mutations import peak_kib, run

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.worlds.http2_frames import data, frame, headers, ping, reset, settings, window
from tests.worlds.http2_judges import FIRST, LIMITS, Read, TalkMaker, by_h2, by_nghttp2, ours, reason_of_nghttp2

from orbitmq.protocol.http2.connection import Http2Connection
from orbitmq.protocol.http2.events import RequestStarted

CORPUS_COUNT = 300
MEMORY_KIB_MAX = 256 * 1024
OTHER_RULES = (
    b"depend on itself",
    b"SETTINGS_ENABLE_CONNECT_PROTOCOL",
    b"SETTINGS_NO_RFC7540_PRIORITIES",
    b"invalid last_stream_id",
)
"""Of priorities, which are gone, of extensions that we do not have, and of the last stream that a client names when it goes away: without
pushes there is none."""
TOKENS = [
    headers(1),
    headers(7, end=True),
    data(1, b"x", padding=3),
    data(3, end=True),
    headers(1, end=True, fields=[(b"checksum", b"1")]),
    frame(9, 4, 1, b""),
    ping(),
    reset(1),
    window(0, 2**31 - 1),
    window(1, 2**31 - 1),
    settings(INITIAL_WINDOW_SIZE=2**31 - 1),
    settings(MAX_FRAME_SIZE=0),
    b"\x40\x0econtent-length\x015",
]


def corpus() -> list[bytes]:
    maker = TalkMaker(7)
    return [maker.talk().sent[len(FIRST) :] for _ in range(CORPUS_COUNT)]


def whole(sent: bytes) -> bytes:
    """The frames up to the last place where neither a frame nor a header block is begun and not ended."""
    at = end = 0
    in_block = False
    while at + 9 <= len(sent):
        word, flags = struct.unpack_from(">IB", sent, at)
        at += 9 + (word >> 8)
        if at > len(sent):
            break
        if word & 0xFF in (1, 9):
            in_block = not flags & 4
        if not in_block:
            end = at
    return sent[:end]


def parse(sent: bytes) -> str:
    talk = FIRST + sent
    size = 1 + len(talk) // 3
    assert ours([talk[at : at + size] for at in range(0, len(talk), size)]) == ours([talk])
    talk = FIRST + whole(sent)
    read = ours([talk])
    if read.refused:
        return "refused"
    return "read" if agreed(talk, read) else "passed over"


def agreed(talk: bytes, read: Read) -> bool:
    """Whether another server reads the same; False when the others refuse what only they may refuse."""
    theirs = by_nghttp2(talk)
    if theirs == read or by_h2(talk) == read:
        return True
    assert theirs.refused, "libnghttp2 reads something else"
    named = [dict(pairs) for pairs in begun(talk)]
    if all(b":authority" in fields or b"host" in fields for fields in named):
        reason = reason_of_nghttp2(talk)
        assert any(rule in reason for rule in OTHER_RULES), reason
    return False


def begun(talk: bytes) -> list[list[tuple[bytes, bytes]]]:
    """The fields of every request, those that were reset included."""
    events = Http2Connection(LIMITS).receive_data(talk)
    return [event.fields.pairs for event in events if isinstance(event, RequestStarted)]


if __name__ == "__main__":
    status = run("http2", corpus(), parse, TOKENS, refusals=())
    used = peak_kib()
    print(f"http2: at most {used // 1024} MiB of memory")
    assert used < MEMORY_KIB_MAX, "a connection kept memory it should not need"
    sys.exit(status)
