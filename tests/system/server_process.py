"""A real `orbitmq serve` for system tests, raw connections to it, and what /proc says about it.

Rules of this file
1. Every server has its own directory and free ports; its log goes to a file, so nothing blocks on a full pipe.
2. Only processes started here are signalled, by their id. `stop` asserts the orderly end.
3. Clients are plain blocking sockets with a time limit: what a test sees is what is on the wire.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from tests.worlds.listening_ports import ports_in_a_row

from orbitmq.protocol.properties import encode_properties
from orbitmq.protocol.remoting.bodies import TopicConfig
from orbitmq.protocol.remoting.commands import RequestCode, ResponseCode
from orbitmq.protocol.remoting.frame import Command, decode, encode, request

STOP_LIMIT_S: Final = 120.0
ANSWER_LIMIT_S: Final = 60.0


class ClosedByServer(Exception):
    """The server ended the connection."""


class RawClient:
    """One blocking connection."""

    def __init__(
        self, port: int, *, receive_buffer: int | None = None, limit_s: float = ANSWER_LIMIT_S, source: str = ""
    ) -> None:
        """source: the address that it comes from."""
        self.socket = socket.socket()
        if source:
            self.socket.bind((source, 0))
        if receive_buffer is not None:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.socket.settimeout(limit_s)
        self.socket.connect(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._buffer = bytearray()
        self._opaque = 0

    @property
    def own_port(self) -> int:
        return int(self.socket.getsockname()[1])

    def __enter__(self) -> RawClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.socket.close()

    def reset(self) -> None:
        """Close with RST instead of a farewell."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()

    def write(self, data: bytes) -> None:
        self.socket.sendall(data)

    def read(self) -> Command:
        """The next command; ClosedByServer at the end of the stream."""
        while True:
            if len(self._buffer) >= 4:
                end = 4 + int.from_bytes(self._buffer[:4], "big")
                if len(self._buffer) >= end:
                    frame = bytes(self._buffer[:end])
                    del self._buffer[:end]
                    return decode(frame)
            self._more()

    def _more(self) -> None:
        try:
            data = self.socket.recv(1 << 18)
        except ConnectionResetError:
            data = b""
        if not data:
            raise ClosedByServer(f"with {len(self._buffer)} bytes of an answer")
        self._buffer += data

    def next_opaque(self) -> int:
        self._opaque += 1
        return self._opaque

    def call(
        self, code: int, fields: Mapping[str, str] | None = None, body: bytes = b"", *, remark: str | None = None
    ) -> Command:
        """Send a request and wait for its answer; commands of the server that come before are dropped."""
        command = request(code, None if fields is None else dict(fields), body, opaque=self.next_opaque())
        command.remark = remark
        self.write(encode(command))
        while True:
            answer = self.read()
            if answer.is_response and answer.opaque == command.opaque:
                return answer

    def is_ended(self) -> bool:
        """Whether the server closes the connection now, without a further command. TimeoutError when it does not."""
        try:
            self.read()
        except ClosedByServer:
            return True
        return False


def send_fields(
    topic: str = "orders", properties: Mapping[str, str] | str | None = None, **more: object
) -> dict[str, str]:
    """Header of a SEND_MESSAGE_V2 for queue 0. `more` are letters of the short form."""
    if properties is None:
        properties = {"UNIQ_KEY": f"{random.getrandbits(128):032X}"}
    text = properties if isinstance(properties, str) else encode_properties(dict(properties)).decode()
    fields: dict[str, object] = {
        "a": "system-tests", "b": topic, "c": "TBW102", "d": 4, "e": 0, "f": 0, "g": int(time.time() * 1000), "h": 0,
        "i": text, "j": 0, "k": "false", "m": "false",
    }  # fmt: skip
    fields.update(more)
    return {name: str(value) for name, value in fields.items() if value is not None}


def pull_fields(topic: str = "orders", queue_id: int = 0, offset: int = 0, **more: object) -> dict[str, str]:
    """Header of a PULL_MESSAGE that brings its own subscription and does not wait."""
    fields: dict[str, object] = {
        "consumerGroup": "readers", "topic": topic, "queueId": queue_id, "queueOffset": offset, "maxMsgNums": 32,
        "sysFlag": 4, "commitOffset": 0, "suspendTimeoutMillis": 0, "subscription": "*", "subVersion": 0,
        "expressionType": "TAG",
    }  # fmt: skip
    fields.update(more)
    return {name: str(value) for name, value in fields.items() if value is not None}


class ServedProcess:
    """One `orbitmq serve` (or `broker`, `nameserver`) and its figures."""

    def __init__(
        self,
        directory: Path,
        *,
        command: str = "serve",
        options: Sequence[object] = (),
        settings: Mapping[str, object] | None = None,
        ports: tuple[int, int] | None = None,
        shell_limits: str = "",
        awaited: bool = True,
        default_http_port: bool = False,
        program: Sequence[str] = ("-m", "orbitmq.cli.main"),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """`shell_limits` is run by a shell before the server, for example `ulimit -f 2048`. program: what Python runs.
        environment: what is added to this process's."""
        self.directory = directory
        self.data = directory / "data"
        self.log_path = directory / "log"
        self.name_port, self.port = ports or free_ports()
        arguments: list[object] = [sys.executable, *program, command, "--data", self.data]
        if command != "nameserver":
            arguments += ["--broker-port", self.port]
        if command != "broker":
            arguments += ["--nameserver-port", self.name_port]
        arguments += options
        free = {} if default_http_port else {"metricsPromExporterPort": 0}
        if command != "nameserver":
            free["grpcServerPort"] = 0
        for key, value in {**free, **(settings or {})}.items():
            arguments += ["--set", f"{key}={value}"]
        if shell_limits:
            arguments = ["/bin/sh", "-c", f'{shell_limits}; exec "$@"', "sh", *arguments]
        directory.mkdir(parents=True, exist_ok=True)
        self.began = time.monotonic()
        with self.log_path.open("ab") as log:
            self._popen = subprocess.Popen(
                [str(word) for word in arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                env=clean_environment() | dict(environment or {}),
                start_new_session=True,
            )
        self.line = ""
        self.start_s = 0.0
        self._clients: list[RawClient] = []
        if awaited:
            self.await_line()

    def await_line(self) -> None:
        """Wait for the one line on standard output."""
        assert self._popen.stdout is not None
        self.line = self._popen.stdout.readline().decode()
        self.start_s = time.monotonic() - self.began
        if self.line.startswith("{"):  # a log in JSON
            self.line = json.loads(self.line)["message"]
        assert self.line.startswith("orbitmq serves "), f"{self.line!r}\n{self.log()}"

    # --- connections ----------------------------------------------------------------------------------------------

    @property
    def http_port(self) -> int:
        """The port of metrics and health, from the line."""
        return self._port_of("http")

    @property
    def grpc_port(self) -> int:
        """The port for clients of RocketMQ 5, from the line."""
        return self._port_of("grpc")

    def _port_of(self, name: str) -> int:
        return int(self.line.partition(f" {name} ")[2].partition(",")[0].strip().rpartition(":")[2])

    def client(self, port: int | None = None, **options: object) -> RawClient:
        """A connection that is closed with the server at the latest."""
        client = RawClient(self.port if port is None else port, **options)  # type: ignore[arg-type]
        self._clients.append(client)
        return client

    def create_topic(self, topic: str, queues: int = 1) -> None:
        fields = {
            "topic": topic, "defaultTopic": "TBW102", "readQueueNums": str(queues), "writeQueueNums": str(queues),
            "perm": "6", "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false",
        }  # fmt: skip
        with RawClient(self.port) as client:
            answer = client.call(RequestCode.UPDATE_AND_CREATE_TOPIC, fields)
        assert answer.code == ResponseCode.SUCCESS, answer.remark

    def runtime(self) -> dict[str, str]:
        """The broker's runtime information."""
        with RawClient(self.port) as client:
            answer = client.call(RequestCode.GET_BROKER_RUNTIME_INFO)
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        table: dict[str, str] = json.loads(bytes(answer.body))["table"]
        return table

    def topic(self, name: str) -> TopicConfig | None:
        with RawClient(self.port) as client:
            answer = client.call(RequestCode.GET_TOPIC_CONFIG, {"topic": name})
        if answer.code == ResponseCode.TOPIC_NOT_EXIST:
            return None
        return TopicConfig.decode(bytes(answer.body))

    # --- figures --------------------------------------------------------------------------------------------------

    @property
    def pid(self) -> int:
        return self._popen.pid

    @property
    def running(self) -> bool:
        return self._popen.poll() is None

    def log(self) -> str:
        return self.log_path.read_text(errors="replace")

    def log_lines(self, containing: str) -> list[str]:
        return [line for line in self.log().splitlines() if containing in line]

    def rss_mb(self) -> float:
        """Resident memory without mapped files, which are the page cache's."""
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith("RssAnon"):
                return int(line.split()[1]) / 1024
        raise AssertionError("no RssAnon in /proc")

    def cpu_s(self) -> float:
        """CPU time of the whole process, in steps of 10 ms."""
        stat = Path(f"/proc/{self.pid}/stat").read_bytes().rsplit(b")", 1)[1].split()
        return (int(stat[11]) + int(stat[12])) / os.sysconf("SC_CLK_TCK")

    # --- ending ---------------------------------------------------------------------------------------------------

    def exit_code(self, limit_s: float = STOP_LIMIT_S) -> int:
        """The exit code of a process that ends by itself."""
        return self._popen.wait(limit_s)

    def send_signal(self, number: int) -> None:
        self._popen.send_signal(number)

    def stop(self, number: int = signal.SIGTERM, codes: Sequence[int] = (0,)) -> float:
        """An orderly stop; asserts exit code 0 and that nothing failed. Returns the seconds it took."""
        began = time.monotonic()
        self.send_signal(number)
        code = self.exit_code()
        self._let_go()
        assert code in codes, f"exit code {code}\n{self.log()[-3000:]}"
        assert "Traceback" not in self.log(), self.log()[-3000:]
        return time.monotonic() - began

    def kill(self) -> None:
        if self.running:
            self._popen.kill()
            self._popen.wait()
        self._let_go()

    def _let_go(self) -> None:
        for client in self._clients:
            client.close()
        self._clients.clear()
        if self._popen.stdout is not None:
            self._popen.stdout.close()


def clean_environment() -> dict[str, str]:
    """Without variables that are settings of the server."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("ORBITMQ_", "NAMESRV_"))}


def free_ports() -> tuple[int, int]:
    """(name server port, broker port), with the broker's second port (two below) free as well."""
    name_port, _, _, port = ports_in_a_row(4)
    return name_port, port


def until(condition: Callable[[], bool], limit_s: float = 120, what: str = "the condition") -> None:
    """Wait for something that happens in another process."""
    ends = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() > ends:
            raise AssertionError(f"{what} did not come true within {limit_s} s")
        time.sleep(0.02)


@contextlib.contextmanager
def many_clients(port: int, count: int) -> Iterator[list[RawClient]]:
    """As many connections as wanted and possible; fewer when this process runs out of descriptors."""
    clients: list[RawClient] = []
    try:
        for _ in range(count):
            try:
                clients.append(RawClient(port))
            except OSError:
                break
        yield clients
    finally:
        for client in clients:
            client.close()
