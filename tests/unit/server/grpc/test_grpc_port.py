"""A port that speaks gRPC: calls reach their handler whole and in order, whatever else the client does, and each is ended once."""

from __future__ import annotations

import asyncio
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest
from tests.worlds.certificates import Authority, Pair
from tests.worlds.grpc_client import SERVICE, Client

from orbitmq.clock import SystemClock
from orbitmq.limits.grpc import IDLE_FRAMES_MAX
from orbitmq.limits.server import HANDLED_AT_ONCE_MAX
from orbitmq.protocol.grpc.call_error import CallError, GrpcStatus
from orbitmq.protocol.grpc.message_prefix import with_prefix
from orbitmq.protocol.grpc.messages import Code, QueryRouteResponse, Status
from orbitmq.protocol.grpc.open_call import OpenCall
from orbitmq.protocol.http2.connection import Http2Connection
from orbitmq.protocol.remoting.frame import Command
from orbitmq.protocol.remoting.peer import Peer
from orbitmq.server.configuration.tls_settings import TlsMode, TlsSettings
from orbitmq.server.connections.first_bytes import PortRules
from orbitmq.server.connections.listener import ListenerLimits
from orbitmq.server.connections.request_queue import RequestQueue
from orbitmq.server.encryption.certificates import CertificateFiles
from orbitmq.server.encryption.made_certificate import CERTIFICATE_FILE, made_certificate
from orbitmq.server.grpc.connection import GrpcConnection
from orbitmq.server.grpc.listener import GrpcListener
from orbitmq.server.grpc.metrics import GrpcMetrics
from orbitmq.server.process.turn import Turn, Wakeups
from orbitmq.telemetry.metric import Value

LIMIT_S = 60


class Broker:
    """Its turns end, and no command comes."""

    def handle(self, request: Command, peer: Peer) -> Command | None:
        raise AssertionError("no command comes")

    handle_excess = handle

    def peer_closed(self, peer: Peer) -> None:
        raise AssertionError("no peer was there")

    def end_turn(self) -> None:
        return None


class Calls:
    """Says what it is asked, in the words of the request: `answer`, `hold`, `fail`, `regret`, `break`, or the number of bytes to answer."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, bytes]] = []
        self.held: list[OpenCall] = []
        self.changed = asyncio.Event()

    def message(self, call: OpenCall, message: bytes) -> None:
        self._see(call.call.row.rpc, message)
        if message == b"break":
            raise RuntimeError("planted")
        if message == b"fail":
            call.fail(CallError(GrpcStatus.RESOURCE_EXHAUSTED, "no more é"))
        elif message == b"regret":
            call.answer(message)
            call.fail(CallError(GrpcStatus.INTERNAL, "after the answer"))
        elif message == b"hold":
            self.held.append(call)
        else:
            call.answer(bytes(int(message)) if message.isdigit() else message)
            if call.call.row.rpc != "Telemetry":
                call.end()

    def excess(self, call: OpenCall, message: bytes) -> None:
        self._see("excess", message)
        call.end()

    def over(self, call: OpenCall) -> None:
        self._see("over", b"wanted" if call.is_wanted else b"")
        call.end()

    def close(self) -> None:
        self._see("close", b"")
        for call in self.held:
            call.answer(b"closed")
            call.end()

    def _see(self, what: str, message: bytes) -> None:
        self.seen.append((what, message[:20]))
        self.changed.set()

    async def until(self, is_true: Callable[[], bool]) -> None:
        while not is_true():
            self.changed.clear()
            await self.changed.wait()


class Port:
    def __init__(self, listener: GrpcListener, calls: Calls, client: Client) -> None:
        self.listener = listener
        self.calls = calls
        self.client = client

    @property
    def connection(self) -> GrpcConnection:
        (connection,) = self.listener.peers
        assert isinstance(connection, GrpcConnection)
        return connection


def _certificate(pair: Pair) -> CertificateFiles:
    return CertificateFiles(TlsSettings(cert_path=str(pair.cert), key_path=str(pair.key)), SystemClock())


@asynccontextmanager
async def port(
    limits: ListenerLimits | None = None,
    requests_max: int = 10_000,
    pair: Pair | None = None,
    tls: ssl.SSLContext | None = None,
    rules: Callable[[Wakeups], PortRules] | None = None,
) -> AsyncIterator[Port]:
    loop, clock, calls = asyncio.get_running_loop(), SystemClock(), Calls()
    turn = Turn(loop, clock, RequestQueue(clock, requests_max))
    wakeups = Wakeups(loop)
    if rules is None and pair is not None:
        made = PortRules(wakeups, TlsMode.PERMISSIVE, _certificate(pair))
    else:
        made = None if rules is None else rules(wakeups)
    limits = limits or ListenerLimits(idle_ms=0)
    listener = GrpcListener("grpc", Broker(), lambda: calls, turn, wakeups, clock, limits, rules=made)
    await listener.start("127.0.0.1", 0)
    try:
        async with asyncio.timeout(LIMIT_S):
            client = Client(*await asyncio.open_connection(*listener.address, ssl=tls))
            yield Port(listener, calls, client)
            client.writer.close()
    finally:
        await listener.stop(grace_ms=1_000)
    assert listener.traffic.unanswered == 0
    assert (listener.traffic.held_bytes, listener.traffic.unsent_bytes) == (0, 0)


async def test_a_call_is_answered_with_a_head_its_message_and_trailers() -> None:
    async with port() as it:
        stream_id = it.client.call("QueryRoute", b"where")
        assert await it.client.ended(stream_id) == {"grpc-status": "0"}
        assert it.client.heads[stream_id] == {":status": "200", "content-type": "application/grpc"}
        assert it.client.answers[stream_id] == with_prefix(b"where")
        assert it.calls.seen == [("QueryRoute", b"where")]


async def test_a_message_comes_in_any_pieces_and_may_be_larger_than_a_window() -> None:
    async with port() as it:
        client, message = it.client, b"x" * 3_000_000
        stream_id, data, at = client.begin("SendMessage"), with_prefix(message), 0
        for size in (1, 3, 2, 1, 500):
            client.send(stream_id, data[at : at + size])
            at += size
        while at < len(data):
            await client.until(lambda: client.h2.local_flow_control_window(stream_id) > 0)
            size = min(client.h2.local_flow_control_window(stream_id), 16_384, len(data) - at)
            client.send(stream_id, data[at : at + size], end=at + size == len(data))
            at += size
        assert await client.ended(stream_id) == {"grpc-status": "0"}
        assert client.answers[stream_id] == data, "and the answer waited for the windows of the client"


async def test_calls_are_answered_in_whatever_order_their_answers_come() -> None:
    async with port() as it:
        first, second = it.client.call("ReceiveMessage", b"hold"), it.client.call("QueryRoute", b"now")
        await it.client.ended(second)
        (held,) = it.calls.held
        held.answer(b"one")
        held.answer(b"two")
        held.end()
        held.end()
        held.answer(b"too late")
        await it.client.ended(first)
        assert it.client.answers[first] == with_prefix(b"one") + with_prefix(b"two")


async def test_an_answer_of_one_message_leaves_with_its_end_or_not_at_all() -> None:
    async with port() as it:
        single, several = it.client.call("QueryRoute", b"regret"), it.client.call("ReceiveMessage", b"regret")
        for stream_id in (single, several):
            assert (await it.client.ended(stream_id))["grpc-status"] == str(int(GrpcStatus.INTERNAL))
        assert single not in it.client.answers
        assert it.client.answers[several] == with_prefix(b"regret")
        held = it.client.call("QueryRoute", b"hold")
        await it.calls.until(lambda: len(it.calls.held) == 1)
        (call,) = it.calls.held
        call.answer(b"first thought")
        call.answer(b"second thought")
        call.end()
        await it.client.ended(held)
        assert it.client.answers[held] == with_prefix(b"second thought")


async def test_messages_of_a_stream_come_one_by_one_and_its_end_after_them() -> None:
    async with port() as it:
        stream_id = it.client.begin("Telemetry")
        it.client.send(stream_id, with_prefix(b"a") + with_prefix(b"b"))
        await it.client.until(lambda: it.client.answers.get(stream_id) == with_prefix(b"a") + with_prefix(b"b"))
        it.client.send(stream_id, with_prefix(b"c"), end=True)
        assert await it.client.ended(stream_id) == {"grpc-status": "0"}
        assert it.calls.seen == [("Telemetry", b"a"), ("Telemetry", b"b"), ("Telemetry", b"c"), ("over", b"wanted")]


async def test_who_carries_a_call_out_hears_that_it_was_cancelled() -> None:
    async with port() as it:
        stream_id = it.client.call("ReceiveMessage", b"hold")
        await it.calls.until(lambda: bool(it.calls.held))
        it.client.cancel(stream_id)
        await it.calls.until(lambda: it.calls.seen[-1] == ("over", b""))
        await it.client.ended(it.client.call("QueryRoute", b"alive"))
        assert it.connection.http2.stream_count == 0


async def test_a_call_that_is_cancelled_before_it_came_whole_is_nobody_s() -> None:
    async with port() as it:
        stream_id = it.client.begin("SendMessage")
        it.client.send(stream_id, with_prefix(b"half")[:6])
        it.client.cancel(stream_id)
        await it.client.ended(it.client.call("QueryRoute", b"alive"))
        assert it.calls.seen == [("QueryRoute", b"alive")]
        assert it.connection.http2.stream_count == 0


async def test_a_lost_connection_ends_its_calls_once() -> None:
    async with port() as it:
        for _ in range(3):
            it.client.call("ReceiveMessage", b"hold")
        half = it.client.begin("SendMessage")
        it.client.send(half, with_prefix(b"half")[:6])
        await it.calls.until(lambda: len(it.calls.held) == 3)
        it.client.writer.transport.abort()
        await it.calls.until(lambda: it.calls.seen.count(("over", b"")) == 3)
        assert not any(call.is_wanted for call in it.calls.held)


async def test_a_cancellation_that_waited_when_the_connection_was_lost_is_told() -> None:
    async with port() as it:
        stream_id = it.client.call("ReceiveMessage", b"hold")
        await it.calls.until(lambda: bool(it.calls.held))
        it.connection.pause_requests()
        it.client.h2.reset_stream(stream_id, 8)
        it.connection.data_received(it.client.h2.data_to_send())
        assert it.calls.seen == [("ReceiveMessage", b"hold")], "it waits behind the pause"
        it.connection.cut()
        await it.calls.until(lambda: it.calls.seen[-1] == ("over", b""))


@pytest.mark.parametrize(
    ("rpc", "data", "status"),
    [
        (SERVICE + "Nothing", with_prefix(b"x"), GrpcStatus.UNIMPLEMENTED),
        ("PullMessage", with_prefix(b"x"), GrpcStatus.UNIMPLEMENTED),
        ("UpdateOffset", with_prefix(b"x"), GrpcStatus.UNIMPLEMENTED),
        ("GetOffset", with_prefix(b"x"), GrpcStatus.UNIMPLEMENTED),
        ("QueryOffset", with_prefix(b"x"), GrpcStatus.UNIMPLEMENTED),
        ("QueryRoute", b"", GrpcStatus.INTERNAL),
        ("QueryRoute", with_prefix(b"cut")[:7], GrpcStatus.INTERNAL),
        ("QueryRoute", with_prefix(b"one") + with_prefix(b"two"), GrpcStatus.INTERNAL),
        ("QueryRoute", b"\1" + with_prefix(b"packed")[1:], GrpcStatus.UNIMPLEMENTED),
        ("QueryRoute", b"\0\xff\xff\xff\xffmuch", GrpcStatus.RESOURCE_EXHAUSTED),
        ("QueryRoute", with_prefix(b"fail"), GrpcStatus.RESOURCE_EXHAUSTED),
        ("QueryRoute", with_prefix(b"break"), GrpcStatus.INTERNAL),
    ],
)
async def test_a_wrong_call_ends_alone(rpc: str, data: bytes, status: GrpcStatus) -> None:
    async with port() as it:
        held = it.client.call("ReceiveMessage", b"hold")
        stream_id = it.client.begin(rpc)
        it.client.send(stream_id, data, end=True)
        assert (await it.client.ended(stream_id))["grpc-status"] == str(int(status))
        it.calls.held[0].end()
        assert await it.client.ended(held) == {":status": "200", "content-type": "application/grpc", "grpc-status": "0"}
        assert it.connection.http2.stream_count == 0


async def test_the_headers_alone_are_no_request() -> None:
    async with port() as it:
        stream_id = int(it.client.h2.get_next_available_stream_id())
        fields = [(":method", "POST"), (":scheme", "http"), (":path", SERVICE + "QueryRoute"), (":authority", "x")]
        it.client.h2.send_headers(stream_id, [*fields, ("content-type", "application/grpc")], end_stream=True)
        it.client.write()
        assert (await it.client.ended(stream_id))["grpc-status"] == str(int(GrpcStatus.INTERNAL))
        assert it.calls.seen == []


async def test_what_has_not_come_whole_is_bounded_for_all_calls_together() -> None:
    async with port(ListenerLimits(idle_ms=0, held_bytes_max=50_000)) as it:
        for _ in range(6):
            stream_id = it.client.begin("SendMessage")
            it.client.send(stream_id, with_prefix(bytes(20_000))[:9_000])
        await it.client.closed()
        assert it.listener.traffic.slow_cut == 1


async def test_beyond_the_request_queue_the_handler_refuses() -> None:
    async with port(requests_max=2) as it:
        client = it.client
        streams = []
        for number in range(HANDLED_AT_ONCE_MAX + 8):
            stream_id = int(client.h2.get_next_available_stream_id())
            fields = [(":method", "POST"), (":scheme", "http"), (":path", SERVICE + "QueryRoute"), (":authority", "x")]
            client.h2.send_headers(stream_id, [*fields, ("content-type", "application/grpc")])
            client.h2.send_data(stream_id, with_prefix(b"n%d" % number), end_stream=True)
            streams.append(stream_id)
        client.write()
        for stream_id in streams:
            await client.ended(stream_id)
        assert len(it.calls.seen) == len(streams)
        assert ("excess", b"n%d" % (len(streams) - 1)) in it.calls.seen


async def test_a_ping_is_answered_without_any_call() -> None:
    async with port() as it:
        it.client.h2.ping(b"12345678")
        it.client.write()
        await it.client.until(lambda: "PingAckReceived" in it.client.others)


async def test_what_is_no_http2_ends_the_connection_with_one_line() -> None:
    async with port() as it:
        it.client.writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n" + bytes(100))
        await it.client.until(lambda: it.client.is_closed)
        assert "ConnectionTerminated" in it.client.others
        assert it.listener.traffic.bad_frames == 1


async def test_a_stop_tells_the_client_to_go_elsewhere() -> None:
    async with port() as it:
        await it.client.ended(it.client.call("QueryRoute", b"once"))
        it.client.call("ReceiveMessage", b"hold")
        await it.calls.until(lambda: bool(it.calls.held))
        await it.listener.stop(grace_ms=100)
        await it.client.closed()
        assert it.client.others.count("ConnectionTerminated") == 1
        assert it.calls.seen[-1] == ("over", b""), "it got no answer in time"


async def test_calls_under_way_are_answered_after_the_client_was_told_of_the_stop() -> None:
    async with port() as it:
        client, calls = it.client, it.calls
        told, late = client.begin("Telemetry"), client.call("SendMessage", b"hold")
        client.send(told, with_prefix(b"hello"))
        await calls.until(lambda: len(calls.seen) == 2)
        stop = asyncio.create_task(it.listener.stop(grace_ms=60_000))
        assert await client.ended(told) == {"grpc-status": "0"}, "streams end as if their client had closed them"
        await client.until(lambda: "ConnectionTerminated" in client.others)
        passed_over = client.call("QueryRoute", b"too late")
        await asyncio.sleep(0)
        calls.held[0].answer(b"stored")
        calls.held[0].end()
        assert await client.ended(late) == {"grpc-status": "0"}
        assert client.answers[late] == with_prefix(b"stored")
        await client.closed()
        await stop
        assert passed_over not in client.heads
        assert {what for what, _ in calls.seen} == {"Telemetry", "SendMessage", "over"}


async def test_what_waits_is_answered_when_calls_are_closed_and_nothing_is_made_for_that() -> None:
    async with port() as it:
        held = it.client.call("ReceiveMessage", b"hold")
        await it.calls.until(lambda: bool(it.calls.held))
        it.listener.close_calls()
        assert await it.client.ended(held) == {"grpc-status": "0"}
        assert it.client.answers[held] == with_prefix(b"closed")
    loop, made = asyncio.get_running_loop(), []
    unused = GrpcListener("grpc", Broker(), lambda: made.append(1) or Calls(), Turn(loop), Wakeups(loop), SystemClock())
    await unused.start("127.0.0.1", 0)
    unused.close_calls()
    await unused.stop(grace_ms=1_000)
    assert not made


async def test_tls_and_plain_clients_come_to_one_port(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    pair = authority.issue("server")
    tls = ssl.create_default_context(cafile=str(authority.file))
    tls.set_alpn_protocols(["h2"])
    for given in (tls, None):
        async with port(pair=pair, tls=given) as it:
            chosen = it.client.writer.get_extra_info("ssl_object")
            assert given is None or chosen.selected_alpn_protocol() == "h2"
            stream_id = it.client.call("QueryRoute", b"where")
            assert await it.client.ended(stream_id) == {"grpc-status": "0"}


def _trusting_everybody() -> ssl.SSLContext:
    """As the makers' clients are unless told otherwise."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    return context


async def test_where_no_certificate_is_given_one_is_made_at_the_first_handshake_and_kept(tmp_path: Path) -> None:
    kept = tmp_path / "tls" / CERTIFICATE_FILE
    contents = []

    def rules(wakeups: Wakeups) -> PortRules:
        assert kept.exists() == bool(contents), "a port without TLS clients makes none"
        made = partial(made_certificate, TlsSettings(), tmp_path / "tls", SystemClock())
        return PortRules(wakeups, TlsMode.PERMISSIVE, make_certificate=made)

    for _ in range(2):
        async with port(tls=_trusting_everybody(), rules=rules) as it:
            stream_id = it.client.call("QueryRoute", b"where")
            assert await it.client.ended(stream_id) == {"grpc-status": "0"}
        contents.append(kept.read_bytes())
    assert contents[0] == contents[1]


@pytest.mark.parametrize("mode", [TlsMode.DISABLED, TlsMode.PERMISSIVE])
async def test_tls_is_refused_where_it_is_off_or_no_certificate_can_be_made(tmp_path: Path, mode: TlsMode) -> None:
    (tmp_path / "tls").write_text("a file where the folder should be")

    def rules(wakeups: Wakeups) -> PortRules:
        made = partial(made_certificate, TlsSettings(), tmp_path / "tls", SystemClock())
        return PortRules(wakeups, mode, make_certificate=made)

    with pytest.raises(ssl.SSLError):
        async with port(tls=_trusting_everybody(), rules=rules):
            pass


def test_a_port_without_clients_has_not_loaded_protobuf() -> None:
    program = (
        "import sys, orbitmq.server.grpc.listener; sys.exit(any(name.startswith('google') for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


async def test_the_look_for_idle_connections_gives_budgets_again(monkeypatch: pytest.MonkeyPatch) -> None:
    renewed, renew = asyncio.Event(), Http2Connection.renew_budgets

    def renew_and_tell(connection: Http2Connection) -> None:
        renew(connection)
        renewed.set()

    monkeypatch.setattr(Http2Connection, "renew_budgets", renew_and_tell)
    async with port(ListenerLimits(idle_ms=60_000, sweep_ms=10)) as it:
        pings = IDLE_FRAMES_MAX // 2 + 1
        for spent in range(1, 4):
            for _ in range(pings):
                it.client.h2.ping(b"12345678")
            it.client.write()
            await it.client.until(lambda count=spent * pings: it.client.others.count("PingAckReceived") == count)
            renewed.clear()
            await renewed.wait()
        await it.client.ended(it.client.call("QueryRoute", b"alive"))


async def test_what_happens_on_a_port_is_counted() -> None:
    async with port() as it:
        client, listener = it.client, it.listener
        await client.ended(
            client.call("QueryRoute", QueryRouteResponse(status=Status(code=Code.OK)).SerializeToString())
        )
        refused = QueryRouteResponse(status=Status(code=Code.TOPIC_NOT_FOUND)).SerializeToString()
        await client.ended(client.call("QueryRoute", refused))
        await client.ended(client.call("SendMessage", b"fail"))
        await client.ended(client.call("/nowhere", b""))
        cancelled = client.call("ReceiveMessage", b"hold")
        await it.calls.until(lambda: bool(it.calls.held))
        shown = dict(samples(GrpcMetrics(listener)))
        assert shown["orbitmq_http2_streams", ()] == 1
        assert shown["rocketmq_proxy_up", ("local",)] == 1
        client.cancel(cancelled)
        large = client.call("QueryRoute", b"1000000")
        await client.ended(large)
        assert listener.tally.handled_by_name() == [("QueryRoute", 3), ("SendMessage", 1), ("ReceiveMessage", 1)]
        assert listener.tally.failures_by_name() == [
            ("QueryRoute", "TOPIC_NOT_FOUND", 1), ("SendMessage", "RESOURCE_EXHAUSTED", 1)
        ]  # fmt: skip
        assert listener.tally.unsupported == 1
        client.writer.write(bytes(9))
        await client.until(lambda: client.is_closed)
        shown = dict(samples(GrpcMetrics(listener)))
        assert shown["orbitmq_http2_resets_total", ("client",)] == 1
        assert shown["orbitmq_http2_exhausted_windows_total", ()] == 1
        assert shown["orbitmq_http2_connection_errors_total", ("PROTOCOL_ERROR",)] == 1
    assert dict(samples(GrpcMetrics(listener)))["rocketmq_proxy_up", ("local",)] == 0


def samples(collector: GrpcMetrics) -> Iterator[tuple[tuple[str, tuple[str, ...]], Value]]:
    for family in collector():
        for sample in family.samples:
            yield (family.metric.name, sample.labels), sample.value
