"""What `orbitmq bench` runs: senders with so many messages in flight, a consumer that counts, and both for delays.

Rules of this file
1. What is measured is this program with its client: its own CPU is told beside every rate. It is one process on one core.
2. Every message is accounted for; a rate without an account of what was lost or repeated says nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import resource
import secrets
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

import msgspec

from orbitmq.cli.benches.bench_account import MARK_BYTES, WARM_UP_RUN, Numbers, Received, SendSchedule, marked_body
from orbitmq.cli.shared.latencies import percentiles
from orbitmq.client import Codec, ConsumeFrom, ConsumerOptions, ProducerOptions
from orbitmq.clock import SystemClock
from orbitmq.errors import ClientError, SendFailedError
from orbitmq.limits.cli import BENCH_CATCH_UP_S, BENCH_JOIN_S, BENCH_LOOK_S, BENCH_SAMPLES_MAX

if TYPE_CHECKING:
    from orbitmq.client import Client, Consumer, Producer, ReceivedMessage

WARM_UP_COUNT: Final = 64
"""Messages sent before a measurement begins: routes, connections and code are warm then. They are no part of the account."""


class SendPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What to send. count or duration_s ends it, whichever comes first; one of them may be None.

    rate: messages a second, None for as fast as it goes.
    """

    topic: str
    size: int
    in_flight: int
    count: int | None
    duration_s: float | None
    rate: float | None
    delay_level: int = 0
    tag: str | None = None


class SendRun:
    """One run of senders."""

    def __init__(self, client: Client, plan: SendPlan) -> None:
        self._client = client
        self._plan = plan
        self._next = 0
        self.run_id = secrets.token_bytes(4).hex().encode()
        self.stored = Numbers()
        self.taken_ms: list[float] = []
        self.statuses: Counter[str] = Counter()
        self.errors: Counter[str] = Counter()
        self.maybe_stored = 0
        self.interrupted = False

    async def run(self) -> dict[str, Any]:
        """Send, and tell what came of it."""
        plan = self._plan
        # The filler of the bodies would compress to nothing; nobody's messages do.
        options = ProducerOptions(codec=Codec.NONE)
        async with self._client.producer(f"orbitmq-bench-{self.run_id.decode()}", options) as producer:
            for _ in range(WARM_UP_COUNT if not plan.delay_level else 0):
                await producer.send(plan.topic, marked_body(WARM_UP_RUN, 0, 0, plan.size))
            loop = asyncio.get_running_loop()
            began_s, cpu = loop.time(), cpu_seconds()
            schedule = SendSchedule(plan.rate, began_s)
            senders = asyncio.gather(*(self._send_all(producer, schedule, began_s) for _ in range(plan.in_flight)))
            try:
                await senders
            except asyncio.CancelledError:
                self.interrupted = True  # Ctrl-C ends the measurement; what was measured so far is the result
            seconds, cpu = loop.time() - began_s, cpu_seconds() - cpu
        return self._told(seconds, cpu)

    async def _send_all(self, producer: Producer, schedule: SendSchedule, began_s: float) -> None:
        """One of the senders: takes the next number until there is none."""
        plan, loop, clock = self._plan, asyncio.get_running_loop(), SystemClock()
        while plan.count is None or self._next < plan.count:
            due_s = schedule.due_s(self._next, loop.time())
            if plan.duration_s is not None and due_s - began_s >= plan.duration_s:
                return
            number = self._next
            self._next += 1
            wait_s = due_s - loop.time()
            if wait_s > 0:
                await asyncio.sleep(wait_s)
            behind_ms = 0 if plan.delay_level else max(0, round(-wait_s * 1000))  # a delay begins with the call
            body = marked_body(self.run_id, number, clock.now_ms() - behind_ms, plan.size)
            try:
                receipt = await producer.send(plan.topic, body, tag=plan.tag, delay_level=plan.delay_level)
            except ClientError as error:
                self.errors[type(error).__name__] += 1
                self.maybe_stored += isinstance(error, SendFailedError) and error.maybe_stored
                continue
            self.stored.add(number)
            self.statuses[receipt.send_status.name] += 1
            if len(self.taken_ms) < BENCH_SAMPLES_MAX:
                self.taken_ms.append((loop.time() - due_s) * 1000)

    def _told(self, seconds: float, cpu_s: float) -> dict[str, Any]:
        plan, count = self._plan, self.stored.count
        return {
            "run": self.run_id.decode(),
            "topic": plan.topic,
            "size_bytes": plan.size,
            "in_flight": plan.in_flight,
            "rate_wanted": plan.rate,
            "seconds": round(seconds, 3),
            "attempted": self._next,
            "stored": count,
            "failed": sum(self.errors.values()),
            "failed_maybe_stored": self.maybe_stored,
            "unanswered": self._next - count - sum(self.errors.values()),
            "interrupted": self.interrupted,
            "errors": dict(self.errors),
            "statuses": dict(self.statuses),
            "per_second": round(count / seconds, 1) if seconds else 0.0,
            "mib_per_second": round(count * plan.size / seconds / 2**20, 2) if seconds else 0.0,
            **cpu_told(cpu_s, count),
            "latency": {**percentiles(self.taken_ms), "samples": len(self.taken_ms)},
            "latency_from": "when the message was due" if plan.rate is not None else "the call of send",
        }


class Consuming:
    """One run of a consumer with a group of its own, which is deleted at the end."""

    def __init__(self, client: Client, topic: str, run_id: bytes | None, *, from_beginning: bool) -> None:
        self._client = client
        self._topic = topic
        self._from = ConsumeFrom.FIRST if from_beginning else ConsumeFrom.LAST
        self.group = f"orbitmq-bench-{secrets.token_hex(4)}"
        self.received = Received(run_id)
        self.taken_ms: list[float] = []
        self.last_s = 0.0
        self.first_s = 0.0
        self._clock = SystemClock()
        self._wanted_count: int | None = None
        self._enough = asyncio.Event()
        self._consumer: Consumer | None = None

    async def run(self, *, count: int | None, duration_s: float, idle_s: float, concurrency: int) -> dict[str, Any]:
        """Consume until `count` distinct messages, the time is over, or nothing came for `idle_s` after the first.

        What the client has pulled beyond `count` is no part of the account.
        """
        self._wanted_count = count
        loop, cpu = asyncio.get_running_loop(), cpu_seconds()
        began_s = loop.time()
        ended_by = "duration"
        worker = asyncio.create_task(self.consume(concurrency))
        try:
            while loop.time() - began_s < duration_s and not worker.done():
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._enough.wait(), 0.05)
                if self._enough.is_set():
                    ended_by = "count"
                    break
                if self.last_s and loop.time() - self.last_s > idle_s:
                    ended_by = "idle"
                    break
        except asyncio.CancelledError:
            ended_by = "interrupted"
        finally:
            await end(worker)
        seconds = max(0.0, self.last_s - self.first_s)
        return self._told(seconds, cpu_seconds() - cpu, ended_by)

    async def consume(self, concurrency: int) -> None:
        """Until cancelled. The group is deleted afterwards."""
        options = ConsumerOptions(consume_from=self._from)
        try:
            async with self._client.consumer(self.group, self._topic, options=options) as consumer:
                self._consumer = consumer
                await consumer.run(self._take, concurrency=concurrency)
        finally:
            await self._client.admin.delete_group(self.group)

    async def joined(self, worker: asyncio.Task[None]) -> None:
        """Until `worker`, which runs `consume`, has queues: a group that starts at the end misses what is delivered before."""
        for _ in range(round(BENCH_JOIN_S / 0.05)):
            owned = self._consumer.queues if self._consumer is not None else ()
            if worker.done() or any(queue.topic == self._topic for queue in owned):
                return
            await asyncio.sleep(0.05)
        raise ClientError(f"the consumer of {self._topic!r} got no queue within {BENCH_JOIN_S:.0f} s")

    async def _take(self, message: ReceivedMessage) -> None:
        if self._enough.is_set():
            return
        now_s = asyncio.get_running_loop().time()
        self.first_s = self.first_s or now_s
        self.last_s = now_s
        mark = self.received.take(message.body)
        if self._wanted_count is not None and self.received.distinct >= self._wanted_count:
            self._enough.set()
        if mark is not None and len(self.taken_ms) < BENCH_SAMPLES_MAX:
            self.taken_ms.append(float(self._clock.now_ms() - mark.due_ms))

    def _told(self, seconds: float, cpu_s: float, ended_by: str) -> dict[str, Any]:
        received = self.received
        consumed = received.count + received.foreign
        return {
            "topic": self._topic,
            "run": received.run.decode() if received.run else None,
            "seconds": round(seconds, 3),
            "ended_by": ended_by,
            "received": received.count,
            "distinct": received.distinct,
            "duplicates": received.duplicates,
            "not_of_the_run": received.foreign,
            "consumed": consumed,
            "per_second": round(consumed / seconds, 1) if seconds else None,
            "mib_per_second": round(received.bytes_count / seconds / 2**20, 2) if seconds else None,
            **cpu_told(cpu_s, consumed),
            "age": {**percentiles(self.taken_ms), "samples": len(self.taken_ms)},
            "age_from": "when the message was due to be sent, by the clocks of both machines",
        }


async def run_delays(client: Client, plan: SendPlan, delay_ms: int) -> dict[str, Any]:
    """Send with a delay level, consume in the same process, and account for lateness."""
    sending = SendRun(client, plan)
    consuming = Consuming(client, plan.topic, sending.run_id, from_beginning=False)
    await make_known(client, plan.topic)
    worker = asyncio.create_task(consuming.consume(64))
    try:
        await consuming.joined(worker)
        sent = await sending.run()
        arrived = consuming.received.numbers(sending.run_id)
        loop = asyncio.get_running_loop()
        last_due_s = loop.time() + delay_ms / 1000
        while not worker.done() and sending.stored.missing_from(arrived):
            if loop.time() - max(last_due_s, consuming.last_s) > BENCH_CATCH_UP_S:
                break
            await asyncio.wait([worker], timeout=BENCH_LOOK_S)
    finally:
        await end(worker)
    received = consuming.received
    late_ms = [taken - delay_ms for taken in consuming.taken_ms]
    return {
        **{
            name: sent[name]
            for name in ("run", "topic", "size_bytes", "seconds", "attempted", "stored", "failed", "errors")
        },
        "delay_level": plan.delay_level,
        "delay_ms": delay_ms,
        "sent_per_second": sent["per_second"],
        "received": received.count,
        "duplicates": received.duplicates,
        "lost": sending.stored.missing_from(received.numbers(sending.run_id)),
        "early": sum(1 for value in late_ms if value < 0),
        "lateness": {**percentiles(late_ms), "samples": len(late_ms)},
        "lateness_from": "the call of send plus the delay, to the handler of the consumer: both ways over the network included",
    }


async def make_known(client: Client, topic: str) -> None:
    """Send one message that nobody accounts for, and wait until the name servers know its topic.

    A consumer that meets its topic only later asks brokers that have not heard of it yet who its members are.
    """
    await client.send(topic, marked_body(WARM_UP_RUN, 0, 0, MARK_BYTES))
    for _ in range(round(BENCH_JOIN_S / 0.05)):
        if topic in await client.admin.topics():
            return
        await asyncio.sleep(0.05)
    raise ClientError(f"the name servers do not know topic {topic!r} {BENCH_JOIN_S:.0f} s after a message to it")


async def end(worker: asyncio.Task[None]) -> None:
    """Cancel a consumer and wait until it has left its group; the error it ended with, if there is one, is raised."""
    worker.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await worker


def cpu_seconds() -> float:
    """CPU that this process has used so far, user and system."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def cpu_told(cpu_s: float, count: int) -> dict[str, Any]:
    return {
        "own_cpu_seconds": round(cpu_s, 3),
        "own_cpu_us_per_message": round(cpu_s * 1e6 / count, 2) if count else None,
    }
