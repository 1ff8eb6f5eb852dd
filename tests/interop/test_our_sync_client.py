"""The synchronous client against a broker, RocketMQ's own or ours: the stories of `test_our_client` that a thread can tell.

Run against the Java broker with INTEROP_BROKERS=java, against both with "orbitmq,java".
"""

from __future__ import annotations

import itertools
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from rig.brokers import BrokerUnderTest

import orbitmq.sync

FIRST = orbitmq.sync.ConsumerOptions(consume_from=orbitmq.sync.ConsumeFrom.FIRST)
RECEIVE_S = 180

_serial = itertools.count()


@pytest.fixture
def name() -> str:
    """A name no other test of the session uses, for a topic and its group."""
    return f"our-sync-client-{time.time_ns() // 1_000_000}-{next(_serial)}"


@pytest.fixture
def mq(broker: BrokerUnderTest) -> Iterator[orbitmq.sync.Client]:
    with orbitmq.sync.connect(broker.name_server) as client:
        yield client


def receive(
    consumer: orbitmq.sync.Consumer,
    count: int,
    settle: Callable[[orbitmq.sync.ReceivedMessage], object] = orbitmq.sync.ReceivedMessage.ack,
) -> list[orbitmq.sync.ReceivedMessage]:
    """The next `count` messages, settled."""
    received = []
    limit = threading.Timer(RECEIVE_S, consumer.stop)
    limit.start()
    try:
        for message in itertools.islice(consumer, count):
            received.append(message)
            settle(message)
    finally:
        limit.cancel()
    assert len(received) == count, f"{len(received)} of {count} messages came within {RECEIVE_S} s"
    return received


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + RECEIVE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def create_topic(mq: orbitmq.sync.Client, name: str, queues_count: int) -> None:
    """A topic that every client finds from now on: RocketMQ's broker tells its name server after its answer."""
    mq.admin.create_topic(name, queues_count=queues_count)
    until(lambda: name in mq.admin.topics())


def lag(mq: orbitmq.sync.Client, name: str) -> int:
    """To be waited for: RocketMQ may answer a question before it has worked off a commit that was sent one-way before."""
    progress = mq.admin.group_progress(name, name)
    return sum(queue.broker_offset - queue.consumer_offset for queue in progress.values())


def test_every_kind_of_send_comes_back(mq: orbitmq.sync.Client, name: str) -> None:
    plain = mq.send(name, b"plain", tag="a", key=["k1", "k2"], properties={"p": "ü", "q": "1"}, flag=3)
    large = mq.send(name, b"x" * 100_000, tag="a")
    ordered = [mq.send(name, b"%d" % number, tag="a", ordering_key="order-1") for number in range(5)]
    batch = mq.send_batch(name, [orbitmq.sync.Message(b"b%d" % number, tag="a") for number in range(10)])
    oneway = mq.send_oneway(name, b"oneway", tag="a")
    mq.send(name, b"other", tag="unwanted")
    sent = [plain, large, *ordered, *batch]
    assert all(receipt.send_status is orbitmq.sync.SendStatus.SEND_OK for receipt in sent)
    with mq.consumer(name, name, tags="a || b", options=FIRST) as consumer:
        by_id = {message.message_id: message for message in receive(consumer, 18)}
    assert set(by_id) == {receipt.message_id for receipt in sent} | {oneway}
    for receipt in sent:
        message = by_id[receipt.message_id]
        assert (message.queue, message.queue_offset) == (receipt.queue, receipt.queue_offset)
    first = by_id[plain.message_id]
    assert (first.body, first.tag, first.keys, first.flag) == (b"plain", "a", ("k1", "k2"), 3)
    assert (first.properties["p"], first.topic, first.reconsume_times) == ("ü", name, 0)
    assert by_id[large.message_id].body == b"x" * 100_000


def test_threads_send_and_handlers_consume_everything_once(mq: orbitmq.sync.Client, name: str) -> None:
    create_topic(mq, name, 4)
    seen: Counter[bytes] = Counter()
    threads: set[str] = set()

    def handle(message: orbitmq.sync.ReceivedMessage) -> None:
        seen[message.body] += 1
        threads.add(threading.current_thread().name)
        if len(seen) == 500:
            consumer.stop()

    with ThreadPoolExecutor(8) as pool, mq.consumer(name, name, options=FIRST) as consumer:
        sending = [pool.submit(mq.send, name, b"%d" % number) for number in range(500)]
        limit = threading.Timer(RECEIVE_S, consumer.stop)
        limit.start()
        consumer.run(handle, concurrency=8)
        limit.cancel()
        assert len({future.result().message_id for future in sending}) == 500
    assert seen == Counter(b"%d" % number for number in range(500))
    assert len(threads) <= 8

    until(lambda: lag(mq, name) == 0)


def test_a_handler_that_raises_gets_the_message_again(mq: orbitmq.sync.Client, name: str) -> None:
    for number in range(10):
        mq.send(name, b"%d" % number)
    mq.admin.create_group(name)
    seen: Counter[tuple[bytes, int]] = Counter()

    def handle(message: orbitmq.sync.ReceivedMessage) -> None:
        seen[message.body, message.reconsume_times] += 1
        if sum(seen.values()) == 11:
            consumer.stop()
        if message.body == b"7" and message.reconsume_times == 0:
            raise RuntimeError("the seventh fails once")

    with mq.consumer(name, name, options=FIRST) as consumer:
        limit = threading.Timer(RECEIVE_S, consumer.stop)
        limit.start()
        consumer.run(handle, concurrency=4)
        limit.cancel()
    assert seen == Counter({(b"%d" % number, 0): 1 for number in range(10)} | {(b"7", 1): 1})


def test_a_failed_message_is_retried_and_then_a_dead_letter(mq: orbitmq.sync.Client, name: str) -> None:
    options = orbitmq.sync.ConsumerOptions(consume_from=orbitmq.sync.ConsumeFrom.FIRST, max_retries_count=1)
    receipt = mq.send(name, b"poison", key="k")
    with mq.consumer(name, name, options=options) as consumer:
        attempts = receive(consumer, 2, lambda message: message.retry(delay_level=1))
        assert [message.reconsume_times for message in attempts] == [0, 1]
        topic = f"%DLQ%{name}"
        until(lambda: topic in mq.admin.topics())
        (queue,) = mq.admin.topic_stats(topic)
        until(lambda: bool(mq.admin.peek(queue, 0).messages))
        (dead,) = mq.admin.peek(queue, 0).messages
    assert (dead.body, dead.message_id, dead.keys) == (b"poison", receipt.message_id, ("k",))


def test_a_delayed_message_comes_after_its_delay(mq: orbitmq.sync.Client, name: str) -> None:
    mq.send(name, b"now")
    with mq.consumer(name, name, options=FIRST) as consumer:
        receive(consumer, 1)
        before = time.time()
        receipt = mq.send(name, b"later", delay_level=1)
        (message,) = receive(consumer, 1)
        took_s = time.time() - before
    assert message.message_id == receipt.message_id
    assert took_s >= 1


def test_a_group_goes_on_where_it_stopped(mq: orbitmq.sync.Client, name: str) -> None:
    for number in range(10):
        mq.send(name, b"%d" % number)
    with mq.consumer(name, name, options=FIRST) as consumer:
        done = receive(consumer, 6)
    until(lambda: lag(mq, name) == 4)
    with mq.consumer(name, name, options=FIRST) as consumer:
        rest = receive(consumer, 4)
    assert {message.body for message in [*done, *rest]} == {b"%d" % number for number in range(10)}


def test_two_clients_share_the_queues_of_a_group(broker: BrokerUnderTest, mq: orbitmq.sync.Client, name: str) -> None:
    create_topic(mq, name, 4)
    received: Counter[bytes] = Counter()

    def consume(consumer: orbitmq.sync.Consumer) -> None:
        for message in consumer:
            received[message.body] += 1
            message.ack()

    with (
        orbitmq.sync.connect(broker.name_server) as other,
        ThreadPoolExecutor(2) as pool,
        mq.consumer(name, name, options=FIRST) as first,
        other.consumer(name, name, options=FIRST) as second,
    ):
        running = [pool.submit(consume, consumer) for consumer in (first, second)]
        until(lambda: [sum(q.topic == name for q in c.queues) for c in (first, second)] == [2, 2])
        for number in range(40):
            mq.send(name, b"%d" % number)
        until(lambda: len(received) == 40)
        first.stop()
        second.stop()
        for future in running:
            future.result(RECEIVE_S)
    assert set(received.values()) == {1}


def test_queues_are_polled_and_pulled(mq: orbitmq.sync.Client, name: str) -> None:
    sent = {mq.send(name, b"%d" % number).message_id for number in range(10)}
    with mq.lite_consumer(name) as lite:
        queues = lite.fetch_queues(name)
        lite.assign(queues)
        for queue in queues:
            lite.seek_to_begin(queue)
        polled: set[str] = set()
        until(lambda: polled.update(message.message_id for message in lite.poll(1_000)) or polled == sent)
        lite.commit()
        assert sum(lite.committed(queue) or 0 for queue in queues) == 10
    with mq.pull_consumer(name) as puller:  # all are in their queues: they were polled
        found = [message.message_id for queue in puller.queues(name) for message in puller.pull(queue, 0).messages]
    assert set(found) == sent


def test_a_request_gets_its_reply(broker: BrokerUnderTest, mq: orbitmq.sync.Client, name: str) -> None:
    create_topic(mq, name, 1)

    def answer(message: orbitmq.sync.ReceivedMessage) -> None:
        message.reply(message.body.upper())

    with (
        orbitmq.sync.connect(broker.name_server) as server,
        ThreadPoolExecutor(1) as pool,
        server.consumer(name, name, options=FIRST) as consumer,
    ):
        running = pool.submit(consumer.run, answer, concurrency=4)
        replies = [mq.request(name, b"question %d" % number, timeout_ms=20_000).body for number in range(5)]
        consumer.stop()
        running.result(RECEIVE_S)
    assert replies == [b"QUESTION %d" % number for number in range(5)]


def test_the_brokers_refusals_are_explained(mq: orbitmq.sync.Client, name: str) -> None:
    with pytest.raises(orbitmq.sync.MessageIllegalError):
        mq.send("not a topic!", b"x")
    (made,) = mq.admin.masters()
    with pytest.raises(orbitmq.sync.RemoteError, match=r"code (29|1) ") as caught:
        mq.admin.create_topic("TBW102", broker=made.name)
    assert caught.value.address == made.address
    with pytest.raises(orbitmq.sync.RouteNotFoundError):
        mq.admin.topic_stats(name)
