"""TLS of our broker beside RocketMQ's: CPU of a send from 16 connections, and of a handshake; both with one certificate.

usage: tls.py [--sends N] [--handshakes N] [--kinds orbitmq,java]; `make bench-tls`

Rules of this file
1. What is measured is CPU of the broker's process, which other work on the machine changes little; rates would be its.
2. Every broker is warmed up with as many sends and handshakes as are measured, for the compiler of Java.
"""

from __future__ import annotations

import argparse
import os
import socket
import ssl
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

import rigpath

# isort: split
from rig.brokers import BrokerUnderTest, JvmProfile, Kind
from rig.process import cpu_us
from rig.wire import frame

sys.path.insert(0, str(rigpath.REPOSITORY))

from tests.worlds.certificates import Authority

CONNECTIONS: Final = 16
BODY: Final = b"x" * 1_024
LIMIT_S: Final = 120.0
SEND: Final = 310
FIELDS: Final = {
    "a": "bench", "b": "tls", "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1", "h": "0",
    "i": "WAIT\x01true\x02", "j": "0", "k": "false", "m": "false",
}  # fmt: skip


def connected(port: int, tls: ssl.SSLContext | None) -> socket.socket:
    plain = socket.create_connection(("127.0.0.1", port), LIMIT_S)
    plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return plain if tls is None else tls.wrap_socket(plain, server_hostname="localhost")


def answer_code(line: socket.socket) -> str:
    """Read one whole answer; its head."""
    data = b""
    while len(data) < 4 or len(data) < 4 + int.from_bytes(data[:4], "big"):
        piece = line.recv(65_536)
        if not piece:
            raise ConnectionError("the broker ended the connection")
        data += piece
    return data[8:].decode(errors="replace")


def sends(port: int, tls: ssl.SSLContext | None, count: int) -> None:
    """From 16 connections, each with one send under way."""
    lines = [connected(port, tls) for _ in range(CONNECTIONS)]
    for number in range(count // CONNECTIONS):
        request = frame(SEND, FIELDS, number, BODY)
        for line in lines:
            line.sendall(request)
        for line in lines:
            head = answer_code(line)
            if '"code":0' not in head:
                raise RuntimeError(head)
    for line in lines:
        line.close()


def handshakes(port: int, tls: ssl.SSLContext, count: int) -> None:
    for _ in range(count):
        connected(port, tls).close()


def cost_us(pid: int, count: int, work: Callable[[int], None]) -> float:
    """CPU of the broker for one of them, in microseconds."""
    work(count)
    before = cpu_us(pid)
    work(count)
    return float(cpu_us(pid) - before) / count


def measure(kind: Kind, folder: Path, authority: Authority, send_count: int, handshake_count: int) -> dict[str, float]:
    folder.mkdir()
    pair, file = authority.issue("server"), folder / "tls.properties"
    file.write_text(f"tls.test.mode.enable=false\ntls.server.certPath={pair.cert}\ntls.server.keyPath={pair.key}\n")
    os.environ["JAVA_TOOL_OPTIONS"] = f"-Dtls.config.file={file}"
    settings = {"waitTimeMillsInSendQueue": "60000"}  # nobody is refused because the machine is busy
    if kind is Kind.ORBITMQ:
        settings["tls.config.file"] = str(file)
    trusting = ssl.create_default_context(cafile=str(authority.file))
    with BrokerUnderTest(kind, folder / "broker", settings=settings, profile=JvmProfile.MEASURE) as broker:
        port, pid = broker.broker_port, broker.pids()[-1]
        return {
            "plain send": cost_us(pid, send_count, lambda count: sends(port, None, count)),
            "TLS send": cost_us(pid, send_count, lambda count: sends(port, trusting, count)),
            "handshake": cost_us(pid, handshake_count, lambda count: handshakes(port, trusting, count)),
        }


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    words.add_argument("--sends", type=int, default=32_000)
    words.add_argument("--handshakes", type=int, default=2_000)
    words.add_argument("--kinds", default="orbitmq,java")
    given = words.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        authority = Authority(Path(folder))
        found = {
            name: measure(Kind(name), Path(folder) / name, authority, given.sends, given.handshakes)
            for name in given.kinds.split(",")
        }
    for name, costs in found.items():
        each = ", ".join(f"{what} {cost:.1f} us" for what, cost in costs.items())
        print(f"{name}: {each}; {1e6 / costs['handshake']:.0f} handshakes a second on one core")
    if len(found) == 2:
        ours, theirs = found.values()
        print("ours / theirs: " + ", ".join(f"{what} {ours[what] / theirs[what]:.2f}" for what in ours))


if __name__ == "__main__":
    main()
