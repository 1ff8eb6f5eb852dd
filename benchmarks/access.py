"""What it costs a broker to know its callers, beside RocketMQ's: CPU of a send that anybody may make, of one that is signed and allowed
by a policy, of one over TLS, and of a handshake.

usage: access.py [--sends N] [--handshakes N] [--kinds orbitmq,java]; `make bench-access`

Rules of this file
1. What is measured is CPU of the broker's process, which other work on the machine changes little; rates would be its.
2. Every broker is warmed up with twice as many sends and handshakes as are measured, for the compiler of Java.
3. Sends come from 16 connections with one under way each. Every signed one is signed anew, as the Java client does it, by a user who may
   publish what begins with a few letters and nothing else. RocketMQ checks each of them too (its stateless strategies).
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import ssl
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import rigpath

# isort: split
from rig.brokers import BrokerUnderTest, JvmProfile, Kind, known_callers
from rig.process import cpu_us
from rig.wire import Wire, frame, signed

sys.path.insert(0, str(rigpath.REPOSITORY))

from tests.worlds.certificates import Authority

CONNECTIONS: Final = 16
BODY: Final = b"x" * 1_024
LIMIT_S: Final = 120.0
WARM_UPS: Final = 2
SEND: Final = 310
FIELDS: Final = {
    "a": "bench", "b": "bench-topic", "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1", "h": "0",
    "i": "WAIT\x01true\x02", "j": "0", "k": "false", "m": "false",
}  # fmt: skip


NO_PERMISSION: Final = 16
CREATE_USER: Final = 3001
CREATE_ACL: Final = 3006
ROOT, ROOT_SECRET = "root-user", "secret-of-root"
APP, APP_SECRET = "app-user", "secret-of-app"
_AUTH: Final = "org.apache.rocketmq.auth"
GUARDED: Final = known_callers(ROOT, ROOT_SECRET) | {
    "authenticationStrategy": f"{_AUTH}.authentication.strategy.StatelessAuthenticationStrategy",
    "authorizationStrategy": f"{_AUTH}.authorization.strategy.StatelessAuthorizationStrategy",
}
NEVER_BUSY: Final = {"waitTimeMillsInSendQueue": "60000"}
"""Nobody is refused because the machine is busy."""


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


def sends(port: int, count: int, *, tls: ssl.SSLContext | None = None, is_signed: bool = False) -> None:
    """From 16 connections, each with one send under way."""
    lines = [connected(port, tls) for _ in range(CONNECTIONS)]
    for number in range(count // CONNECTIONS):
        fields = {**FIELDS, "g": str(number)}
        request = frame(SEND, signed(fields, BODY, APP, APP_SECRET) if is_signed else fields, number, BODY)
        for line in lines:
            line.sendall(request)
        for line in lines:
            head = answer_code(line)
            if '"code":0' not in head:
                raise RuntimeError(head)
    for line in lines:
        line.close()


def let_in(wire: Wire) -> None:
    """Create the user who sends, by the one of the settings; nobody else may."""

    def ask(code: int, name: str, value: str, body: Mapping[str, object]) -> None:
        data = json.dumps(body).encode()
        wire.call(code, signed({name: value}, data, ROOT, ROOT_SECRET), data)

    ask(CREATE_USER, "username", APP, {"username": APP, "password": APP_SECRET, "userType": "Normal"})
    entry = {"resource": "Topic:bench*", "actions": ["Pub", "Sub"], "decision": "Allow"}
    policies = [{"policyType": "Custom", "entries": [entry]}]
    ask(CREATE_ACL, "subject", f"User:{APP}", {"subject": f"User:{APP}", "policies": policies})
    head, _ = wire.ask(SEND, FIELDS, BODY)
    if head["code"] != NO_PERMISSION:
        raise RuntimeError(f"a send that is not signed is answered {head}")


def handshakes(port: int, tls: ssl.SSLContext, count: int) -> None:
    for _ in range(count):
        connected(port, tls).close()


def cost_us(pid: int, count: int, work: Callable[[int], None]) -> float:
    """CPU of the broker for one of them, in microseconds."""
    for _ in range(WARM_UPS):
        work(count)
    before = cpu_us(pid)
    work(count)
    return float(cpu_us(pid) - before) / count


def measure(kind: Kind, folder: Path, authority: Authority, send_count: int, handshake_count: int) -> dict[str, float]:
    """CPU of each kind of work, in microseconds: at a broker with TLS, then at one that knows its callers."""
    folder.mkdir()
    pair, file = authority.issue("server"), folder / "tls.properties"
    file.write_text(f"tls.test.mode.enable=false\ntls.server.certPath={pair.cert}\ntls.server.keyPath={pair.key}\n")
    os.environ["JAVA_TOOL_OPTIONS"] = f"-Dtls.config.file={file}"
    own = {"tls.config.file": str(file)} if kind is Kind.ORBITMQ else {}
    trusting = ssl.create_default_context(cafile=str(authority.file))
    with BrokerUnderTest(kind, folder / "open", settings=NEVER_BUSY | own, profile=JvmProfile.MEASURE) as broker:
        port, pid = broker.broker_port, broker.pids()[-1]
        found = {
            "plain send": cost_us(pid, send_count, lambda count: sends(port, count)),
            "TLS send": cost_us(pid, send_count, lambda count: sends(port, count, tls=trusting)),
            "handshake": cost_us(pid, handshake_count, lambda count: handshakes(port, trusting, count)),
        }
    with BrokerUnderTest(kind, folder / "guarded", settings=NEVER_BUSY | GUARDED, profile=JvmProfile.MEASURE) as broker:
        port, pid = broker.broker_port, broker.pids()[-1]
        with broker.wire() as wire:
            let_in(wire)
        found["signed send"] = cost_us(pid, send_count, lambda count: sends(port, count, is_signed=True))
    return found | {"knowing the caller": found["signed send"] - found["plain send"]}


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    words.add_argument("--sends", type=int, default=32_000)
    words.add_argument("--handshakes", type=int, default=2_000)
    words.add_argument("--kinds", default="orbitmq,java")
    given = words.parse_args()
    print(f"load of the machine {os.getloadavg()[0]:.1f}; CPU of the broker in microseconds", flush=True)
    found: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        authority = Authority(Path(folder))
        for name in given.kinds.split(","):
            found[name] = measure(Kind(name), Path(folder) / name, authority, given.sends, given.handshakes)
    print(f"{'':20}" + "".join(f"{name:>10}" for name in found) + (f"{'ratio':>10}" if len(found) == 2 else ""))
    for what in next(iter(found.values())):
        costs = [cost[what] for cost in found.values()]
        ratio = f"{costs[0] / costs[1]:10.2f}" if len(costs) == 2 else ""
        print(f"{what:20}" + "".join(f"{cost:10.1f}" for cost in costs) + ratio)
    each = ", ".join(f"{name} {1e6 / costs['handshake']:.0f}" for name, costs in found.items())
    print(f"handshakes a second on one core: {each}")


if __name__ == "__main__":
    main()
