#!/usr/bin/env python
"""A broker with many topics under few descriptors: its starts, its memory, and what a send costs by how many topics are in use.

usage: many_topics.py [--topics 10000] [--queues 4] [--descriptors 4096] [--sends 150000] [--rounds 3] [--folder DIR] [--keep]

Every queue gets a message first. Then the server is stopped in order and started, killed and started; and sends of 1 KB, 128 in flight
over four connections, asynchronous flush, go in turn to ten of the topics (the comparator), to 500 of them with nine sends of ten
and evenly to the others with the tenth, and evenly to all. CPU is that of the server, user and system, in microseconds for one
send, without the first third of each kind; a send that fails ends the run. Start is the wall clock from the launch to the first
accepted send; nothing is done to warm or to empty the page cache. Prints one JSON line for each figure.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import random
import resource
import shutil
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final

import rigpath

# isort: split
from rig.brokers import ServeRole
from rig.process import anonymous_kb, cpu_us, free_ports

from orbitmq.protocol.remoting.commands import RequestCode
from orbitmq.protocol.remoting.frame import encode, request

CONNECTIONS: Final = 4
WINDOW: Final = 32
BODY: Final = random.Random(1).randbytes(1024)
START_LIMIT_S: Final = 300.0
STOP_LIMIT_S: Final = 300.0
FEW: Final = 10
BUSY: Final = 500

Queue = tuple[int, int]
"""Number of a topic, and of one of its queues."""


def topic_name(number: int) -> str:
    return f"topic-{number:05d}"


def frame(queue: Queue, queues: int, opaque: int) -> bytes:
    """A send of a kilobyte to one queue."""
    fields = {
        "a": "many-topics", "b": topic_name(queue[0]), "c": "TBW102", "d": str(queues), "e": str(queue[1]), "f": "0",
        "g": str(int(time.time() * 1000)), "h": "0", "i": f"UNIQ_KEY\1{random.getrandbits(128):032X}\2", "j": "0", "k": "false",
        "m": "false",
    }  # fmt: skip
    return encode(request(RequestCode.SEND_MESSAGE_V2, fields, BODY, opaque=opaque))


class Connections:
    """Some connections, each with a window of requests in flight."""

    def __init__(self, port: int) -> None:
        self._sockets = [socket.create_connection(("127.0.0.1", port), timeout=60) for _ in range(CONNECTIONS)]

    def close(self) -> None:
        for one in self._sockets:
            one.close()

    def send(self, frames: Iterator[bytes]) -> None:
        """Send them all, and have each answered."""
        while part := [*itertools.islice(frames, CONNECTIONS * WINDOW)]:
            shares = [part[number::CONNECTIONS] for number in range(CONNECTIONS)]
            for one, share in zip(self._sockets, shares, strict=True):
                one.sendall(b"".join(share))
            for one, share in zip(self._sockets, shares, strict=True):
                self._take(one, len(share))

    @staticmethod
    def _take(one: socket.socket, count: int) -> None:
        data = b""
        while count:
            more = one.recv(1 << 18)
            if not more:
                raise SystemExit("the server closed a connection")
            data += more
            while len(data) >= 4 and len(data) >= (end := 4 + int.from_bytes(data[:4], "big")):
                if b'"code":0,' not in data[:end]:
                    raise SystemExit(f"a send failed: {data[:end]!r}")
                data = data[end:]
                count -= 1


class Bench:
    """One data directory and the servers that have it one after the other."""

    def __init__(self, folder: Path, options: argparse.Namespace) -> None:
        self._folder = folder
        self._options = options
        self._server: ServeRole | None = None
        self._port = 0

    def say(self, name: str, **figures: float) -> None:
        print(json.dumps({"what": name, **{key: round(value, 2) for key, value in figures.items()}}), flush=True)

    def write_topics(self) -> None:
        """The table of topics, as a broker keeps it: 10,000 requests would measure something else."""
        queues = self._options.queues
        table = {
            topic_name(number): {
                "order": False, "perm": 6, "readQueueNums": queues, "writeQueueNums": queues, "topicFilterType": "SINGLE_TAG",
                "topicName": topic_name(number), "topicSysFlag": 0, "attributes": {},
            }
            for number in range(self._options.topics)
        }  # fmt: skip
        path = self._folder / "data" / "config" / "topics.json"
        path.parent.mkdir(parents=True)
        version = {"counter": 1, "stateVersion": 0, "timestamp": 1}
        path.write_text(json.dumps({"dataVersion": version, "topicConfigTable": table}))

    def start(self, name: str) -> None:
        """Start and send one message; says how long that took."""
        name_port, self._port = free_ports()
        self._server = ServeRole(self._folder, self._folder / "data", name_port, self._port, {})
        began = time.monotonic()
        self._server.start()
        while True:
            with contextlib.suppress(OSError), contextlib.closing(Connections(self._port)) as connections:
                connections.send(iter([frame((0, 0), self._options.queues, 1)]))
                break
            if time.monotonic() - began > START_LIMIT_S or not self._server.pids():
                raise SystemExit(f"the server did not start:\n{self._server.log()}")
            time.sleep(0.01)
        self.say(name, wall_s=time.monotonic() - began, cpu_s=self._cpu_us() / 1e6, anonymous_mb=self._anonymous_mb())

    def _pid(self) -> int:
        assert self._server is not None
        return self._server.pids()[0]

    def _cpu_us(self) -> int:
        return cpu_us(self._pid())

    def _anonymous_mb(self) -> float:
        return anonymous_kb(self._pid()) / 1024

    def stop(self) -> None:
        """The orderly stop; a stop with 40,000 files to sync takes longer than the rig waits."""
        assert self._server is not None
        began = time.monotonic()
        os.kill(self._pid(), signal.SIGTERM)
        while self._server.pids():
            if time.monotonic() - began > STOP_LIMIT_S:
                raise SystemExit(f"the server did not stop:\n{self._server.log()}")
            time.sleep(0.01)
        self.say("stop", wall_s=time.monotonic() - began)

    def kill(self) -> None:
        if self._server is not None:
            self._server.kill()

    def send(self, name: str, places: Iterable[Queue], *, warm: int = 0) -> None:
        """Send to these queues in turn; says what a send cost the server, without the first `warm` ones: saves gather what several seconds
        bring, and each kind of load leaves some of its work to the next."""
        frames = (frame(queue, self._options.queues, number) for number, queue in enumerate(places))
        with contextlib.closing(Connections(self._port)) as connections:
            connections.send(itertools.islice(frames, warm))
            counted = itertools.count()
            began, before = time.monotonic(), self._cpu_us()
            connections.send(one for one, _ in zip(frames, counted, strict=False))
            spent, wall_s = self._cpu_us() - before, time.monotonic() - began
        count = next(counted)
        self.say(name, cpu_us=spent / count, rate=count / wall_s, anonymous_mb=self._anonymous_mb())

    def run(self) -> None:
        options, chosen = self._options, random.Random(2)
        self.write_topics()
        self.start("first start")
        everywhere = [(topic, queue) for topic in range(options.topics) for queue in range(options.queues)]
        self.send("a message to every queue", everywhere)
        self.stop()
        for _ in range(options.rounds):
            self.start("start after a stop")
            self.stop()
        for _ in range(options.rounds):
            self.start("start after a kill")
            self.kill()
        self.start("start after a kill")

        def queue_of(topics: range) -> Queue:
            return chosen.choice(topics), chosen.randrange(options.queues)

        shapes: dict[str, Callable[[], Queue]] = {
            f"send to {FEW} topics": lambda: queue_of(range(FEW)),
            f"send, 90 % to {BUSY} topics": lambda: queue_of(
                range(BUSY) if chosen.random() < 0.9 else range(BUSY, options.topics)
            ),
            "send evenly": lambda: queue_of(range(options.topics)),
        }
        for _ in range(options.rounds):
            for name, place in shapes.items():
                self.send(name, (place() for _ in range(options.sends)), warm=options.sends // 3)
        self.kill()
        self.start("start after a kill, most queues used since the last stop")
        self.stop()


@contextlib.contextmanager
def folder_of(options: argparse.Namespace) -> Iterator[Path]:
    folder = Path(options.folder or tempfile.mkdtemp(prefix="many-topics-"))
    try:
        yield folder
    finally:
        if not options.keep:
            shutil.rmtree(folder, ignore_errors=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("topics", 10_000), ("queues", 4), ("descriptors", 4096), ("sends", 150_000), ("rounds", 3)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--folder")
    parser.add_argument("--keep", action="store_true")
    options = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_NOFILE, (options.descriptors, options.descriptors))
    with folder_of(options) as folder:
        bench = Bench(folder, options)
        try:
            bench.run()
        finally:
            bench.kill()


if __name__ == "__main__":
    os.environ.pop("ORBITMQ_DATA", None)
    sys.path.insert(0, str(rigpath.REPOSITORY / "src"))
    main()
