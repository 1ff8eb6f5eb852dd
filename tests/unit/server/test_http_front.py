"""The HTTP port: requests are answered, and bad ones harm their sender only."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from orbitmq.clock import SystemClock
from orbitmq.errors import PortTakenError
from orbitmq.limits.server import HTTP_CONNECTIONS_MAX, HTTP_REQUEST_BYTES_MAX
from orbitmq.server.connections.descriptors import ConnectionRoom
from orbitmq.server.monitoring import http_connection
from orbitmq.server.monitoring.http_front import HttpAnswer, HttpFront, HttpRequest
from orbitmq.server.process.turn import Wakeups

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def echo(request: HttpRequest) -> HttpAnswer:
    return HttpAnswer(200, "text/plain", f"{request.path} {request.accept}".encode())


@asynccontextmanager
async def serving(answers: Callable[[HttpRequest], Awaitable[HttpAnswer]] = echo) -> AsyncIterator[HttpFront]:
    front = HttpFront(answers, Wakeups(asyncio.get_running_loop()), SystemClock(), ConnectionRoom(1_000))
    await front.start("127.0.0.1", 0)
    try:
        yield front
    finally:
        await front.stop()


async def connect(front: HttpFront) -> Streams:
    return await asyncio.open_connection(*front.address)


async def read_answer(reader: asyncio.StreamReader, *, body: bool = True) -> tuple[int, dict[str, str], bytes]:
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    first, *fields = head.split("\r\n")[:-2]
    headers = {name.lower(): value for name, value in (field.split(": ", 1) for field in fields)}
    content = await reader.readexactly(int(headers["content-length"])) if body else b""
    return int(first.split()[1]), headers, content


async def ask(front: HttpFront, data: bytes) -> tuple[int, dict[str, str], bytes]:
    reader, writer = await connect(front)
    writer.write(data)
    answer = await read_answer(reader, body=not data.startswith(b"HEAD"))
    writer.close()
    return answer


async def until(condition: Callable[[], bool]) -> None:
    """Let the loop turn until something has happened in it; the test's time limit ends what never does."""
    while True:
        if condition():
            return
        await asyncio.sleep(0)


GET = b"GET /x?y=1 HTTP/1.1\r\nHost: h\r\nAccept: text/plain\r\n\r\n"


async def test_a_request_is_answered() -> None:
    async with serving() as front:
        status, headers, body = await ask(front, GET)
        assert (status, body) == (200, b"/x text/plain")
        assert headers["content-type"] == "text/plain"
        assert front.traffic.answers == {200: 1}


async def test_a_connection_serves_one_request_after_the_other() -> None:
    async with serving() as front:
        reader, writer = await connect(front)
        for _ in range(3):
            writer.write(GET)
            assert (await read_answer(reader))[0] == 200
        writer.write(GET * 3)
        for _ in range(3):
            assert (await read_answer(reader))[2] == b"/x text/plain"
        writer.write(GET[:20])
        await asyncio.sleep(0)
        writer.write(GET[20:])
        assert (await read_answer(reader))[0] == 200
        writer.close()
        assert front.traffic.connections_accepted == 1


async def test_head_has_no_body() -> None:
    async with serving() as front:
        status, headers, _ = await ask(front, GET.replace(b"GET", b"HEAD"))
        assert (status, headers["content-length"]) == (200, str(len("/x text/plain")))


async def test_http_1_0_closes_afterwards() -> None:
    async with serving() as front:
        reader, writer = await connect(front)
        writer.write(b"GET /x HTTP/1.0\r\n\r\n")
        assert (await read_answer(reader))[0] == 200
        assert await reader.read() == b""
        writer.close()


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"\x00\x00\x00\x20\x00\x00\x00\x10{}\r\n\r\n", 400),
        (b"GET /\x00 HTTP/1.1\r\nHost: h\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: h\r\nContent-Length: x\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhello", 413),
        (b"GET / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n", 413),
        (b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n", 405),
        (b"DELETE / HTTP/1.1\r\nHost: h\r\n\r\n", 405),
        (b"GET / HTTP/1.1\r\nHost: h\r\nX: " + b"x" * HTTP_REQUEST_BYTES_MAX, 431),
    ],
)
async def test_bad_requests_are_refused_and_others_served(data: bytes, status: int) -> None:
    async with serving() as front:
        assert (await ask(front, data))[0] == status
        assert (await ask(front, GET))[0] == 200


async def test_an_answer_that_fails_is_an_error_of_its_own() -> None:
    async def broken(request: HttpRequest) -> HttpAnswer:
        raise RuntimeError("a defect")

    async with serving(broken) as front:
        status, _, body = await ask(front, GET)
        assert status == 500
        assert b"a defect" in body


async def test_a_client_that_leaves_harms_nobody() -> None:
    waits = asyncio.Event()

    async def slow(request: HttpRequest) -> HttpAnswer:
        await waits.wait()
        return await echo(request)

    async with serving(slow) as front:
        _, writer = await connect(front)
        writer.write(GET)
        await until(lambda: front.open_count == 1)
        writer.transport.abort()
        waits.set()
        await until(lambda: not front.open_count)
        assert (await ask(front, GET))[0] == 200


async def test_slow_clients_are_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_connection, "HTTP_REQUEST_MS", 1)
    async with serving() as front:
        reader, writer = await connect(front)
        writer.write(GET[:10])
        assert await reader.read() == b""
        writer.close()
        assert front.traffic.slow_cut == 1


async def test_a_client_that_takes_no_answer_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_connection, "HTTP_ANSWER_MS", 1)

    async def large(request: HttpRequest) -> HttpAnswer:
        return HttpAnswer(200, "text/plain", b"x" * (64 << 20))

    async with serving(large) as front:
        reader, writer = await connect(front)
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        writer.write(GET)
        await until(lambda: front.traffic.slow_cut == 1)
        assert front.open_count == 0
        assert reader is not None
        writer.transport.abort()


async def test_an_idle_connection_is_closed_without_a_word(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_connection, "HTTP_IDLE_MS", 1)
    async with serving() as front:
        reader, writer = await connect(front)
        writer.write(GET)
        assert (await read_answer(reader))[0] == 200
        assert await reader.read() == b""
        writer.close()
        assert front.traffic.slow_cut == 0


async def test_when_all_places_are_taken_the_longest_idle_one_makes_room() -> None:
    async with serving() as front:
        silent = [await connect(front) for _ in range(HTTP_CONNECTIONS_MAX)]
        await until(lambda: front.traffic.connections_accepted == HTTP_CONNECTIONS_MAX)
        assert (await ask(front, GET))[0] == 200
        assert await silent[0][0].read() == b"", "the first one had to go"
        assert front.open_count <= HTTP_CONNECTIONS_MAX
        for _, writer in silent:
            writer.close()


async def test_connections_count_among_those_of_the_process() -> None:
    room = ConnectionRoom(2)
    front = HttpFront(echo, Wakeups(asyncio.get_running_loop()), SystemClock(), room)
    await front.start("127.0.0.1", 0)
    first = await connect(front)
    await until(lambda: room.open_count == 1)
    second = await connect(front)
    assert await second[0].read() == b""
    assert front.traffic.connections_refused == 1
    for _, writer in (first, second):
        writer.close()
    await front.stop()
    await until(lambda: not room.open_count)


async def test_a_taken_port_is_named() -> None:
    async with serving() as front:
        other = HttpFront(echo, Wakeups(asyncio.get_running_loop()), SystemClock(), ConnectionRoom(10))
        with pytest.raises(PortTakenError, match=r"the port is taken.*--http-port"):
            await other.start(*front.address)
        assert not other.is_listening
        with pytest.raises(RuntimeError, match="not listening"):
            _ = other.address


async def test_a_malformed_header_is_not_quoted(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO"):
        async with serving() as front:
            status, _, body = await ask(
                front, b"GET / HTTP/1.1\r\nHost: h\r\nAuthorization: Basic c2Vj\x00cmV0\r\n\r\n"
            )
    assert status == 400
    assert b"c2Vj" not in body
    assert "malformed" in caplog.text
    assert "c2Vj" not in caplog.text


async def test_the_header_with_the_password_and_the_address_reach_who_answers() -> None:
    async def tell(request: HttpRequest) -> HttpAnswer:
        return HttpAnswer(200, "text/plain", f"{request.authorization} {request.client}".encode())

    async with serving(tell) as front:
        _, _, body = await ask(front, b"GET / HTTP/1.1\r\nHost: h\r\nAuthorization: Basic abc\r\n\r\n")
        assert body == b"Basic abc 127.0.0.1"
