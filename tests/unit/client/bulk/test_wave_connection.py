"""A blocking connection against a server that answers as it likes."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.worlds.certificates import Authority

from orbitmq.client.bulk.wave_connection import WaveConnection
from orbitmq.errors import ConnectionLostError, FrameError, RequestTimeoutError
from orbitmq.protocol.remoting.connection import Connection
from orbitmq.protocol.remoting.frame import Command, encode, request, response
from orbitmq.protocol.signing import Credentials

Serve = Callable[[socket.socket, list[Command]], None]


@pytest.fixture
def serving() -> Iterator[Callable[[int, Serve], str]]:
    """`serving(n, answer)`: the address of a server that calls `answer` once, with the first n requests."""
    listener = socket.create_server(("127.0.0.1", 0))
    threads: list[threading.Thread] = []

    def serve(count: int, answer: Serve) -> str:
        def run() -> None:
            peer, _ = listener.accept()
            with peer:
                connection, commands = Connection(), list[Command]()
                while len(commands) < count:
                    commands += connection.receive_data(peer.recv(65_536))
                answer(peer, commands)

        threads.append(threading.Thread(target=run, daemon=True))
        threads[-1].start()
        return f"127.0.0.1:{listener.getsockname()[1]}"

    yield serve
    listener.close()
    for thread in threads:
        thread.join(10)


def asks(count: int) -> list[Command]:
    return [request(34, {"n": str(number)}) for number in range(count)]


def test_answers_come_back_in_the_order_of_the_requests(serving: Callable[[int, Serve], str]) -> None:
    def backwards(peer: socket.socket, commands: list[Command]) -> None:
        peer.sendall(encode(request(40, {})))  # the server asks something itself
        for command in reversed(commands):
            peer.sendall(encode(response(command, 0, None, {}, command.fields["n"].encode() * 3)))

    line = WaveConnection(serving(50, backwards), 5_000)
    assert [bytes(answer.body) for answer in line.exchange(asks(50))] == [str(n).encode() * 3 for n in range(50)]
    assert not line.closed


def test_a_server_that_hangs_up_ends_the_line(serving: Callable[[int, Serve], str]) -> None:
    line = WaveConnection(serving(1, lambda peer, commands: None), 5_000)
    with pytest.raises(ConnectionLostError, match="closed by the server"):
        line.exchange(asks(1))
    assert line.closed
    with pytest.raises(ConnectionLostError, match="is closed"):
        line.exchange(asks(1))


def test_a_silent_server_ends_the_line(serving: Callable[[int, Serve], str]) -> None:
    done = threading.Event()
    line = WaveConnection(serving(1, lambda peer, commands: done.wait(10) and None), 20)
    with pytest.raises(RequestTimeoutError, match="within 20 ms"):
        line.exchange(asks(1))
    done.set()
    assert line.closed


def test_what_is_no_frame_ends_the_line(serving: Callable[[int, Serve], str]) -> None:
    line = WaveConnection(serving(1, lambda peer, commands: peer.sendall(b"HTTP/1.1 400 Bad Request\r\n")), 5_000)
    with pytest.raises(FrameError):
        line.exchange(asks(1))
    assert line.closed


def test_nobody_there() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
    with pytest.raises(ConnectionLostError, match=address) as caught:
        WaveConnection(address, 1_000)
    assert not caught.value.request_sent


def test_a_body_larger_than_the_buffers_leaves_whole(serving: Callable[[int, Serve], str]) -> None:
    """The server gets what was in the body, and the number that finds its answer."""
    body = bytes(range(256)) * 40_000

    def measure(peer: socket.socket, commands: list[Command]) -> None:
        for command in commands:
            peer.sendall(encode(response(command, 0, None, {}, b"same" if command.body == body else b"other")))

    line = WaveConnection(serving(2, measure), 5_000)
    opaques = [line.send_one(request(34, {}, memoryview(body))) for _ in range(2)]
    found = {}
    while len(found) < 2:
        found |= {answer.command.opaque: line.buffer.body(answer) for answer in line.receive()}
    assert found == dict.fromkeys(opaques, b"same")
    line.close()
    with pytest.raises(ConnectionLostError, match="is closed"):
        line.send_one(request(34, {}))


def test_what_arrived_is_known_without_waiting(serving: Callable[[int, Serve], str]) -> None:
    told, looked = threading.Event(), threading.Event()

    def when_told(peer: socket.socket, commands: list[Command]) -> None:
        told.wait(10)
        peer.sendall(encode(response(commands[0], 0, None, {})))
        looked.wait(10)

    line = WaveConnection(serving(1, when_told), 5_000)
    line.send_one(request(34, {}))
    assert not line.has_arrived()
    told.set()
    line.receive()
    assert not line.has_arrived()
    looked.set()
    with pytest.raises(ConnectionLostError):
        line.receive()


def test_commands_are_signed(serving: Callable[[int, Serve], str]) -> None:
    seen: list[Command] = []

    def answer(peer: socket.socket, commands: list[Command]) -> None:
        seen.extend(commands)
        for command in commands:
            peer.sendall(encode(response(command, 0, None, {})))

    signer = Credentials("ops", "hush")
    line = WaveConnection(serving(3, answer), 5_000, credentials=signer)
    line.send_one(request(10, {"a": "1"}, b"body"))
    line.exchange([request(34, {"n": "1"}), request(34, {"n": "2"})])
    bodies = [(command.fields, bytes(command.body)) for command in seen]
    assert bodies == [
        (signer.signed({"a": "1"}, b"body"), b"body"),
        *((signer.signed({"n": n}), b"") for n in ("1", "2")),
    ]


def test_a_line_over_tls_carries_more_than_a_record(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    pair = authority.issue("server")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair.cert, pair.key)
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with context.wrap_socket(listener.accept()[0], server_side=True) as peer:
            connection, commands = Connection(), list[Command]()
            while len(commands) < 3:
                commands += connection.receive_data(peer.recv(65_536))
            for command in commands:
                peer.sendall(encode(response(command, 0, None, {}, command.body * 2)))
            peer.recv(1)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    trusting = ssl.create_default_context(cafile=str(authority.file))
    line = WaveConnection(f"127.0.0.1:{listener.getsockname()[1]}", 30_000, trusting)
    wanted = [bytes([65 + number]) * 50_000 for number in range(3)]
    answers = line.exchange([request(34, {}, body) for body in wanted])
    assert [bytes(answer.body) for answer in answers] == [body * 2 for body in wanted]
    line.close()
    thread.join(30)
    listener.close()


def test_a_certificate_that_nobody_vouches_for_is_refused(tmp_path: Path) -> None:
    pair = Authority(tmp_path).issue("server")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair.cert, pair.key)
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            with contextlib.suppress(OSError):
                context.wrap_socket(listener.accept()[0], server_side=True)

        threading.Thread(target=serve, daemon=True).start()
        with pytest.raises(ConnectionLostError, match="its certificate is refused"):
            WaveConnection(f"127.0.0.1:{listener.getsockname()[1]}", 30_000, ssl.create_default_context())
