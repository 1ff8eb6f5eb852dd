"""Timer messages and recalls of the official Java client 5.3.3, with our broker and, as the control, with RocketMQ's.

RocketMQ delivers at the end of a second and says of every recall that it succeeded; where the two differ the test says what each
does.
"""

from __future__ import annotations

import time
from base64 import urlsafe_b64decode
from collections.abc import Callable, Iterator

import pytest
from rig.brokers import BROKER_NAME, BrokerUnderTest, Kind
from rig.drivers import Driver, DriverFailed, Event, java_driver
from rig.toolchain import BROKER_VERSION, java_build

pytestmark = pytest.mark.java

LATE_MS = 30_000
"""On a busy machine. A time in another unit would be missed by more."""
SETTLE_MS = 1_500
WAIT_S = 180
UPDATE_BROKER_CONFIG = 25

_serial = iter(range(1_000_000))


@pytest.fixture(scope="module")
def driver(
    available: Callable[[Callable[[], object]], None],
    broker: BrokerUnderTest,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Driver]:
    available(lambda: java_build(BROKER_VERSION))
    if broker.kind is Kind.JAVA:
        with broker.wire() as wire:
            wire.call(UPDATE_BROKER_CONFIG, {}, b"recallMessageEnable=true")
    with java_driver(BROKER_VERSION, broker.name_server, tmp_path_factory.mktemp("timers")) as one:
        yield one


@pytest.fixture
def topic(broker: BrokerUnderTest, driver: Driver) -> str:
    """A topic with a consumer that has finished its first rebalance."""
    name = f"JavaTimers-{time.time_ns() // 1_000_000}-{next(_serial)}"
    with broker.wire() as wire:
        wire.create_topic(name, 1)
    driver.command("consume", group=f"{name}-group", topic=name)
    driver.command("produce", topic=name, prefix="first")
    driver.wait(lambda events: bool(received(events, name)), WAIT_S, "the first message")
    return name


def received(events: list[Event], topic: str) -> list[Event]:
    return [event for event in events if event["event"] == "received" and event["topic"] == topic]


def send(driver: Driver, topic: str, prefix: str, **options: object) -> Event:
    (event,) = [e for e in driver.command("produce", topic=topic, prefix=prefix, **options) if e["event"] == "sent"]
    assert event["status"] == "SEND_OK"
    return event


def recall(driver: Driver, topic: str, handle: str) -> Event:
    (event,) = [e for e in driver.command("recall", topic=topic, handle=handle) if e["event"].startswith("recall")]
    return event


def arrival(driver: Driver, topic: str, body: str) -> Event:
    def there(events: list[Event]) -> bool:
        return any(event["body"] == body for event in received(events, topic))

    driver.wait(there, WAIT_S, body)
    (event,) = [event for event in received(driver.events("received"), topic) if event["body"] == body]
    return event


def now_ms() -> int:
    return time.time_ns() // 1_000_000


@pytest.mark.parametrize(
    ("option", "value", "delay_ms"),
    [("DeliverTimeMs", None, 2_250), ("DelayTimeSec", 2, 2_000), ("DelayTimeMs", 2_345, 2_345)],
)
def test_each_of_the_three_times(
    driver: Driver, broker: BrokerUnderTest, topic: str, option: str, value: int | None, delay_ms: int
) -> None:
    before = now_ms()
    sent = send(driver, topic, "timed", **{option: before + delay_ms if value is None else value})
    after = before if value is None else now_ms()
    message = arrival(driver, topic, "timed-0")
    assert message["storeAt"] >= before + delay_ms
    assert message["storeAt"] <= after + delay_ms + LATE_MS
    assert message["msgId"] == sent["msgId"]


def test_a_handle_is_five_words_and_a_past_time_has_none(driver: Driver, broker: BrokerUnderTest, topic: str) -> None:
    begun = now_ms()
    event = send(driver, topic, "handle", DeliverTimeMs=begun + 2_000)
    version, of_topic, of_broker, timestamp, message_id = urlsafe_b64decode(event["handle"]).decode().split(" ")
    assert (version, of_topic, of_broker, message_id) == ("v1", topic, BROKER_NAME, event["msgId"])
    assert (int(timestamp) - 1) % 1_000 == 0
    assert int(timestamp) - 1 < begun + 2_000 <= int(timestamp) + 999
    assert send(driver, topic, "past", DeliverTimeMs=begun - 5)["handle"] is None
    assert send(driver, topic, "plain")["handle"] is None


def test_what_is_recalled_does_not_come(driver: Driver, topic: str) -> None:
    due_ms = now_ms() + 4_000
    recalled = send(driver, topic, "recalled", DeliverTimeMs=due_ms)
    send(driver, topic, "stays", DeliverTimeMs=due_ms)
    event = recall(driver, topic, recalled["handle"])
    assert (event["event"], event["msgId"]) == ("recalled", recalled["msgId"])
    arrival(driver, topic, "stays-0")
    time.sleep(SETTLE_MS / 1_000)
    assert "recalled-0" not in [event["body"] for event in received(driver.events("received"), topic)]


def test_a_recall_after_delivery_is_refused(driver: Driver, topic: str) -> None:
    sent = send(driver, topic, "late", DelayTimeMs=100)
    arrival(driver, topic, "late-0")
    event = recall(driver, topic, sent["handle"])
    assert event["event"] == "recall_failed"
    assert "604" in event["error"]


def test_a_batch_with_a_time(driver: Driver, broker: BrokerUnderTest, topic: str) -> None:
    """The Java client lets a batch carry times; RocketMQ's broker overlooks them and delivers at once."""
    due_ms = now_ms() + 2_500
    driver.command("produce", topic=topic, prefix="batch", mode="batch", count=3, DeliverTimeMs=due_ms)
    first = min(arrival(driver, topic, f"batch-{number}")["storeAt"] for number in range(3))
    assert (first >= due_ms) is (broker.kind is Kind.ORBITMQ)


def test_beyond_three_days_only_rocketmq_refuses(driver: Driver, broker: BrokerUnderTest, topic: str) -> None:
    month = {"DelayTimeSec": 30 * 86_400}
    if broker.kind is Kind.JAVA:
        with pytest.raises(DriverFailed, match="CODE: 13"):
            send(driver, topic, "month", **month)
        return
    handle = send(driver, topic, "month", **month)["handle"]
    assert recall(driver, topic, handle)["event"] == "recalled"
