"""Sending with our client: a fixed number of sends in flight, rate and CPU of the client process per message.

usage: client_send.py [--name-server HOST:PORT] [--topic NAME] [--in-flight 16] [--body-bytes 1024] [--seconds 10] [--uvloop]

It needs a running broker, orbitmq's or RocketMQ's, whose topic exists or is created by the first send. One JSON line:
rate (messages per second), cpu_us (user and system time of this process for one message), and the times of a send in
milliseconds at the 50th, 99th and 99.9th percentile. The first second is not counted. Set it beside a client of another
language in the same run; alone a rate says nothing about a shared machine.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import sys
import time

import orbitmq

WARM_UP_S = 1.0


def cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


async def measure(arguments: argparse.Namespace) -> dict[str, float]:
    body = b"x" * arguments.body_bytes
    took_s: list[float] = []
    ends_at = counts_from = float("inf")

    async def keep_sending(mq: orbitmq.Client) -> None:
        while (begin := time.perf_counter()) < ends_at:
            await mq.send(arguments.topic, body)
            if begin >= counts_from:
                took_s.append(time.perf_counter() - begin)

    settings = orbitmq.ProducerOptions(idempotent=not arguments.plain, auto_batch_ms=arguments.auto_batch_ms)
    async with orbitmq.connect(arguments.name_server, producer_options=settings) as mq:
        await mq.send(arguments.topic, body)
        counts_from = time.perf_counter() + WARM_UP_S
        ends_at = counts_from + arguments.seconds
        senders = [asyncio.create_task(keep_sending(mq)) for _ in range(arguments.in_flight)]
        await asyncio.sleep(WARM_UP_S)
        cpu_before, begin = cpu_s(), time.perf_counter()
        await asyncio.gather(*senders)
        cpu, seconds = cpu_s() - cpu_before, time.perf_counter() - begin
    took_s.sort()
    count = len(took_s)

    def percentile(share: float) -> float:
        return round(took_s[min(count - 1, int(count * share))] * 1000, 3)

    return {
        "rate": round(count / seconds),
        "cpu_us": round(cpu / count * 1e6, 1),
        "p50_ms": percentile(0.5),
        "p99_ms": percentile(0.99),
        "p999_ms": percentile(0.999),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description="rate and CPU of sending with the Python client")
    parser.add_argument("--name-server", default="localhost:9876")
    parser.add_argument("--topic", default="client-send-benchmark")
    parser.add_argument("--in-flight", type=int, default=16)
    parser.add_argument("--body-bytes", type=int, default=1024)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--plain", action="store_true", help="without the properties of idempotent sends")
    parser.add_argument("--auto-batch-ms", type=int, default=0, help="let sends wait so long for others")
    parser.add_argument("--uvloop", action="store_true", help="run on uvloop instead of asyncio's own loop")
    arguments = parser.parse_args()
    if arguments.uvloop:
        import uvloop

        result = uvloop.run(measure(arguments))
    else:
        result = asyncio.run(measure(arguments))
    print(json.dumps(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
