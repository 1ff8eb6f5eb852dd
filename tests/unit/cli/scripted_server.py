"""What the tests of the command line share: the result of a command, and a server that answers from a script."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Mapping
from typing import NamedTuple

from orbitmq.protocol.remoting.codes import RequestCode
from orbitmq.protocol.remoting.connection import Connection
from orbitmq.protocol.remoting.frame import Command, encode, response

Answer = Callable[[Command], tuple[int, str | None, dict[str, str], bytes]]


class Ran(NamedTuple):
    """What one command did."""

    code: int
    out: str
    err: str


class ScriptedServer:
    """Answers each request by its code; a code without an answer gets "not supported". Keeps what it was asked."""

    def __init__(self) -> None:
        self.asked: list[Command] = []
        self.answers: dict[int, Answer] = {}
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def on(
        self,
        request_code: RequestCode,
        body: bytes = b"",
        *,
        code: int = 0,
        remark: str | None = None,
        fields: Mapping[str, str] | None = None,
    ) -> None:
        """Answer `request_code` always like this."""
        self.answers[request_code] = lambda command: (code, remark, dict(fields or {}), body)

    def fields_of(self, request_code: RequestCode) -> list[dict[str, str]]:
        """Ext fields of the requests with this code, in order."""
        return [dict(command.fields) for command in self.asked if command.code == request_code]

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                stream, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(stream,), daemon=True).start()

    def _serve(self, stream: socket.socket) -> None:
        frames = Connection()
        with stream:
            while True:
                try:
                    data = stream.recv(65_536)
                except OSError:
                    return
                if not data:
                    return
                for command in frames.receive_data(data):
                    self.asked.append(command)
                    if command.is_oneway:
                        continue
                    answer = self.answers.get(command.code)
                    code, remark, fields, body = answer(command) if answer else (3, "not supported", {}, b"")
                    stream.sendall(encode(response(command, code, remark, fields, body)))
