"""The synchronous client: blocking calls, many threads, interruption, the end of clients that are closed, dropped, or forked."""

from __future__ import annotations

import asyncio
import gc
import signal
import subprocess
import sys
import threading
import traceback
import warnings
import weakref
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from scripted_cluster import NAME_SERVER, SILENCE, Broker, Cluster

import orbitmq
import orbitmq.sync
from orbitmq.client._async.client import Client as AsyncClient
from orbitmq.client._sync.client import Client
from orbitmq.client.options import ClientOptions
from orbitmq.errors import ClientError, ConfigurationError, MessageIllegalError, RouteNotFoundError, SendFailedError
from orbitmq.protocol.remoting.codes import RequestCode, ResponseCode

LIMIT_S = 20
FIRST = orbitmq.ConsumerOptions(consume_from=orbitmq.ConsumeFrom.FIRST)
SEND = RequestCode.SEND_MESSAGE_V2


@pytest.fixture
def broker(cluster: Cluster) -> Broker:
    cluster.add_topic("%RETRY%g", queues=1)
    return cluster.brokers["b-a"]


@pytest.fixture
def mq(cluster: Cluster) -> Iterator[Client]:
    with connect(cluster) as client:
        yield client


def connect(cluster: Cluster) -> Client:
    return Client(AsyncClient(NAME_SERVER, options=ClientOptions(instance_name="me"), dial=cluster.dial))


def offsets(broker: Broker) -> int:
    return sum(offset for (_, topic, _), offset in broker.offsets.items() if topic == "T")


# --- calls ------------------------------------------------------------------------------------------------------------


def test_a_send_returns_its_receipt(mq: Client, broker: Broker) -> None:
    receipt = mq.send("T", b"body", tag="a", key=["k1", "k2"], properties={"p": "q"})
    assert isinstance(receipt, orbitmq.sync.SendReceipt)
    (record,) = broker.queues["T", receipt.queue.queue_id]
    assert record.body == b"body"
    with mq.producer("mine") as producer:
        assert producer.group == "mine"
        assert len(producer.send_batch("T", [orbitmq.Message(b"1"), orbitmq.Message(b"2")])) == 2
    assert mq.admin is mq.admin


def test_threads_share_a_client(mq: Client, broker: Broker) -> None:
    with ThreadPoolExecutor(16) as pool:
        receipts = list(pool.map(lambda number: mq.send("T", b"%d" % number), range(400)))
    assert len({receipt.message_id for receipt in receipts}) == 400
    assert sum(len(records) for (topic, _), records in broker.queues.items() if topic == "T") == 400


def test_errors_keep_their_type_and_show_both_sides(mq: Client) -> None:
    with pytest.raises(MessageIllegalError):
        mq.send("T", b"")
    with pytest.raises(RouteNotFoundError) as caught:
        mq.admin.topic_route("nowhere")
    functions = [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]
    assert functions[0] == "test_errors_keep_their_type_and_show_both_sides"
    assert functions.count("topic_route") == 2, "the blocking call and the client's own"


def test_an_asynchronous_iterator_is_read_and_closed(mq: Client) -> None:
    closed: list[bool] = []

    async def numbers() -> AsyncIterator[int]:
        try:
            for number in range(5):
                yield number
        finally:
            closed.append(True)

    assert list(mq._loop.iterate(numbers())) == [0, 1, 2, 3, 4]
    some = mq._loop.iterate(numbers())
    assert next(some) == 0
    some.close()  # type: ignore[attr-defined]
    assert closed == [True, True]


def test_an_error_keeps_nothing_alive(mq: Client) -> None:
    class Payload(bytearray):
        pass

    payload = Payload()
    gone = threading.Event()
    weakref.finalize(payload, gone.set)
    gc.disable()
    try:
        with pytest.raises(MessageIllegalError):
            mq.send("T", payload)  # type: ignore[arg-type]
        del payload
        mq.send("T", b"the loop has gone on")
        gc.collect(0)
        assert gone.is_set()
    finally:
        gc.enable()


def test_a_client_that_is_not_started_or_closed_says_so(cluster: Cluster) -> None:
    client = connect(cluster)
    with pytest.raises(ClientError, match="not started"):
        client.send("T", b"x")
    with client:
        producer = client.producer("mine")
        with pytest.raises(ClientError, match="starts once"):
            client.start()
        client.send("T", b"still usable")
    for use in (lambda: client.send("T", b"x"), client.start, lambda: producer.send("T", b"x")):
        with pytest.raises(ClientError, match="closed"):
            use()
    client.close()
    producer.close()


def test_a_start_that_fails_leaves_no_thread(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(self: AsyncClient) -> None:
        raise OSError("no start")

    monkeypatch.setattr(AsyncClient, "start", fail)
    before = set(threading.enumerate())
    client = connect(cluster)
    with pytest.raises(OSError, match="no start"):
        client.start()
    assert set(threading.enumerate()) <= before
    client.close()


def test_in_an_event_loop_it_names_the_asyncio_client(mq: Client, cluster: Cluster) -> None:
    async def wrong() -> None:
        with pytest.raises(ClientError, match=r"orbitmq\.connect"):
            mq.send("T", b"x")
        with pytest.raises(ClientError, match="event loop"):
            connect(cluster).start()
        with pytest.raises(ClientError, match="event loop"):
            mq.close()
        await asyncio.to_thread(mq.send, "T", b"on a thread it is fine")

    asyncio.run(wrong())


def test_closing_ends_the_calls_that_wait(cluster: Cluster, broker: Broker) -> None:
    client = connect(cluster)
    client.start()
    consumer = client.consumer("g", "T", options=FIRST)
    consumer.start()
    broker.script(SEND, SILENCE)
    with ThreadPoolExecutor(2) as pool:
        sending = pool.submit(client.send, "T", b"x", timeout_ms=600_000)
        taking = pool.submit(next, consumer, None)
        until(lambda: len(broker.requests(SEND)) == 1)
        client.close()
        client.close()
        assert isinstance(sending.exception(LIMIT_S), ClientError)
        taken = taking.exception(LIMIT_S)
        assert taken is None or isinstance(taken, ClientError)


# --- consuming --------------------------------------------------------------------------------------------------------


def test_messages_are_iterated_and_acknowledged(mq: Client, broker: Broker) -> None:
    for number in range(100):
        broker.store("T", number % 4, b"%d" % number, TAGS="a", KEYS="k")
    bodies = []
    with mq.consumer("g", "T", options=FIRST) as consumer:
        assert len(consumer.queues) == 5
        for message in consumer:
            assert (message.topic, message.tag, message.keys) == ("T", "a", ("k",))
            assert message.settlement is orbitmq.Settlement.PENDING
            assert message.ack()
            assert message.ack()
            assert message.settlement is orbitmq.Settlement.ACKED
            bodies.append(int(message.body))
            if len(bodies) == 100:
                consumer.stop()
    assert sorted(bodies) == list(range(100))
    assert offsets(broker) == 100


def test_an_acknowledgement_needs_no_further_call(mq: Client, broker: Broker) -> None:
    broker.store("T", 0, b"x")
    with mq.consumer("g", "T", options=FIRST) as consumer:
        message = next(consumer)
        assert message.held
        message.ack()
        until(lambda: not message.held)


def test_a_message_is_settled_once(mq: Client, broker: Broker) -> None:
    for number in range(2):
        broker.store("T", 0, b"%d" % number)
    with mq.consumer("g", "T", options=FIRST) as consumer:
        first, second = next(consumer), next(consumer)
        first.ack()
        with pytest.raises(ClientError, match="acknowledged"):
            first.retry()
        assert second.retry(2)
        with pytest.raises(ClientError, match="sent back"):
            second.ack()
        assert len(broker.requests(RequestCode.CONSUMER_SEND_MSG_BACK)) == 1


def test_after_the_consumer_an_acknowledgement_has_no_effect(mq: Client, broker: Broker) -> None:
    broker.store("T", 0, b"x")
    with mq.consumer("g", "T", options=FIRST) as consumer:
        message = next(consumer)
    assert not message.held
    assert message.ack() is False
    assert offsets(broker) == 0


def test_leaving_by_an_exception_sends_back(mq: Client, broker: Broker) -> None:
    broker.store("T", 0, b"x")

    def fail() -> None:
        with mq.consumer("g", "T", options=FIRST) as consumer:
            next(consumer)
            raise ValueError("the program fails")

    with pytest.raises(ValueError, match="the program fails"):
        fail()
    assert len(broker.requests(RequestCode.CONSUMER_SEND_MSG_BACK)) == 1


# --- handlers ---------------------------------------------------------------------------------------------------------


def test_handlers_run_on_a_bounded_number_of_threads(mq: Client, broker: Broker) -> None:
    for number in range(200):
        broker.store("T", number % 4, b"%d" % number)
    threads: set[str] = set()
    bodies: list[int] = []
    four = threading.Barrier(4)

    def handle(message: orbitmq.sync.ReceivedMessage) -> None:
        if threading.current_thread().name not in threads:
            threads.add(threading.current_thread().name)
            four.wait(LIMIT_S)  # four run at the same time
        bodies.append(int(message.body))
        if len(bodies) == 200:
            consumer.stop()

    before = set(threading.enumerate())
    with mq.consumer("g", "T", options=FIRST) as consumer:
        consumer.run(handle, concurrency=4)
        assert set(threading.enumerate()) <= before
    assert sorted(bodies) == list(range(200))
    assert len(threads) == 4
    assert offsets(broker) == 200


@pytest.mark.parametrize(
    "error", [ValueError("no"), StopIteration("no"), SystemExit("no"), KeyboardInterrupt("no")], ids=repr
)
def test_a_handler_that_fails_gets_the_message_again(
    mq: Client, broker: Broker, error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(2):
        broker.store("T", 0, b"%d" % number)
    handled: list[bytes] = []

    def handle(message: orbitmq.sync.ReceivedMessage) -> None:
        handled.append(message.body)
        if len(handled) == 2:
            consumer.stop()
        if message.body == b"0":
            raise error

    with mq.consumer("g", "T", options=FIRST) as consumer:
        consumer.run(handle, concurrency=1)
    assert handled == [b"0", b"1"]
    assert len(broker.requests(RequestCode.CONSUMER_SEND_MSG_BACK)) == 1
    assert error in [record.exc_info[1] for record in caplog.records if record.exc_info] or repr(error) in caplog.text


def test_a_handler_may_settle_and_send(mq: Client, broker: Broker, cluster: Cluster) -> None:
    cluster.add_topic("U", queues=1)
    broker.store("T", 0, b"x")

    def handle(message: orbitmq.sync.ReceivedMessage) -> None:
        mq.send("U", b"from the handler")
        message.dead_letter()
        consumer.stop()

    with mq.consumer("g", "T", options=FIRST) as consumer:
        consumer.run(handle, concurrency=2)
    assert len(broker.requests(SEND)) == 1
    (back,) = broker.requests(RequestCode.CONSUMER_SEND_MSG_BACK)
    assert back.integer("delayLevel") == -1


def test_what_a_handler_acknowledged_stays_so_when_it_fails(mq: Client, broker: Broker) -> None:
    broker.store("T", 0, b"x")

    def handle(message: orbitmq.sync.ReceivedMessage) -> None:
        message.ack()
        consumer.stop()
        raise ValueError("afterwards")

    with mq.consumer("g", "T", options=FIRST) as consumer:
        consumer.run(handle, concurrency=1)
    assert offsets(broker) == 1
    assert broker.requests(RequestCode.CONSUMER_SEND_MSG_BACK) == []


def test_batches_are_handled_together(mq: Client, broker: Broker) -> None:
    for number in range(40):
        broker.store("T", number % 2, b"%d" % number)
    options = orbitmq.ConsumerOptions(consume_from=orbitmq.ConsumeFrom.FIRST, batch_messages_count=16)
    bodies: list[int] = []
    largest = 0

    def handle(messages: list[orbitmq.sync.ReceivedMessage]) -> None:
        nonlocal largest
        largest = max(largest, len(messages))
        assert len({message.queue for message in messages}) == 1
        bodies.extend(int(message.body) for message in messages)
        if len(bodies) == 40:
            consumer.stop()

    with mq.consumer("g", "T", options=options) as consumer:
        consumer.run_batches(handle, concurrency=1)
    assert sorted(bodies) == list(range(40))
    assert 1 < largest <= 16
    assert offsets(broker) == 40


def test_listeners_and_polls(mq: Client, broker: Broker) -> None:
    told: list[tuple[orbitmq.MessageQueue, ...]] = []

    def changed(taken: tuple[orbitmq.MessageQueue, ...], given_up: tuple[orbitmq.MessageQueue, ...]) -> None:
        assert threading.current_thread().name == "orbitmq listener"
        told.append(taken)
        mq.admin.topic_route("T")  # a listener may call

    with mq.lite_consumer("lite", on_assignment=changed) as lite:
        queues = lite.fetch_queues("T")
        lite.assign(queues[:1])
        lite.seek_to_begin(queues[0])
        mq._loop.do(broker.store, "T", queues[0].queue_id, b"x")
        (message,) = lite.poll(20_000)
        assert message.body == b"x"
        lite.commit()
        until(lambda: bool(told))
    assert told[0] == queues[:1]


def test_an_asynchronous_handler_is_refused(mq: Client, broker: Broker) -> None:
    async def handle(message: Any) -> None: ...

    with mq.consumer("g", "T", options=FIRST) as consumer:
        with pytest.raises(ConfigurationError, match="plain functions"):
            consumer.run(handle)  # type: ignore[arg-type]
        with pytest.raises(ConfigurationError, match="concurrency"):
            consumer.run(lambda message: None, concurrency=0)


# --- interruption -----------------------------------------------------------------------------------------------------


class Interruption(Exception):
    """What the test's signal handler raises, as Python's own raises KeyboardInterrupt."""


@pytest.fixture
def interrupt_when() -> Iterator[Callable[[Callable[[], bool]], None]]:
    """Sends this process a signal, whose handler raises, once a condition holds."""

    def handler(number: int, frame: object) -> None:
        raise Interruption

    before = signal.signal(signal.SIGUSR1, handler)
    threads: list[threading.Thread] = []

    def start(condition: Callable[[], bool]) -> None:
        def wait() -> None:
            until(condition)
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)

        thread = threading.Thread(target=wait, daemon=True)
        threads.append(thread)
        thread.start()

    yield start
    for thread in threads:
        thread.join(LIMIT_S)
    signal.signal(signal.SIGUSR1, before)


def test_an_interrupted_send_is_cancelled_and_the_client_goes_on(
    mq: Client, broker: Broker, interrupt_when: Callable[[Callable[[], bool]], None]
) -> None:
    broker.script(SEND, SILENCE)
    interrupt_when(lambda: len(broker.requests(SEND)) == 1)
    with pytest.raises(Interruption):
        mq.send("T", b"interrupted", timeout_ms=600_000)
    assert mq.send("T", b"next").send_status is orbitmq.SendStatus.SEND_OK
    assert len(broker.requests(SEND)) == 2, "nothing tries the first one again"


def test_an_interrupted_iteration_loses_no_message(
    mq: Client, broker: Broker, interrupt_when: Callable[[Callable[[], bool]], None]
) -> None:
    with mq.consumer("g", "T", options=FIRST) as consumer:
        interrupt_when(lambda: bool(mq._loop._engine and mq._loop._engine._waiting))
        with pytest.raises(Interruption):
            next(consumer)
        mq._loop.do(broker.store, "T", 0, b"x")
        assert next(consumer).body == b"x"


def test_a_result_that_came_with_the_interruption_is_kept(mq: Client) -> None:
    """The instant between the end of the work and its caller's waking cannot be hit from outside, so the lock stands in for it."""
    kept: list[int] = []

    class Lock:
        def acquire(self) -> bool:
            until(lambda: call.ended)
            raise Interruption

        def release(self) -> None: ...

    async def work() -> int:
        return 7

    engine = mq._loop._engine
    assert engine is not None
    hand_in = engine.hand_in

    def hand_in_with_lock(handed: Any) -> None:
        nonlocal call
        call = handed
        call.finished = Lock()
        hand_in(call)

    call: Any = None
    engine.hand_in = hand_in_with_lock  # type: ignore[method-assign]
    with pytest.raises(Interruption):
        mq._loop.run(work(), rescue=kept.append)
    engine.hand_in = hand_in  # type: ignore[method-assign]
    assert kept == [7]


def test_an_interrupted_run_lets_its_handlers_end(
    mq: Client, broker: Broker, interrupt_when: Callable[[Callable[[], bool]], None]
) -> None:
    for number in range(10):
        broker.store("T", 0, b"%d" % number)
    began, may_end = threading.Event(), threading.Event()
    handled: list[bytes] = []

    def handle(message: orbitmq.sync.ReceivedMessage) -> None:
        began.set()
        may_end.wait(LIMIT_S)
        handled.append(message.body)

    with mq.consumer("g", "T", options=FIRST) as consumer:
        interrupt_when(began.is_set)
        threading.Timer(0.2, may_end.set).start()
        with pytest.raises(Interruption):
            consumer.run(handle, concurrency=2)
        assert handled
        assert len(handled) <= 2
        assert next(consumer, None) is None, "an interrupted run delivers nothing more"
    assert offsets(broker) == len(handled)
    assert mq.send("T", b"the client goes on").send_status is orbitmq.SendStatus.SEND_OK


def test_a_second_interruption_does_not_wait_for_handlers(
    mq: Client, broker: Broker, interrupt_when: Callable[[Callable[[], bool]], None]
) -> None:
    broker.store("T", 0, b"hangs")
    began, may_end = threading.Event(), threading.Event()

    def handle(message: orbitmq.sync.ReceivedMessage) -> None:
        began.set()
        may_end.wait(LIMIT_S)

    with mq.consumer("g", "T", options=FIRST) as consumer:
        interrupt_when(began.is_set)
        interrupt_when(lambda: began.is_set() and consumer._twin._handing_out.stopped.is_set())
        with pytest.raises(Interruption) as caught:
            consumer.run(handle, concurrency=2)
        assert isinstance(caught.value.__context__, Interruption), "the second came while the first was served"
    assert offsets(broker) == 0
    assert mq.send("T", b"the client goes on").send_status is orbitmq.SendStatus.SEND_OK
    may_end.set()


# --- clients that nobody closes ---------------------------------------------------------------------------------------


def test_a_dropped_client_warns_and_ends_its_thread(cluster: Cluster) -> None:
    before = set(threading.enumerate())
    client = connect(cluster)
    client.start()
    client.send("T", b"x")
    producer = client.producer("mine")
    del client
    gc.collect()
    producer.send("T", b"a producer keeps its client")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        del producer
        gc.collect()
    assert [str(warning.message) for warning in caught if warning.category is ResourceWarning]
    until(lambda: set(threading.enumerate()) <= before)


def test_a_closed_client_does_not_warn(cluster: Cluster) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with connect(cluster) as client:
            client.send("T", b"x")
        del client
        gc.collect()


PROGRAM = """
import sys
sys.path.insert(0, {tests!r})
from scripted_cluster import NAME_SERVER, Cluster
import orbitmq
from orbitmq.client._async.client import Client as AsyncClient
from orbitmq.client._sync.client import Client
cluster = Cluster()
broker = cluster.add_broker("b-a")
cluster.add_topic("T", queues=4)
cluster.add_topic("%RETRY%g", queues=1)
client = Client(AsyncClient(NAME_SERVER, dial=cluster.dial))
client.start()
"""


def run_program(text: str, *options: str) -> subprocess.CompletedProcess[str]:
    program = PROGRAM.format(tests=str(Path(__file__).parent)) + text
    return subprocess.run(
        [sys.executable, *options, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )


def test_the_interpreter_ends_with_an_open_client() -> None:
    done = run_program(
        "consumer = client.consumer('g', 'T')\nconsumer.start()\nclient.send('T', b'x')\nprint('end')\n", "-Xdev"
    )
    assert (done.returncode, done.stdout) == (0, "end\n"), done.stderr
    assert "ResourceWarning" in done.stderr
    assert "dropped without being closed" in done.stderr


def test_the_interpreter_ends_while_a_handler_hangs() -> None:
    done = run_program(
        "import threading\n"
        "hangs = threading.Event()\n"
        "def handle(message):\n    hangs.set()\n    threading.Event().wait()\n"
        "consumer = client.consumer('g', 'T', options=orbitmq.ConsumerOptions(consume_from=orbitmq.ConsumeFrom.FIRST))\n"
        "consumer.start()\n"
        "client.send('T', b'x')\n"
        "threading.Thread(target=consumer.run, args=(handle,), daemon=True).start()\n"
        "assert hangs.wait(20)\nprint('end')\n"
    )
    assert (done.returncode, done.stdout) == (0, "end\n"), done.stderr


def test_control_c_cancels_the_call() -> None:
    done = run_program(
        "import os, signal, threading, time\n"
        "consumer = client.consumer('g', 'T')\nconsumer.start()\n"
        "threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()\n"
        "try:\n    next(consumer)\nexcept KeyboardInterrupt:\n    print(client.send('T', b'x').send_status.name)\n"
        "client.close()\n",
    )
    assert (done.returncode, done.stdout) == (0, "SEND_OK\n"), done.stderr


def test_a_fork_makes_the_client_unusable_in_the_child_only() -> None:
    done = run_program(
        "import os\n"
        "client.send('T', b'x')\n"
        "child = os.fork()\n"
        "try:\n    client.send('T', b'x')\nexcept orbitmq.ClientError as error:\n    assert child == 0 and 'fork' in str(error), error\n"
        "else:\n    assert child != 0\n"
        "client.close()\n"
        "if child:\n    print(os.waitpid(child, 0)[1])\n",
        "-Werror::ResourceWarning",
    )
    assert (done.returncode, done.stdout) == (0, "0\n"), done.stderr


def test_a_refusal_of_the_broker_is_raised(mq: Client, broker: Broker) -> None:
    broker.script(SEND, ResponseCode.NO_PERMISSION)
    with pytest.raises((SendFailedError, orbitmq.RemoteError)):
        mq.send("T", b"x")


def until(condition: Callable[[], bool]) -> None:
    """Wait for what another thread does."""
    tick = threading.Event()
    for _ in range(LIMIT_S * 500):
        if condition():
            return
        tick.wait(0.002)
    raise AssertionError("it does not happen")
