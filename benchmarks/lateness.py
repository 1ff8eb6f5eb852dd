"""How late does a broker deliver delayed messages? Sends them, receives them by long polling, prints one JSON line.

Rules of this file
1. "lateness_ms" counts by the clock of this process: time of receiving minus due time. For delay levels the due time is
   the moment the send was written plus the delay of the level; "lateness_after_ack_ms" counts from the moment its answer
   came. The true figure lies between the two.
2. A message received before its due time is early (levels: before written + delay, which is never after the true one).
3. Every body carries its number and due time, every record's CRC is checked: early, duplicate, missing, foreign and
   damaged messages are counted exactly. `faulty_broker.py` proves it.
4. With a background load, that load is sent by the load generator in a process of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import selectors
import socket
import struct
import subprocess
import sys
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import rigpath  # noqa: F401

# isort: split
from rig.process import cpu_us
from rig.wire import (
    CREATE_TOPIC,
    PULL,
    PULL_NOT_FOUND,
    PULL_OFFSET_MOVED,
    PULL_RETRY_IMMEDIATELY,
    SEND_V2,
    SUCCESS,
    Wire,
    encode_properties,
    frame,
    parse_header,
    pull_fields,
    send_fields,
    topic_fields,
)

LEVELS: Final = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
UNIT_MS: Final = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
MARK: Final = b"late"
MARK_SIZE: Final = 20
"""Mark, number (8 bytes), due time (8 bytes)."""
GOLDEN: Final = 0.6180339887498949
"""Spreads due times so that neighbours in time are not neighbours in the queue."""
DUPLICATES_FOR_S: Final = 1.0


def level_ms(table: str, level: int) -> int:
    """Delay of a level of a table like LEVELS."""
    text = table.split()[level - 1]
    return int(text[:-1]) * UNIT_MS[text[-1]]


def quantiles(values: list[float]) -> dict[str, float] | None:
    """min, mean, p50, p99, p99.9, max in ms with one decimal; None without values."""
    if not values:
        return None
    ordered = sorted(values)
    picks = {"p50": 0.5, "p99": 0.99, "p99.9": 0.999, "max": 1.0}
    found = {name: round(ordered[int((len(ordered) - 1) * q)], 1) for name, q in picks.items()}
    return {"min": round(ordered[0], 1), "mean": round(sum(ordered) / len(ordered), 1), **found}


class Lane:
    """One non-blocking connection."""

    def __init__(self, host: str, port: int, selector: selectors.BaseSelector) -> None:
        self._sock = socket.create_connection((host, port), 10)
        self._sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._sock.setblocking(False)
        self._in, self._out, self._selector = bytearray(), bytearray(), selector
        self.in_flight = 0
        selector.register(self._sock, selectors.EVENT_READ, self)

    def write(self, data: bytes) -> None:
        self._out += data
        self.push()

    def close(self) -> None:
        self._selector.unregister(self._sock)
        self._sock.close()

    def push(self) -> None:
        """Send what fits; ask for a wake-up for the rest."""
        try:
            while self._out:
                del self._out[: self._sock.send(self._out)]
        except BlockingIOError:
            pass  # the selector reports when there is room again
        self._selector.modify(self._sock, selectors.EVENT_READ | (selectors.EVENT_WRITE if self._out else 0), self)

    def frames(self) -> Iterator[tuple[dict[str, Any], bytes]]:
        """Read what is there; yield (header, body) of whole answers."""
        try:
            while part := self._sock.recv(1 << 20):
                self._in += part
                if len(part) < 1 << 16:
                    break
            else:
                sys.exit("connection closed by the server")
        except BlockingIOError:
            pass  # everything there was has been read
        at, data = 0, self._in
        while len(data) - at >= 8:
            total, mark = struct.unpack_from(">iI", data, at)
            if len(data) - at < 4 + total:
                break
            size = mark & 0xFFFFFF
            yield (
                parse_header(bytes(data[at + 8 : at + 8 + size]), mark >> 24),
                bytes(data[at + 8 + size : at + 4 + total]),
            )
            at += 4 + total
        del data[:at]


class Meter:
    """One measurement."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.count: int = options.count or (1000 if options.shape == "spread" else 5000)
        self.topic: str = options.topic or f"LATE_{os.getpid()}_{int(time.time())}"
        self.delay_ms = 0 if options.timer else level_ms(options.levels, options.level)
        self.lead_ms = options.lead_ms or (3000 if self.count <= 10_000 else 5000 + self.count // 4)
        self.paced = not options.timer and options.shape == "spread"
        self.due, self.acked = [0.0] * self.count, [0.0] * self.count
        self.seen = bytearray(self.count)
        self.failed: dict[int, int] = {}
        self.late: list[float] = []
        self.late_after_ack: list[float] = []
        self.ok = self.got = self.sent = self.duplicates = self.early = self.foreign = self.bad_crc = 0
        self.last_answer = self.first_received = self.last_received = 0.0
        self._selector = selectors.DefaultSelector()
        self._senders: list[Lane] = []
        self._receivers: list[Lane] = []
        self._offsets = [0] * options.queues

    def run(self) -> dict[str, Any]:
        options = self.options
        with Wire(options.port, options.host) as setup:
            setup.call(CREATE_TOPIC, topic_fields(self.topic, options.queues))
        background = self._start_background() if options.bg else None
        self._senders = [Lane(options.host, options.port, self._selector) for _ in range(2)]
        self._receivers = [Lane(options.host, options.port, self._selector) for _ in range(min(4, options.queues))]
        for queue_id in range(options.queues):
            self._pull(queue_id)
        time.sleep(0.2)
        cpu = cpu_us(options.pid) if options.pid else 0
        self._start = time.time() * 1000
        self._base = self._start + self.lead_ms
        if options.align_ms:
            self._base = (int(self._base) // options.align_ms + 1) * options.align_ms + options.phase_ms
        self._exchange()
        cpu = cpu_us(options.pid) - cpu if options.pid else 0
        self._wait_for_duplicates()
        found = self._findings()
        if options.pid:
            found["server_cpu_us_per_msg"] = round(cpu / max(1, self.got), 1)
            found["window_s"] = round((self.last_received - self._start) / 1000, 2)
        if background is not None:
            load = json.loads(background.communicate(timeout=120)[0])
            found["bg"] = {
                name: load[name] for name in ("ok", "failed", "rate", "p50_us", "p99_us", "p999_us", "max_us")
            }
        found["load1"] = round(os.getloadavg()[0], 2)
        return found

    def _start_background(self) -> subprocess.Popen[bytes]:
        options = self.options
        seconds = (self.lead_ms + self.delay_ms + options.over_ms) / 1000 + 3 + self.count / 20_000
        command = [
            options.loadgen,
            "--host",
            options.host,
            "--port",
            str(options.port),
            "--topic",
            "BG_LOAD",
            "--conns",
            "4",
            "--window",
            "64",
        ]
        command += ["--size", "1024", "--rate", str(options.bg), "--count", str(int(options.bg * seconds))]
        background = subprocess.Popen(command, stdout=subprocess.PIPE)
        time.sleep(1)
        return background

    def _pull(self, queue_id: int) -> None:
        fields = pull_fields(self.topic, queue_id, self._offsets[queue_id])
        self._receivers[queue_id % len(self._receivers)].write(frame(PULL, fields, queue_id + 1))

    def _exchange(self) -> None:
        """Send everything, receive until everything accepted has come or the grace has passed."""
        step = self.options.over_ms / self.count
        while self.got < self.count - sum(self.failed.values()):
            self._send_what_may_go(step)
            wait = 0.5
            if self.sent < self.count and self.paced:
                wait = max(0.0, min(wait, (self._start + self.sent * step - time.time() * 1000) / 1000))
            for key, mask in self._selector.select(wait):
                lane: Lane = key.data
                if mask & selectors.EVENT_WRITE:
                    lane.push()
                if mask & selectors.EVENT_READ:
                    for head, body in lane.frames():
                        if lane in self._senders:
                            self._on_answer(lane, head)
                        else:
                            self._on_pull(head, body)
            if self.sent >= self.count and time.time() * 1000 > max(self.due) + self.options.grace * 1000:
                break

    def _send_what_may_go(self, step: float) -> None:
        options, pad = self.options, b"x" * max(0, self.options.size - MARK_SIZE)
        while self.sent < self.count:
            number, now = self.sent, time.time() * 1000
            lane = self._senders[number % 2]
            if (self.paced and now < self._start + number * step) or lane.in_flight >= options.window:
                return
            if options.timer:
                spread = (number * GOLDEN % 1) * options.over_ms if options.shape == "spread" else 0
                due = int(self._base + spread)
                properties = {"TIMER_DELIVER_MS": str(due)}
            else:
                due = int(now) + self.delay_ms
                properties = {"DELAY": str(options.level)}
            properties |= {"UNIQ_KEY": f"{os.getpid():016X}{number:016X}", "WAIT": "true"}
            self.due[number] = due
            lane.in_flight += 1
            fields = send_fields(self.topic, number % options.queues, int(now), encode_properties(properties))
            lane.write(frame(SEND_V2, fields, number + 1, MARK + struct.pack(">qd", number, due) + pad))
            self.sent += 1

    def _on_answer(self, lane: Lane, head: dict[str, Any]) -> None:
        lane.in_flight -= 1
        self.last_answer = time.time() * 1000
        if head["code"] == SUCCESS:
            self.ok += 1
            self.acked[head["opaque"] - 1] = self.last_answer
        else:
            self.failed[head["code"]] = self.failed.get(head["code"], 0) + 1

    def _on_pull(self, head: dict[str, Any], body: bytes) -> None:
        now, queue_id = time.time() * 1000, head["opaque"] - 1
        if head["code"] not in (SUCCESS, PULL_NOT_FOUND, PULL_RETRY_IMMEDIATELY, PULL_OFFSET_MOVED):
            sys.exit(f"pull answered {head}")
        self._offsets[queue_id] = int(head["extFields"].get("nextBeginOffset", self._offsets[queue_id]))
        self._pull(queue_id)
        at = 0
        while at < len(body):
            size, crc, sys_flag = struct.unpack_from(">i4xi24xi", body, at)
            hosts = 24 if sys_flag & 0x30 == 0x30 else 12 if sys_flag & 0x30 else 0
            self._on_body(body, at + 76 + hosts + 8, crc, now)
            at += size

    def _on_body(self, body: bytes, at: int, crc: int, now: float) -> None:
        (length,) = struct.unpack_from(">i", body, at)
        payload = body[at + 4 : at + 4 + length]
        self.bad_crc += zlib.crc32(payload) & 0x7FFFFFFF != crc
        if payload[:4] != MARK:
            self.foreign += 1
            return
        number, due = struct.unpack_from(">qd", payload, 4)
        if self.seen[number]:
            self.duplicates += 1
            return
        self.seen[number] = 1
        self.got += 1
        self.late.append(now - due)
        if not self.options.timer:
            self.late_after_ack.append(now - self.delay_ms - self.acked[number] if self.acked[number] else 0.0)
        self.early += now < due
        self.last_received, self.first_received = now, self.first_received or now

    def _wait_for_duplicates(self) -> None:
        end = time.time() + DUPLICATES_FOR_S
        while time.time() < end:
            for key, _mask in self._selector.select(0.1):
                for head, body in key.data.frames():
                    if key.data in self._receivers and head["code"] == SUCCESS:
                        self.duplicates += len(body) > 0

    def _findings(self) -> dict[str, Any]:
        options = self.options
        found: dict[str, Any] = {
            "kind": "timer" if options.timer else f"level{options.level}",
            "shape": options.shape,
            "size": options.size,
            "count": self.count,
            "bg_rate": options.bg,
            "sent": self.ok,
            "failed": self.failed,
            "received": self.got,
            "early": self.early,
            "duplicates": self.duplicates,
            "missing": self.ok - self.got,
            "foreign": self.foreign,
            "bad_crc": self.bad_crc,
            "lateness_ms": quantiles(self.late),
            "intake_per_s": round(self.ok / max(1e-3, (self.last_answer - self._start) / 1000)),
        }
        if self.late_after_ack:
            found["lateness_after_ack_ms"] = quantiles(self.late_after_ack)
        if options.shape == "burst":
            found["due_to_last_ms"] = round(self.last_received - max(self.due), 1)
            found["sent_before_due_ms"] = round(min(self.due) - self.last_answer, 1)
            found["delivery_per_s"] = round(self.got / max(1e-3, (self.last_received - self.first_received) / 1000))
        return found


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--host", default="127.0.0.1")
    add("--port", type=int, default=10911)
    add("--level", type=int, default=0, help="delay level; due = send time + delay of the level")
    add("--timer", action="store_true", help="TIMER_DELIVER_MS instead; due = that time")
    add("--levels", default=LEVELS, help="the broker's table of levels")
    add("--shape", choices=["spread", "burst"], default="spread", help="due times over --over-ms, or all at once")
    add("--count", type=int, default=0, help="messages (1000 spread, 5000 burst)")
    add("--size", type=int, default=128, help="body bytes")
    add("--queues", type=int, default=8)
    add("--topic", default="")
    add("--over-ms", type=int, default=4000)
    add("--lead-ms", type=int, default=0, help="timers: first due time after the start")
    add("--align-ms", type=int, default=0, help="timers: due times moved up to a multiple of this")
    add("--phase-ms", type=int, default=0, help="timers: added after aligning")
    add("--window", type=int, default=64, help="sends in flight on each of two connections")
    add("--grace", type=float, default=60, help="seconds to wait after the last due time")
    add("--pid", type=int, default=0, help="server process: CPU of its tree per message, sending and delivery")
    add("--bg", type=int, default=0, help="plain sends a second meanwhile")
    add("--loadgen", type=Path, default=Path("loadgen"), help="the compiled load generator, for --bg")
    options = parser.parse_args()
    if bool(options.level) == options.timer:
        parser.error("one of --level and --timer")
    return options


if __name__ == "__main__":
    print(json.dumps(Meter(arguments()).run()))
