"""Pulling a backlog from the disk, whose pages are dropped first, with sends at 200 a second beside it; and plain reads of the same file.

The plain reads go over as many bytes. Rows `memory` repeat the pull with the pages where the first one left them, `sends alone` the sends
without a pull: what the machine makes everybody wait.

    gcc -O2 -o loadgen benchmarks/loadgen/loadgen.c
    python benchmarks/cold_pull.py --loadgen ./loadgen --folder /somewhere/on/a/disk --count 1000000
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

PORT = 24_170
BLOCK_BYTES = 36_000
"""What a pull of 32 messages of 1 KB answers."""

RECORD_BYTES = 1_130
SEND_RATE = 200


class Rig:
    def __init__(self, loadgen: Path, root: Path) -> None:
        self.loadgen = loadgen
        self.root = root

    def start(self) -> subprocess.Popen[str]:
        command = ["-m", "orbitmq", "serve", "--data", str(self.root / "data"), "--broker-port", str(PORT)]
        server = subprocess.Popen(
            [sys.executable, *command, "--nameserver-port", str(PORT - 7)], stdout=subprocess.PIPE, text=True
        )
        assert server.stdout is not None
        for line in server.stdout:
            if "orbitmq serves" in line:
                return server
        raise SystemExit("the server did not start")

    def load(self, *options: object) -> subprocess.Popen[str]:
        command = [self.loadgen, "--port", PORT, *options]
        return subprocess.Popen([str(one) for one in command], stdout=subprocess.PIPE, text=True)

    def sends(self, going_on: Callable[[], bool]) -> list[dict[str, Any]]:
        """Rounds of three seconds of sends until it is over; at least one."""
        rounds: list[dict[str, Any]] = []
        options = ["--count", SEND_RATE * 3, "--rate", SEND_RATE, "--size", 100, "--conns", 1, "--window", 1]
        while not rounds or going_on():
            out = self.load("--topic", "Beside", *options, "--warmup", 0).communicate()[0]
            rounds.append(json.loads(out))
        return rounds

    def pull(self, name: str, count: int, pid: int) -> None:
        puller = self.load("--topic", "Backlog", "--count", count, "--mode", "pull", "--conns", 4, "--pid", pid)
        rounds = self.sends(lambda: puller.poll() is None)
        found = json.loads(puller.communicate()[0])
        print(
            f"pull, {name}: {found['rate'] * RECORD_BYTES / 1e6:.0f} MB/s, {found['rate']:.0f} messages/s,"
            f" {found['server_cpu_us_per_msg']} us of CPU each; {p99(rounds)}"
        )

    @property
    def log(self) -> list[Path]:
        return sorted((self.root / "data").glob("**/commitlog/[0-9]*"))

    def drop_pages(self) -> None:
        os.sync()
        for path in (*self.log, *(self.root / "data").glob("**/consumequeue/*/*/*")):
            number = os.open(path, os.O_RDONLY)
            os.posix_fadvise(number, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(number)

    def plain(self, count: int, block_bytes: int) -> None:
        self.drop_pages()
        done, begin = 0, time.perf_counter()
        with self.log[0].open("rb", buffering=0) as file:
            while done < count * RECORD_BYTES and (data := file.read(block_bytes)):
                done += len(data)
        print(f"plain reads of {block_bytes} bytes: {done / (time.perf_counter() - begin) / 1e6:.0f} MB/s")


def p99(rounds: list[dict[str, Any]]) -> str:
    each = ", ".join(f"{one['p99_us'] / 1000:.1f}" for one in rounds)
    return f"p99 of sends in rounds of 3 s: {each} ms"


def stop(server: subprocess.Popen[str]) -> None:
    server.send_signal(signal.SIGTERM)
    server.communicate()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--loadgen", type=Path, required=True)
    parser.add_argument("--folder", type=Path, default=Path(), help="on the disk to measure")
    parser.add_argument("--count", type=int, default=900_000, help="messages of 1 KB; one log file holds 950,000")
    parser.add_argument("--rounds", type=int, default=2)
    options = parser.parse_args()
    rig = Rig(options.loadgen.absolute(), Path(tempfile.mkdtemp(dir=options.folder, prefix="cold-pull-")))
    try:
        server = rig.start()
        rig.load("--topic", "Backlog", "--count", options.count, "--size", 1024, "--window", 32).communicate()
        stop(server)
        for _ in range(options.rounds):
            rig.plain(options.count, BLOCK_BYTES)
            rig.plain(options.count, 1 << 20)
            server = rig.start()
            print("sends alone:", p99(rig.sends(lambda: False)))
            rig.drop_pages()
            rig.pull("disk", options.count, server.pid)
            rig.pull("memory", options.count, server.pid)
            stop(server)
    finally:
        shutil.rmtree(rig.root, ignore_errors=True)


if __name__ == "__main__":
    main()
