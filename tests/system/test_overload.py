"""Three times the capacity: SYSTEM_BUSY for what is too much, everything accepted stored, bounded memory, and normal
latency again within ten seconds.

`make overload` runs it for a minute; in the test run it lasts a few seconds. No speed is asserted, only counts, memory and
the ten seconds, which are a promise.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from server_process import RawClient, ServedProcess, clean_environment, pull_fields, send_fields

from orbitmq.limits.server import WAITING_REQUESTS_BYTES_MAX
from orbitmq.protocol.remoting.commands import RequestCode, ResponseCode

pytestmark = pytest.mark.alone  # it offers multiples of what the machine can do

SECONDS = float(os.environ.get("OVERLOAD_SECONDS", "6"))
RECOVERY_S = 10.0
LANES = 48
"""What one turn reads of so many connections lasts longer than a send may wait, on a quick machine too: TCP alone does not hold it back."""
RSS_BOUND_MB = 150 + WAITING_REQUESTS_BYTES_MAX / 1e6


def generate(
    server: ServedProcess, rate: float, seconds: float, lanes: int = 16, window: int | None = None
) -> dict[str, Any]:
    """Two generator processes (one Python process cannot offer three times the capacity)."""
    running = [
        subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("overload.py")), "--port", str(server.port),
             "--rate", str(rate / 2), "--seconds", str(seconds), "--lanes", str(lanes // 2),
             *(["--window", str(window)] if window is not None else [])],
            stdout=subprocess.PIPE, env=clean_environment(),
        )
        for _ in range(2)
    ]  # fmt: skip
    results = []
    for process in running:
        output, _ = process.communicate(timeout=seconds + 90)
        assert process.returncode == 0
        results.append(json.loads(output))
    together: dict[str, Any] = {"codes": {}, "tokens": {}, "offsets": []}
    for result in results:
        for name in ("codes", "tokens"):
            for key, count in result[name].items():
                together[name][key] = together[name].get(key, 0) + count
        together["offsets"] += result["offsets"]
        for name in ("offered", "sent", "held_back"):
            together[name] = together.get(name, 0) + result[name]
        together["drain_s"] = max(together.get("drain_s", 0.0), result["drain_s"])
    return together


def capacity(server: ServedProcess) -> float:
    """Sends a second that the server takes in a closed loop with 1,024 in flight."""
    result = generate(server, 1e6, 1.5, lanes=8, window=128)
    return max(result["codes"]["0"] / (1.5 + result["drain_s"]), 1_000.0)


def latencies_ms(server: ServedProcess, count: int) -> list[float]:
    with RawClient(server.port) as client:
        found = []
        for _ in range(count):
            began = time.monotonic()
            answer = client.call(RequestCode.SEND_MESSAGE_V2, send_fields("orders"), b"x" * 1024)
            found.append((time.monotonic() - began) * 1_000)
            assert answer.code == 0, answer.remark
        return found


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_three_times_the_capacity(serve: Callable[..., ServedProcess], figure: Callable[[str], None]) -> None:
    server = serve(
        settings={"mappedFileSizeCommitLog": 1 << 30, "maxIndexNum": 20_000_000, "waitTimeMillsInSendQueue": 100}
    )
    server.create_topic("flood")
    server.create_topic("orders")
    normal = statistics.median(latencies_ms(server, 200))
    taken = capacity(server)
    before = int(server.runtime()["putMessageTimesTotal"])

    others: list[float] = []
    worst_rss = [server.rss_mb()]
    done = threading.Event()

    def look() -> None:
        """Requests that are no sends are answered correctly during all of it."""
        with RawClient(server.port) as client:
            while not done.is_set():
                began = time.monotonic()
                assert (
                    client.call(RequestCode.GET_MIN_OFFSET, {"topic": "flood", "queueId": "0"}).fields["offset"] == "0"
                )
                answer = client.call(RequestCode.PULL_MESSAGE, pull_fields("orders"))
                assert answer.code == 0, answer.remark
                others.append(time.monotonic() - began)
                worst_rss.append(server.rss_mb())
                time.sleep(0.05)

    problems: list[BaseException] = []

    def watch() -> None:
        try:
            look()
        except BaseException as problem:
            problems.append(problem)

    watcher = threading.Thread(target=watch)
    watcher.start()
    result = generate(server, 3 * taken, SECONDS, LANES)
    ended = time.monotonic()
    calm = latencies_ms(server, 20)
    while statistics.median(calm) > max(10 * normal, 20.0) and time.monotonic() < ended + RECOVERY_S:
        calm = latencies_ms(server, 20)
    recovered = time.monotonic() - ended
    done.set()
    watcher.join()

    codes: dict[str, int] = result["codes"]
    accepted, busy = codes.get("0", 0), codes.get(str(int(ResponseCode.SYSTEM_BUSY)), 0)
    figure(
        f"3x overload for {SECONDS:.0f} s: capacity {taken:.0f}/s, offered {result['offered']} "
        f"({result['held_back']} held back by TCP), accepted {accepted}, busy {busy} {result['tokens']}; "
        f"RSS at most {max(worst_rss):.0f} MB; other requests at most {max(others) * 1000:.0f} ms; "
        f"last answer {result['drain_s']:.2f} s after the load, median latency {statistics.median(calm):.2f} ms "
        f"{recovered:.1f} s after it (before: {normal:.2f} ms)"
    )
    assert not problems, problems
    assert set(codes) <= {"0", str(int(ResponseCode.SYSTEM_BUSY))}
    assert accepted + busy == result["sent"], "every request was answered"
    assert busy > 0
    assert set(result["tokens"]) <= {"OVERLOAD", "TIMEOUT_CLEAN_QUEUE"}
    assert sum(result["tokens"].values()) == busy
    assert max(worst_rss) < RSS_BOUND_MB
    assert recovered < RECOVERY_S

    # What was accepted is stored, and nothing else is.
    info = server.runtime()
    stored = int(info["putMessageTimesTotal"]) - before
    assert accepted < stored <= accepted + 20 * 20 * RECOVERY_S * 100, "the accepted ones and those of the latency test"
    assert len(set(result["offsets"])) == accepted, "every accepted message has a place of its own"
    with RawClient(server.port) as client:
        for offset in result["offsets"][:: max(accepted // 300, 1)]:
            assert client.call(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": str(offset)}).code == 0
        end = int(client.call(RequestCode.GET_MAX_OFFSET, {"topic": "flood", "queueId": "0"}).fields["offset"])
    server.stop()
    again = serve(settings={"mappedFileSizeCommitLog": 1 << 30, "maxIndexNum": 20_000_000})
    with RawClient(again.port) as client:
        assert int(client.call(RequestCode.GET_MAX_OFFSET, {"topic": "flood", "queueId": "0"}).fields["offset"]) == end
        assert end >= accepted
    again.stop()


def test_sync_flush_takes_no_more_than_the_line_holds(
    serve: Callable[..., ServedProcess], figure: Callable[[str], None]
) -> None:
    """Sends that wait for a flush count as well: beyond the bound the next one is told at once.

    The bound is so low that sends of one loop turn pass it, however fast the disk is.
    """
    server = serve(
        settings={"flushDiskType": "SYNC_FLUSH", "sendThreadPoolQueueCapacity": 2, "waitTimeMillsInSendQueue": 200}
    )
    server.create_topic("flood")
    result = generate(server, 20_000, 2.0, lanes=4)
    codes, tokens = result["codes"], result["tokens"]
    figure(f"synchronous flush, 2 unanswered allowed, 20,000/s offered: {codes} {tokens}")
    assert set(codes) <= {"0", "2", "10"}
    assert sum(codes.values()) == result["sent"], "every request was answered"
    assert codes.get("0", 0) > 0
    assert tokens.get("OVERLOAD", 0) > 0
    assert codes["0"] > 0
    server.stop()
