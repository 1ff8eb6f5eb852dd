"""The far tier's files as the broker asks for them: every call goes to the process that keeps them, `file_server`.

Rules of this file
1. The process starts with the first call and ends with `stop`. One that ends by itself, or is silent for too long, makes its call fail
   with `HelperEndedError`; the next call starts another one.
2. Calls come from one thread at a time; `stop` may come from any.
3. `is_there` looks for pyarrow without importing it.
"""

from __future__ import annotations

import importlib.util
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any, BinaryIO, NamedTuple, get_type_hints

import msgspec

from orbitmq.errors import ProtocolError
from orbitmq.limits.far import FAR_CALL_TIMEOUT_MS
from orbitmq.timing.far.file_server import Answer, Call, encode_frame, encoded, read_frame
from orbitmq.timing.far.tier import FarFileDamagedError, FarTierError, FarUnreachableError, HelperEndedError, Tier

MODULE = "orbitmq.timing.far.file_server"


def is_there() -> bool:
    """Whether the extra `orbitmq[lake]` is installed."""
    return importlib.util.find_spec("pyarrow") is not None


def _call(method: str) -> Callable[..., Any]:
    """A method of `Tier` that is carried there and back."""

    def call(tier: ProcessTier, *arguments: object) -> Any:
        return tier.call(method, arguments)

    return call


class _Process(NamedTuple):
    """A running process, and this end of the socket that is its standard input and output."""

    process: subprocess.Popen[bytes]
    connection: socket.socket
    reader: BinaryIO


class ProcessTier:
    """A tier whose work another process does."""

    def __init__(self, url: str, *, command: Sequence[str] | None = None) -> None:
        """`command` replaces the interpreter and the module, for tests."""
        self._command = [*(command or (sys.executable, "-m", MODULE)), url]
        self._running: _Process | None = None
        self._guard = threading.Lock()
        self.start_count = 0
        """Processes started so far."""

    open = _call("open")
    land = _call("land")
    rows = _call("rows")
    find = _call("find")
    compact = _call("compact")
    index = _call("index")
    salvage = _call("salvage")
    remove = _call("remove")
    sweep = _call("sweep")
    probe = _call("probe")
    check = _call("check")
    publish = _call("publish")

    @property
    def pid(self) -> int | None:
        """Of the running process."""
        running = self._running
        return None if running is None else running.process.pid

    def call(self, method: str, arguments: Sequence[object]) -> Any:
        """What a method of `Tier` answers to these arguments. Blocks. Raises FarTierError."""
        running = self._started()
        try:
            running.connection.sendall(encode_frame(Call(method, encoded(arguments))))
            answer = msgspec.msgpack.decode(read_frame(running.reader), type=Answer)
        except (OSError, EOFError, ValueError, ProtocolError) as error:
            self.stop()
            is_silent = isinstance(error, TimeoutError)
            reason = f"no answer within {FAR_CALL_TIMEOUT_MS} ms" if is_silent else str(error) or "it ended"
            raise HelperEndedError(f"the process for the far tier did not answer: {reason}") from error
        if answer.problem is not None:
            raise _failure(answer.kind, answer.problem, answer.name)
        return msgspec.msgpack.decode(answer.value, type=get_type_hints(getattr(Tier, method))["return"])

    def _started(self) -> _Process:
        with self._guard:
            if self._running is None:
                ours, theirs = socket.socketpair()
                ours.settimeout(FAR_CALL_TIMEOUT_MS / 1_000)
                try:
                    process = subprocess.Popen(self._command, stdin=theirs.fileno(), stdout=theirs.fileno())
                except OSError as error:
                    ours.close()
                    raise HelperEndedError(f"the process for the far tier cannot be started: {error}") from error
                finally:
                    theirs.close()
                self._running = _Process(process, ours, ours.makefile("rb"))
                self.start_count += 1
            return self._running

    def stop(self) -> None:
        """End the process. What it is asked at this moment fails."""
        with self._guard:
            running, self._running = self._running, None
        if running is not None:
            running.process.kill()
            running.process.wait()
            running.reader.close()
            running.connection.close()


def _failure(kind: str, problem: str, name: str) -> FarTierError:
    if kind == FarFileDamagedError.__name__:
        return FarFileDamagedError(problem, name)
    return FarUnreachableError(problem) if kind == FarUnreachableError.__name__ else FarTierError(problem)
