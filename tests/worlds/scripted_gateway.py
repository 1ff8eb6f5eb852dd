"""A server in the place of etcd's JSON gateway that answers as a test says: well, late, half, too much, or something else."""

from __future__ import annotations

import asyncio
import json
from base64 import b64encode
from collections.abc import Awaitable, Callable
from typing import Any

import h11

Reply = bytes | None
Answers = Callable[[str, Any], "Reply | Awaitable[Reply]"]
"""Path and body of a question -> bytes of an HTTP answer, whole or not, after which the connection is closed unless the answer is whole;
None: no answer at all, and the connection stays open."""


def http(body: bytes | str | Any, status: int = 200, headers: str = "", length: int | None = None) -> bytes:
    """An answer with that body (JSON of what is no text); `length`: what it says of its length."""
    data = body if isinstance(body, bytes) else (body if isinstance(body, str) else json.dumps(body)).encode()
    size = len(data) if length is None else length
    return f"HTTP/1.1 {status} Said\r\n{headers}Content-Length: {size}\r\n\r\n".encode() + data


def chunked(*lines: Any) -> bytes:
    """The beginning of a stream that does not end."""
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    pieces = [json.dumps(line).encode() + b"\n" for line in lines]
    return head + b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces)


def header(revision: int = 5, cluster: int = 77) -> dict[str, str]:
    return {"cluster_id": str(cluster), "member_id": "1", "revision": str(revision), "raft_term": "2"}


def pair(key: str, value: bytes, revision: int) -> dict[str, str]:
    return {
        "key": b64encode(key.encode()).decode(),
        "create_revision": "1",
        "mod_revision": str(revision),
        "version": "1",
        "value": b64encode(value).decode(),
    }


class ScriptedGateway:
    """`async with`; `asked` are the questions that came, in their order."""

    def __init__(self, answers: Answers) -> None:
        self.answers = answers
        self.asked: list[tuple[str, Any, str]] = []
        """Path, body, token."""
        self.connections = 0
        self._has_asked = asyncio.Event()

    async def __aenter__(self) -> ScriptedGateway:
        self._tasks: set[asyncio.Task[Any]] = set()
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def endpoint(self) -> str:
        return f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def until(self, enough: Callable[[], bool]) -> None:
        """Until that is true after a question."""
        while not enough():
            self._has_asked.clear()
            await self._has_asked.wait()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.connections += 1
        try:
            while await self._answer(reader, writer):
                pass
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.transport.abort()
            self._tasks.discard(task)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Whether the connection goes on."""
        http = h11.Connection(h11.SERVER)
        path, body, token = "", b"", ""
        while not isinstance(event := http.next_event(), h11.EndOfMessage):
            if event is h11.NEED_DATA:
                data = await reader.read(65_536)
                http.receive_data(data)
                if not data:
                    return False
            elif isinstance(event, h11.Request):
                path = event.target.decode()
                token = dict(event.headers).get(b"authorization", b"").decode()
            elif isinstance(event, h11.Data):
                body += event.data
            else:
                return False
        question = json.loads(body)
        self.asked.append((path, question, token))
        self._has_asked.set()
        said = self.answers(path, question)
        reply = await said if isinstance(said, Awaitable) else said
        if reply is None:
            await reader.read()
            return False
        writer.write(reply)
        await writer.drain()
        if b"chunked" in reply[:200]:
            if reply.endswith(b"\r\n0\r\n\r\n"):
                return True
            await reader.read()
            return False
        head, _, rest = reply.partition(b"\r\n\r\n")
        return b"Content-Length: %d\r\n" % len(rest) in head + b"\r\n"
