"""Records what released clients of RocketMQ 5 and RocketMQ's proxy say to each other, byte for byte.

    python -m tests.vectors.record_grpc_clients

The proxy 5.3.3 stands in front of its broker and tells clients the port that they came by, which is that of a relay here. Every client
does the same with topics and groups of its own. A line of `grpc/clients.jsonl.xz` is a connection: the client, when it started, and the
pieces: milliseconds since then, `c` for what the client sent and `s` for what the server sent, and the bytes.
"""

from __future__ import annotations

import asyncio
import base64
import json
import lzma
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path

TESTS = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(TESTS / "interop"))

from rig.brokers import BrokerUnderTest, Kind, ProxyRole  # noqa: E402
from rig.drivers import DriverFailed  # noqa: E402
from rig.grpc_clients import CLIENTS, GrpcClient  # noqa: E402
from rig.toolchain import BROKER_VERSION  # noqa: E402
from tests.worlds.recorded_clients import TOPICS, VECTORS, own  # noqa: E402

SETTINGS = {"transactionTimeOut": "3000", "transactionCheckInterval": "2000", "recallMessageEnable": "true"}
OF_PROXY = {
    "useEndpointPortFromRequest": True,
    "minInvisibleTimeMillsForRecv": 10_000,
    "grpcClientConsumerMinLongPollingTimeoutMillis": 5_000,
}
SETTLE_S = 24


class Relay:
    """Passes connections on to a port, and keeps what went through."""

    def __init__(self, to_port: int) -> None:
        self._to_port, self._connections = to_port, list[list[tuple[int, str, bytes]]]()
        self._began_ms = 0
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True).start()
        server = asyncio.run_coroutine_threadsafe(
            asyncio.start_server(self._accept, "127.0.0.1", 0), self._loop
        ).result()
        self.port = int(server.sockets[0].getsockname()[1])

    def begin(self) -> int:
        self._connections = []
        self._began_ms = int(time.time() * 1000)
        return self._began_ms

    def connections(self) -> list[list[tuple[int, str, bytes]]]:
        return self._connections

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        pieces: list[tuple[int, str, bytes]] = []
        self._connections.append(pieces)
        to_reader, to_writer = await asyncio.open_connection("127.0.0.1", self._to_port)
        ways = (("c", reader, to_writer), ("s", to_reader, writer))
        await asyncio.gather(*(self._pass(pieces, *way) for way in ways))

    async def _pass(
        self, pieces: list[tuple[int, str, bytes]], way: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        with suppress(ConnectionError):
            while data := await reader.read(65_536):
                pieces.append((int(time.time() * 1000) - self._began_ms, way, data))
                writer.write(data)
        writer.close()


def prepare(name_server: str, client: GrpcClient) -> None:
    command: list[str] = [sys.executable, "-m", "orbitmq.cli.main"]
    for topic, kind in TOPICS.items():
        words = ["topic", "create", own(client.name, topic), "--queues", "1", "--type", kind, "-n", name_server]
        subprocess.run([*command, *words], check=True)
    subprocess.run(
        [*command, "group", "create", own(client.name, "InOrder"), "--orderly", "-n", name_server], check=True
    )


def act(client: GrpcClient, port: int, folder: Path) -> None:
    """What every client does."""
    topic = {part: own(client.name, part) for part in TOPICS}
    with client.drive(f"127.0.0.1:{port}", list(topic.values()), folder) as driver:
        driver.command("push", group=own(client.name, "Pushed"), topic=topic["Plain"], tags="red || blue", fail=1)
        driver.command("push", group=own(client.name, "InOrder"), topic=topic["Ordered"])
        driver.command("push", group=own(client.name, "Settled"), topic=topic["Decided"])
        time.sleep(3)
        driver.command(
            "send", topic=topic["Plain"], body="plain", tag="red", key="k1 k2", price=7, note="größer als ☕"
        )
        driver.command("send", topic=topic["Plain"], body="slow", tag="slow")
        driver.command("send", topic=topic["Ordered"], body="first,second", order="o")
        driver.command("send", topic=topic["Timed"], body="timed", at=int(time.time() + 3_600) * 1000)
        if client.recalls:
            driver.command("recall", topic=topic["Timed"], handle=driver.events("sent", body="timed")[0]["handle"])
        for state in ("commit", "rollback"):
            driver.command("transact", topic=topic["Decided"], body=state, state=state, checked=state)
        driver.command("transact", topic=topic["Decided"], body="later", state="unknown", checked="commit")
        popping = {"group": own(client.name, "Popped"), "topic": topic["Plain"], "tags": "slow", "invisible": 10_000}
        while not driver.events("popped"):
            try:
                driver.command("pop", then="hide:12000", **popping)
            except DriverFailed as failed:
                print(failed)
        driver.command("again", then="ack")
        time.sleep(SETTLE_S)
        driver.close()


def main() -> None:
    lines = []
    with (
        tempfile.TemporaryDirectory() as folder,
        BrokerUnderTest(Kind.JAVA, Path(folder) / "broker", settings=SETTINGS) as broker,
    ):
        ports = broker.nameserver_port + 2, broker.nameserver_port + 5
        proxy = ProxyRole(BROKER_VERSION, Path(folder) / "proxy", ports, broker.name_server, OF_PROXY)
        proxy.start()
        try:
            proxy.wait_serving()
            relay = Relay(ports[0])
            for client in CLIENTS:
                if client.uses_tls:
                    continue
                prepare(broker.name_server, client)
                began_ms = relay.begin()
                act(client, relay.port, Path(folder) / client.name)
                for pieces in relay.connections():
                    told = [[at_ms, way, base64.b64encode(data).decode()] for at_ms, way, data in pieces]
                    lines.append({"client": client.name, "began_ms": began_ms, "pieces": told})
                print(client.name, [len(pieces) for pieces in relay.connections()])
        finally:
            proxy.kill()
    with lzma.open(VECTORS, "wt", encoding="utf-8") as file:
        file.writelines(json.dumps(line) + "\n" for line in lines)


if __name__ == "__main__":
    main()
