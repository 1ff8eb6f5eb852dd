"""The processes that keep the far tier's files, as the broker sees them: calls to `file_server` there and back, and when one runs.

Rules of this file
1. A process starts with the first call and ends with `stop`, which comes when it was idle for long: it holds 100 MB. One that ends in a
   call, or is silent for too long, makes that call fail with `HelperEndedError`; the next call starts another one.
2. Calls come from one thread at a time; `stop` may come from any.
3. `is_there` looks for pyarrow without importing it.
"""

from __future__ import annotations

import importlib.util
import logging
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any, BinaryIO, NamedTuple, TypeVar, get_type_hints

import msgspec

from orbitmq.clock import Clock
from orbitmq.errors import OrbitError, ProtocolError
from orbitmq.limits.far import FAR_CALL_TIMEOUT_MS, FAR_IDLE_MS
from orbitmq.store.worker import Worker
from orbitmq.timing.far.file_server import Answer, Call, encode_frame, encoded, read_frame
from orbitmq.timing.far.tier import FarFileDamagedError, FarTierError, FarUnreachableError, HelperEndedError, Tier
from orbitmq.units import NS_PER_MS

logger = logging.getLogger("orbitmq.timing")
T = TypeVar("T")

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
    mark = _call("mark")
    lead = _call("lead")
    manifest = _call("manifest")
    land = _call("land")
    rows = _call("rows")
    find = _call("find")
    compact = _call("compact")
    index = _call("index")
    remove = _call("remove")
    sweep = _call("sweep")
    probe = _call("probe")
    check = _call("check")
    publish = _call("publish")

    @property
    def pid(self) -> int | None:
        """Process id, while one runs."""
        running = self._running
        return None if running is None else running.process.pid

    def call(self, method: str, arguments: Sequence[object]) -> Any:
        """Have the process call a method of `Tier`, and answer its result. Blocks. Raises FarTierError."""
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
        running = self._running
        if running is not None and running.process.poll() is not None:  # killed while nobody asked it anything
            self.stop()
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


class Helper:
    """One process that keeps files, the thread that waits for its answers, and when it ends."""

    def __init__(self, clock: Clock, tier: Tier, worker: Worker) -> None:
        """`tier` and `worker`, whose calls may last seconds, belong to it alone."""
        self._clock = clock
        self._tier = tier
        self._worker = worker
        self._used_ns = 0
        self._asked = 0
        self.in_use = False

    def ask(self, job: Callable[[Tier], T], done: Callable[[T | BaseException], None]) -> None:
        """Run `job`, which makes calls, on that thread, then `done` with its result or exception on this one."""

        def answered(result: T | BaseException) -> None:
            self._asked -= 1
            self._used_ns = self._clock.monotonic_ns()
            done(result)

        self._asked += 1
        self.in_use = True
        self._worker.submit(lambda: job(self._tier), answered)

    def tidy(self, job: Callable[[Tier], None]) -> None:
        """Run `job` without an answer; that is no reason for the process to go on running."""
        self._worker.submit(lambda: job(self._tier), _report_failure)

    def rest(self) -> int | None:
        """End the process when it has been idle for long. Milliseconds until that may be, None when it has ended."""
        if not self.in_use:
            return None
        idle_ms = (self._clock.monotonic_ns() - self._used_ns) // NS_PER_MS
        if self._asked or idle_ms < FAR_IDLE_MS:
            return FAR_IDLE_MS if self._asked else FAR_IDLE_MS - idle_ms
        self.in_use = False
        self.tidy(lambda tier: tier.stop())
        return None

    def close(self) -> None:
        """End what runs."""
        self._tier.stop()
        self._worker.close()
        self._tier.stop()


class Helpers:
    """The helper that works on files, and one for questions that come while it writes, which may take it half a minute.

    The second one is started by the first question that needs it, and only reads. A file that was removed meanwhile is damaged to it;
    whoever asked looks whether the file is known still.
    """

    def __init__(self, first: Helper, second: Helper | None = None) -> None:
        self._first = first
        self._second = second
        self._is_writing = False

    @property
    def in_use(self) -> bool:
        """Whether the one that works on files runs."""
        return self._first.in_use

    def work(self, job: Callable[[Tier], T], done: Callable[[T | BaseException], None], *, writes: bool) -> None:
        """Have work done, one job at a time. One that `writes` a file takes long."""

        def answered(result: T | BaseException) -> None:
            self._is_writing = False
            done(result)

        self._is_writing = writes
        self._first.ask(job, answered)

    def ask(self, job: Callable[[Tier], T], done: Callable[[T | BaseException], None]) -> None:
        """Put a question."""
        helper = self._second if self._second is not None and self._is_writing else self._first
        helper.ask(job, done)

    def forget(self, names: Sequence[str]) -> None:
        """Have files closed that were removed, so that their room on the disk is free."""
        if self._second is not None and self._second.in_use:
            gone = list(names)
            self._second.tidy(lambda tier: tier.remove(gone))

    def rest(self) -> int | None:
        """End processes that have been idle for long. Milliseconds until that may be, None when none runs."""
        waits = [self._first.rest(), None if self._second is None else self._second.rest()]
        return min((wait for wait in waits if wait is not None), default=None)

    def close(self) -> None:
        self._first.close()
        if self._second is not None:
            self._second.close()


def _report_failure(result: object) -> None:
    if isinstance(result, OrbitError):
        logger.error("a process for the far tier could not be tidied up: %s", result)
