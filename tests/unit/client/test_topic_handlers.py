"""What a handler may raise, how long what failed waits, and workers: handlers that run until they are told to stop."""

from __future__ import annotations

import asyncio
import logging
import signal
import threading
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest
from scripted_cluster import NAME_SERVER, Broker, Cluster

import orbitmq
import orbitmq.sync
from orbitmq.client._async import serving
from orbitmq.client._async.client import Client
from orbitmq.client._sync import serving as blocking
from orbitmq.client._sync.client import Client as SyncClient
from orbitmq.client.consuming.outcomes import retry_delay_ms
from orbitmq.client.topic_handler import check_handlers
from orbitmq.clock import ManualClock
from orbitmq.errors import ConfigurationError, MessageIllegalError
from orbitmq.protocol.properties import decode_properties
from orbitmq.protocol.remoting import timer_bodies as wire
from orbitmq.protocol.remoting.codes import RequestCode, ResponseCode
from orbitmq.protocol.remoting.frame import Command, response

Run = Callable[[Callable[[], Awaitable[None]]], None]
FIRST = orbitmq.ConsumerOptions(consume_from=orbitmq.ConsumeFrom.FIRST)
SEND = RequestCode.SEND_MESSAGE_V2
ORDERS = orbitmq.handler("T", group="g", options=FIRST)


@pytest.fixture
def broker(cluster: Cluster) -> Broker:
    cluster.add_topic("%RETRY%g", queues=1)
    found = cluster.brokers["b-a"]
    found.script(RequestCode.LIST_TIMERS, *[has_timers] * 9)
    return found


@pytest.fixture(autouse=True)
def connected(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers find the cluster in memory."""

    def connect(name_servers: object, options: object) -> Client:
        return Client(NAME_SERVER, clock=ManualClock(), dial=cluster.dial)

    monkeypatch.setattr(serving, "connect", connect)
    monkeypatch.setattr(blocking, "connect", lambda *words, **more: SyncClient(connect(*words, **more)))


def has_timers(command: Command) -> Command:
    return response(command, ResponseCode.SUCCESS, fields={}, body=wire.TimerPage([]).encode())


def waits_ms(broker: Broker) -> list[int]:
    """Of what was sent to the retry topic."""
    return [int(decode_properties(sent.text("i")).get("TIMER_DELAY_MS", "-1")) for sent in broker.requests(SEND)]


# --- what a handler raises ----------------------------------------------------------------------------------------------


def test_a_handler_may_say_when_a_message_comes_again_or_that_it_never_will(
    run: Run, broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    for body in (b"later", b"poison"):
        broker.store("T", 0, body)
    stop = asyncio.Event()

    @ORDERS
    async def handle(message: orbitmq.ReceivedMessage) -> None:
        if message.body == b"poison":
            raise orbitmq.Reject("no order")
        if not message.reconsume_times:
            raise orbitmq.Retry(after=timedelta(hours=8))
        stop.set()

    async def test() -> None:
        with caplog.at_level(logging.INFO):
            assert await orbitmq.serve(handle, stop=stop)

    run(test)
    assert waits_ms(broker) == [8 * 3_600_000]
    assert len(broker.queues["%DLQ%g", 0]) == 1
    assert "as a dead letter: no order" in caplog.text
    assert "Traceback" not in caplog.text, "these are answers, no failures"


def test_delays_of_a_consumer_are_taken_one_after_the_other_and_the_last_goes_on(run: Run, broker: Broker) -> None:
    broker.store("T", 0, b"x")
    stop = asyncio.Event()

    @orbitmq.handler("T", group="g", options=FIRST, retry_delays=(1, 2, timedelta(seconds=4)))
    async def handle(message: orbitmq.ReceivedMessage) -> None:
        if message.reconsume_times < 5:
            raise OSError("the bank does not answer")
        stop.set()

    async def test() -> None:
        await orbitmq.serve(handle, stop=stop)

    run(test)
    assert waits_ms(broker) == [1_000, 2_000, 4_000, 4_000, 4_000]


@pytest.mark.parametrize("error", [asyncio.CancelledError(), SystemExit(3), StopIteration()], ids=repr)
def test_whatever_a_handler_raises_is_a_failure_of_its_message_alone(
    run: Run, broker: Broker, error: BaseException
) -> None:
    """Something that it waited for was cancelled, or a library wanted to end the program: it goes on, with as many handlers as before."""
    broker.store("T", 0, b"x")
    stop = asyncio.Event()

    @orbitmq.handler("T", group="g", options=FIRST, concurrency=1, retry_delays=(1,))
    async def handle(message: orbitmq.ReceivedMessage) -> None:
        if message.reconsume_times < 3:
            raise error
        stop.set()

    async def test() -> None:
        assert await orbitmq.serve(handle, stop=stop)

    run(test)
    assert waits_ms(broker) == [1_000, 1_000, 1_000]


@pytest.mark.parametrize("delays", ["1", (-1,), ("soon",), (True,), range(65), 3])
def test_delays_that_are_none_are_refused(delays: Any) -> None:
    with pytest.raises(ConfigurationError, match="retry_delays"):
        orbitmq.ConsumerOptions(retry_delays=delays)


def test_delays_are_nothing_for_a_broadcasting_consumer() -> None:
    with pytest.raises(ConfigurationError, match="broadcasting"):
        orbitmq.ConsumerOptions(retry_delays=(1,), broadcasting=True)
    assert retry_delay_ms((), 3) is None
    with pytest.raises(MessageIllegalError):
        orbitmq.Retry(after=-1)


# --- workers ------------------------------------------------------------------------------------------------------------


def test_a_stop_lets_the_handlers_that_run_come_to_their_end(run: Run, broker: Broker) -> None:
    for queue in range(4):
        broker.store("T", queue, b"x")
    stop, ready, done = asyncio.Event(), [], []

    @ORDERS
    async def handle(message: orbitmq.ReceivedMessage) -> None:
        stop.set()
        await asyncio.sleep(20)
        done.append(message.body)

    async def test() -> None:
        assert await orbitmq.serve(handle, stop=stop, on_ready=lambda: ready.append(len(done)))

    run(test)
    assert (ready, done) == ([0], [b"x"] * len(done))
    assert done
    assert sum(offset for (_, topic, _), offset in broker.offsets.items() if topic == "T") == len(done)


def test_handlers_that_do_not_end_are_given_up_and_their_messages_come_again(run: Run, broker: Broker) -> None:
    broker.store("T", 0, b"x")
    stop = asyncio.Event()

    @ORDERS
    async def handle(message: orbitmq.ReceivedMessage) -> None:
        stop.set()
        await asyncio.sleep(3_000)

    async def test() -> None:
        assert not await orbitmq.serve(handle, stop=stop, stop_within_ms=500)

    run(test)
    assert broker.offsets.get(("g", "T", 0), 0) == 0


def test_what_breaks_a_consumer_ends_its_worker(run: Run) -> None:
    @ORDERS
    async def handle(message: orbitmq.ReceivedMessage) -> None: ...

    handle.concurrency = 0

    async def test() -> None:
        with pytest.raises(ConfigurationError, match="concurrency"):
            await orbitmq.serve(handle)

    run(test)


def test_plain_functions_run_on_threads(broker: Broker) -> None:
    for body in (b"poison", b"x"):
        broker.store("T", 0, body)
    stop, threads = threading.Event(), set[str]()

    @ORDERS
    def handle(message: orbitmq.sync.ReceivedMessage) -> None:
        threads.add(threading.current_thread().name)
        if message.body == b"poison":
            raise orbitmq.sync.Reject
        stop.set()

    assert orbitmq.sync.serve(handle, stop=stop, stop_within_ms=20_000)
    assert threads
    assert threading.current_thread().name not in threads
    assert len(broker.queues["%DLQ%g", 0]) == 1
    assert broker.offsets["g", "T", 0] == 2


def test_a_plain_function_that_hangs_does_not_keep_the_worker(broker: Broker) -> None:
    broker.store("T", 0, b"x")
    stop, end = threading.Event(), threading.Event()

    @ORDERS
    def handle(message: orbitmq.sync.ReceivedMessage) -> None:
        stop.set()
        end.wait(30)

    try:
        assert not orbitmq.sync.serve(handle, stop=stop, stop_within_ms=100)
    finally:
        end.set()
    assert broker.offsets.get(("g", "T", 0), 0) == 0


def test_a_signal_never_waits_for_a_lock_that_the_thread_it_interrupts_may_hold(broker: Broker) -> None:
    """The handler of a signal runs in the main thread, between two of its instructions: also of those in `Event.wait`."""
    setters: list[threading.Thread] = []

    class Watched(threading.Event):
        def set(self) -> None:
            setters.append(threading.current_thread())
            super().set()

    @ORDERS
    def handle(message: orbitmq.sync.ReceivedMessage) -> None: ...

    assert orbitmq.sync.serve(handle, stop=Watched(), on_ready=lambda: signal.raise_signal(signal.SIGTERM))
    assert setters
    assert threading.main_thread() not in setters


def test_a_signal_ends_a_worker_that_is_still_connecting(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    there = blocking.connect

    def connect(*words: Any, **more: Any) -> SyncClient:
        signal.raise_signal(signal.SIGTERM)
        return there(*words, **more)

    @ORDERS
    def handle(message: orbitmq.sync.ReceivedMessage) -> None: ...

    monkeypatch.setattr(blocking, "connect", connect)
    ready: list[int] = []
    before = signal.getsignal(signal.SIGTERM)
    assert orbitmq.sync.serve(handle, on_ready=lambda: ready.append(1))
    assert ready == []
    assert signal.getsignal(signal.SIGTERM) is before


def test_what_a_worker_cannot_run_is_said_before_it_begins() -> None:
    @ORDERS
    async def waits(message: orbitmq.ReceivedMessage) -> None: ...

    @ORDERS
    def plain(message: orbitmq.sync.ReceivedMessage) -> None:
        """Packs."""

    assert plain(None) is None
    assert plain.__doc__ == "Packs."
    for handlers, problem in (
        ((), "1 to 64 handlers"),
        ((print,), "is no handler"),
        ((plain,), "is a plain function"),
        ((waits, waits), "two handlers of group g"),
    ):
        with pytest.raises(ConfigurationError, match=problem):
            check_handlers(handlers, asynchronous=True)
    with pytest.raises(ConfigurationError, match="is asynchronous"):
        check_handlers([waits], asynchronous=False)
    with pytest.raises(ConfigurationError, match="concurrency"):
        orbitmq.handler("T", group="g", concurrency=0)
