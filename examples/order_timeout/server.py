"""A server of the story's own: on free ports, in a directory that goes when the story ends."""

from __future__ import annotations

import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console

STOP_LIMIT_S = 30


@contextmanager
def own_server(console: Console, directory: Path | None = None) -> Iterator[str]:
    """Run `orbitmq serve` with its store and its log in `directory`, by default a temporary one; gives its name server's address."""
    if directory is None:
        with (
            tempfile.TemporaryDirectory(prefix="orbitmq-demo-") as temporary,
            own_server(console, Path(temporary)) as address,
        ):
            yield address
        return
    nameserver_port, broker_port = free_ports()
    command = [sys.executable, "-m", "orbitmq", "serve", "--data", str(directory / "store")]
    command += ["--nameserver-port", str(nameserver_port), "--broker-port", str(broker_port)]
    began = time.monotonic()
    log = directory / "server.log"
    with log.open("w") as errors:
        # In a session of its own: Ctrl-C is for the story, which ends the server when it no longer needs it.
        server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True, start_new_session=True)
    try:
        assert server.stdout is not None
        line = server.stdout.readline().strip()
        if not line:
            raise SystemExit(f"the server did not start:\n{log.read_text()}")
        console.print(f"{line} (up after {(time.monotonic() - began) * 1000:.0f} ms)")
        yield f"127.0.0.1:{nameserver_port}"
    finally:
        server.terminate()
        try:
            code = server.wait(STOP_LIMIT_S)
        except subprocess.TimeoutExpired:
            server.kill()
            code = server.wait()
        if code:
            console.print(f"[red]the server ended with exit code {code}[/red]\n{log.read_text()}")


def free_ports() -> tuple[int, int]:
    """Two ports that nobody listens on; the broker also takes the one two below its own."""
    with socket.socket() as first, socket.socket() as second:
        first.bind(("127.0.0.1", 0))
        second.bind(("127.0.0.1", 0))
        return first.getsockname()[1], second.getsockname()[1]
