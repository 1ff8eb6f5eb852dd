"""A process that works on files for the broker, and the conversation with it over its standard input and output.

Rules of this file
1. The process starts with the first request and ends with `stop`. One that ends by itself, or does not answer in time, makes its
   request fail with `HelperEndedError`; the next request starts another one.
2. Requests come from one thread at a time; `stop` may come from any.
"""

from __future__ import annotations

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
from orbitmq.timing.far.frames import decode_answer, encode_frame, read_frame
from orbitmq.timing.far.tier import FarFileDamagedError, FarTierError, FarUnreachableError, HelperEndedError

T = TypeVar("T")
NS_PER_MS = 1_000_000
READ_BYTES = 1 << 20


class HelperProcess:
    """One process, which runs `module` with `url` as its argument."""

    def __init__(self, clock: Clock, url: str, module: str, *, command: Sequence[str] | None = None) -> None:
        """`command` replaces the interpreter and the module, for tests."""
        self._clock = clock
        self._command = [*(command or (sys.executable, "-m", module)), url]
        self._process: subprocess.Popen[bytes] | None = None
        self._guard = threading.Lock()
        self.start_count = 0
        """Processes started so far."""

    @property
    def pid(self) -> int | None:
        """Of the running process."""
        process = self._process
        return None if process is None else process.pid

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

    def ask(self, request: msgspec.Struct, kind: type[T], blob: bytes = b"") -> tuple[T, bytes]:
        """Value and blob of the answer. Blocks. Raises FarTierError."""
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
