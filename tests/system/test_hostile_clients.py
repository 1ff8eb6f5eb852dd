"""Clients that behave: badly. A well-behaved one beside them sees normal answers, and memory stays bounded."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable

import pytest
from server_process import (
    ClosedByServer,
    RawClient,
    ServedProcess,
    many_clients,
    pull_fields,
    send_fields,
    until,
)

from orbitmq.limits.server import WRITE_BYTES_MAX
from orbitmq.protocol.batches import BatchItem, encode_batch
from orbitmq.protocol.remoting.commands import RequestCode, ResponseCode
from orbitmq.protocol.remoting.frame import encode, request

SEND, PULL = RequestCode.SEND_MESSAGE_V2, RequestCode.PULL_MESSAGE
Figure = Callable[[str], None]


@pytest.fixture(scope="module", autouse=True)
def topics(server: ServedProcess) -> None:
    server.create_topic("orders")
    server.create_topic("large")
    server.create_topic("empty", 8)
    with RawClient(server.port) as client:
        for _ in range(16):
            assert client.call(SEND, send_fields("large"), b"x" * 60_000).code == 0


def behaves(server: ServedProcess) -> float:
    """A normal exchange on a connection of its own; the seconds that it took."""
    began = time.monotonic()
    with RawClient(server.port) as client:
        sent = client.call(SEND, send_fields(), b"normal")
        assert sent.code == 0, sent.remark
        pulled = client.call(PULL, pull_fields(offset=int(sent.fields["queueOffset"])))
        assert pulled.code == 0, pulled.remark
        assert b"normal" in pulled.body
    return time.monotonic() - began


def test_a_client_that_never_reads_is_not_read_either(server: ServedProcess, figure: Figure) -> None:
    """Pulls of 256 KB each, ten thousand of them, and not one answer taken."""
    before = server.rss_mb()
    ask = encode(request(PULL, pull_fields("large", maxMsgNums=4, maxMsgBytes=300_000), opaque=1))
    clients = [RawClient(server.port, receive_buffer=8_192, limit_s=1) for _ in range(10)]
    written = 0
    for client in clients:
        client.socket.setblocking(False)
        try:
            for _ in range(1_000):
                written += client.socket.send(ask)
        except BlockingIOError:
            pass
    for _ in range(5):
        behaves(server)
    grown = server.rss_mb() - before
    figure(
        f"10 clients asking for {written // len(ask) * 0.24:.0f} MB and reading nothing: {grown:.1f} MB more resident"
    )
    assert grown < 10 * 2 + 20, "bounded by the high-water mark of each connection"
    for client in clients:
        client.reset()
    behaves(server)
    until(lambda: server.rss_mb() - before < 30, what="the memory being given back")


def test_sends_of_a_client_that_never_reads_are_stored_until_it_is_cut_off(server: ServedProcess) -> None:
    before = server.rss_mb()
    client = RawClient(server.port, receive_buffer=8_192)
    client.socket.setblocking(False)
    left = whole = encode(request(SEND, send_fields(), b"x" * 100, opaque=1)) * 200
    ends = time.monotonic() + 120
    blocked = 0
    while time.monotonic() < ends and blocked < 10:
        try:
            left = left[client.socket.send(left) :] or whole
            blocked = 0
        except BlockingIOError:
            blocked += 1
            time.sleep(0.05)
            behaves(server)
    assert blocked == 10, "the server goes on reading from someone who takes no answers"
    assert server.rss_mb() - before < 2 * WRITE_BYTES_MAX / 1e6
    client.reset()
    behaves(server)


def test_five_thousand_connections(server: ServedProcess, figure: Figure) -> None:
    before = server.rss_mb()
    with many_clients(server.port, 5_000) as clients:
        took = behaves(server)
        for client in clients[::50]:
            assert client.call(RequestCode.GET_MAX_OFFSET, {"topic": "orders", "queueId": "0"}).code == 0
        grown = server.rss_mb() - before
        figure(
            f"{len(clients)} of 5000 connections: {grown:.1f} MB more resident ({grown * 1024 / len(clients):.1f} KB each), "
            f"a send and a pull beside them {took * 1000:.1f} ms"
        )
        assert grown < 60
    until(lambda: behaves(server) < 5)


def test_twenty_thousand_held_pulls(server: ServedProcess, figure: Figure) -> None:
    before = server.rss_mb()
    with many_clients(server.port, 200) as clients:
        for index, client in enumerate(clients):
            client.write(
                b"".join(
                    encode(
                        request(
                            PULL,
                            pull_fields("empty", index % 8, sysFlag=6, suspendTimeoutMillis=60_000),
                            opaque=number + 1,
                        )
                    )
                    for number in range(100)
                )
            )
        until(lambda: int(server.runtime()["pullThreadPoolQueueSize"]) == 100 * len(clients), what="all pulls held")
        grown = server.rss_mb() - before
        took = behaves(server)
        figure(
            f"{100 * len(clients)} held pulls: {grown:.1f} MB more resident, a send beside them {took * 1000:.1f} ms"
        )
        assert grown < 60
        with RawClient(server.port) as sender:
            began = time.monotonic()
            assert sender.call(SEND, send_fields("empty", e=3), b"wakes 2500").code == 0
            for client in clients[3::8]:
                for _ in range(100):
                    answer = client.read()
                    assert answer.code == 0
                    assert b"wakes 2500" in answer.body
            figure(
                f"one message wakes {100 * len(clients[3::8])} held pulls: {(time.monotonic() - began) * 1000:.0f} ms"
            )
    until(lambda: int(server.runtime()["pullThreadPoolQueueSize"]) == 0, 40, "the pulls being forgotten")


def test_held_pulls_on_one_queue_are_bounded(server: ServedProcess) -> None:
    with RawClient(server.port) as client:
        for number in range(5_000):
            client.write(
                encode(request(PULL, pull_fields("empty", 7, sysFlag=6, suspendTimeoutMillis=2**62), opaque=number + 1))
            )
        answered = [client.read() for _ in range(5_000 - 4_096)]
        assert {answer.code for answer in answered} == {ResponseCode.PULL_NOT_FOUND}
        assert server.runtime()["pullThreadPoolQueueSize"] == "4096"
        behaves(server)


def test_a_heartbeat_with_thousands_of_groups(server: ServedProcess, figure: Figure) -> None:
    before = server.rss_mb()
    beat = {
        "clientID": "hostile@1",
        "consumerDataSet": [
            {
                "groupName": f"group-{number}", "consumeType": "CONSUME_PASSIVELY", "messageModel": "CLUSTERING",
                "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET", "unitMode": False,
                "subscriptionDataSet": [
                    {"topic": f"t{topic}", "subString": "*", "subVersion": 1, "tagsSet": [], "codeSet": []}
                    for topic in range(3)
                ],
            }
            for number in range(6_000)
        ],
        "producerDataSet": [{"groupName": f"producer-{number}"} for number in range(6_000)],
    }  # fmt: skip
    with RawClient(server.port) as client:
        began = time.monotonic()
        answer = client.call(RequestCode.HEART_BEAT, None, json.dumps(beat).encode())
        took = time.monotonic() - began
        assert answer.code in (ResponseCode.SYSTEM_ERROR, ResponseCode.SUCCESS, ResponseCode.INVALID_PARAMETER)
        if answer.code:
            assert "2048" in (answer.remark or ""), answer.remark
        behaves(server)
        figure(f"heartbeat with 12000 groups: code {answer.code}, {took * 1000:.0f} ms")
    assert server.rss_mb() - before < 60
    behaves(server)


def test_a_oneway_flood_gets_no_answer_and_is_stored(server: ServedProcess) -> None:
    with RawClient(server.port) as client:
        first = int(client.call(RequestCode.GET_MAX_OFFSET, {"topic": "orders", "queueId": "0"}).fields["offset"])
        client.write(b"".join(encode(request(SEND, send_fields(), b"oneway", oneway=True)) for _ in range(3_000)))
        answer = client.call(RequestCode.GET_MAX_OFFSET, {"topic": "orders", "queueId": "0"})
        assert answer.opaque == 2, "the next answer is that of the next request"
    with RawClient(server.port) as client:
        until(
            lambda: (
                int(client.call(RequestCode.GET_MAX_OFFSET, {"topic": "orders", "queueId": "0"}).fields["offset"])
                - first
                == 3_000
            ),
            what="every oneway message stored",
        )


def test_who_says_farewell_gets_the_answers_that_are_ready(server: ServedProcess) -> None:
    for count in (1, 10, 500):
        with RawClient(server.port) as client:
            client.write(
                b"".join(encode(request(SEND, send_fields(), b"last words", opaque=n + 1)) for n in range(count))
            )
            client.socket.shutdown(socket.SHUT_WR)
            assert [client.read().code for _ in range(count)] == [0] * count
            assert client.is_ended()
    behaves(server)


def test_messages_of_a_sender_that_is_gone_at_once_are_stored(server: ServedProcess) -> None:
    with RawClient(server.port) as client:
        ask = (RequestCode.GET_MAX_OFFSET, {"topic": "orders", "queueId": "0"})
        first = int(client.call(*ask).fields["offset"])
        with RawClient(server.port) as gone:
            gone.write(b"".join(encode(request(SEND, send_fields(), b"oneway", oneway=True)) for _ in range(1_000)))
        until(lambda: int(client.call(*ask).fields["offset"]) - first == 1_000, what="all of them stored")


def test_connections_that_are_reset_in_the_middle_of_an_answer(server: ServedProcess) -> None:
    ask = encode(request(PULL, pull_fields("large", maxMsgNums=4, maxMsgBytes=300_000), opaque=1))
    for turn in range(60):
        client = RawClient(server.port, receive_buffer=8_192)
        client.write(ask * 8)
        if turn % 3:
            client.socket.recv(1_000)
        client.reset()
    behaves(server)
    assert "Traceback" not in server.log()


def test_connecting_and_leaving_in_a_hurry(server: ServedProcess) -> None:
    for turn in range(500):
        client = RawClient(server.port)
        if turn % 2:
            client.reset()
        else:
            client.close()
    behaves(server)
    assert "Traceback" not in server.log()


def test_a_batch_of_many_tiny_messages_does_not_stop_the_others(server: ServedProcess, figure: Figure) -> None:
    body = encode_batch([BatchItem(0, b"x", b"")]) * 32_000
    waits: list[float] = []
    done = threading.Event()

    def look() -> None:
        while not done.is_set():
            waits.append(behaves(server))

    watcher = threading.Thread(target=look)
    watcher.start()
    with RawClient(server.port) as client:
        began = time.monotonic()
        answer = client.call(RequestCode.SEND_BATCH_MESSAGE, send_fields(m="true"), body)
        took = time.monotonic() - began
    done.set()
    watcher.join()
    assert answer.code == 0, answer.remark
    assert answer.fields["msgId"].count(",") == 31_999
    figure(
        f"batch of 32,000 messages: {took * 1000:.0f} ms, a send and a pull beside it at most {max(waits) * 1000:.0f} ms"
    )


def test_a_pull_with_a_stale_offset_is_sent_on(server: ServedProcess) -> None:
    with RawClient(server.port) as client:
        answer = client.call(PULL, pull_fields(offset=10**9, sysFlag=6, suspendTimeoutMillis=30_000))
        assert answer.code == ResponseCode.PULL_OFFSET_MOVED
        assert client.call(PULL, pull_fields(offset=int(answer.fields["nextBeginOffset"]))).code in (0, 19)


def test_more_connections_than_descriptors(serve: Callable[..., ServedProcess], figure: Figure) -> None:
    """A server with few descriptors refuses connections; it never lacks one for its own files."""
    server = serve(shell_limits="ulimit -n 256")
    server.create_topic("orders")
    with server.client() as witness, many_clients(server.port, 400) as crowd:
        ended = 0
        for client in crowd:
            client.socket.settimeout(2)
            try:
                client.call(RequestCode.GET_MAX_OFFSET, {"topic": "orders", "queueId": "0"})
            except (ClosedByServer, OSError):
                ended += 1
        figure(f"ulimit -n 256: {len(crowd) - ended} of {len(crowd)} connections served")
        assert 0 < ended < len(crowd)
        for number in range(12):  # new topics need new files
            topic = f"topic-{number}"
            sent = witness.call(SEND, send_fields(topic), b"x")
            assert sent.code == 0, sent.remark

    def is_served() -> bool:
        try:
            return behaves(server) >= 0
        except (ClosedByServer, OSError):
            return False

    until(is_served, what="room after the crowd has left")
    assert server.log_lines("connections are open")
    server.stop()
