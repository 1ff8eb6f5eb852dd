"""The broker's side of the process that keeps the far tier's files.

Rules of this file
1. The process starts with the first call and ends with `stop`. One that ends by itself, or does not answer in time, makes its call
   fail with `HelperEndedError`; the next call starts another one.
2. Calls come from one thread at a time; `stop` may come from any.
3. `is_there` looks for pyarrow without importing it.
"""

from __future__ import annotations

import importlib.util
import os
import select
import subprocess
import sys
import threading
from collections.abc import Sequence
from typing import TypeVar

import msgspec

from orbitmq.clock import Clock
from orbitmq.errors import ProtocolError
from orbitmq.limits.far import FAR_CALL_TIMEOUT_MS
from orbitmq.timing.far.changes import FarFile
from orbitmq.timing.far.frames import (
    Compact,
    Find,
    Land,
    Open,
    Publish,
    Remove,
    Request,
    Sweep,
    TakeRows,
    decode_answer,
    encode_frame,
    read_frame,
)
from orbitmq.timing.far.tier import (
    Compaction,
    FarFileDamagedError,
    FarQuery,
    FarTierError,
    FarUnreachableError,
    FileView,
    Found,
    HelperEndedError,
    Opened,
    Rows,
)

T = TypeVar("T")
MODULE = "orbitmq.timing.far.file_server"
NS_PER_MS = 1_000_000
READ_BYTES = 1 << 20


def is_there() -> bool:
    """Whether the extra `orbitmq[lake]` is installed."""
    return importlib.util.find_spec("pyarrow") is not None


class ProcessTier:
    """A tier whose work a helper process does."""

    def __init__(self, clock: Clock, url: str, *, command: Sequence[str] | None = None) -> None:
        """`command` replaces the interpreter's own, for tests."""
        self._clock = clock
        self._command = [*(command or (sys.executable, "-m", MODULE)), url]
        self._process: subprocess.Popen[bytes] | None = None
        self._guard = threading.Lock()
        self.start_count = 0
        """Processes started so far."""

    @property
    def pid(self) -> int | None:
        """Of the running process."""
        process = self._process
        return None if process is None else process.pid

    # --- calls ------------------------------------------------------------------------------------------------------

    def open(self) -> Opened:
        return self._ask(Open(), Opened)[0]

    def land(self, name: str, records: bytes) -> FarFile:
        return self._ask(Land(name), FarFile, records)[0]

    def rows(self, name: str, start: int, until_ms: int, rows_max: int, bytes_max: int) -> Rows:
        request = TakeRows(name, start, until_ms, rows_max, bytes_max)
        (taken, next_ms), records = self._ask(request, tuple[int, int])
        return Rows(records, taken, next_ms)

    def find(self, files: list[FileView], query: FarQuery) -> Found:
        request = Find(files, query)
        (sizes, more, damaged), records = self._ask(request, tuple[list[int], bool, list[tuple[str, str]]])
        return Found(records, sizes, more, damaged)

    def compact(self, files: list[FileView], dead: list[int], serial: int) -> Compaction:
        return self._ask(Compact(files, dead, serial), Compaction)[0]

    def remove(self, names: list[str]) -> None:
        self._ask(Remove(names), type(None))

    def sweep(self, known: list[str]) -> list[str]:
        return self._ask(Sweep(known), list[str])[0]

    def publish(self, manifest: bytes) -> None:
        self._ask(Publish(), type(None), manifest)

    # --- the process ------------------------------------------------------------------------------------------------

    def _started(self) -> subprocess.Popen[bytes]:
        with self._guard:
            if self._process is None:
                try:
                    self._process = subprocess.Popen(
                        self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
                    )
                except OSError as error:
                    raise HelperEndedError(f"the process for the far tier cannot be started: {error}") from error
                assert self._process.stdin is not None
                os.set_blocking(self._process.stdin.fileno(), False)
                self.start_count += 1
            return self._process

    def _ask(self, request: Request, kind: type[T], blob: bytes = b"") -> tuple[T, bytes]:
        process = self._started()
        assert process.stdin is not None
        assert process.stdout is not None
        deadline_ns = self._clock.monotonic_ns() + FAR_CALL_TIMEOUT_MS * NS_PER_MS
        try:
            self._send(process.stdin.fileno(), encode_frame(request, blob), deadline_ns)
            source = process.stdout.fileno()
            head, data = read_frame(lambda size: self._receive(source, size, deadline_ns))
            answer = decode_answer(head)
        except (OSError, EOFError, ValueError, ProtocolError) as error:
            self.stop()
            said = str(error) or "it ended"
            raise HelperEndedError(f"the process for the far tier did not answer: {said}") from error
        if answer.problem is not None:
            raise _failure(answer.kind, answer.problem, answer.name)
        return msgspec.convert(answer.value, kind), data

    def _send(self, target: int, data: bytes, deadline_ns: int) -> None:
        rest = memoryview(data)
        while rest:
            self._await(target, select.POLLOUT, deadline_ns)
            rest = rest[os.write(target, rest[:READ_BYTES]) :]

    def _receive(self, source: int, size: int, deadline_ns: int) -> bytes:
        parts: list[bytes] = []
        while size:
            self._await(source, select.POLLIN, deadline_ns)
            part = os.read(source, min(size, READ_BYTES))
            if not part:
                raise EOFError
            parts.append(part)
            size -= len(part)
        return b"".join(parts)

    def _await(self, number: int, event: int, deadline_ns: int) -> None:
        poll = select.poll()
        poll.register(number, event)
        left_ms = (deadline_ns - self._clock.monotonic_ns()) // NS_PER_MS
        if left_ms <= 0 or not poll.poll(left_ms):
            raise TimeoutError(f"no answer within {FAR_CALL_TIMEOUT_MS} ms")

    def stop(self) -> None:
        with self._guard:
            process, self._process = self._process, None
        if process is None:
            return
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()


def _failure(kind: str, problem: str, name: str) -> FarTierError:
    if kind == FarFileDamagedError.__name__:
        return FarFileDamagedError(problem, name)
    return FarUnreachableError(problem) if kind == FarUnreachableError.__name__ else FarTierError(problem)
