"""From a producer to the brokers: every outcome of an attempt, safe repeats, slow brokers, selectors, room."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import Any

import pytest
from scripted_cluster import CUT, NAME_SERVER, SILENCE, Answer, Broker, Cluster

from orbitmq.client._async.client import Client
from orbitmq.client._async.connecting.transport import Channel, OnLost, OnRequest
from orbitmq.client.message import Message, Once, OnceWithin, SendStatus
from orbitmq.client.options import ProducerOptions
from orbitmq.client.sending.known_queues import broker_of_key
from orbitmq.client.sending.queue_choice import MachineRoom, RandomQueue, choose_by_key
from orbitmq.clock import ManualClock
from orbitmq.errors import (
    ClientError,
    ConfigurationError,
    ConnectionLostError,
    MasterAwayError,
    MessageIllegalError,
    RemoteError,
    RequestTimeoutError,
    RouteNotFoundError,
    SendFailedError,
    StaleEpochError,
)
from orbitmq.limits.client import BROKER_PROBE_INTERVAL_MS
from orbitmq.limits.wire import PROPERTIES_ROOM_BYTES
from orbitmq.protocol.properties import decode_properties
from orbitmq.protocol.remoting.bodies import MessageQueue
from orbitmq.protocol.remoting.codes import RequestCode, ResponseCode
from orbitmq.protocol.remoting.frame import Command, response
from orbitmq.protocol.remoting.send_answer import Repeat

Run = Callable[[Callable[[], Awaitable[None]]], None]
SEND = RequestCode.SEND_MESSAGE_V2


def client(cluster: Cluster, options: ProducerOptions | None = None) -> Client:
    return Client(NAME_SERVER, clock=ManualClock(), dial=cluster.dial, producer_options=options)


@pytest.fixture
def two(cluster: Cluster) -> Cluster:
    cluster.add_broker("b-b")
    cluster.add_topic("T", queues=4)
    return cluster


def asked(cluster: Cluster) -> list[Command]:
    return [command for broker in cluster.brokers.values() for command in broker.requests(SEND)]


def once_of(command: Command) -> tuple[str | None, str | None, str | None]:
    properties = decode_properties(command.text("i"))
    return properties.get("ORBITMQ_SCOPE"), properties.get("ORBITMQ_EPOCH"), properties.get("ORBITMQ_ONCE_KEY")


def late_flush(command: Command) -> Command:
    fields = {"msgId": "M", "queueId": command.text("e"), "queueOffset": "0"}
    return response(command, ResponseCode.FLUSH_DISK_TIMEOUT, fields=fields)


@pytest.mark.parametrize("timeout_ms", [0, -5])
def test_a_time_limit_is_positive(run: Run, two: Cluster, timeout_ms: int) -> None:
    async def test() -> None:
        async with client(two) as mq:
            for sending in (
                mq.send("T", b"x", timeout_ms=timeout_ms),
                mq.send_oneway("T", b"x", timeout_ms=timeout_ms),
            ):
                with pytest.raises(ConfigurationError, match=f"timeout_ms={timeout_ms}: must be at least 1"):
                    await sending
        assert asked(two) == []

    run(test)


# --- outcomes of one attempt: what comes next -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("outcome", "attempts_count", "other_broker"),
    [
        (late_flush, 1, False),
        (ResponseCode.SYSTEM_ERROR, 2, False),
        (ResponseCode.SYSTEM_BUSY, 2, True),
        (ResponseCode.SERVICE_NOT_AVAILABLE, 2, True),
        (ResponseCode.NO_PERMISSION, 2, True),
        (ResponseCode.TOPIC_NOT_EXIST, 2, True),
        (ResponseCode.NO_BUYER_ID, 2, True),
        (ResponseCode.NOT_IN_CURRENT_UNIT, 2, True),
        (CUT, 2, False),
        (SILENCE, 2, False),
        (ResponseCode.IDEMPOTENCE_FULL, 1, True),
        (ResponseCode.STALE_EPOCH, 1, True),
    ],
)
def test_after_an_outcome_comes_the_attempt_that_helps(
    run: Run, two: Cluster, outcome: Answer, attempts_count: int, other_broker: bool
) -> None:
    async def test() -> None:
        first_asked: list[Broker] = []

        def first(broker: Broker) -> Callable[[Command], Command | None]:
            def answer(command: Command) -> Command | None:
                first_asked.append(broker)
                for each in two.brokers.values():
                    each.forget_script(SEND)
                if outcome == CUT:
                    broker.disconnect()
                    return None
                if outcome == SILENCE:
                    return None
                return outcome(command) if callable(outcome) else response(command, int(outcome), "no", fields={})

            return answer

        for broker in two.brokers.values():
            broker.script(SEND, first(broker))
        async with client(two, ProducerOptions(attempt_timeout_ms=500)) as mq:
            receipt = await mq.send("T", b"x")
        assert receipt.attempts_count == attempts_count
        if attempts_count > 1:
            assert (receipt.queue.broker_name != first_asked[0].name) is other_broker
        assert len({decode_properties(command.text("i"))["UNIQ_KEY"] for command in asked(two)}) == 1

    run(test)


@pytest.mark.parametrize("code", [ResponseCode.MESSAGE_ILLEGAL, ResponseCode.INVALID_PARAMETER])
def test_a_final_refusal_reaches_the_caller_as_it_is(run: Run, two: Cluster, code: ResponseCode) -> None:
    async def test() -> None:
        for broker in two.brokers.values():
            broker.script(SEND, code)
        async with client(two) as mq:
            with pytest.raises(RemoteError) as caught:
                await mq.send("T", b"x")
        assert caught.value.code == code
        assert len(asked(two)) == 1

    run(test)


def test_nobody_to_send_to(run: Run, cluster: Cluster) -> None:
    async def test() -> None:
        cluster.topics.clear()
        async with client(cluster) as mq:
            with pytest.raises(RouteNotFoundError):
                await mq.send("T", b"x")
        assert len(asked(cluster)) == 0

    run(test)


def test_finding_the_route_may_take_all_the_time(run: Run, cluster: Cluster) -> None:
    async def test() -> None:
        def slow(command: Command) -> Command | None:
            pipe = next(iter(cluster.name_server.pipes))
            answer = cluster.name_server.handle(pipe, command)
            assert answer is not None
            asyncio.get_running_loop().call_later(2, pipe.send, answer)
            return None

        cluster.name_server.script(RequestCode.GET_ROUTEINFO_BY_TOPIC, slow)
        async with client(cluster) as mq:
            with pytest.raises(RequestTimeoutError, match="no time left"):
                await mq.send("T", b"x", timeout_ms=1_000)
        assert len(asked(cluster)) == 0

    run(test)


# --- safe repeats ---------------------------------------------------------------------------------------------------


def test_a_message_whose_answer_was_lost_is_stored_once(run: Run, two: Cluster) -> None:
    async def test() -> None:
        for broker in two.brokers.values():
            broker.script(SEND, broker.store_without_answer)
        async with client(two, ProducerOptions(attempt_timeout_ms=500)) as mq:
            receipt = await mq.send("T", b"x")
        records = [record for broker in two.brokers.values() for queue in broker.queues.values() for record in queue]
        assert len(records) == 1
        assert (receipt.queue_offset, receipt.attempts_count) == (0, 2)
        assert len({once_of(command) for command in asked(two)}) == 1

    run(test)


def test_the_receipt_of_a_repeat_is_that_of_the_first_send(run: Run, cluster: Cluster) -> None:
    async def test() -> None:
        def repeated(command: Command) -> Command:
            fields = {"msgId": "M", "queueId": "0", "queueOffset": "7", "transactionId": "FIRST", "recallHandle": "H"}
            return response(command, 0, fields=fields | {"orbitmqRepeat": "recalled", "orbitmqDeliverMs": "1234"})

        cluster.brokers["b-a"].script(SEND, repeated)
        async with client(cluster) as mq:
            receipt = await mq.send("T", b"x", once=Once("jobs", 1, "k"))
            fresh = await mq.send("T", b"x", once=Once("jobs", 1, "k2"))
        assert (receipt.message_id, receipt.repeat, receipt.deliver_ms) == ("FIRST", Repeat.RECALLED, 1234)
        assert (fresh.repeat, fresh.deliver_ms) == (None, None)
        assert fresh.message_id != "FIRST"

    run(test)


def test_what_may_be_stored_is_not_sent_again_without_its_key(run: Run, two: Cluster) -> None:
    """The memory is full when the repeat comes: without its key it would be stored a second time."""

    async def test() -> None:
        for broker in two.brokers.values():
            broker.script(SEND, broker.store_without_answer, ResponseCode.IDEMPOTENCE_FULL)
        async with client(two, ProducerOptions(attempt_timeout_ms=500)) as mq:
            with pytest.raises(SendFailedError) as failed:
                await mq.send("T", b"x")
        assert failed.value.maybe_stored
        assert len({once_of(command) for command in asked(two)}) == 1
        assert sum(len(queue) for broker in two.brokers.values() for queue in broker.queues.values()) == 1

    run(test)


def test_what_a_broker_does_not_know_itself_is_sent_to_no_other_one(run: Run, two: Cluster) -> None:
    """SYSTEM_ERROR: it leads no more, or its disk failed, and the message may be stored."""

    async def test() -> None:
        for broker in two.brokers.values():

            def store_and_not_know(command: Command, broker: Broker = broker) -> Command:
                broker.store_without_answer(command)
                return response(command, ResponseCode.SYSTEM_ERROR, "it may stay or not", fields={})

            broker.script(SEND, store_and_not_know)
        async with client(two) as mq:
            receipt = await mq.send("T", b"x")
        assert receipt.attempts_count == 2
        assert sum(len(queue) for broker in two.brokers.values() for queue in broker.queues.values()) == 1

    run(test)


def test_a_batch_whose_answer_was_lost_is_stored_once(run: Run, two: Cluster) -> None:
    async def test() -> None:
        for broker in two.brokers.values():
            broker.script(RequestCode.SEND_BATCH_MESSAGE, broker.store_without_answer)
        async with client(two, ProducerOptions(attempt_timeout_ms=500)) as mq:
            receipts = await mq.send_batch("T", [Message(b"x"), Message(b"y")])
        assert sum(len(queue) for broker in two.brokers.values() for queue in broker.queues.values()) == 2
        assert [(receipt.queue_offset, receipt.attempts_count) for receipt in receipts] == [(0, 2), (1, 2)]

    run(test)


@pytest.mark.parametrize("filler", ["x", "ä", "€"])
def test_properties_that_leave_no_room_travel_without_safe_repeats(run: Run, cluster: Cluster, filler: str) -> None:
    async def test() -> None:
        async with client(cluster) as mq:
            bare = (await mq.send("T", b"x", properties={"p": filler}), asked(cluster)[0].text("i"))[1]
            scope = len(bare.encode()) - len(bare.partition("ORBITMQ_SCOPE")[0].encode())
            free = 32_767 - PROPERTIES_ROOM_BYTES - (len(bare.encode()) - scope) + len(filler.encode())
            for spare, recognised in ((scope, True), (scope - 3, False), (0, False)):
                await mq.send("T", b"x", properties={"p": filler * ((free - spare) // len(filler.encode()))})
                sent = asked(cluster)[-1]
                assert len(sent.text("i").encode()) <= 32_767
                assert (once_of(sent)[0] is not None) is recognised
        assert sum(len(queue) for queue in cluster.brokers["b-a"].queues.values()) == 4

    run(test)


def test_properties_that_leave_no_room_for_a_once_are_refused(run: Run, cluster: Cluster) -> None:
    async def test() -> None:
        async with client(cluster) as mq:
            with pytest.raises(MessageIllegalError, match="leave no room"):
                await mq.send("T", b"x", properties={"p": "x" * 32_700}, once=Once("job", 1, "row"))
        assert asked(cluster) == []

    run(test)


def test_without_idempotence_it_is_stored_twice(run: Run, two: Cluster) -> None:
    """The control of the test above."""

    async def test() -> None:
        for broker in two.brokers.values():
            broker.script(SEND, broker.store_without_answer)
        two.brokers["b-b"].forget_script(SEND)
        async with client(two, ProducerOptions(attempt_timeout_ms=500, idempotent=False)) as mq:
            for _ in range(5):
                await mq.send("T", b"x")
        records = [record for broker in two.brokers.values() for queue in broker.queues.values() for record in queue]
        assert len(records) == 6
        assert {once_of(command) for command in asked(two)} == {(None, None, None)}

    run(test)


def test_a_broker_that_comes_back_within_the_time_gets_the_repeat(run: Run, two: Cluster) -> None:
    async def test() -> None:
        async with client(two) as mq:
            for broker in two.brokers.values():

                def store_and_die(command: Command, broker: Broker = broker) -> None:
                    broker.store_without_answer(command)
                    broker.up = False
                    broker.disconnect()
                    asyncio.get_running_loop().call_later(1, setattr, broker, "up", True)

                broker.script(SEND, store_and_die)
            receipt = await mq.send("T", b"x")
        assert receipt.attempts_count == 5
        assert sum(len(queue) for broker in two.brokers.values() for queue in broker.queues.values()) == 1

    run(test)


def test_a_broker_that_stays_away_leaves_it_open_whether_the_message_is_stored(run: Run, two: Cluster) -> None:
    async def test() -> None:
        async with client(two) as mq:
            for broker in two.brokers.values():

                def die(command: Command, broker: Broker = broker) -> None:
                    broker.up = False
                    broker.disconnect()

                broker.script(SEND, die)
            with pytest.raises(SendFailedError) as caught:
                await mq.send("T", b"x")
        assert caught.value.maybe_stored
        assert len(asked(two)) == 1  # the other broker would not know that it is a repeat

    run(test)


def test_a_broker_that_is_started_again_costs_nobody_a_message(run: Run, cluster: Cluster) -> None:
    async def test() -> None:
        broker = cluster.brokers["b-a"]
        async with client(cluster) as mq:
            await mq.send("T", b"first")
            broker.stop()
            asyncio.get_running_loop().call_later(2.5, setattr, broker, "up", True)
            receipts = await asyncio.gather(*(mq.send("T", b"x") for _ in range(8)))
        assert {receipt.send_status for receipt in receipts} == {SendStatus.SEND_OK}
        assert sum(len(queue) for queue in broker.queues.values()) == 9

    run(test)


def test_a_topic_whose_master_is_away_is_waited_for(run: Run, cluster: Cluster) -> None:
    async def test() -> None:
        async with client(cluster) as mq:
            await mq.send("T", b"first")
            cluster.masterless.add("b-a")
            await mq.routes.refresh("T")
            with pytest.raises(MasterAwayError):
                await mq.send("T", b"x", timeout_ms=500)
            asyncio.get_running_loop().call_later(1, cluster.masterless.clear)
            assert (await mq.send("T", b"x")).attempts_count > 1

    run(test)


def test_another_master_is_met_as_soon_as_the_routes_name_it(run: Run, cluster: Cluster) -> None:
    async def test() -> None:
        loop = asyncio.get_running_loop()
        async with client(cluster) as mq:
            await mq.send("T", b"first")
            cluster.brokers["b-a"].script(SEND, ResponseCode.SERVICE_NOT_AVAILABLE)
            cluster.masterless.add("b-a")
            began = loop.time()
            loop.call_later(1.0, cluster.masterless.clear)
            await mq.send("T", b"x")
            assert 1.0 <= loop.time() - began < 1.3, (
                "the routes are asked for after a quarter of the time at the latest"
            )

    run(test)


def test_who_has_never_heard_a_name_server_is_told_at_once(run: Run, cluster: Cluster) -> None:
    async def test() -> None:
        cluster.name_server.stop()
        began = asyncio.get_running_loop().time()
        async with client(cluster) as mq:
            with pytest.raises(ConnectionLostError, match="no name server answered"):
                await mq.send("T", b"x")
            assert asyncio.get_running_loop().time() == began

    run(test)


def test_where_the_program_allows_it_an_unsure_send_goes_elsewhere(run: Run, two: Cluster) -> None:
    async def test() -> None:
        began = asyncio.get_running_loop().time()
        async with client(two, ProducerOptions(elsewhere_after_ms=1_000)) as mq:
            for broker in two.brokers.values():

                def die(command: Command, broker: Broker = broker) -> None:
                    broker.store_without_answer(command)
                    for each in two.brokers.values():
                        each.forget_script(SEND)
                    broker.stop()

                broker.script(SEND, die)
            receipt = await mq.send("T", b"x")
            took = asyncio.get_running_loop().time() - began
            assert 1 <= took < 1.5
            assert two.brokers[receipt.queue.broker_name].up
        assert sum(len(queue) for broker in two.brokers.values() for queue in broker.queues.values()) == 2

    run(test)


def test_a_machine_that_takes_no_connection_leaves_time_for_another_broker(run: Run, two: Cluster) -> None:
    async def test() -> None:
        gone = two.brokers["b-a"]

        async def dial(address: str, timeout_ms: int, on_request: OnRequest, on_lost: OnLost) -> Channel:
            if address == gone.address:
                await asyncio.sleep(timeout_ms / 1000)
                raise ConnectionLostError(f"no connection to {address}", request_sent=False)
            return await two.dial(address, timeout_ms, on_request, on_lost)

        async with Client(NAME_SERVER, clock=ManualClock(), dial=dial) as mq:
            began = asyncio.get_running_loop().time()
            receipts = await asyncio.gather(*(mq.send("T", b"x") for _ in range(16)))
            assert asyncio.get_running_loop().time() - began < 1.1
        assert {receipt.queue.broker_name for receipt in receipts} == {"b-b"}

    run(test)


def test_a_batch_names_scope_and_epoch_for_all_its_messages_and_a_oneway_message_none(
    run: Run, cluster: Cluster
) -> None:
    async def test() -> None:
        async with client(cluster) as mq:
            await mq.send_batch("T", [Message(b"x")])
            await mq.send_oneway("T", b"x")
            await mq.send("T", b"y")
        (batch,) = cluster.brokers["b-a"].requests(RequestCode.SEND_BATCH_MESSAGE)
        oneway, plain = asked(cluster)
        assert once_of(oneway) == (None, None, None)
        assert once_of(batch) == once_of(plain)
        scope, epoch, key = once_of(plain)
        assert scope is not None
        assert scope.startswith("~")
        assert (epoch, key) == ("1", None)

    run(test)


def test_producers_have_scopes_of_their_own(run: Run, cluster: Cluster) -> None:
    async def test() -> None:
        async with client(cluster) as mq:
            for group in ("g1", "g2"):
                producer = mq.producer(group)
                await producer.send("T", b"x")
                await producer.send("T", b"x")
        assert len({once_of(command)[0] for command in asked(cluster)}) == 2

    run(test)


def test_a_broker_without_memory_still_gets_ordered_messages(run: Run, cluster: Cluster) -> None:
    async def test() -> None:
        cluster.brokers["b-a"].script(SEND, ResponseCode.IDEMPOTENCE_FULL)
        async with client(cluster) as mq:
            assert (await mq.send("T", b"x", ordering_key="k")).send_status is SendStatus.SEND_OK
        first, second = asked(cluster)
        assert once_of(first)[0] is not None
        assert once_of(second) == (None, None, None)

    run(test)


# --- once -----------------------------------------------------------------------------------------------------------


def test_idempotence_travels_with_the_message_and_fixes_its_queue(run: Run, two: Cluster) -> None:
    async def test() -> None:
        once = Once("job", 3, "row-1")
        async with client(two) as mq:
            first = await mq.send("T", b"x", once=once)
            queues = await mq.producer("other").queues("T")
        async with client(two) as mq:
            second = await mq.send("T", b"x", once=once)
        (name,) = {queue.broker_name for queue in queues if queue == first.queue}
        assert name == broker_of_key({"b-a", "b-b"}, "row-1")
        assert (
            first.queue
            == choose_by_key([queue for queue in queues if queue.broker_name == name], "row-1")
            == second.queue
        )
        assert (first.queue_offset, first.message_id) == (second.queue_offset, first.message_id)
        assert {once_of(command) for command in asked(two)} == {("job", "3", "row-1")}

    run(test)


def leave(cluster: Cluster, topic: str, broker: str) -> int:
    """The broker ends and no route names it any more; how many queues it had."""
    cluster.brokers[broker].stop()
    return cluster.topics[topic].pop(broker)


KEYS = [f"order-{number}" for number in range(12)]
SLOW = ProducerOptions(send_timeout_ms=60_000)


def stored(cluster: Cluster) -> int:
    return sum(len(queue) for broker in cluster.brokers.values() for queue in broker.queues.values())


@pytest.mark.parametrize("ordering_key", [None, "customer-7"])
def test_a_key_waits_for_its_broker_while_another_one_is_there(
    run: Run, two: Cluster, ordering_key: str | None
) -> None:
    async def test() -> None:
        async with client(two, SLOW) as mq:
            firsts = [await mq.send("T", b"x", once=key, ordering_key=ordering_key) for key in KEYS]
            count = leave(two, "T", "b-b")
            await mq.routes.refresh_all()
            waiting = [asyncio.create_task(mq.send("T", b"x", once=key, ordering_key=ordering_key)) for key in KEYS]
            await asyncio.sleep(40)
            assert [task.done() for task in waiting] == [first.queue.broker_name == "b-a" for first in firsts]
            two.brokers["b-b"].up = True
            two.topics["T"]["b-b"] = count + 4
            agains = await asyncio.gather(*waiting)
        assert [again.queue_offset for again in agains] == [first.queue_offset for first in firsts]
        assert stored(two) == len(KEYS)

    run(test)


def test_a_key_whose_broker_stays_away_says_so_and_no_broker_stores_it(run: Run, two: Cluster) -> None:
    async def test() -> None:
        async with client(two) as mq:
            firsts = {key: await mq.send("T", b"x", once=key) for key in KEYS}
            key = next(key for key, first in firsts.items() if first.queue.broker_name == "b-b")
            leave(two, "T", "b-b")
            await mq.routes.refresh_all()
            began = asyncio.get_running_loop().time()
            with pytest.raises(MasterAwayError, match=f"broker b-b is away, to which key '{key}' leads"):
                await mq.send("T", b"x", once=key)
            assert asyncio.get_running_loop().time() - began >= 2.5, "the time of a send is used"
            assert (await mq.send("T", b"x")).queue.broker_name == "b-a"
            short = OnceWithin(key, window=3_600)
            await asyncio.sleep(3_400)
            with pytest.raises(MasterAwayError):
                await mq.send("T", b"x", once=short)
        assert stored(two) == len(KEYS) + 1

    run(test)


def test_a_broker_that_is_away_for_longer_than_the_window_is_not_waited_for(run: Run, two: Cluster) -> None:
    async def test() -> None:
        async with client(two) as mq:
            for key in KEYS:
                await mq.send("T", b"x", once=OnceWithin(key, window=60))
            leave(two, "T", "b-b")
            await mq.routes.refresh_all()
            await asyncio.sleep(61)
            agains = [await mq.send("T", b"x", once=OnceWithin(key, window=60)) for key in KEYS]
            assert {again.queue.broker_name for again in agains} == {"b-a"}

    run(test)


def test_a_key_goes_elsewhere_where_the_program_allows_it_and_all_its_repeats_to_the_same_broker(
    run: Run, two: Cluster
) -> None:
    async def test() -> None:
        two.add_broker("b-c")
        two.add_topic("T", queues=4)
        async with client(two, ProducerOptions(elsewhere_after_ms=1_000)) as mq:
            firsts = {key: await mq.send("T", b"x", once=key) for key in KEYS}
            key = next(key for key, first in firsts.items() if first.queue.broker_name == "b-b")
            leave(two, "T", "b-b")
            await mq.routes.refresh_all()
            began = asyncio.get_running_loop().time()
            again = await mq.send("T", b"x", once=key)
            assert 1 <= asyncio.get_running_loop().time() - began < 1.6
            third = await mq.send("T", b"x", once=key)
            assert (third.queue, third.queue_offset) == (again.queue, again.queue_offset)
            assert again.queue.broker_name == broker_of_key({"b-a", "b-c"}, key)
            pinned = firsts[key].queue
            with pytest.raises(SendFailedError, match="b-b"):
                await mq.send("T", b"x", once=key, queue=pinned)

    run(test)


def test_a_new_broker_takes_its_share_of_new_keys_and_more_queues_change_nothing(run: Run, two: Cluster) -> None:
    async def test() -> None:
        async with client(two) as mq:
            firsts = [await mq.send("T", b"x", once=key) for key in KEYS]
            two.topics["T"] = {"b-a": 7, "b-b": 16}
            await mq.routes.refresh_all()
            agains = [await mq.send("T", b"x", once=key) for key in KEYS]
        assert [again.queue_offset for again in agains] == [first.queue_offset for first in firsts]
        assert stored(two) == len(KEYS)

    run(test)


def test_a_stale_epoch_is_an_error_of_its_own(run: Run, two: Cluster) -> None:
    async def test() -> None:
        for broker in two.brokers.values():
            broker.script(SEND, ResponseCode.STALE_EPOCH)
        async with client(two) as mq:
            with pytest.raises(StaleEpochError, match="replaced"):
                await mq.send("T", b"x", once=Once("job", 3, "k"))
        assert len(asked(two)) == 1

    run(test)


def test_a_full_memory_refuses_what_was_to_be_stored_once(run: Run, two: Cluster) -> None:
    async def test() -> None:
        for broker in two.brokers.values():
            broker.script(SEND, ResponseCode.IDEMPOTENCE_FULL)
        async with client(two) as mq:
            with pytest.raises(RemoteError, match="IDEMPOTENCE_FULL") as caught:
                await mq.send("T", b"x", once=Once("job", 3, "k"))
        assert caught.value.code == ResponseCode.IDEMPOTENCE_FULL

    run(test)


def test_a_busy_broker_is_asked_again_for_a_message_that_belongs_to_it(run: Run, two: Cluster) -> None:
    async def test() -> None:
        for broker in two.brokers.values():
            broker.script(SEND, ResponseCode.SYSTEM_BUSY, ResponseCode.SYSTEM_BUSY)
        async with client(two) as mq:
            receipt = await mq.send("T", b"x", once=Once("job", 3, "k"))
        assert receipt.attempts_count == 3
        assert len([broker for broker in two.brokers.values() if broker.requests(SEND)]) == 1

    run(test)


@pytest.mark.parametrize(
    "values", [("", 1, "k"), ("~x", 1, "k"), ("s", -1, "k"), ("s", 2**63, "k"), ("s", 1, " "), ("s", 1, "a\x02b")]
)
def test_idempotence_is_checked_when_it_is_made(values: tuple[str, int, str]) -> None:
    with pytest.raises(MessageIllegalError):
        Once(*values)


@pytest.mark.parametrize(
    ("once", "scope", "window"),
    [
        ("order-42", "^T", "86400000"),
        (OnceWithin("order-42"), "^T", "86400000"),
        (OnceWithin("order-42", window=timedelta(hours=2), scope="billing"), "^T/billing", "7200000"),
        (OnceWithin("order-42", 1.5), "^T", "1500"),
    ],
)
def test_a_key_alone_travels_with_its_window_and_fixes_the_queue(
    run: Run, two: Cluster, once: str | OnceWithin, scope: str, window: str
) -> None:
    async def test() -> None:
        async with client(two) as mq:
            receipt = await mq.send("T", b"x", once=once)
            assert receipt.queue.broker_name == broker_of_key({"b-a", "b-b"}, "order-42")
        (command,) = asked(two)
        assert once_of(command) == (scope, None, "order-42")
        assert decode_properties(command.text("i"))["ORBITMQ_ONCE_WINDOW"] == window

    run(test)


@pytest.mark.parametrize(
    ("once", "says"),
    [
        ("", "key is blank"),
        ("a\x01b", "U[+]0001"),
        ("k" * 1_025, "longer than 1024 bytes"),
        (42, "once is 42"),
        (("job", 1, "k"), "once is"),
    ],
)
def test_a_key_alone_is_checked_before_anything_leaves(run: Run, two: Cluster, once: str, says: str) -> None:
    async def test() -> None:
        async with client(two) as mq:
            with pytest.raises(MessageIllegalError, match=says):
                await mq.send("T", b"x", once=once)
        assert asked(two) == []

    run(test)


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"window": 0}, "lasts 1 s at least"),
        ({"window": timedelta(milliseconds=999)}, "lasts 1 s at least"),
        ({"window": -1}, "not negative"),
        ({"window": "1d"}, "a timedelta or a number of seconds"),
        ({"scope": "~x"}, "begins with '~'"),
        ({"scope": "^x"}, "begins with '\\^'"),
        ({"scope": ""}, "blank"),
        ({"scope": "s" * 127}, "longer than 126 bytes"),
    ],
)
def test_a_window_is_checked_when_it_is_made(values: dict[str, Any], says: str) -> None:
    with pytest.raises(MessageIllegalError, match=says):
        OnceWithin("order-42", **values)


# --- queues ---------------------------------------------------------------------------------------------------------


def test_an_explicit_queue_is_taken_and_attempted_once(run: Run, two: Cluster) -> None:
    async def test() -> None:
        async with client(two) as mq:
            wanted = MessageQueue("T", "b-b", 2)
            assert (await mq.send("T", b"x", queue=wanted)).queue == wanted
            two.brokers["b-b"].script(SEND, ResponseCode.SYSTEM_BUSY)
            with pytest.raises(SendFailedError, match="1 attempt"):
                await mq.send("T", b"x", queue=wanted)
            assert (await mq.send_batch("T", [Message(b"x")], queue=wanted))[0].queue == wanted
            with pytest.raises(MessageIllegalError, match="belongs to topic 'T'"):
                await mq.send("U", b"x", queue=wanted)

    run(test)


def test_a_programs_own_selector_sees_the_key_and_what_it_may_choose(run: Run, two: Cluster) -> None:
    async def test() -> None:
        offered: list[tuple[int, str | None]] = []

        def last(queues: Sequence[MessageQueue], ordering_key: str | None) -> MessageQueue:
            offered.append((len(queues), ordering_key))
            return queues[-1]

        async with client(two, ProducerOptions(selector=last)) as mq:
            assert (await mq.send("T", b"x", ordering_key="k")).queue == MessageQueue("T", "b-b", 3)
            two.brokers["b-b"].script(SEND, ResponseCode.SYSTEM_BUSY)
            assert (await mq.send("T", b"x")).queue == MessageQueue("T", "b-a", 3)
        assert offered == [(8, "k"), (8, None), (4, None)]

    run(test)


def test_a_selector_that_invents_a_queue_is_told_so(run: Run, two: Cluster) -> None:
    async def test() -> None:
        options = ProducerOptions(selector=lambda queues, key: MessageQueue("T", "nowhere", 0))
        async with client(two, options) as mq:
            with pytest.raises(ClientError, match="the selector returned"):
                await mq.send("T", b"x")

    run(test)


def test_random_and_nearby_queues(run: Run, cluster: Cluster) -> None:
    async def test() -> None:
        cluster.add_broker("far@b-b")
        cluster.add_broker("near@b-c")
        cluster.add_topic("T", queues=2)
        async with client(cluster) as mq:
            near = mq.producer("near", ProducerOptions(selector=MachineRoom("near")))
            assert {(await near.send("T", b"x")).queue.broker_name for _ in range(6)} == {"near@b-c"}
            cluster.brokers["near@b-c"].script(SEND, ResponseCode.SYSTEM_BUSY)
            assert (await near.send("T", b"x")).queue.broker_name != "near@b-c"
            anywhere = mq.producer("anywhere", ProducerOptions(selector=RandomQueue()))
            assert len({(await anywhere.send("T", b"x")).queue for _ in range(60)}) == 6

    run(test)


# --- slow brokers ---------------------------------------------------------------------------------------------------


def slow_answer(broker: Broker, seconds: float) -> Callable[[Command], Command | None]:
    def answer(command: Command) -> Command | None:
        (pipe,) = broker.pipes
        asyncio.get_running_loop().call_later(seconds, lambda: pipe.send(broker.store_message(command)))
        return None

    return answer


def test_a_slow_broker_is_avoided_for_a_while(run: Run, two: Cluster) -> None:
    async def test() -> None:
        slow = two.brokers["b-a"]
        slow.script(SEND, slow_answer(slow, 0.6))
        async with client(two, ProducerOptions(avoid_slow_brokers=True)) as mq:
            while not slow.requests(SEND):
                await mq.send("T", b"x")
            names = [(await mq.send("T", b"x")).queue.broker_name for _ in range(20)]
            assert set(names) == {"b-b"}
            await asyncio.sleep(2)
            names = [(await mq.send("T", b"x")).queue.broker_name for _ in range(20)]
            assert set(names) == {"b-a", "b-b"}

    run(test)


def test_an_unreachable_broker_is_probed_until_it_answers(run: Run, two: Cluster) -> None:
    async def test() -> None:
        gone, there = two.brokers["b-a"], two.brokers["b-b"]
        gone.up = False
        async with client(two, ProducerOptions(avoid_slow_brokers=True)) as mq:
            for _ in range(8):
                await mq.send("T", b"x")
            dials = two.dials.count(gone.address)
            assert dials == 1  # one send found out, the others avoid it
            await asyncio.sleep(2.5 * BROKER_PROBE_INTERVAL_MS / 1000)
            assert two.dials.count(gone.address) == dials + 2
            gone.up = True
            await asyncio.sleep(2 * BROKER_PROBE_INTERVAL_MS / 1000)
            probes = gone.requests(RequestCode.GET_MAX_OFFSET)
            assert len(probes) == 1  # it has answered; nobody asks any more
            names = {(await mq.send("T", b"x")).queue.broker_name for _ in range(8)}
            assert names == {"b-a", "b-b"}
            assert len(there.requests(RequestCode.GET_MAX_OFFSET)) == 0

    run(test)


# --- room -----------------------------------------------------------------------------------------------------------


def test_sends_beyond_the_bound_wait_within_their_time(run: Run, cluster: Cluster) -> None:
    async def test() -> None:
        broker = cluster.brokers["b-a"]
        async with client(cluster, ProducerOptions(in_flight_max=2)) as mq:
            await mq.send("T", b"x")
            broker.script(SEND, *[slow_answer(broker, 1)] * 2)
            held = [asyncio.ensure_future(mq.send("T", b"x")) for _ in range(2)]
            await asyncio.sleep(0.1)
            with pytest.raises(SendFailedError, match="no room") as caught:
                await mq.send("T", b"x", timeout_ms=500)
            assert not caught.value.maybe_stored
            assert len(asked(cluster)) == 3
            assert (await mq.send("T", b"x")).send_status is SendStatus.SEND_OK  # waited for the answers to the others
            await asyncio.gather(*held)

    run(test)
