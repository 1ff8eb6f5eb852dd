"""An embedded broker keeps what its docstring promises about virtual and real time, restarts, crashes and its disk."""

from __future__ import annotations

import asyncio
import errno
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.worlds.grpc_client import Client as GrpcClient

import orbitmq
from orbitmq.clock import SystemClock
from orbitmq.errors import ConfigurationError, OrbitError, SendFailedError
from orbitmq.protocol.grpc.delivered_messages import timestamp_of
from orbitmq.protocol.grpc.messages import (
    Message,
    MessageType,
    Resource,
    SendMessageRequest,
    SystemProperties,
)
from orbitmq.testing import EmbeddedBroker, EmbeddedTimeoutError
from orbitmq.testing.clock import as_ms
from orbitmq.testing.consumed import left_to_do

START = datetime(2030, 5, 17, 8, 30, tzinfo=UTC)
Handler = Callable[[orbitmq.ReceivedMessage], Awaitable[None]]
SECOND, MINUTE, HOUR, DAY = timedelta(seconds=1), timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)
LEVEL_1S, LEVEL_5S, LEVEL_10S, LEVEL_30M, LEVEL_2H = 1, 2, 3, 16, 18


@pytest.fixture
async def broker() -> AsyncIterator[EmbeddedBroker]:
    async with EmbeddedBroker(now=START) as running:
        yield running


@asynccontextmanager
async def handling(mq: orbitmq.Client, group: str, topic: str, handler: Handler) -> AsyncIterator[None]:
    """A consumer with a handler while the block lasts."""
    async with mq.consumer(group, topic) as consumer:
        running = asyncio.create_task(consumer.run(handler))
        try:
            yield
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)


async def bodies(broker: EmbeddedBroker, topic: str) -> list[bytes]:
    return [message.body for message in await broker.messages(topic)]


def stored_at(message: orbitmq.StoredMessage) -> datetime:
    return datetime.fromtimestamp(message.store_timestamp / 1_000, UTC)


# --- the clock --------------------------------------------------------------------------------------------------------


async def test_a_delayed_message_is_there_at_its_due_time_and_not_a_millisecond_before(broker: EmbeddedBroker) -> None:
    async with broker.connect() as mq:
        await mq.send("orders", b"unpaid", delay_level=LEVEL_30M)
        await broker.advance(30 * MINUTE - timedelta(milliseconds=1))
        assert await bodies(broker, "orders") == []
        await broker.advance(timedelta(milliseconds=1))
        [message] = await broker.messages("orders")
    assert message.body == b"unpaid"
    assert stored_at(message) == START + 30 * MINUTE == broker.now


async def test_the_clock_stands_still_by_itself(broker: EmbeddedBroker) -> None:
    async with broker.connect() as mq:
        await mq.send("orders", b"later", delay_level=LEVEL_1S)
        for _ in range(50):
            await asyncio.sleep(0)
        assert broker.now == START
        assert await bodies(broker, "orders") == []


async def test_every_message_is_stored_at_its_own_due_time_however_far_the_clock_goes(broker: EmbeddedBroker) -> None:
    await stored_at_their_due_times(broker)


async def test_a_clock_that_jumps_over_due_times_would_be_noticed(
    broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The planted mistake: to the target at once."""

    async def jump(target_ms: int, groups: Collection[str]) -> bool:
        broker._clock.move_to(target_ms)
        await broker._server.settle(groups)
        return False

    monkeypatch.setattr(broker._server, "_move", jump)
    with pytest.raises(AssertionError):
        await stored_at_their_due_times(broker)


async def stored_at_their_due_times(broker: EmbeddedBroker) -> None:
    async with broker.connect() as mq:
        for level, body in ((LEVEL_2H, b"2h"), (LEVEL_1S, b"1s"), (LEVEL_30M, b"30m"), (LEVEL_1S, b"1s again")):
            await mq.send("orders", body, delay_level=level)
        await broker.advance(3 * DAY)
        messages = await broker.messages("orders")
    assert [(message.body, stored_at(message) - START) for message in messages] == [
        (b"1s", SECOND),
        (b"1s again", SECOND),
        (b"30m", 30 * MINUTE),
        (b"2h", 2 * HOUR),
    ]
    assert broker.now == START + 3 * DAY


async def test_more_messages_than_one_release_takes_are_all_there_at_their_instant(broker: EmbeddedBroker) -> None:
    async with broker.connect() as mq:
        for first in range(0, 600, 50):
            await asyncio.gather(
                *(mq.send("orders", b"%d" % n, delay_level=LEVEL_1S) for n in range(first, first + 50))
            )
        await broker.advance(SECOND)
        messages = await broker.messages("orders")
    assert len(messages) == 600
    assert {stored_at(message) for message in messages} == {START + SECOND}


async def test_advance_to_goes_to_an_instant_and_never_back(broker: EmbeddedBroker) -> None:
    await broker.advance_to(START + HOUR)
    assert broker.now == START + HOUR
    with pytest.raises(ValueError, match="not set back"):
        await broker.advance_to(START)
    with pytest.raises(ValueError, match="time zone"):
        await broker.advance_to(datetime(2031, 1, 1))
    with pytest.raises(ValueError, match="forward only"):
        await broker.advance(-SECOND)


async def test_two_moves_at_a_time_are_refused(broker: EmbeddedBroker) -> None:
    async with broker.connect() as mq:
        await mq.send("orders", b"x", delay_level=LEVEL_1S)
        first, second = await asyncio.gather(broker.advance(HOUR), broker.advance(DAY), return_exceptions=True)
    assert first is None
    assert isinstance(second, OrbitError)
    assert "being moved already" in str(second)
    assert broker.now == START + HOUR


async def test_a_client_of_the_broker_writes_its_time(broker: EmbeddedBroker) -> None:
    await broker.advance(DAY)
    async with broker.connect() as mq:
        await mq.send("orders", b"born")
        [message] = await broker.messages("orders")
    assert datetime.fromtimestamp(message.born_timestamp / 1_000, UTC) == START + DAY


async def test_without_a_given_time_the_clock_begins_at_the_machines() -> None:
    before = SystemClock().now_ms()
    async with EmbeddedBroker() as broker:
        assert before <= broker.now.timestamp() * 1_000 + 1 <= SystemClock().now_ms() + 1


async def test_three_virtual_days_make_no_client_expire(broker: EmbeddedBroker) -> None:
    seen: list[bytes] = []

    async def handler(message: orbitmq.ReceivedMessage) -> None:
        seen.append(message.body)

    async with broker.connect() as mq:
        await mq.send("orders", b"first")
        async with handling(mq, "readers", "orders", handler):
            await broker.consumed("readers")
            await broker.advance(3 * DAY)
            await mq.send("orders", b"second")
            await broker.consumed("readers")
    assert seen == [b"first", b"second"]


# --- consumers --------------------------------------------------------------------------------------------------------


async def test_a_pull_that_waits_is_answered_when_the_message_falls_due(broker: EmbeddedBroker) -> None:
    async with broker.connect() as mq, mq.consumer("readers", "orders") as consumer:
        await mq.send("orders", b"now")
        first = await anext(aiter(consumer))
        await first.ack()
        await mq.send("orders", b"later", delay_level=LEVEL_30M)
        await broker.advance(HOUR)
        second = await anext(aiter(consumer))
        await second.ack()
    assert (second.body, stored_at(second)) == (b"later", START + 30 * MINUTE)


async def test_groups_deal_with_an_instant_before_the_clock_goes_on(broker: EmbeddedBroker) -> None:
    """A chain: each message makes its handler send the next one, an hour later each time."""
    seen: list[tuple[bytes, timedelta]] = []

    async with broker.connect() as mq:

        async def handler(message: orbitmq.ReceivedMessage) -> None:
            seen.append((message.body, broker.now - START))
            if len(seen) < 4:
                await mq.send("reminders", b"%d" % len(seen), delay_level=17)

        await mq.send("reminders", b"0")
        async with handling(mq, "reminder", "reminders", handler):
            await broker.advance(DAY, groups=["reminder"])
    assert seen == [(b"%d" % hour, hour * HOUR) for hour in range(4)]
    assert broker.now == START + DAY


async def test_retries_and_dead_letters_come_at_their_virtual_times(broker: EmbeddedBroker) -> None:
    attempts: list[timedelta] = []

    async def handler(message: orbitmq.ReceivedMessage) -> None:
        attempts.append(broker.now - START)
        raise ValueError("the payment service is down")

    async with broker.connect() as mq:
        await mq.send("orders", b"poison")
        options = orbitmq.ConsumerOptions(max_retries_count=3)
        async with mq.consumer("payers", "orders", options=options) as consumer:
            running = asyncio.create_task(consumer.run(handler))
            await broker.advance(DAY, groups=["payers"])
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
        [dead] = await broker.dead_letters("payers")
    assert dead.body == b"poison"
    assert attempts == [timedelta(0), 10 * SECOND, 40 * SECOND, 100 * SECOND]


async def test_waiting_for_a_group_says_what_it_has_not_done(
    broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broker._server, "_patience_ms", 100)
    released = asyncio.Event()

    async def handler(message: orbitmq.ReceivedMessage) -> None:
        await released.wait()

    async def in_hand() -> bool:
        return "in hand" in (await left_to_do(broker._server._broker.broker, "readers") or "")

    with pytest.raises(EmbeddedTimeoutError, match="no member of group 'readers' is connected"):
        await broker.consumed("readers")
    async with broker.connect() as mq:
        await mq.send("orders", b"slow")
        async with handling(mq, "readers", "orders", handler):
            await broker.run_until(in_hand, within=timedelta(0))
            with pytest.raises(EmbeddedTimeoutError, match=r"1 messages of queue \d of 'orders' in hand"):
                await broker.consumed("readers")
            monkeypatch.undo()
            released.set()
            await broker.consumed("readers")


async def test_messages_that_a_filter_passes_over_are_dealt_with(broker: EmbeddedBroker) -> None:
    seen: list[bytes] = []

    async def handler(message: orbitmq.ReceivedMessage) -> None:
        seen.append(message.body)

    async with broker.connect() as mq:
        await mq.send("orders", b"paid", tag="paid")
        async with mq.consumer("readers", "orders", tags="paid") as consumer:
            running = asyncio.create_task(consumer.run(handler))
            for number in range(4):
                await mq.send("orders", b"%d" % number, tag="created")
            await broker.consumed("readers")
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
    assert seen == [b"paid"]


async def test_how_long_to_wait_is_the_tests_choice() -> None:
    async with EmbeddedBroker(patience=timedelta(milliseconds=50)) as broker:
        with pytest.raises(EmbeddedTimeoutError, match="after 50 ms of real time no member"):
            await broker.consumed("readers")


# --- conditions -------------------------------------------------------------------------------------------------------


async def test_run_until_stops_at_the_first_instant_at_which_the_condition_holds(broker: EmbeddedBroker) -> None:
    async with broker.connect() as mq:
        for level in (LEVEL_1S, LEVEL_30M, LEVEL_2H):
            await mq.send("orders", b"x", delay_level=level)

        async def two_are_there() -> bool:
            return len(await broker.messages("orders")) == 2

        await broker.run_until(two_are_there)
        assert broker.now == START + 30 * MINUTE
        await broker.run_until(lambda: True)
        assert broker.now == START + 30 * MINUTE


async def test_a_condition_that_never_holds_is_an_error_and_the_clock_stays_where_it_was(
    broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broker._server, "_patience_ms", 50)
    async with broker.connect() as mq:
        await mq.send("orders", b"x", delay_level=LEVEL_1S)
        await mq.send("orders", b"x", delay_level=LEVEL_2H)
        with pytest.raises(EmbeddedTimeoutError, match="nothing is due up to"):
            await broker.run_until(lambda: False, within=HOUR)
    assert broker.now == START + SECOND


# --- contents ---------------------------------------------------------------------------------------------------------


async def test_pending_tells_what_waits_in_the_order_of_due_times(broker: EmbeddedBroker) -> None:
    async with broker.connect() as mq:
        await mq.send("orders", b"b", delay_level=LEVEL_30M, key="42", tag="unpaid")
        receipt = await mq.send("mails", b"a", delay_level=LEVEL_5S)
        await mq.send("orders", b"x" * 10_000, delay_level=LEVEL_2H)
        mail, order, large = await broker.pending()
        assert (mail.topic, mail.due, mail.level, mail.message_id) == (
            "mails",
            START + 5 * SECOND,
            LEVEL_5S,
            receipt.message_id,
        )
        assert (order.body, order.keys, order.tag, order.due) == (b"b", ("42",), "unpaid", START + 30 * MINUTE)
        assert large.body == b"x" * 10_000, "as it was sent, not as it is stored"
        assert [message.topic for message in await broker.pending("orders")] == ["orders", "orders"]
        await broker.advance(HOUR)
        assert await broker.pending("mails") == []
        assert [message.level for message in await broker.pending()] == [LEVEL_2H]


async def test_a_message_that_was_moved_waits_under_its_senders_id(broker: EmbeddedBroker) -> None:
    async with broker.connect() as mq:
        receipt = await mq.send("orders", b"moved", after=timedelta(hours=2))
        await receipt.reschedule(after=timedelta(hours=1))
        assert [message.message_id for message in await broker.pending()] == [receipt.message_id]


async def test_a_topic_that_does_not_exist_holds_nothing(broker: EmbeddedBroker) -> None:
    assert await broker.messages("nowhere") == []
    assert await broker.dead_letters("nobody") == []
    assert await broker.pending() == []


# --- gRPC -------------------------------------------------------------------------------------------------------------


async def test_what_a_client_of_rocketmq_5_sends_goes_by_the_virtual_clock(broker: EmbeddedBroker) -> None:
    async with broker.connect() as mq:
        await mq.admin.create_topic("Orders", attributes={"message.type": "DELAY"})
    at = timestamp_of(as_ms(START + 365 * DAY))
    system = SystemProperties(message_id="one", message_type=MessageType.DELAY, delivery_timestamp=at)
    request = SendMessageRequest(messages=[Message(topic=Resource(name="Orders"), body=b"x", system_properties=system)])
    host, _, port = broker.grpc_address.partition(":")
    client = GrpcClient(*await asyncio.open_connection(host, int(port)))
    sent = client.call("SendMessage", request.SerializeToString())
    assert await client.ended(sent) == {"grpc-status": "0"}
    client.writer.close()
    await broker.advance(364 * DAY)
    assert await bodies(broker, "Orders") == []
    await broker.advance(DAY)
    assert [stored_at(message) for message in await broker.messages("Orders")] == [START + 365 * DAY]


async def test_without_the_port_there_is_no_address() -> None:
    async with EmbeddedBroker(settings={"grpcEnable": "false"}) as broker:
        with pytest.raises(OrbitError, match="serves no gRPC"):
            _ = broker.grpc_address


# --- restarts and crashes ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["restart", "crash"])
async def test_what_was_acknowledged_outlives_the_end_and_what_fell_due_meanwhile_is_delivered(
    broker: EmbeddedBroker, way: str
) -> None:
    async with broker.connect() as mq:
        await mq.send("orders", b"kept")
        await mq.send("orders", b"due meanwhile", delay_level=LEVEL_30M)
        await mq.send("orders", b"due later", delay_level=LEVEL_2H)
        addresses = broker.address, broker.grpc_address
        await getattr(broker, way)(down=HOUR)
        assert (broker.address, broker.grpc_address) == addresses
        assert await bodies(broker, "orders") == [b"kept", b"due meanwhile"]
        assert stored_at((await broker.messages("orders"))[1]) == START + HOUR, "it was down at the due time"
        await mq.send("orders", b"after")
        await broker.advance(HOUR)
        assert await bodies(broker, "orders") == [b"kept", b"due meanwhile", b"after", b"due later"]
        assert await broker.pending() == []


async def test_a_crash_forgets_what_waited_in_memory_and_an_orderly_stop_does_not(broker: EmbeddedBroker) -> None:
    async with broker.connect() as mq:
        await mq.send("orders", b"x")
        async with mq.consumer("readers", "orders") as consumer:
            await (await anext(aiter(consumer))).ack()
        await broker.crash()
        assert await committed(mq) == 0
        async with mq.consumer("readers", "orders") as consumer:
            await (await anext(aiter(consumer))).ack()
        await broker.restart()
        assert await committed(mq) == 1


async def committed(mq: orbitmq.Client) -> int:
    """The offset of group `readers` in the topic, of all queues together."""
    progress = await mq.admin.group_progress("readers")
    return sum(max(queue.consumer_offset, 0) for queue in progress.values())


async def test_consumers_come_back_after_a_crash(broker: EmbeddedBroker) -> None:
    seen: list[bytes] = []

    async def handler(message: orbitmq.ReceivedMessage) -> None:
        seen.append(message.body)

    async with broker.connect() as mq:
        await mq.send("orders", b"before")
        async with handling(mq, "readers", "orders", handler):
            await broker.consumed("readers")
            await mq.send("orders", b"delayed", delay_level=LEVEL_30M)
            await broker.crash()
            await broker.advance(HOUR, groups=["readers"])
    assert seen[0] == b"before"
    assert seen[-1] == b"delayed"


# --- the disk ---------------------------------------------------------------------------------------------------------


async def test_a_full_disk_refuses_sends_delays_what_is_due_and_heals(broker: EmbeddedBroker) -> None:
    async with broker.connect() as mq:
        await mq.send("orders", b"due", delay_level=LEVEL_30M)
        with broker.fail_disk():
            with pytest.raises(SendFailedError, match="disk is full"):
                await mq.send("orders", b"refused")
            await broker.advance(HOUR)
            assert await bodies(broker, "orders") == []
            assert broker.now == START + HOUR
        await mq.send("orders", b"taken")
        await broker.advance(SECOND)
        late, taken = sorted(await broker.messages("orders"), key=lambda message: message.body)
        assert (late.body, taken.body) == (b"due", b"taken")
        assert stored_at(late) == START + HOUR, "as late as the disk made it"


async def test_a_broken_disk_stays_broken_until_the_broker_starts_again(broker: EmbeddedBroker) -> None:
    async with broker.connect() as mq:
        await mq.send("orders", b"kept")
        with broker.fail_disk(errno.EIO), pytest.raises(SendFailedError):
            await mq.send("orders", b"refused")
        with pytest.raises(SendFailedError):
            await mq.send("orders", b"refused as well")
        await broker.crash()
        await mq.send("orders", b"taken")
    assert await bodies(broker, "orders") == [b"kept", b"taken"]


async def test_a_restart_replaces_a_disk_that_fails(broker: EmbeddedBroker) -> None:
    async with broker.connect() as mq:
        with broker.fail_disk(errno.EIO):
            await broker.restart()
        await mq.send("orders", b"taken")
    assert await bodies(broker, "orders") == [b"taken"]


# --- life -------------------------------------------------------------------------------------------------------------


async def test_several_brokers_run_beside_each_other() -> None:
    async with EmbeddedBroker(now=START) as one, EmbeddedBroker(now=START + DAY) as other:
        async with one.connect() as first, orbitmq.connect(other.address) as second:
            await first.send("orders", b"one")
            await second.send("orders", b"other")
        assert await bodies(one, "orders") == [b"one"]
        assert await bodies(other, "orders") == [b"other"]
        await one.advance(HOUR)
        assert (one.now, other.now) == (START + HOUR, START + DAY)


async def test_its_own_directory_goes_and_a_given_one_stays(tmp_path: Path) -> None:
    async with EmbeddedBroker() as broker:
        own = broker.data
        assert own.is_dir()
    assert not own.exists()
    for count in (0, 1):
        async with EmbeddedBroker(data=tmp_path / "kept") as broker, broker.connect() as mq:
            assert len(await broker.messages("orders")) == count
            await mq.send("orders", b"x")


async def test_a_setting_that_no_broker_takes_is_refused_and_leaves_nothing_behind() -> None:
    with pytest.raises(ConfigurationError, match="messageDelayLvl"):
        async with EmbeddedBroker(settings={"messageDelayLvl": "1s"}):
            pass


async def test_settings_are_those_of_a_configuration_file() -> None:
    async with EmbeddedBroker(now=START, settings={"messageDelayLevel": "3d"}) as broker, broker.connect() as mq:
        await mq.send("orders", b"x", delay_level=1)
        await broker.advance(3 * DAY)
        [message] = await broker.messages("orders")
    assert stored_at(message) == START + 3 * DAY


@pytest.mark.parametrize("mode", ["SYNC_FLUSH", "ASYNC_FLUSH"])
async def test_both_flush_modes_come_to_rest(mode: str) -> None:
    async with EmbeddedBroker(now=START, settings={"flushDiskType": mode}) as broker, broker.connect() as mq:
        await mq.send("orders", b"x", delay_level=LEVEL_1S)
        await broker.advance(SECOND)
        assert await bodies(broker, "orders") == [b"x"]


async def test_outside_its_block_there_is_no_broker() -> None:
    broker = EmbeddedBroker()
    for use in (lambda: broker.address, lambda: broker.grpc_address, lambda: broker.data, broker.connect):
        with pytest.raises(OrbitError, match="not running"):
            use()
    with pytest.raises(OrbitError, match="not running"):
        await broker.advance(SECOND)


def test_it_runs_on_uvloop() -> None:
    uvloop = pytest.importorskip("uvloop")

    async def scenario() -> None:
        async with EmbeddedBroker(now=START) as broker, broker.connect() as mq:
            await mq.send("orders", b"x", delay_level=LEVEL_30M)
            await broker.advance(30 * MINUTE)
            await broker.crash()
            assert await bodies(broker, "orders") == [b"x"]

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(scenario())


# --- other loops and threads ------------------------------------------------------------------------------------------


def test_the_synchronous_form_does_the_same() -> None:
    with EmbeddedBroker.sync(now=START) as broker, broker.connect() as mq:
        mq.send("orders", b"1", delay_level=LEVEL_30M)
        mq.send("orders", b"2", delay_level=LEVEL_2H)
        assert [message.body for message in broker.pending("orders")] == [b"1", b"2"]
        broker.run_until(lambda: len(broker.messages("orders")) == 1)
        assert broker.now == START + 30 * MINUTE
        with broker.fail_disk():
            broker.advance_to(START + 2 * HOUR)
            assert len(broker.messages("orders")) == 1
        broker.advance(SECOND)
        assert len(broker.messages("orders")) == 2
        broker.crash()
        broker.restart(down=HOUR)
        assert broker.now == START + 3 * HOUR + SECOND
        assert [message.body for message in broker.messages("orders")] == [b"1", b"2"]
        assert broker.dead_letters("readers") == []
    with pytest.raises(OrbitError, match="not running"):
        broker.messages("orders")


def test_a_broker_on_a_thread_serves_loops_that_come_and_go() -> None:
    async def sends(broker: EmbeddedBroker) -> None:
        async with broker.connect() as mq:
            await mq.send("orders", b"x", delay_level=LEVEL_30M)

    async def looks(broker: EmbeddedBroker) -> None:
        await broker.run_until(lambda: broker.now == START + 30 * MINUTE)
        assert await bodies(broker, "orders") == [b"x"]

    with EmbeddedBroker.on_thread(now=START) as broker:
        asyncio.run(sends(broker))
        asyncio.run(looks(broker))


def test_a_start_that_fails_ends_its_thread() -> None:
    before = set(threading.enumerate())
    with pytest.raises(ConfigurationError), EmbeddedBroker.sync(settings={"nonsense": "1"}):
        pass
    with pytest.raises(ConfigurationError), EmbeddedBroker.on_thread(settings={"nonsense": "1"}):
        pass
    assert set(threading.enumerate()) <= before


@pytest.mark.parametrize("idle_days", [6, 13, 20])
async def test_a_timer_after_weeks_without_any_comes_in_time(broker: EmbeddedBroker, idle_days: int) -> None:
    """The read clock of the wheel is moved by saves; where nothing came, nothing was saved."""
    async with broker.connect() as mq:
        await mq.send("orders", b"first", after=timedelta(hours=1))
        await broker.advance(timedelta(days=idle_days))
        due = broker.now + timedelta(days=2, hours=20)
        await mq.send("orders", b"second", at=due)
        await broker.advance(timedelta(days=3))
    [_, second] = await broker.messages("orders")
    assert second.store_timestamp == round(due.timestamp() * 1000)


# --- routes -----------------------------------------------------------------------------------------------------------


async def test_a_consumer_beside_what_made_its_topic_by_a_recurring_message_owns_all_its_queues(
    broker: EmbeddedBroker,
) -> None:
    async with broker.connect() as mq:
        for number in range(3):  # which broker queue a run gets follows from the name
            await mq.recurring.put(f"job-{number}", f"jobs-{number}", b"run", every=HOUR)
            async with mq.consumer("workers", f"jobs-{number}") as consumer:
                await mq.send(f"jobs-{number}", b"first")
                async for message in consumer:  # a run takes all its queues before the first message is there
                    await message.ack()
                    break
                owned = [queue for queue in consumer.queues if queue.topic == f"jobs-{number}"]
                route = await mq.admin.topic_route(f"jobs-{number}")
                counts = [queues.read_queue_nums for queues in route.queue_datas]
                assert [len(owned)] == counts
