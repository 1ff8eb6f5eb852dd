"""An open-loop generator of sends: it offers what it was told to, whether or not anybody keeps up.

Rules of this file
1. One process per generator (`python overload.py ...`), so that it does not share a core's interpreter with the test.
2. Frames are made before the clock starts. What the socket does not take is not sent later in a burst but counted as
   held back: TCP's own flow control is part of what is tested.
3. Every answer is counted by its code; the identity of every accepted message is kept for the reconciliation.
"""

from __future__ import annotations

import argparse
import json
import re
import selectors
import socket
import sys
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from server_process import send_fields

from orbitmq.protocol.remoting.commands import RequestCode
from orbitmq.protocol.remoting.frame import encode, request

ANSWER = re.compile(rb'"code":(\d+)')
TOKEN = re.compile(rb"\[([A-Z_]+)\]")
OFFSET = re.compile(rb'"msgId":"[0-9A-F]{16}([0-9A-F]{16})"')
TICK_S = 0.005


class Lane:
    """One connection."""

    def __init__(self, port: int, frame: bytes) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setblocking(False)
        self.frame = frame
        self.unsent = b""
        self.got = b""
        self.sent = 0
        self.answered = 0


class Generator:
    def __init__(self, port: int, lanes: int, topic: str, size: int) -> None:
        frame = encode(request(RequestCode.SEND_MESSAGE_V2, send_fields(topic), b"x" * size, opaque=1))
        self.lanes = [Lane(port, frame) for _ in range(lanes)]
        self.codes: Counter[int] = Counter()
        self.tokens: Counter[str] = Counter()
        self.offsets: list[int] = []
        self.held_back = 0
        self._selector = selectors.DefaultSelector()
        for lane in self.lanes:
            self._selector.register(lane.socket, selectors.EVENT_READ, lane)

    def offer(self, rate: float, seconds: float, window: int | None = None) -> None:
        """With a `window` the loop is closed: no connection has more than that many unanswered."""
        began = time.monotonic()
        given = 0
        while (now := time.monotonic()) < began + seconds:
            due = int((now - began) * rate)
            share = (due - given) // len(self.lanes)
            if share:
                for lane in self.lanes:
                    room = share if window is None else min(share, window - lane.sent + lane.answered)
                    self._send(lane, room)
                given += share * len(self.lanes)
            self._receive(TICK_S)

    def drain(self, limit_s: float) -> None:
        """Send no more whole frames, finish those begun, and take the answers that are still to come."""
        ends = time.monotonic() + limit_s
        while time.monotonic() < ends and any(lane.unsent or lane.answered < lane.sent for lane in self.lanes):
            for lane in self.lanes:
                if lane.unsent:
                    self._send(lane, 0)
            self._receive(0.02)

    def _send(self, lane: Lane, count: int) -> None:
        if lane.unsent and count:
            self.held_back += count
            count = 0
        data = lane.unsent or lane.frame * count
        lane.sent += count
        if not data:
            return
        try:
            lane.unsent = data[lane.socket.send(data) :]
        except BlockingIOError:
            lane.unsent = data
        # Frames that were not begun are not owed.
        whole, begun = divmod(len(lane.unsent), len(lane.frame))
        if whole:
            lane.unsent = lane.unsent[:begun]
            lane.sent -= whole
            self.held_back += whole

    def _receive(self, timeout_s: float) -> None:
        for key, _ in self._selector.select(timeout_s):
            lane: Lane = key.data
            data = lane.socket.recv(1 << 18)
            if not data:
                raise ConnectionError("the server closed a connection")
            # Nothing that is looked for contains a brace, so a cut after one splits nothing.
            got = lane.got + data
            cut = got.rfind(b"}") + 1
            answers, lane.got = got[:cut], got[cut:]
            codes = Counter(ANSWER.findall(answers))
            lane.answered += codes.total()
            self.codes.update({int(code): count for code, count in codes.items()})
            self.tokens.update(token.decode() for token in TOKEN.findall(answers))
            self.offsets += [int(place, 16) for place in OFFSET.findall(answers)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--lanes", type=int, default=16)
    parser.add_argument("--rate", type=float, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--window", type=int)
    parser.add_argument("--topic", default="flood")
    parser.add_argument("--size", type=int, default=1024)
    options = parser.parse_args()
    generator = Generator(options.port, options.lanes, options.topic, options.size)
    began = time.monotonic()
    generator.offer(options.rate, options.seconds, options.window)
    ended = time.monotonic()
    generator.drain(30)
    json.dump(
        {
            "seconds": ended - began,
            "drain_s": time.monotonic() - ended,
            "offered": sum(lane.sent for lane in generator.lanes) + generator.held_back,
            "sent": sum(lane.sent for lane in generator.lanes),
            "held_back": generator.held_back,
            "codes": generator.codes,
            "tokens": generator.tokens,
            "offsets": generator.offsets,
        },
        sys.stdout,
    )


if __name__ == "__main__":
    main()
