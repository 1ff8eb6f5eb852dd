"""The remoting front end, over real sockets, on both event loops."""

from __future__ import annotations

import asyncio
import logging
import socket
import struct
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress

import pytest
import uvloop

from orbitmq.clock import ManualClock
from orbitmq.errors import ConfigurationError
from orbitmq.protocol.remoting.commands import RequestCode, ResponseCode
from orbitmq.protocol.remoting.frame import Command, decode, encode, request, response
from orbitmq.protocol.remoting.peer import Peer
from orbitmq.server.connections import listener
from orbitmq.server.connections.accepted import AcceptedPeer
from orbitmq.server.connections.listener import SECOND_PORT_REFUSES, Listener, ListenerLimits
from orbitmq.server.process.turn import Turn, Wakeups

ECHO, SILENT, BROKEN, PARTS, LATER, CLOSE, PAUSE = 10, 11, 12, 13, 14, 15, 16
Run = Callable[[Callable[[], Awaitable[None]]], None]


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Iterator[Run]:
    factory = uvloop.new_event_loop if request.param == "uvloop" else asyncio.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:

        def run_here(test: Callable[[], Awaitable[None]]) -> None:
            async def bounded() -> None:
                await asyncio.wait_for(test(), 20)

            runner.run(bounded())

        yield run_here


class EchoHandler:
    """Answers by code; answers of LATER wait for the end of the turn."""

    def __init__(self) -> None:
        self.peers: list[Peer] = []
        self.closed: list[Peer] = []
        self.seen: list[Command] = []
        self.later: list[tuple[Peer, Command]] = []
        self.ends = 0
        self.changed = asyncio.Event()

    def handle(self, request: Command, peer: Peer) -> Command | None:
        self.seen.append(request)
        if peer not in self.peers:
            self.peers.append(peer)
        self.changed.set()
        if request.code == ECHO:
            return response(request, 0, body=request.body)
        if request.code == BROKEN:
            raise ValueError("no such thing")
        if request.code == PARTS:
            log = memoryview(bytes(request.body) * 4)
            peer.send_parts(response(request, 0), [log[:10], log[10:]])
        elif request.code == LATER:
            self.later.append((peer, response(request, 0)))
        elif request.code == PAUSE:
            peer.pause_requests()
        elif request.code == CLOSE:
            peer.send(response(request, 0, "bye"))
            peer.close("asked to")
        return None

    def handle_excess(self, request: Command, peer: Peer) -> Command | None:
        return response(request, ResponseCode.SYSTEM_BUSY, "full")

    def peer_closed(self, peer: Peer) -> None:
        self.closed.append(peer)
        self.changed.set()

    def end_turn(self) -> None:
        self.ends += 1
        for peer, answer in self.later:
            peer.send(answer)
        self.later.clear()


class Rig:
    def __init__(self, limits: ListenerLimits | None = None, refused: frozenset[int] = frozenset()) -> None:
        loop = asyncio.get_running_loop()
        self.clock = ManualClock()
        self.handler = EchoHandler()
        self.turn = Turn(loop)
        self.wakeups = Wakeups(loop)
        self.listener = Listener(
            "test port", self.handler, self.turn, self.wakeups, self.clock, limits, refused_codes=refused
        )

    async def __aenter__(self) -> Rig:
        await self.listener.start("127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.listener.stop(grace_ms=200)

    async def connect(self) -> Raw:
        host, port = self.listener.address
        return Raw(*await asyncio.open_connection(host, port))

    async def until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            self.handler.changed.clear()
            with suppress(TimeoutError):  # what a connection does with its output is no event of the handler
                await asyncio.wait_for(self.handler.changed.wait(), 0.05)


class Raw:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def write(self, *commands: Command) -> None:
        self.writer.write(b"".join(encode(command) for command in commands))

    async def read(self) -> Command:
        head = await self.reader.readexactly(4)
        return decode(head + await self.reader.readexactly(struct.unpack(">i", head)[0]))

    async def call(self, command: Command) -> Command:
        self.write(command)
        return await self.read()

    async def ended(self) -> bool:
        try:
            return await self.reader.read() == b""
        except ConnectionError:
            return True


def test_requests_are_answered_by_number(run: Run) -> None:
    async def test() -> None:
        async with Rig() as rig:
            raw = await rig.connect()
            raw.write(request(ECHO, body=b"a", opaque=5), request(LATER, opaque=6), request(ECHO, body=b"c", opaque=7))
            answers = {answer.opaque: answer for answer in [await raw.read() for _ in range(3)]}
            assert sorted(answers) == [5, 6, 7]
            assert answers[7].body == b"c"
            assert all(answer.is_response and answer.code == 0 for answer in answers.values())
            assert rig.listener.traffic.unanswered == 0
            assert rig.listener.traffic.frames_in == rig.listener.traffic.frames_out == 3

    run(test)


def test_one_turn_covers_all_requests_of_a_read(run: Run) -> None:
    async def test() -> None:
        async with Rig() as rig:
            raw = await rig.connect()
            raw.write(*[request(LATER, opaque=number) for number in range(1, 101)])
            for _ in range(100):
                await raw.read()
            assert rig.handler.ends <= 2

    run(test)


def test_large_and_gathered_bodies(run: Run) -> None:
    async def test() -> None:
        async with Rig() as rig:
            raw = await rig.connect()
            body = bytes(range(256)) * 4096
            assert (await raw.call(request(ECHO, body=body, opaque=1))).body == body
            assert (await raw.call(request(PARTS, body=b"0123456789", opaque=2))).body == b"0123456789" * 4
            assert (await raw.call(request(PARTS, body=body, opaque=3))).body == body * 4

    run(test)


def test_oneway_requests_get_no_answer_even_on_error(run: Run) -> None:
    async def test() -> None:
        async with Rig(refused=frozenset({99})) as rig:
            raw = await rig.connect()
            raw.write(
                request(ECHO, oneway=True, opaque=1),
                request(BROKEN, oneway=True, opaque=2),
                request(99, oneway=True, opaque=3),
                request(ECHO, opaque=4),
            )
            assert (await raw.read()).opaque == 4
            assert rig.listener.traffic.unanswered == 0

    run(test)


def test_handler_failure_is_answered_and_the_connection_lives(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        async with Rig() as rig:
            raw = await rig.connect()
            answer = await raw.call(request(BROKEN, opaque=1))
            assert answer.code == ResponseCode.SYSTEM_ERROR
            assert answer.remark == "ValueError: no such thing"
            assert (await raw.call(request(ECHO, opaque=2))).code == 0
            assert rig.listener.traffic.handler_errors == 1

    run(test)
    assert [record.exc_info is not None for record in caplog.records] == [True]


BAD_FRAMES = {
    "length 0": struct.pack(">ii", 0, 0),
    "negative length": struct.pack(">ii", -5, 0),
    "huge length": struct.pack(">ii", 0x7FFFFFFF, 0),
    "http": b"GET / HTTP/1.1\r\n\r\n",
    "header longer than frame": struct.pack(">iI", 20, 100) + b"x" * 16,
    "unknown serialization": struct.pack(">iI", 20, 7 << 24 | 4) + b"x" * 16,
    "bad json": struct.pack(">iI", 8, 4) + b"{{{{",
}


@pytest.mark.parametrize("bad", BAD_FRAMES.values(), ids=BAD_FRAMES.keys())
def test_malformed_frame_closes_one_connection_with_one_line(
    run: Run, caplog: pytest.LogCaptureFixture, bad: bytes
) -> None:
    async def test() -> None:
        async with Rig() as rig:
            other = await rig.connect()
            raw = await rig.connect()
            port = raw.writer.get_extra_info("sockname")[1]
            raw.writer.write(bad)
            assert await raw.ended()
            assert (await other.call(request(ECHO, opaque=1))).code == 0
            assert rig.listener.traffic.bad_frames == 1
            lines = [record.getMessage() for record in caplog.records]
            assert len(lines) == 1
            assert f"127.0.0.1:{port}" in lines[0]

    with caplog.at_level(logging.WARNING):
        run(test)


def test_whole_requests_before_a_malformed_frame_are_answered(run: Run) -> None:
    async def test() -> None:
        async with Rig() as rig:
            raw = await rig.connect()
            raw.writer.write(encode(request(ECHO, opaque=1)) + encode(request(LATER, opaque=2)) + b"\xff" * 8)
            assert {(await raw.read()).opaque, (await raw.read()).opaque} == {1, 2}
            assert await raw.ended()

    run(test)


def test_frames_cut_anywhere(run: Run) -> None:
    async def test() -> None:
        async with Rig() as rig:
            raw = await rig.connect()
            frame = encode(request(ECHO, {"k": "v"}, b"body", opaque=9))
            for cut in range(1, len(frame), 7):
                raw.writer.write(frame[:cut])
                await raw.writer.drain()
                raw.writer.write(frame[cut:])
                assert (await raw.read()).body == b"body"
            assert rig.listener.traffic.held_bytes == 0

    run(test)


def test_half_a_frame_begins_no_turn(run: Run) -> None:
    """A turn measures itself from its begin: a client that pauses in the middle of a frame would be taken for a loop that is held."""

    async def test() -> None:
        async with Rig() as rig:
            rig.clock.advance(1)
            raw = await rig.connect()
            frame = encode(request(ECHO, opaque=1))
            raw.writer.write(frame[:9])
            await rig.until(lambda: rig.listener.traffic.bytes_in == 9)
            assert rig.turn.started_ns == 0
            raw.writer.write(frame[9:])
            assert (await raw.read()).opaque == 1

    run(test)


def test_partial_frames_are_bounded_together(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        async with Rig(ListenerLimits(held_bytes_max=1_000)) as rig:
            small = await rig.connect()
            small.writer.write(struct.pack(">ii", 5_000, 100) + b"{" * 400)
            await asyncio.sleep(0)
            big = await rig.connect()
            big.writer.write(struct.pack(">ii", 5_000, 100) + b"{" * 2_000)
            assert await big.ended()
            await rig.until(lambda: len(rig.handler.closed) >= 1)
            assert rig.listener.traffic.slow_cut == 1

    run(test)


def test_requests_of_a_client_that_takes_no_answers_count_by_the_memory_they_take(
    run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    """Packed, a field takes about what it takes on the wire."""

    async def test() -> None:
        async with Rig(ListenerLimits(held_bytes_max=30_000, write_high_water_bytes=1_000)) as rig:
            raw = await rig.connect()
            small = encode(request(ECHO, {f"{number:x}": "" for number in range(500)}, opaque=2))
            assert len(small) < 6_000
            raw.writer.write(encode(request(ECHO, opaque=1, body=bytes(2_000))) + small * 16)
            assert await raw.ended()
            await rig.until(lambda: len(rig.handler.closed) == 1)
            assert rig.listener.traffic.slow_cut == 1
            assert rig.listener.traffic.held_bytes == 0

    run(test)


def test_closing_writes_what_is_queued_first(run: Run) -> None:
    async def test() -> None:
        async with Rig() as rig:
            raw = await rig.connect()
            assert (await raw.call(request(CLOSE, opaque=1))).remark == "bye"
            assert await raw.ended()
            await rig.until(lambda: rig.handler.closed == rig.handler.peers)
            rig.handler.peers[0].send(request(1))  # dropped, as the contract of Peer says

    run(test)


def test_second_port_refuses_what_may_wait(run: Run) -> None:
    async def test() -> None:
        async with Rig(refused=SECOND_PORT_REFUSES) as rig:
            raw = await rig.connect()
            answer = await raw.call(request(RequestCode.PULL_MESSAGE, opaque=1))
            assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
            assert (await raw.call(request(ECHO, opaque=2))).code == 0
            assert rig.listener.traffic.unanswered == 0
            assert {11, 361, 200050, 200052, 200054, 200055} == SECOND_PORT_REFUSES

    run(test)


def test_connection_limit_is_reported_once(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        async with Rig(ListenerLimits(connections_max=1)) as rig:
            first = await rig.connect()
            await first.call(request(ECHO, opaque=1))
            for _ in range(3):
                assert await (await rig.connect()).ended()
            assert rig.listener.traffic.connections_refused == 3
            first.writer.close()
            await rig.until(lambda: len(rig.handler.closed) == 1)
            again = await rig.connect()
            assert (await again.call(request(ECHO, opaque=2))).code == 0

    with caplog.at_level(logging.WARNING):
        run(test)
    assert len(caplog.records) == 1


def test_idle_connections_are_closed_by_one_timer_that_runs_only_when_needed(run: Run) -> None:
    async def test() -> None:
        limits = ListenerLimits(idle_ms=1_000, sweep_ms=1)
        name = "test port: idle connections"
        async with Rig(limits) as rig:
            assert rig.wakeups.counts() == {}
            idle, busy = await rig.connect(), await rig.connect()
            await idle.call(request(ECHO, opaque=1))
            rig.clock.advance(900)
            await busy.call(request(ECHO, opaque=1))
            rig.clock.advance(200)
            assert await idle.ended()
            assert rig.listener.traffic.idle_closed == 1
            assert (await busy.call(request(ECHO, opaque=2))).code == 0
            rig.clock.advance(1_100)
            assert await busy.ended()
            await rig.until(lambda: len(rig.handler.closed) == 2)
            assert rig.wakeups.counts()[name] >= 2
            assert rig.listener._sweep_timer is None

    run(test)


def test_slow_reader_is_not_read_and_nobody_else_waits(run: Run) -> None:
    async def test() -> None:
        limits = ListenerLimits(write_high_water_bytes=64_000, write_low_water_bytes=16_000)
        async with Rig(limits) as rig:
            slow = await rig.connect()
            quick = await rig.connect()
            body = bytes(50_000)
            count = 400
            frames = b"".join(encode(request(ECHO, body=body, opaque=number)) for number in range(1, count + 1))
            slow.writer.write(frames)
            await rig.until(lambda: bool(rig.handler.peers) and not rig.handler.peers[0].writable)
            assert (await quick.call(request(ECHO, opaque=1))).code == 0
            for _ in range(20):
                await asyncio.sleep(0)
            handled = len(rig.handler.seen)
            assert handled < count
            got = [(await slow.read()).opaque for _ in range(count)]
            assert got == list(range(1, count + 1))
            assert rig.listener.traffic.unanswered == 0

    run(test)


def test_what_waits_for_readers_that_do_not_read_is_bounded_for_all(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "UNSENT_BYTES_MAX", 2_000_000)
    body_bytes, connections = 50_000, 12

    async def test() -> None:
        async with Rig() as rig:
            quick = await rig.connect()
            await quick.call(request(ECHO, opaque=1))
            readers = [await rig.connect() for _ in range(connections)]
            for slow in readers:
                slow.writer.transport.pause_reading()  # type: ignore[attr-defined]
                slow.writer.write(
                    b"".join(encode(request(ECHO, body=bytes(body_bytes), opaque=n)) for n in range(1, 301))
                )
            traffic = rig.listener.traffic
            await rig.until(lambda: sum(peer._unsent_bytes > 0 for peer in rig.listener.peers) == connections)
            assert traffic.unsent_bytes <= 2_000_000 + connections * 2 * body_bytes
            assert len((await quick.call(request(ECHO, body=bytes(body_bytes), opaque=2))).body) == body_bytes
            for peer in list(rig.listener.peers):
                peer.cut()
            await rig.until(lambda: not rig.listener.peers)
            assert traffic.unsent_bytes == 0

    run(test)


def numbers(count: int, **more: bool) -> list[Command]:
    return [request(ECHO, {"n": str(number)}, opaque=number + 1, **more) for number in range(count)]


@pytest.mark.parametrize("count", [3, 200], ids=["handled as they are read", "through the request queue"])
def test_a_paused_connection_is_not_handled_until_its_late_answer_has_left(run: Run, count: int) -> None:
    async def test() -> None:
        async with Rig() as rig:
            paused, other = await rig.connect(), await rig.connect()
            paused.write(request(PAUSE, opaque=1_000), *numbers(count))
            await rig.until(lambda: bool(rig.handler.peers))
            paused.write(request(ECHO, {"n": "later"}, opaque=999))
            for number in range(20):
                assert (await other.call(request(ECHO, opaque=number + 1))).opaque == number + 1
            assert [seen.code for seen in rig.handler.seen if "n" in seen.fields] == []
            peer = rig.handler.peers[0]
            assert not peer.writable
            peer.send(response(rig.handler.seen[0], 1, "late"))
            peer.resume_requests()
            assert [(await paused.read()).opaque for _ in range(count + 2)] == [1_000, *range(1, count + 1), 999]
            assert rig.listener.traffic.held_bytes == 0

    run(test)


def test_a_connection_paused_twice_goes_on_when_both_have_ended_even_without_an_answer(run: Run) -> None:
    async def test() -> None:
        async with Rig() as rig:
            client = await rig.connect()
            client.write(request(PAUSE, oneway=True), request(ECHO, opaque=7))
            await rig.until(lambda: bool(rig.handler.peers))
            peer = rig.handler.peers[0]
            peer.pause_requests()
            peer.resume_requests()
            for _ in range(5):
                await asyncio.sleep(0)
            assert len(rig.handler.seen) == 1
            peer.resume_requests()
            assert (await client.read()).opaque == 7

    run(test)


def test_a_socket_that_is_free_again_does_not_end_a_pause(run: Run) -> None:
    async def test() -> None:
        limits = ListenerLimits(write_high_water_bytes=64_000, write_low_water_bytes=16_000)
        async with Rig(limits) as rig:
            client = await rig.connect()
            client.write(request(ECHO, body=bytes(8_000_000), opaque=1), request(PAUSE), request(ECHO, opaque=2))
            await rig.until(lambda: len(rig.handler.seen) == 1)
            peer = rig.handler.peers[0]
            peer.pause_requests()
            assert len((await client.read()).body) == 8_000_000
            for number in range(5):
                other = await rig.connect()
                await other.call(request(ECHO, opaque=number + 10))
            assert PAUSE not in [seen.code for seen in rig.handler.seen]
            peer.resume_requests()
            await rig.until(lambda: PAUSE in [seen.code for seen in rig.handler.seen])
            peer.resume_requests()
            assert (await client.read()).opaque == 2

    run(test)


def test_a_paused_connection_can_be_closed_and_lost(run: Run) -> None:
    async def test() -> None:
        async with Rig() as rig:
            closed, cut, stopped = [await rig.connect() for _ in range(3)]
            for number, client in enumerate((closed, cut, stopped)):
                client.write(request(PAUSE), *numbers(3))
                await rig.until(lambda count=number: len(rig.handler.peers) == count + 1)  # type: ignore[misc]
            first, second, third = rig.handler.peers
            assert isinstance(second, AcceptedPeer)
            first.close("enough")
            second.cut()
            assert await closed.ended()
            assert await cut.ended()
            await rig.until(lambda: len(rig.handler.closed) == 2)
            for peer in (first, second):
                peer.send(response(rig.handler.seen[0], 1, "late"))
                peer.resume_requests()
            await rig.listener.stop(grace_ms=200)
            assert await stopped.ended()
            third.resume_requests()
            assert [seen.code for seen in rig.handler.seen] == [PAUSE] * 3
            traffic = rig.listener.traffic
            assert (traffic.held_bytes, traffic.unanswered, rig.listener.peers) == (0, 0, set())

    run(test)


def test_connection_that_never_reads_is_cut_at_the_cap(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        limits = ListenerLimits(write_high_water_bytes=10_000, write_low_water_bytes=5_000, write_bytes_max=1_000_000)
        async with Rig(limits) as rig:
            raw = await rig.connect()
            await raw.call(request(ECHO, opaque=1))
            peer = rig.handler.peers[0]
            notice = request(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, oneway=True, body=bytes(100_000))
            while not rig.handler.closed:
                peer.send(request(notice.code, oneway=True, body=notice.body))
                await asyncio.sleep(0)
            assert rig.listener.traffic.slow_cut == 1

    with caplog.at_level(logging.WARNING):
        run(test)
    assert len([record for record in caplog.records if "does not take its answers" in record.getMessage()]) == 1


def test_requests_to_a_peer_are_called_back_once(run: Run) -> None:
    async def test() -> None:
        async with Rig() as rig:
            raw = await rig.connect()
            await raw.call(request(ECHO, opaque=1))
            peer = rig.handler.peers[0]
            answers: list[Command | None] = []
            done = asyncio.Event()

            def take(answer: Command | None) -> None:
                answers.append(answer)
                done.set()

            peer.request(request(RequestCode.GET_CONSUMER_RUNNING_INFO, {}), 5_000, take)
            asked = await raw.read()
            assert asked.opaque == 1
            raw.write(response(asked, 0, "running"), response(asked, 0, "twice"))
            await done.wait()
            assert [answer.remark for answer in answers if answer] == ["running"]

            done.clear()
            peer.request(request(RequestCode.GET_CONSUMER_RUNNING_INFO), 1, take)
            assert (await raw.read()).opaque == 2
            await done.wait()
            assert answers[-1] is None
            assert rig.wakeups.counts()["test port: client did not answer"] == 1

            done.clear()
            peer.request(request(RequestCode.GET_CONSUMER_RUNNING_INFO), 60_000, take)
            await raw.read()
            raw.writer.close()
            await done.wait()
            assert answers[-1] is None
            assert len(answers) == 3
            done.clear()
            peer.request(request(RequestCode.GET_CONSUMER_RUNNING_INFO), 60_000, take)
            await done.wait()
            assert len(answers) == 4
            assert rig.listener.traffic.late_answers == 1

    run(test)


def test_open_requests_of_a_lost_connection_do_not_count_any_longer(run: Run) -> None:
    async def test() -> None:
        async with Rig() as rig:
            raw = await rig.connect()
            raw.write(request(SILENT, opaque=1), request(SILENT, opaque=2))
            await rig.until(lambda: len(rig.handler.seen) == 2)
            assert rig.listener.traffic.unanswered == 2
            raw.writer.close()
            await rig.until(lambda: len(rig.handler.closed) == 1)
            assert rig.listener.traffic.unanswered == 0
            rig.handler.peers[0].send(response(rig.handler.seen[0], 0))
            assert rig.listener.traffic.unanswered == 0

    run(test)


def test_the_age_of_a_request_is_known(run: Run) -> None:
    async def test() -> None:
        async with Rig() as rig:
            rig.clock.advance(77)
            raw = await rig.connect()
            await raw.call(request(ECHO, opaque=1))
            assert rig.handler.peers[0].received_ns == 77_000_000
            assert rig.handler.peers[0].address == raw.writer.get_extra_info("sockname")
            assert rig.handler.peers[0].host[:4] == b"\x7f\0\0\1"

    run(test)


def test_stop_delivers_written_answers_and_closes(run: Run) -> None:
    async def test() -> None:
        async with Rig() as rig:
            raw = await rig.connect()
            await raw.call(request(ECHO, opaque=1))
            raw.write(request(LATER, opaque=2))
            await rig.until(lambda: len(rig.handler.seen) == 2)
            await rig.listener.stop()
            assert (await raw.read()).opaque == 2
            assert await raw.ended()
            assert len(rig.handler.closed) == 1
            with pytest.raises(ConnectionError):
                await asyncio.open_connection(*("127.0.0.1", raw.writer.get_extra_info("peername")[1]))

    run(test)


def test_a_taken_port_is_named(run: Run) -> None:
    async def test() -> None:
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            rig = Rig()
            with pytest.raises(ConfigurationError, match="test port cannot listen"):
                await rig.listener.start("127.0.0.1", taken.getsockname()[1])

    run(test)
