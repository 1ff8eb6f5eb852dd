"""etcd processes of the tests' own, on ports that the kernel chose.

Rules of this file
1. Elections are quick: a follower seeks the lead after half a second.
2. A port that somebody else took in between is chosen again, some times.
"""

from __future__ import annotations

import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from examples.order_timeout_group.etcd import MISSING, etcd_program
from tests.worlds.listening_ports import ports_in_a_row

HEARTBEAT_MS: Final = 50
ELECTION_MS: Final = 500
READY_S: Final = 30
TRIES: Final = 3


class TlsFiles(NamedTuple):
    """Paths of PEM files."""

    cert: str
    key: str
    ca: str


class EtcdProcess:
    """One member; its folder stays, so that it can be started again."""

    def __init__(
        self,
        name: str,
        folder: Path,
        port: int,
        peer_port: int,
        tls: TlsFiles | None,
        program: str | None,
        host: str = "127.0.0.1",
    ) -> None:
        """host: where clients reach it."""
        self.name = name
        self._host = host
        self._program = program
        self.folder = folder
        self.port = port
        self.peer_url = f"http://127.0.0.1:{peer_port}"
        self.tls = tls
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def endpoint(self) -> str:
        return f"{self._host}:{self.port}"

    @property
    def log(self) -> Path:
        return self.folder.with_suffix(".log")

    def start(self, cluster: str) -> None:
        """`cluster`: every member and its URL for the others."""
        assert self._program is not None, MISSING
        url = f"{'http' if self.tls is None else 'https'}://{self.endpoint}"
        options = {
            "name": self.name,
            "data-dir": str(self.folder),
            "listen-client-urls": url,
            "advertise-client-urls": url,
            "listen-peer-urls": self.peer_url,
            "initial-advertise-peer-urls": self.peer_url,
            "initial-cluster": cluster,
            "heartbeat-interval": str(HEARTBEAT_MS),
            "election-timeout": str(ELECTION_MS),
            "logger": "zap",
            "log-level": "warn",
        }
        flags = [f"--{name}={value}" for name, value in options.items()]
        if self.tls is not None:
            flags += [f"--cert-file={self.tls.cert}", f"--key-file={self.tls.key}"]
            flags += [f"--trusted-ca-file={self.tls.ca}", "--client-cert-auth"]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("ETCD_")}
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [self._program, *flags], stdout=log, stderr=log, env={**environment, "GOMAXPROCS": "2"}
            )

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def freeze(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGCONT)

    def is_ready(self) -> bool:
        """Whether it knows of a leader. Over TLS: whether its port is open."""
        assert self.process is not None
        if self.process.poll() is not None:
            raise ChildProcessError(f"etcd ended with {self.process.returncode}: {self.log.read_text()[-2_000:]}")
        try:
            if self.tls is not None:
                socket.create_connection((self._host, self.port), 1).close()
                return True
            return bool(self.post("/v3/kv/range", {"key": "AA=="}))
        except (OSError, http.client.HTTPException):
            return False

    def post(self, path: str, body: Any, token: str = "") -> Any:
        """Raises OSError for another status than 200."""
        connection = http.client.HTTPConnection(self._host, self.port, timeout=5)
        try:
            connection.request("POST", path, json.dumps(body), {"Authorization": token} if token else {})
            answer = connection.getresponse()
            text = answer.read()
            if answer.status != 200:
                raise OSError(f"{answer.status}: {text!r}")
            return json.loads(text.partition(b"\n")[0])
        finally:
            connection.close()


class EtcdCluster:
    def __init__(
        self,
        folder: Path,
        size: int = 1,
        tls: TlsFiles | None = None,
        program: str | None = None,
        host: str = "127.0.0.1",
    ) -> None:
        """Started and ready. `program`: by default the one that is there. host: where clients reach it."""
        program = program or etcd_program()
        self.folder = folder
        for rest in reversed(range(TRIES)):
            ports = ports_in_a_row(2 * size)
            self.members = [
                EtcdProcess(f"e{n}", folder / f"e{n}", ports[2 * n], ports[2 * n + 1], tls, program, host)
                for n in range(size)
            ]
            try:
                self.start()
                return
            except ChildProcessError as error:
                self.end()
                shutil.rmtree(folder)
                folder.mkdir()
                if not rest or "address already in use" not in str(error):
                    raise

    def start(self, members: Sequence[EtcdProcess] = ()) -> None:
        """All, or these; until all that run are ready."""
        cluster = ",".join(f"{member.name}={member.peer_url}" for member in self.members)
        for member in members or self.members:
            member.start(cluster)
        end = time.monotonic() + READY_S
        for member in self.members:
            while member.process is not None and not member.is_ready():
                if time.monotonic() > end:
                    raise TimeoutError(f"etcd is not ready: {member.log.read_text()[-2_000:]}")
                time.sleep(0.02)

    def url(self, prefix: str = "", user: str = "", options: str = "") -> str:
        endpoints = ",".join(member.endpoint for member in self.members)
        return f"etcd://{user}{'@' if user else ''}{endpoints}/{prefix}{options}"

    def end(self) -> None:
        for member in self.members:
            member.kill()
