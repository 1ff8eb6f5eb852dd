"""A name server and broker on one port with one queue, which answers pulls as a test tells it.

Rules of this file
1. Unless told otherwise it answers as a broker does that gives `cap` messages for a pull.
2. What it is told holds for the pull whose number it stands under, counted over all connections from 0.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Mapping
from typing import Self

from orbitmq.protocol.checksum import body_crc
from orbitmq.protocol.records import MagicCode, Record, encode_record
from orbitmq.protocol.remoting.bodies import BrokerData, MessageQueue, QueueData, TopicRouteData
from orbitmq.protocol.remoting.codes import RequestCode
from orbitmq.protocol.remoting.connection import Connection
from orbitmq.protocol.remoting.frame import Command, encode, response

QUEUE = MessageQueue("orders", "broker-a", 0)

Behave = Callable[["ScriptedBroker", Command], Command | None]
"""The answer to one pull; None closes the connection."""


def record(offset: int, *, tag: str = "") -> bytes:
    """The stored message `offset` of the queue."""
    body = b"%d" % offset + b"." * (offset % 50)
    properties = f"TAGS\x01{tag}\x02".encode() if tag else b""
    return encode_record(
        Record(
            MagicCode.V1,
            body_crc(body),
            0,
            0,
            offset,
            offset * 1_000,
            0,
            1_700_000_000_000,
            b"\x7f\0\0\x01\0\0\0\1",
            1_700_000_000_000,
            b"\x7f\0\0\x01\0\0\0\1",
            0,
            0,
            body,
            QUEUE.topic,
            properties,
        )
    )


class ScriptedBroker:
    def __init__(self, count: int, *, low: int = 0, cap: int = 32, told: Mapping[int, Behave] | None = None) -> None:
        self.low, self.high, self.cap = low, count, cap
        self.told = dict(told or {})
        self.backwards = False
        self.tags: Mapping[int, str] = {}
        self.pulls = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._peers: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()
        for peer in self._peers:
            peer.close()

    def found(self, command: Command, offsets: range | list[int], following: int) -> Command:
        body = b"".join(record(offset, tag=self.tags.get(offset, "")) for offset in offsets)
        return self.answer(command, 0, following, body)

    def answer(self, command: Command, code: int, following: int, body: bytes = b"", **more: str) -> Command:
        fields = {
            "nextBeginOffset": str(following),
            "minOffset": str(self.low),
            "maxOffset": str(self.high),
            "suggestWhichBrokerId": "0",
            **more,
        }
        return response(command, code, None, fields, body)

    def ordinary(self, command: Command) -> Command:
        begin, count = command.integer("queueOffset"), command.integer("maxMsgNums")
        if begin < self.low or begin > self.high:
            return self.answer(command, 21, self.low if begin < self.low else self.high)
        if begin == self.high:
            return self.answer(command, 19, begin)
        end = min(begin + min(count, self.cap), self.high)
        return self.found(command, range(begin, end), end)

    # --- inside

    def _accept(self) -> None:
        while True:
            try:
                peer, _ = self._listener.accept()
            except OSError:
                return
            self._peers.append(peer)
            threading.Thread(target=self._serve, args=(peer,), daemon=True).start()

    def _serve(self, peer: socket.socket) -> None:
        connection = Connection()
        try:
            while data := peer.recv(1 << 20):
                answers = [self._answered(command) for command in connection.receive_data(data)]
                if None in answers:
                    return
                for answer in reversed(answers) if self.backwards else answers:
                    assert answer is not None
                    peer.sendall(encode(answer))
        except OSError:
            return
        finally:
            peer.close()

    def _answered(self, command: Command) -> Command | None:
        if command.code == RequestCode.GET_ROUTEINFO_BY_TOPIC:
            route = TopicRouteData(
                queue_datas=[QueueData(broker_name="broker-a", read_queue_nums=1, write_queue_nums=1, perm=6)],
                broker_datas=[BrokerData(broker_name="broker-a", broker_addrs={0: self.address}, cluster="c")],
            )
            return response(command, 0, None, {}, route.encode())
        number, self.pulls = self.pulls, self.pulls + 1
        behave = self.told.get(number)
        return self.ordinary(command) if behave is None else behave(self, command)
