"""Fuzzer of the remoting frame reader. Run: `python tests/fuzz/fuzz_frames.py --count 1000000 --seed 7`.

For every input, as it is and once more with its length field put right: the frame is read or refused; cutting the input
anywhere changes nothing; the connection never holds more than it was given; what was read is written and read again equal.
"""

from __future__ import annotations

import base64
import json
import lzma
import sys
from pathlib import Path

from mutations import hex_corpus, peak_kib, run

from orbitmq.errors import FrameError
from orbitmq.protocol.remoting.connection import Connection
from orbitmq.protocol.remoting.frame import Command, decode, encode

TESTS = Path(__file__).resolve().parents[1]
MEMORY_KIB_MAX = 512 * 1024
TOKENS = [
    b'"code":',
    b'"extFields":{',
    b'"language":9',
    b'"opaque":2147483648',
    b"null",
    b"true",
    b"1e999",
    b"{" * 50,
    b"[" * 2000,
    b'"\\ud800"',
    b"\xc3\x28",
    b"\0\0\0\x04\0\0\0\0",
]


def corpus() -> list[bytes]:
    inputs = hex_corpus(TESTS / "fuzz" / "corpus" / "frames.hex")
    for path in sorted((TESTS / "vectors" / "remoting").glob("*.jsonl.xz")):
        with lzma.open(path, "rt", encoding="utf-8") as lines:
            frames = [base64.b64decode(json.loads(line)["frame_b64"]) for line in lines]
        inputs += [frame for frame in frames if len(frame) < 1500]
    return inputs


def parse(data: bytes) -> str:
    outcome = _stream(data)
    fixed = max(len(data) - 4, 0).to_bytes(4, "big") + data[4:]
    try:
        command = decode(fixed)
    except FrameError:
        return outcome
    _check_round_trip(command)
    assert _stream(fixed) == "read"
    return "read with its length put right" if outcome != "read" else outcome


def _stream(data: bytes) -> str:
    whole, whole_failed = _receive(data, len(data) or 1)
    for size in (1 + len(data) // 3, 7):
        pieces, pieces_failed = _receive(data, size)
        assert pieces == whole
        assert pieces_failed == whole_failed
    for command in whole:
        _check_round_trip(command)
    return "closed" if whole_failed else "read" if whole else "incomplete"


def _receive(data: bytes, size: int) -> tuple[list[Command], bool]:
    connection = Connection()
    commands: list[Command] = []
    for at in range(0, len(data), size):
        try:
            commands += connection.receive_data(data[at : at + size])
        except FrameError:
            break
        assert connection.pending_bytes <= len(data)
    return commands, connection.failure is not None


def _check_round_trip(command: Command) -> None:
    again = decode(encode(command))
    if command.language is None:  # an unknown language has no form of its own
        again.language = None
    assert again == command


if __name__ == "__main__":
    status = run("frames", corpus(), parse, TOKENS, refusals=())
    used = peak_kib()
    print(f"frames: at most {used // 1024} MiB of memory")
    assert used < MEMORY_KIB_MAX, "the reader kept memory it should not need"
    sys.exit(status)
