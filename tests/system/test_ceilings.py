"""What a send costs and how late timed messages are has a ceiling, wide enough for a busy machine: a slip by a factor is seen here, a
slip by a tenth in the benchmarks.

The best of some rounds counts: a machine that is busy with other things makes single rounds slow, a defect makes all.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import count
from statistics import median

import pytest
from server_process import RawClient, ServedProcess, pull_fields, send_fields

from orbitmq.protocol.records import iter_records
from orbitmq.protocol.remoting.commands import RequestCode, ResponseCode
from orbitmq.protocol.remoting.frame import encode, request

pytestmark = pytest.mark.alone  # it measures processor time and lateness

ROUNDS = 4

SEND_CPU_US_MAX = 72.0
"""Four times what a send of 1 KB cost in the table of README.md, 4 connections with 32 in flight each."""
SENDS = 8_000
IN_FLIGHT = 32
CONNECTIONS = 4

LATENESS_MS_MAX = 30.0
"""Of the median. Alone it is 1 to 3 ms, of which the test itself takes its share."""
TIMED = 16
APART_MS = 40
AHEAD_MS = 500
LEVEL_1_MS = 1_000


def best(measure: Callable[[], float], ceiling: float) -> float:
    """The smallest of some measurements; no more of them than are needed."""
    found: list[float] = []
    while len(found) < ROUNDS and (not found or min(found) > ceiling):
        found.append(measure())
    return min(found)


def test_processor_time_of_a_send(serve: Callable[..., ServedProcess], figure: Callable[[str], None]) -> None:
    server = serve()
    server.create_topic("orders", 4)
    clients = [server.client() for _ in range(CONNECTIONS)]
    body = bytes(1_024)
    frames = [
        b"".join(
            encode(request(RequestCode.SEND_MESSAGE_V2, send_fields(e=queue), body, opaque=number))
            for number in range(IN_FLIGHT)
        )
        for queue in range(CONNECTIONS)
    ]

    def send_all(sends: int) -> None:
        for _ in range(sends // (IN_FLIGHT * CONNECTIONS)):
            for client, data in zip(clients, frames, strict=True):
                client.write(data)
            for client in clients:
                for _ in range(IN_FLIGHT):
                    assert client.read().code == ResponseCode.SUCCESS

    def measure() -> float:
        before = server.cpu_s()
        send_all(SENDS)
        return (server.cpu_s() - before) / SENDS * 1e6

    send_all(SENDS // 4)
    found = best(measure, SEND_CPU_US_MAX)
    figure(f"processor time of a send, {CONNECTIONS} connections with {IN_FLIGHT} in flight: {found:.1f} us")
    assert found <= SEND_CPU_US_MAX
    server.stop()


def lateness_ms(reader: RawClient, offset: int, due_ms: list[int]) -> float:
    """The median over messages that a pull waits for, from `offset` on."""
    late: list[float] = []
    while len(late) < len(due_ms):
        fields = pull_fields(offset=offset + len(late), sysFlag=6, suspendTimeoutMillis=10_000)
        answer = reader.call(RequestCode.PULL_MESSAGE, fields)
        now_ms = time.time() * 1e3
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        late += [now_ms - due_ms[len(late) + number] for number, _ in enumerate(iter_records(bytes(answer.body)))]
    assert min(late) >= 0, "never early"
    return median(late)


@pytest.mark.parametrize("kind", ["timer", "delay level"])
def test_lateness_of_what_is_timed(
    serve: Callable[..., ServedProcess], figure: Callable[[str], None], kind: str
) -> None:
    server = serve()
    server.create_topic("orders")
    sender, reader = server.client(), server.client()
    rounds = count()

    def send(**properties: str) -> None:
        answer = sender.call(RequestCode.SEND_MESSAGE_V2, send_fields(properties=properties), b"x")
        assert answer.code == ResponseCode.SUCCESS, answer.remark

    def measure() -> float:
        due_ms: list[int] = []
        first_ms = int(time.time() * 1e3) + AHEAD_MS
        for number in range(TIMED):
            if kind == "timer":
                due_ms.append(first_ms + number * APART_MS)
                send(UNIQ_KEY=f"{number}", TIMER_DELIVER_MS=str(due_ms[-1]))
            else:
                due_ms.append(int(time.time() * 1e3) + LEVEL_1_MS)
                send(UNIQ_KEY=f"{number}", DELAY="1")
                time.sleep(APART_MS / 1e3)
        return lateness_ms(reader, next(rounds) * TIMED, due_ms)

    found = best(measure, LATENESS_MS_MAX)
    figure(f"lateness of a {kind}, median of {TIMED}, until it was received: {found:.1f} ms")
    assert found <= LATENESS_MS_MAX
    server.stop()
