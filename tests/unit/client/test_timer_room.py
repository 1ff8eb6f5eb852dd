"""Timer messages through the client: sending them, recalling, rescheduling, listing; one broker, several, and RocketMQ's."""

from __future__ import annotations

import asyncio
import base64
import zlib
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from scripted_cluster import CUT, NAME_SERVER, Broker, Cluster

import orbitmq
from orbitmq.client._async.client import Client
from orbitmq.client.message import Message, SendStatus
from orbitmq.client.options import ProducerOptions
from orbitmq.client.timers import TimerVerdict
from orbitmq.clock import ManualClock
from orbitmq.errors import (
    ClientError,
    ConfigurationError,
    ConnectionLostError,
    MessageIllegalError,
    RemoteError,
    RouteNotFoundError,
    TimersMissingError,
)
from orbitmq.protocol.batches import decode_batch
from orbitmq.protocol.properties import decode_properties
from orbitmq.protocol.remoting import timer_bodies as wire
from orbitmq.protocol.remoting.bodies import ClusterInfo, MessageQueue
from orbitmq.protocol.remoting.codes import RequestCode, ResponseCode
from orbitmq.protocol.remoting.frame import Command, response
from orbitmq.protocol.remoting.versions import version_ordinal
from orbitmq.protocol.sysflag import Compression, with_compression

Run = Callable[[Callable[[], Awaitable[None]]], None]
SEND = RequestCode.SEND_MESSAGE_V2
DUE_MS = 1_795_262_400_000
DUE = datetime(2026, 11, 21, 12, tzinfo=UTC)


class Wheel:
    """What one broker has pending, behind the requests of ours."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.has_topic = True
        self.pending: dict[str, wire.TimerViewBody] = {}
        self.delivered: dict[str, wire.TimerViewBody] = {}
        self.asked: list[RequestCode] = []
        for code in (
            RequestCode.RECALL_TIMERS,
            RequestCode.RESCHEDULE_TIMERS,
            RequestCode.TIMER_STATUS,
            RequestCode.LIST_TIMERS,
            RequestCode.COUNT_TIMERS,
            RequestCode.GET_TIMER,
        ):
            broker.script(code, *[self.answer] * 100)

    def add(self, message_id: str, deliver_ms: int, key: str = "", topic: str = "T") -> None:
        self.pending[message_id] = wire.TimerViewBody(
            topic=topic, message_id=message_id, keys=key, deliver_ms=deliver_ms, handle=handle(self.broker, message_id)
        )

    def answer(self, command: Command) -> Command:
        self.asked.append(RequestCode(command.code))
        if not self.has_topic:
            return response(command, ResponseCode.TOPIC_NOT_EXIST, "no such topic", fields={})
        body = self._body(command)
        return response(command, ResponseCode.SUCCESS, fields={}, body=body.encode())

    def _body(
        self, command: Command
    ) -> wire.TimerAnswers | wire.TimerPage | wire.TimerCountsBody | wire.TimerMessageBody:
        if command.code == RequestCode.COUNT_TIMERS:
            return wire.TimerCountsBody(pending=len(self.pending), by_topic={"T": len(self.pending)})
        if command.code == RequestCode.LIST_TIMERS:
            query = wire.TimerQuery.decode(command.body)
            some = [timer for timer in self.pending.values() if query.tier in (None, timer.tier)]
            timers = sorted(some, key=lambda timer: timer.deliver_ms)
            begin = int(query.cursor or 0)
            end = begin + query.limit
            return wire.TimerPage(timers=timers[begin:end], cursor=str(end) if end < len(timers) else None)
        change = wire.ChangeTimers.decode(command.body)
        found = self._selected(change.selector)
        if command.code == RequestCode.GET_TIMER:
            if len(found) != 1:
                verdict = wire.Verdict.AMBIGUOUS if found else wire.Verdict.NOT_FOUND
                return wire.TimerMessageBody(verdict=verdict)
            return wire.TimerMessageBody(
                verdict=wire.Verdict.PENDING, timer=found[0], properties={"TAGS": "a"}, body=b"\xff\x00"
            )
        if not found:
            late = self.delivered.get(change.selector.message_id or "")
            verdict = wire.Verdict.ALREADY_DELIVERED if late else wire.Verdict.NOT_FOUND
            return wire.TimerAnswers(answers=[wire.TimerAnswer(verdict=verdict, timer=late)])
        if command.code == RequestCode.TIMER_STATUS:
            return wire.TimerAnswers([wire.TimerAnswer(wire.Verdict.PENDING, timer) for timer in found])
        if len(found) > 1 and not change.selector.all:
            return wire.TimerAnswers([wire.TimerAnswer(wire.Verdict.AMBIGUOUS, timer) for timer in found])
        verdict = wire.Verdict.RECALLED
        for timer in found:
            if command.code == RequestCode.RECALL_TIMERS:
                del self.pending[timer.message_id]
            else:
                verdict = wire.Verdict.RESCHEDULED
                timer.deliver_ms = change.deliver_ms or change.delay_ms or 0
        return wire.TimerAnswers([wire.TimerAnswer(verdict, timer) for timer in found], len(found))

    def _selected(self, selector: wire.TimerSelector) -> list[wire.TimerViewBody]:
        if selector.handle is not None:
            return [timer for timer in self.pending.values() if timer.handle == selector.handle]
        if selector.message_id is not None:
            return [timer for timer in self.pending.values() if timer.message_id == selector.message_id]
        return [timer for timer in self.pending.values() if timer.keys == selector.key]


def handle(broker: Broker, message_id: str, topic: str = "T", deliver_ms: int = DUE_MS) -> str:
    return base64.urlsafe_b64encode(f"v1 {topic} {broker.name} {deliver_ms} {message_id}".encode()).decode()


def client(cluster: Cluster, options: ProducerOptions | None = None) -> Client:
    return Client(NAME_SERVER, clock=ManualClock(), dial=cluster.dial, producer_options=options)


@pytest.fixture
def broker(cluster: Cluster) -> Broker:
    return cluster.brokers["b-a"]


@pytest.fixture
def wheel(broker: Broker) -> Wheel:
    return Wheel(broker)


@pytest.fixture
def two(cluster: Cluster, wheel: Wheel) -> tuple[Wheel, Wheel]:
    other = cluster.add_broker("b-b")
    cluster.add_topic("T", queues=4)
    return wheel, Wheel(other)


def with_handle(broker: Broker) -> Callable[[Command], Command]:
    def answer(command: Command) -> Command:
        stored = broker.store_message(command)
        stored.fields["recallHandle"] = handle(broker, decode_properties(command.text("i"))["UNIQ_KEY"])
        return stored

    return answer


def as_rocketmq(broker: Broker, release: str) -> None:
    """A broker that knows none of our requests."""

    def unknown(command: Command) -> Command:
        answer = response(command, ResponseCode.REQUEST_CODE_NOT_SUPPORTED, "unknown", fields={})
        answer.version = version_ordinal(release)
        return answer

    for code in (RequestCode.TIMER_STATUS, RequestCode.RECALL_TIMERS, RequestCode.RESCHEDULE_TIMERS):
        broker.script(code, *[unknown] * 20)
    for code in (RequestCode.LIST_TIMERS, RequestCode.COUNT_TIMERS, RequestCode.GET_TIMER):
        broker.script(code, *[unknown] * 20)


def timer_properties(command: Command) -> dict[str, str]:
    properties = decode_properties(command.text("i"))
    return {name: value for name, value in properties.items() if name.startswith("TIMER_")}


# --- sending


def test_a_due_time_travels_as_a_property(run: Run, cluster: Cluster, broker: Broker, wheel: Wheel) -> None:
    async def test() -> None:
        async with client(cluster) as mq:
            await mq.send("T", b"1", at=DUE)
            await mq.send("T", b"2", at=DUE_MS, key="k")
            await mq.send("T", b"3", after=timedelta(days=3))
            await mq.send_oneway("T", b"4", after=0.25)
            await mq.send("T", b"5")

    run(test)
    assert [timer_properties(command) for command in broker.requests(SEND)] == [
        {"TIMER_DELIVER_MS": str(DUE_MS)},
        {"TIMER_DELIVER_MS": str(DUE_MS)},
        {"TIMER_DELAY_MS": "259200000"},
        {"TIMER_DELAY_MS": "250"},
        {},
    ]
    assert wheel.asked == [RequestCode.LIST_TIMERS]  # once, before the first of them
    (asked,) = broker.requests(RequestCode.LIST_TIMERS)
    assert wire.TimerQuery.decode(asked.body).tier == wire.TIER_NEAR, "files of the far tier are not waited for"


def test_an_illegal_due_time_does_not_leave(run: Run, cluster: Cluster, broker: Broker, wheel: Wheel) -> None:
    async def test() -> None:
        async with client(cluster) as mq:
            with pytest.raises(MessageIllegalError, match="time zone"):
                await mq.send("T", b"1", at=datetime(2026, 1, 1))
            with pytest.raises(MessageIllegalError, match="two due times"):
                await mq.send("T", b"1", after=5, delay_level=2)
            with pytest.raises(MessageIllegalError, match="both at"):
                await mq.send_oneway("T", b"1", after=5, at=DUE)

    run(test)
    assert not broker.requests(SEND)
    assert not wheel.asked


def test_a_batch_has_one_due_time(run: Run, cluster: Cluster, broker: Broker, wheel: Wheel) -> None:
    async def test() -> None:
        async with client(cluster) as mq:
            receipts = await mq.send_batch("T", [Message(b"1"), Message(b"2", key="k")], after=60)
            await mq.send_batch("T", [Message(b"3", at=DUE), Message(b"4", at=DUE)])
            wheel.add(receipts[1].message_id, DUE_MS)
            assert (await receipts[1].recall()).verdict is TimerVerdict.RECALLED
            for mixed in (
                [Message(b"1", after=1), Message(b"2")],
                [Message(b"1"), Message(b"2", after=1)],
                [Message(b"1", at=DUE), Message(b"2", at=DUE_MS + 1)],
            ):
                with pytest.raises(MessageIllegalError, match="message 1 of the batch is due at another time"):
                    await mq.send_batch("T", mixed)
            with pytest.raises(MessageIllegalError, match="message 0 of the batch has a due time of its own"):
                await mq.send_batch("T", [Message(b"1", after=1)], after=2)

    run(test)
    sent = [
        [decode_properties(item.properties).get("TIMER_DELAY_MS") for item in decode_batch(bytes(command.body))]
        for command in broker.requests(RequestCode.SEND_BATCH_MESSAGE)
    ]
    assert sent == [["60000", "60000"], [None, None]]


def test_timed_messages_do_not_wait_for_a_batch(run: Run, cluster: Cluster, broker: Broker, wheel: Wheel) -> None:
    async def test() -> None:
        async with client(cluster, ProducerOptions(auto_batch_ms=10)) as mq:
            await mq.send("T", b"1", after=5)

    run(test)
    assert len(broker.requests(SEND)) == 1


def test_the_receipt_recalls_moves_and_asks(run: Run, cluster: Cluster, broker: Broker, wheel: Wheel) -> None:
    broker.script(SEND, with_handle(broker))

    async def test() -> None:
        async with client(cluster) as mq:
            receipt = await mq.send("T", b"1", after=5)
            assert receipt.recall_handle == handle(broker, receipt.message_id)
            wheel.add(receipt.message_id, DUE_MS)
            assert (await receipt.status()).verdict is TimerVerdict.PENDING
            moved = await receipt.reschedule(at=DUE + timedelta(hours=1))
            assert (moved.verdict, moved.changed_count) == (TimerVerdict.RESCHEDULED, 1)
            assert moved.timer is not None
            assert moved.timer.deliver_at == DUE + timedelta(hours=1)
            assert (await receipt.recall()).verdict is TimerVerdict.RECALLED
            assert (await receipt.recall()).verdict is TimerVerdict.NOT_FOUND
            with pytest.raises(ConfigurationError, match="new due time"):
                await receipt.reschedule()

    run(test)


def test_a_broker_that_dies_while_it_is_asked_is_asked_again(
    run: Run, cluster: Cluster, broker: Broker, wheel: Wheel
) -> None:
    def dies(code: RequestCode) -> None:
        def die(command: Command) -> None:
            broker.stop()
            asyncio.get_running_loop().call_later(2, setattr, broker, "up", True)

        broker.forget_script(code)
        broker.script(code, die, *[wheel.answer] * 10)

    async def test() -> None:
        async with client(cluster) as mq:
            receipt = await mq.send("T", b"1", after=5)
            wheel.add(receipt.message_id, DUE_MS)
            dies(RequestCode.TIMER_STATUS)
            assert (await receipt.status()).verdict is TimerVerdict.PENDING
            dies(RequestCode.RESCHEDULE_TIMERS)
            assert (await receipt.reschedule(at=DUE + timedelta(hours=1))).verdict is TimerVerdict.RESCHEDULED
            dies(RequestCode.RECALL_TIMERS)
            assert (await receipt.recall()).verdict is TimerVerdict.RECALLED

    broker.script(SEND, with_handle(broker))
    run(test)


def test_a_receipt_without_a_due_time_has_nothing_to_recall(run: Run, cluster: Cluster, wheel: Wheel) -> None:
    async def test() -> None:
        async with client(cluster) as mq:
            receipt = await mq.send("T", b"1", delay_level=3)
            with pytest.raises(ClientError, match="without at and without after"):
                await receipt.recall()

    run(test)
    assert not wheel.asked


# --- one broker and several


def test_by_handle_only_its_broker_is_asked(run: Run, cluster: Cluster, two: tuple[Wheel, Wheel]) -> None:
    first, second = two
    second.add("ID", DUE_MS)

    async def test() -> None:
        async with client(cluster) as mq:
            found = await mq.timers.recall(handle(second.broker, "ID"))
            assert found.verdict is TimerVerdict.RECALLED

    run(test)
    assert (first.asked, second.asked) == ([], [RequestCode.RECALL_TIMERS])


@pytest.mark.parametrize("others_count", [0, 1])
@pytest.mark.parametrize("named", ["receipt", "handle", "id", "key"])
def test_a_broker_that_has_left_the_routes_is_waited_for(
    run: Run, cluster: Cluster, two: tuple[Wheel, Wheel], named: str, others_count: int
) -> None:
    """Name servers forget a broker that is started again at once. That the others know no such message says nothing of it."""
    first, second = two
    second.add("ID", DUE_MS, key="k")
    view = orbitmq.TimerView("ID", MessageQueue("T", second.broker.name, 0), ("k",), DUE_MS, 0, 1, "near")

    async def test() -> None:
        async with client(cluster) as mq:
            name = second.broker.name
            await mq.timers.status(topic="T", key="k")
            names = {
                "receipt": lambda: mq.timers.recall(view),
                "handle": lambda: mq.timers.recall(handle(second.broker, "ID")),
                "id": lambda: mq.timers.recall(topic="T", message_id="ID"),
                "key": lambda: mq.timers.recall(topic="T", key="k"),
            }
            second.broker.stop()
            queues_count = cluster.topics["T"].pop(name)
            if not others_count:  # those that remain have no master, so that nobody else is asked
                cluster.masterless.add(first.broker.name)
            await mq.routes.refresh_all()
            with pytest.raises(ConnectionLostError, match=rf"to be .*: no connection to {name}.*attempts in"):
                await names[named]()

            def comes_back() -> None:
                second.broker.up = True
                cluster.topics["T"][name] = queues_count

            asyncio.get_running_loop().call_later(3, comes_back)
            assert (await names[named]()).verdict is TimerVerdict.RECALLED

    run(test)


def test_by_key_several_are_recalled_only_with_all(run: Run, cluster: Cluster, two: tuple[Wheel, Wheel]) -> None:
    """One on each broker: neither broker alone would see that there are two."""
    first, second = two
    first.add("1", DUE_MS, "k")
    second.add("2", DUE_MS + 1, "k")

    async def test() -> None:
        async with client(cluster) as mq:
            refused = await mq.timers.recall(topic="T", key="k")
            assert (refused.verdict, refused.changed_count, len(refused.matches)) == (TimerVerdict.AMBIGUOUS, 0, 2)
            assert len(first.pending) + len(second.pending) == 2
            done = await mq.timers.recall(topic="T", key="k", all=True)
            assert (done.verdict, done.changed_count) == (TimerVerdict.RECALLED, 2)
            assert (await mq.timers.recall(topic="T", key="k", all=True)).verdict is TimerVerdict.NOT_FOUND

    run(test)
    assert not first.pending
    assert not second.pending


def test_copies_that_a_retry_stored_at_two_brokers_are_one_message(
    run: Run, cluster: Cluster, two: tuple[Wheel, Wheel]
) -> None:
    for wheel in two:
        wheel.add("ID", DUE_MS)

    async def test() -> None:
        async with client(cluster) as mq:
            assert (await mq.timers.get(topic="T", message_id="ID")) is not None
            done = await mq.timers.recall(topic="T", message_id="ID")
            assert (done.verdict, done.changed_count) == (TimerVerdict.RECALLED, 2)
            two[0].add("ID", DUE_MS)
            two[1].delivered["ID"] = wire.TimerViewBody(topic="T", message_id="ID", delivered_ms=7)
            done = await mq.timers.recall(topic="T", message_id="ID")
            assert (done.verdict, done.changed_count) == (TimerVerdict.ALREADY_DELIVERED, 1)

    run(test)
    assert not two[0].pending
    assert not two[1].pending


def test_by_message_id_the_broker_is_found(run: Run, cluster: Cluster, two: tuple[Wheel, Wheel]) -> None:
    first, second = two
    second.add("ID", DUE_MS)
    second.delivered["OLD"] = wire.TimerViewBody(topic="T", message_id="OLD", delivered_ms=7)

    async def test() -> None:
        async with client(cluster) as mq:
            moved = await mq.timers.reschedule(topic="T", message_id="ID", after=90)
            assert moved.timer is not None
            assert (moved.verdict, moved.timer.queue.broker_name) == (TimerVerdict.RESCHEDULED, "b-b")
            late = await mq.timers.recall(topic="T", message_id="OLD")
            assert late.timer is not None
            assert (late.verdict, late.timer.delivered_ms) == (TimerVerdict.ALREADY_DELIVERED, 7)

    run(test)
    assert RequestCode.RESCHEDULE_TIMERS not in first.asked


def test_the_list_is_in_due_order_over_all_brokers(run: Run, cluster: Cluster, two: tuple[Wheel, Wheel]) -> None:
    first, second = two
    for number in range(7):
        (first if number % 3 else second).add(str(number), DUE_MS + number)

    async def test() -> None:
        async with client(cluster) as mq:
            found = [timer.message_id async for timer in mq.timers.list(topic="T", page_count=2)]
            assert found == ["0", "1", "2", "3", "4", "5", "6"]
            counts = await mq.timers.counts(topic="T", bucket=60)
            assert (counts.pending, counts.by_topic) == (7, {"T": 7})
            with pytest.raises(ConfigurationError, match="without topic"):
                await anext(mq.timers.list(key="k"))
            with pytest.raises(ConfigurationError, match="both key"):
                await anext(mq.timers.list(topic="T", key="k", key_prefix="k"))
            with pytest.raises(ConfigurationError, match="page_count"):
                await anext(mq.timers.list(page_count=0))
            with pytest.raises(ConfigurationError, match="bucket"):
                await mq.timers.counts(bucket=0)

    run(test)
    assert first.asked.count(RequestCode.LIST_TIMERS) == 2 + 1  # its four of the near tier, and none of the far


def test_what_a_broker_cannot_list_is_told_once(
    run: Run, cluster: Cluster, broker: Broker, wheel: Wheel, caplog: pytest.LogCaptureFixture
) -> None:
    def page(command: Command) -> Command:
        query = wire.TimerQuery.decode(command.body)
        is_far = query.tier == "far"
        cursor = "1" if is_far and query.cursor is None else None
        body = wire.TimerPage(timers=[], cursor=cursor, left_out=4 if is_far else 0).encode()
        return response(command, ResponseCode.SUCCESS, fields={}, body=body)

    broker.forget_script(RequestCode.LIST_TIMERS)
    broker.script(RequestCode.LIST_TIMERS, *[page] * 20)
    told: list[tuple[str, int]] = []

    async def test() -> None:
        async with client(cluster) as mq:
            async for _ in mq.timers.list(topic="T", on_left_out=lambda name, count: told.append((name, count))):
                pass
            assert "cannot list" not in caplog.text
            async for _ in mq.timers.list(topic="T"):
                pass

    run(test)
    assert [count for _, count in told] == [4]
    assert caplog.text.count("cannot list up to 4 timer messages") == 1


def test_both_tiers_are_one_list(run: Run, cluster: Cluster, broker: Broker, wheel: Wheel) -> None:
    """A broker may answer with an empty page and go on; one that goes from far to near meanwhile is told once."""
    for number in range(6):
        wheel.add(str(number), DUE_MS + number)
        if number % 2:
            wheel.pending[str(number)].tier = "far"
    twice = msgspec.structs.replace(wheel.pending["3"], tier="near")
    wheel.pending["twice"] = twice
    broker.forget_script(RequestCode.LIST_TIMERS)
    empty = wire.TimerPage(timers=[], cursor="0").encode()
    broker.script(
        RequestCode.LIST_TIMERS,
        *[lambda command: response(command, ResponseCode.SUCCESS, fields={}, body=empty)] * 2,
        *[wheel.answer] * 20,
    )

    async def test() -> None:
        async with client(cluster) as mq:
            found = [timer.message_id async for timer in mq.timers.list(topic="T", page_count=1)]
            assert found == ["0", "1", "2", "3", "4", "5"]

    run(test)


def tell_masters(cluster: Cluster, wheel: Wheel) -> None:
    """The name server names the broker, whatever its topics."""
    info = ClusterInfo.decode(
        b'{"brokerAddrTable":{"b-a":{"brokerName":"b-a","cluster":"c","brokerAddrs":{"0":"%b"}}},"clusterAddrTable":{"c":["b-a"]}}'
        % wheel.broker.address.encode()
    )

    def clusters(command: Command) -> Command:
        return response(command, ResponseCode.SUCCESS, fields={}, body=info.encode())

    cluster.name_server.script(RequestCode.GET_BROKER_CLUSTER_INFO, clusters)


def test_without_a_topic_all_masters_are_asked(run: Run, cluster: Cluster, wheel: Wheel) -> None:
    wheel.add("ID", DUE_MS)
    tell_masters(cluster, wheel)

    async def test() -> None:
        async with client(cluster) as mq:
            assert [timer.message_id async for timer in mq.timers.list()] == ["ID"]

    run(test)


def test_what_waits_for_a_deleted_topic_is_asked_of_all_masters(run: Run, cluster: Cluster, wheel: Wheel) -> None:
    wheel.add("ID", DUE_MS, topic="U")
    tell_masters(cluster, wheel)

    async def test() -> None:
        async with client(cluster) as mq:
            assert (await mq.timers.status(topic="U", message_id="ID")).verdict is TimerVerdict.PENDING

    run(test)


def test_one_message_in_full(run: Run, cluster: Cluster, two: tuple[Wheel, Wheel]) -> None:
    first, second = two
    second.add("ID", DUE_MS, "k")

    async def test() -> None:
        async with client(cluster) as mq:
            message = await mq.timers.get(topic="T", key="k")
            assert message is not None
            assert (message.body, message.tag, message.timer.message_id) == (b"\xff\x00", "a", "ID")
            assert await mq.timers.get(topic="T", message_id="other") is None
            first.add("2", DUE_MS, "k")
            with pytest.raises(ClientError, match="several"):
                await mq.timers.get(topic="T", key="k")

    run(test)


def test_a_compressed_body_is_restored(run: Run, cluster: Cluster, broker: Broker, wheel: Wheel) -> None:
    wheel.add("ID", DUE_MS)
    stored = wire.TimerMessageBody(
        verdict=wire.Verdict.PENDING,
        timer=wheel.pending["ID"],
        body=zlib.compress(b"x" * 500),
        sys_flag=with_compression(0, Compression.ZLIB),
    )
    broker.forget_script(RequestCode.GET_TIMER)
    broker.script(
        RequestCode.GET_TIMER, lambda command: response(command, ResponseCode.SUCCESS, fields={}, body=stored.encode())
    )

    async def test() -> None:
        async with client(cluster) as mq:
            message = await mq.timers.get(topic="T", message_id="ID")
            assert message is not None
            assert message.body == b"x" * 500

    run(test)


@pytest.mark.parametrize("status", SendStatus)
def test_what_is_done_with_less_than_was_promised_and_further_matches_are_told(
    status: SendStatus, run: Run, cluster: Cluster, broker: Broker
) -> None:
    answers = wire.TimerAnswers([wire.TimerAnswer(wire.Verdict.RECALLED)], 1, more=True)
    broker.script(
        RequestCode.RECALL_TIMERS,
        lambda command: response(command, status.value, "late", fields={}, body=answers.encode()),
    )

    async def test() -> None:
        async with client(cluster) as mq:
            outcome = await mq.timers.recall(topic="T", key="k", all=True)
            assert (outcome.verdict, outcome.more, outcome.send_status) == (TimerVerdict.RECALLED, True, status)
            assert bool(outcome.send_status.lack) == (status is not SendStatus.SEND_OK)

    run(test)


def test_a_broker_that_is_gone_is_named(run: Run, cluster: Cluster, broker: Broker, wheel: Wheel) -> None:
    async def test() -> None:
        async with client(cluster) as mq:
            gone = base64.urlsafe_b64encode(b"v1 T gone 1 ID").decode()
            with pytest.raises(ClientError, match="broker gone"):
                await mq.timers.recall(gone)
            wheel.has_topic = False
            for call in (mq.timers.recall(topic="U", key="k"), mq.timers.get(topic="U", key="k")):
                tell_masters(cluster, wheel)
                with pytest.raises(RouteNotFoundError, match="no topic 'U'"):
                    await call

    run(test)


# --- RocketMQ's broker


def test_rocketmq_recalls_by_handle_without_saying_whether_it_worked(
    run: Run, cluster: Cluster, broker: Broker
) -> None:
    as_rocketmq(broker, "5.3.2")
    broker.script(SEND, with_handle(broker))
    broker.script(RequestCode.RECALL_MESSAGE, ResponseCode.SUCCESS)

    async def test() -> None:
        async with client(cluster) as mq:
            receipt = await mq.send("T", b"1", after=5)
            assert (await receipt.recall()).verdict is TimerVerdict.ASKED
            for call in (
                receipt.status(),
                receipt.reschedule(after=1),
                mq.timers.recall(topic="T", key="k"),
                mq.timers.counts(topic="T"),
                mq.timers.get(receipt),
                anext(mq.timers.list(topic="T")),
            ):
                with pytest.raises(RemoteError, match="broker b-a has no request for") as failure:
                    await call
                assert "5.3.2" in str(failure.value)

    run(test)
    (command,) = broker.requests(RequestCode.RECALL_MESSAGE)
    assert (command.text("topic"), command.text("recallHandle")[:4]) == ("T", handle(broker, "")[:4])


def test_rocketmq_refuses_a_handle(run: Run, cluster: Cluster, broker: Broker) -> None:
    as_rocketmq(broker, "5.3.2")
    illegal = ResponseCode.ILLEGAL_OPERATION
    broker.script(RequestCode.RECALL_MESSAGE, illegal, illegal, ResponseCode.NO_PERMISSION)

    async def test() -> None:
        async with client(cluster) as mq:
            late = await mq.timers.recall(handle(broker, "ID", deliver_ms=1))
            assert late.verdict is TimerVerdict.TOO_LATE
            pending = handle(broker, "ID", deliver_ms=2**50)
            with pytest.raises(RemoteError, match="does not recall"):
                await mq.timers.recall(pending)
            with pytest.raises(RemoteError, match="recallMessageEnable=true"):
                await mq.timers.recall(pending)

    run(test)


def test_rocketmq_5_takes_single_messages_only(run: Run, cluster: Cluster, broker: Broker) -> None:
    """It would deliver a timed batch at once."""
    as_rocketmq(broker, "5.3.2")

    async def test() -> None:
        async with client(cluster) as mq:
            await mq.send("T", b"1", after=5)
            with pytest.raises(TimersMissingError, match="does not look at the due time of a batch"):
                await mq.send_batch("T", [Message(b"1")], after=5)

    run(test)
    assert len(broker.requests(SEND)) == 1
    assert not broker.requests(RequestCode.SEND_BATCH_MESSAGE)


def test_a_broker_before_5_gets_no_timer_message(run: Run, cluster: Cluster, broker: Broker) -> None:
    """It would deliver it at once."""
    as_rocketmq(broker, "4.9.8")

    async def test() -> None:
        async with client(cluster) as mq:
            with pytest.raises(TimersMissingError, match="V4_9_8"):
                await mq.send("T", b"1", after=5)
            with pytest.raises(TimersMissingError, match="V4_9_8"):
                await mq.send_oneway("T", b"1", at=DUE)
            await mq.send("T", b"1", delay_level=2)

    run(test)
    assert len(broker.requests(SEND)) == 1


def test_after_a_new_connection_the_broker_is_asked_again(run: Run, cluster: Cluster, broker: Broker) -> None:
    as_rocketmq(broker, "4.9.8")

    async def test() -> None:
        async with client(cluster) as mq:
            with pytest.raises(TimersMissingError):
                await mq.send("T", b"1", after=5)
            broker.forget_script(RequestCode.LIST_TIMERS)
            Wheel(broker)
            with pytest.raises(TimersMissingError):
                await mq.send("T", b"1", after=5)
            broker.disconnect()
            await mq.send("T", b"0")
            await mq.send("T", b"1", after=5)

    run(test)


def test_a_question_without_answer_stored_nothing(run: Run, cluster: Cluster, broker: Broker, wheel: Wheel) -> None:
    broker.forget_script(RequestCode.LIST_TIMERS)
    broker.script(RequestCode.LIST_TIMERS, CUT, wheel.answer)

    async def test() -> None:
        async with client(cluster, ProducerOptions(retries_count=0)) as mq:
            with pytest.raises(ClientError, match="no broker stored it") as failure:
                await mq.send("T", b"1", after=5)
            assert isinstance(failure.value.__cause__, ConnectionLostError)
            await mq.send("T", b"1", after=5)

    run(test)
