"""One connection: matching, time limits, loss, broken servers, bounds."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from scripted_cluster import CUT, SILENCE, Broker, Cluster

from orbitmq.client._async.connecting import transport
from orbitmq.client._async.connecting.transport import Channel, SocketChannel
from orbitmq.errors import ConnectionLostError, RequestTimeoutError
from orbitmq.limits.client import CLIENT_WRITE_BUFFER_BYTES
from orbitmq.protocol.remoting.codes import RequestCode
from orbitmq.protocol.remoting.frame import Command, request, response

Run = Callable[[Callable[[], object]], None]
CODE = RequestCode.GET_MAX_OFFSET


class Wire:
    """A channel to the cluster's broker, and what it told its owner."""

    def __init__(self, cluster: Cluster) -> None:
        self.broker: Broker = cluster.brokers["b-a"]
        self.cluster = cluster
        self.requests: list[Command] = []
        self.lost: list[Channel] = []

    async def open(self) -> SocketChannel:
        channel = await self.cluster.dial(
            self.broker.address, 1000, lambda _, command: self.requests.append(command), self.lost.append
        )
        assert isinstance(channel, SocketChannel)
        return channel


def ask() -> Command:
    return request(CODE, {"topic": "T", "queueId": "0"})


def test_answers_find_their_requests_in_any_order(run: Run, cluster: Cluster) -> None:
    async def test() -> None:
        wire = Wire(cluster)
        channel = await wire.open()
        held: list[Command] = []

        def hold(command: Command) -> None:
            held.append(command)

        wire.broker.script(CODE, hold, hold)
        first = asyncio.ensure_future(channel.call(ask(), 1000))
        second = asyncio.ensure_future(channel.call(ask(), 1000))
        await asyncio.sleep(0.1)
        (pipe,) = wire.broker.pipes
        for command in reversed(held):
            pipe.send(response(command, 0, fields={"offset": str(command.opaque)}))
        assert (await first).integer("offset") == held[0].opaque
        assert (await second).integer("offset") == held[1].opaque
        assert held[0].opaque != held[1].opaque

    run(test)


def test_a_late_answer_is_dropped_and_a_living_connection_stays(run: Run, cluster: Cluster) -> None:
    async def test() -> None:
        wire = Wire(cluster)
        channel = await wire.open()
        wire.broker.script(CODE, SILENCE)
        late = asyncio.ensure_future(channel.call(ask(), 2000))
        await asyncio.sleep(1)
        assert (await channel.call(ask(), 1000)).code == 0  # something arrived meanwhile
        with pytest.raises(RequestTimeoutError):
            await late
        assert not channel.closed
        (pipe,) = wire.broker.pipes
        pipe.send(response(wire.broker.log[0], 0))
        await asyncio.sleep(0.1)
        assert channel.late_answers_count == 1
        assert channel.in_flight_count == 0

    run(test)


def test_a_connection_that_was_silent_for_a_whole_time_out_is_closed(run: Run, cluster: Cluster) -> None:
    async def test() -> None:
        wire = Wire(cluster)
        channel = await wire.open()
        wire.broker.script(CODE, SILENCE, SILENCE)
        with pytest.raises(RequestTimeoutError):
            await channel.call(ask(), 500)
        assert not channel.closed  # too short to judge
        with pytest.raises(RequestTimeoutError):
            await channel.call(ask(), 1000)
        assert channel.closed
        await asyncio.sleep(0)
        assert wire.lost == [channel]

    run(test)


def test_when_the_connection_breaks_all_its_calls_fail_at_once(run: Run, cluster: Cluster) -> None:
    async def test() -> None:
        wire = Wire(cluster)
        channel = await wire.open()
        wire.broker.script(CODE, SILENCE, CUT)
        results = await asyncio.gather(*(channel.call(ask(), 5000) for _ in range(2)), return_exceptions=True)
        assert all(isinstance(result, ConnectionLostError) and result.request_sent for result in results)
        with pytest.raises(ConnectionLostError) as caught:
            await channel.call(ask(), 1000)
        assert not caught.value.request_sent

    run(test)


@pytest.mark.parametrize("rubbish", [b"\0\0\0\0", b"\xff\xff\xff\xff", b"\0\0\0\x08\0\0\0\x04rub!"])
def test_a_server_that_answers_rubbish_is_hung_up_on(run: Run, cluster: Cluster, rubbish: bytes) -> None:
    async def test() -> None:
        wire = Wire(cluster)
        channel = await wire.open()

        def answer_rubbish(command: Command) -> None:
            (pipe,) = wire.broker.pipes
            pipe.send_bytes(rubbish)

        wire.broker.script(CODE, answer_rubbish)
        with pytest.raises(ConnectionLostError, match="broke the protocol"):
            await channel.call(ask(), 5000)
        assert channel.closed

    run(test)


def test_a_cancelled_call_leaves_nothing_behind(run: Run, cluster: Cluster) -> None:
    async def test() -> None:
        wire = Wire(cluster)
        channel = await wire.open()
        wire.broker.script(CODE, SILENCE)
        call = asyncio.ensure_future(channel.call(ask(), 5000))
        await asyncio.sleep(0.1)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert channel.in_flight_count == 0

    run(test)


def test_calls_beyond_the_bound_wait_for_room(run: Run, cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "CLIENT_IN_FLIGHT_REQUESTS_MAX", 2)

    async def test() -> None:
        wire = Wire(cluster)
        channel = await wire.open()
        wire.broker.script(CODE, SILENCE, SILENCE)
        held = [asyncio.ensure_future(channel.call(ask(), 60_000)) for _ in range(2)]
        await asyncio.sleep(0.1)
        with pytest.raises(RequestTimeoutError, match="nothing was sent"):
            await channel.call(ask(), 1000)
        waiting = [asyncio.ensure_future(channel.call(ask(), 5000)) for _ in range(3)]
        await asyncio.sleep(0.1)
        assert len(wire.broker.log) == 2
        held[0].cancel()
        assert [answer.code for answer in await asyncio.gather(*waiting)] == [0, 0, 0]
        held[1].cancel()

    run(test)


def test_a_server_that_does_not_read_stops_the_writers(run: Run, cluster: Cluster) -> None:
    async def test() -> None:
        wire = Wire(cluster)
        channel = await wire.open()
        channel.pause_writing()
        with pytest.raises(RequestTimeoutError, match="does not read"):
            await channel.post(ask(), 1000)
        channel.resume_writing()
        await channel.post(ask(), 1000)
        await asyncio.sleep(0.01)
        assert len(wire.broker.log) == 1

    run(test)


def test_what_is_written_in_one_turn_leaves_in_groups(run: Run, cluster: Cluster) -> None:
    async def test() -> None:
        wire = Wire(cluster)
        channel = await wire.open()
        (pipe,) = wire.broker.pipes
        written: list[int] = []
        arrived = pipe.write
        pipe.write = lambda data: (written.append(len(data)), arrived(data))  # type: ignore[func-returns-value, assignment, method-assign]
        await asyncio.gather(*(channel.call(ask(), 1000) for _ in range(10)))
        assert len(written) == -(-10 // transport.FRAMES_AT_ONCE)
        assert written[0] > written[-1]
        await channel.post(ask(), 1000)
        before = len(written)
        channel.close("done")  # what was accepted is written before
        assert len(written) == before + 1
        body = bytes(CLIENT_WRITE_BUFFER_BYTES)
        channel = await wire.open()
        await channel.post(request(CODE, {}, body), 1000)
        assert channel._unsent_bytes == 0  # large data does not wait for the end of the turn

    run(test)


def test_requests_of_the_server_are_handed_on(run: Run, cluster: Cluster) -> None:
    async def test() -> None:
        wire = Wire(cluster)
        channel = await wire.open()
        (pipe,) = wire.broker.pipes
        pipe.send(request(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, {"consumerGroup": "g"}, oneway=True, opaque=1))
        await asyncio.sleep(0.1)
        assert [command.code for command in wire.requests] == [RequestCode.NOTIFY_CONSUMER_IDS_CHANGED]
        channel.close("done")
        channel.answer(response(wire.requests[0], 0))  # dropped, not an error

    run(test)
