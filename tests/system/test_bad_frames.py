"""Frames that are none: each costs its own connection, and one line of the log; nobody else notices."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable

import pytest
from server_process import RawClient, ServedProcess, many_clients, send_fields, until

from orbitmq.limits.server import HELD_BYTES_MAX
from orbitmq.limits.wire import FRAME_BYTES_MAX, HEADER_BYTES_MAX
from orbitmq.protocol.remoting.commands import RequestCode, ResponseCode
from orbitmq.protocol.remoting.frame import encode, request


def framed(header: bytes, body: bytes = b"", kind: int = 0, header_length: int | None = None) -> bytes:
    length = len(header) if header_length is None else header_length
    return struct.pack(">iI", 4 + len(header) + len(body), kind << 24 | length) + header + body


BAD_FRAMES = {
    "length 0": struct.pack(">i", 0),
    "length 0 and more": struct.pack(">iI", 0, 0) + b"x" * 100,
    "length 3": struct.pack(">i", 3) + b"abc",
    "length negative": struct.pack(">i", -1),
    "length most negative": struct.pack(">i", -(2**31)),
    "length above the limit": struct.pack(">i", FRAME_BYTES_MAX - 3),
    "length huge": struct.pack(">iI", 2**31 - 1, 10),
    "header longer than the frame": framed(b"{}", header_length=3),
    "header longest": framed(b"{}", header_length=0xFF_FFFF),
    "unknown header type": framed(b"{}", kind=2),
    "header type 255": framed(b"{}", kind=255),
    "no header": framed(b""),
    "header no JSON": framed(b"{code:"),
    "header cut JSON": framed(b'{"code":10,"extFields":{"a":"b"'),
    "header a list": framed(b"[1,2]"),
    "header a number": framed(b"42"),
    "header null": framed(b"null"),
    "header of deep JSON": framed(b'{"code":10,"extFields":' + b'{"a":' * 50_000 + b"1" + b"}" * 50_000 + b"}"),
    "header not UTF-8": framed(b'{"code":10,"remark":"\xff\xfe"}'),
    "half a character": framed(b'{"code":310,"extFields":{"i":"\\ud800"}}'),
    "header of zeros": framed(bytes(64)),
    "code of text": framed(b'{"code":"ten"}'),
    "code beyond int32": framed(b'{"code":4294967296}'),
    "code a huge number": framed(b'{"code":' + b"9" * 5_000 + b"}"),
    "opaque beyond int32": framed(b'{"code":10,"opaque":9223372036854775808}'),
    "binary header short": framed(b"\0" * 10, kind=1),
    "binary remark longer than the header": framed(
        struct.pack(">HBHIIi", 10, 0, 0, 1, 0, 2**31 - 1) + b"x" * 8, kind=1
    ),
    "binary remark length negative": framed(struct.pack(">HBHIIii", 10, 0, 0, 1, 0, -5, 0), kind=1),
    "binary fields longer than the header": framed(
        struct.pack(">HBHIIii", 10, 0, 0, 1, 0, 0, 9_999) + b"x" * 9, kind=1
    ),
    "binary field cut": framed(struct.pack(">HBHIIii", 10, 0, 0, 1, 0, 0, 4) + b"\0\x09ab", kind=1),
    "HTTP": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "HTTP/2 preface": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "PROXY header": b"PROXY TCP4 192.0.2.1 192.0.2.2 1 2\r\n",
    "SSH": b"SSH-2.0-OpenSSH_9.6\r\n",
    "good frames, then a bad one": encode(request(RequestCode.HEART_BEAT, opaque=1)) * 3 + struct.pack(">i", -7),
}


class LogOf:
    """The lines about one connection from now on; port numbers come back."""

    def __init__(self, server: ServedProcess, client: RawClient) -> None:
        self._server = server
        self._address = f"127.0.0.1:{client.own_port} "
        self._begin = len(server.log())

    def lines(self) -> list[str]:
        return [line for line in self._server.log()[self._begin :].splitlines() if self._address in line]

    def has_one_warning(self) -> None:
        until(lambda: len(self.lines()) >= 1, what="a line about the bad frame")
        lines = self.lines()
        assert len(lines) == 1, lines
        assert "malformed" in lines[0]
        assert "WARNING" in lines[0]


@pytest.mark.parametrize("port", ["broker", "second port", "name server"])
@pytest.mark.parametrize("frame", BAD_FRAMES.values(), ids=BAD_FRAMES.keys())
def test_a_bad_frame_closes_its_connection_with_one_line(server: ServedProcess, port: str, frame: bytes) -> None:
    number = {"broker": server.port, "second port": server.port - 2, "name server": server.name_port}[port]
    with server.client() as witness, RawClient(number) as bad:
        before = witness.call(RequestCode.GET_ALL_TOPIC_CONFIG).code
        log = LogOf(server, bad)
        bad.write(frame)
        while not bad.is_ended():  # answers to the good frames before it
            pass
        assert witness.call(RequestCode.GET_ALL_TOPIC_CONFIG).code == before == 0
        log.has_one_warning()


def test_a_frame_cut_in_the_middle_is_told_once(server: ServedProcess) -> None:
    whole = encode(request(RequestCode.SEND_MESSAGE_V2, send_fields(), b"body", opaque=1))
    for cut in (1, 3, 4, 7, 8, 40, len(whole) - 1):
        with RawClient(server.port) as bad:
            log = LogOf(server, bad)
            bad.write(whole[:cut])
        log.has_one_warning()
    assert server.topic("orders") is None


def test_random_bytes(server: ServedProcess) -> None:
    chooser = random.Random(20_240_611)
    whole = encode(request(RequestCode.SEND_MESSAGE_V2, send_fields("noise"), b"body", opaque=1))
    with server.client() as witness:
        for turn in range(300):
            data = bytearray(whole if turn % 2 else chooser.randbytes(chooser.randrange(1, 400)))
            for _ in range(chooser.randrange(4) if turn % 2 else 0):
                data[chooser.randrange(len(data))] = chooser.randrange(256)
            with RawClient(server.port) as bad:
                log = LogOf(server, bad)
                bad.write(bytes(data))
                bad.socket.shutdown(1)
                while not bad.is_ended():
                    pass
            assert len(log.lines()) <= 1
            assert witness.call(RequestCode.GET_ALL_TOPIC_CONFIG).code == 0


def test_an_unknown_code_gets_the_protocols_answer_and_the_connection_lives(server: ServedProcess) -> None:
    with server.client() as client:
        for code in (0, 1, 9, 9_999, 32_767, 2**31 - 1, -1, -(2**31)):
            answer = client.call(code)
            assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
            assert str(code) in (answer.remark or "")
        assert client.call(RequestCode.GET_ALL_TOPIC_CONFIG).code == 0


def test_frames_that_never_end_hold_no_more_than_their_bytes(
    server: ServedProcess, figure: Callable[[str], None]
) -> None:
    """Slow writers: a large frame is promised on hundreds of connections and never finished."""
    before = server.rss_mb()
    with many_clients(server.port, 400) as slow, server.client() as witness:
        for client in slow:
            client.write(struct.pack(">iI", FRAME_BYTES_MAX - 4, 1_000) + b"{" * 4_000)
        for _ in range(5):
            for client in slow:
                client.write(b"x")
            assert witness.call(RequestCode.GET_ALL_TOPIC_CONFIG).code == 0
        grown = server.rss_mb() - before
        figure(f"400 unfinished frames of 16 MiB with 4 KB each: {grown:.1f} MB more resident")
        assert grown < 30
        assert not server.log_lines("hold ")


def test_frames_of_the_largest_size_are_bounded_together(server: ServedProcess, figure: Callable[[str], None]) -> None:
    """Connections with almost 16 MiB each: beyond the bound the connection that grows is cut."""
    before = server.rss_mb()
    worst = before
    cut = 0
    chunk = b"x" * (FRAME_BYTES_MAX - 200)
    with many_clients(server.port, 24) as clients, server.client() as witness:
        for client in clients:
            try:
                client.write(struct.pack(">iI", FRAME_BYTES_MAX - 4, 100) + chunk)
            except OSError:
                cut += 1
            worst = max(worst, server.rss_mb())
            assert witness.call(RequestCode.GET_ALL_TOPIC_CONFIG).code == 0
        until(lambda: len(server.log_lines("hold ")) >= 24 - HELD_BYTES_MAX // FRAME_BYTES_MAX - 1, what="a cut")
    bound = HELD_BYTES_MAX / 1e6 * 1.3
    figure(f"24 frames of 16 MiB at the same time: at most {worst - before:.0f} MB more resident, bound {bound:.0f} MB")
    assert worst - before < bound
    until(lambda: server.rss_mb() - before < 80, what="the memory being given back")


def test_whole_frames_of_the_largest_size_are_answered(server: ServedProcess) -> None:
    with server.client() as client:
        empty = encode(request(9_999, {"a": ""}, opaque=1))
        body = b"x" * (FRAME_BYTES_MAX - len(empty) - 20)
        for _ in range(4):
            assert client.call(9_999, {"a": ""}, body).code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
        # The largest header.
        long = {"a": "x" * (HEADER_BYTES_MAX - len(empty))}
        assert client.call(9_999, long).code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED


def test_the_line_of_a_bad_frame_is_one_line(server: ServedProcess) -> None:
    """What the sender wrote must not forge lines of the log."""
    with RawClient(server.port) as bad:
        log = LogOf(server, bad)
        bad.write(framed(b'{"code":"\\n2024 forged\\nline","language":"\n\nx"}'))
        assert bad.is_ended()
    log.has_one_warning()
    assert not [line for line in server.log().splitlines() if line.startswith(("2024 forged", "line"))]
