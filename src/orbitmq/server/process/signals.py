"""What signals ask of a server process: to stop, to read files anew, to open its log file anew.

Rules of this file
1. SIGTERM and SIGINT stop in order, once the store is open. Before that, which can take long, nothing is served or changed that a kill
   would harm, and they end the process at once.
2. SIGHUP has everything read anew that can be; SIGUSR1 opens the log file anew. Neither of these two ever ends the process or changes
   what goes on, and each says in the log what came of it. What cannot be used changes nothing: the log says why.
3. The hang-up of the terminal that the server was started from is a stop in order: nobody would see it any longer. Under `nohup` it is
   a reload like any other.
4. What comes while the program is still loaded waits, and would end it otherwise; the hang-up of a terminal does.
5. Reloads go one after the other; those that are asked for meanwhile are one. The supervisor hears of their beginning and their end.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Awaitable, Callable
from types import FrameType
from typing import Final, NamedTuple

from orbitmq.errors import OrbitError
from orbitmq.server.process.supervisor import Supervisor
from orbitmq.telemetry.logs import BoundedHandler

logger = logging.getLogger("orbitmq.server")

TERMINAL: Final = "/dev/tty"

_STOPS: Final = (signal.SIGTERM, signal.SIGINT)
_HELD: Final = frozenset({signal.SIGHUP, signal.SIGUSR1})


class ReloadPart(NamedTuple):
    """Something that can be read anew. `reload` answers what is in force then; it raises OrbitError or OSError when nothing has changed
    because the new state cannot be used."""

    name: str
    reload: Callable[[], Awaitable[str]]


def reads_now(reload: Callable[[], str]) -> Callable[[], Awaitable[str]]:
    """Of a part that reads at once, on the loop."""

    async def read() -> str:
        return reload()

    return read


def hold_signals() -> None:
    """Before the server is loaded: SIGHUP and SIGUSR1 wait until `install`."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1} if _has_terminal() else _HELD)


def let_signals() -> None:
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _HELD)


class ProcessSignals:
    """The signals of one process, from `install` on."""

    def __init__(
        self, log: BoundedHandler, supervisor: Supervisor, has_terminal: Callable[[], bool] | None = None
    ) -> None:
        """`has_terminal`: whether the process has a controlling terminal now."""
        self.stop: Final = asyncio.Event()
        self.reason = ""
        """Why the process stops, once it does."""
        self.starts = False
        """It does not serve yet."""
        self.parts: Callable[[], list[ReloadPart]] = list
        """What the roles that run now can read anew."""
        self._log = log
        self._supervisor = supervisor
        self._has_terminal = has_terminal or _has_terminal
        self._began_at_terminal = False
        self._reloads_wanted = 0
        self._reloading: asyncio.Task[None] | None = None

    def install(self) -> None:
        """Take the signals of this process, on the running loop."""
        self._began_at_terminal = signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN and self._has_terminal()
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGHUP, self.hang_up)
        loop.add_signal_handler(signal.SIGUSR1, self.reopen_log)
        let_signals()

    def begin_start(self) -> None:
        """From now on a stop is an end at once: the loop does not turn while the store is opened."""
        self.starts = True
        for number in _STOPS:
            asyncio.get_running_loop().remove_signal_handler(number)
            signal.signal(number, self._end_at_once)

    def store_is_open(self) -> None:
        """From now on a stop is one in order."""
        for number in _STOPS:
            asyncio.get_running_loop().add_signal_handler(number, self.end, signal.Signals(number).name)

    def _end_at_once(self, number: int, _: FrameType | None) -> None:
        name = signal.Signals(number).name
        logger.info("stopped before the store was open: %s; the next start reads it as this one did", name)
        self._supervisor.stopping(name)
        signal.signal(number, signal.SIG_DFL)
        signal.raise_signal(number)
        os._exit(128 + number)  # the first process of a container is not ended by a signal of its own

    def end(self, reason: str) -> None:
        """Stop in order; the first reason counts."""
        if self.stop.is_set():
            logger.info("%s: the process is stopping already (%s)", reason, self.reason)
            return
        self.reason = reason
        self.stop.set()
        if self.starts:
            logger.info("%s: the start comes to its end first, which takes seconds", reason)

    def hang_up(self) -> None:
        if self._began_at_terminal and not self._has_terminal():
            self.end("its terminal is gone")
            return
        self._reloads_wanted += 1
        if self._reloading is None:
            self._reloading = asyncio.get_running_loop().create_task(self._reload(), name="reload")

    def reopen_log(self) -> None:
        """Open the log file anew, for whoever has renamed it."""
        if self._log.file is None:
            logger.info("SIGUSR1: the log goes to standard error, there is no file to open anew")
            return
        try:
            logger.info("SIGUSR1: opened anew: %s", self._reopened())
        except OSError as error:
            logger.error("SIGUSR1: the log file in use stays, %s cannot be opened: %s", self._log.file, error)

    def _reopened(self) -> str:
        self._log.reopen()
        return f"the log goes to {self._log.file}"

    async def _reload(self) -> None:
        self._supervisor.reloading()
        try:
            while self._reloads_wanted:
                self._reloads_wanted = 0
                await self._reload_parts()
        finally:
            self._reloading = None
            self._supervisor.reloaded()

    async def _reload_parts(self) -> None:
        parts = [] if self._log.file is None else [ReloadPart("the log file", reads_now(self._reopened))]
        parts += self.parts()
        if not parts:
            logger.info(
                "SIGHUP: nothing here can be read anew: no log file, no certificate, no accounts in files; "
                "the configuration counts at a start"
            )
            return
        logger.info("SIGHUP: reading anew: %s", ", ".join(part.name for part in parts))
        kept = 0
        for part in parts:
            try:
                logger.info("reloaded %s: %s", part.name, await part.reload())
            except (OrbitError, OSError) as error:
                kept += 1
                logger.error("not reloaded, what was in force stays: %s: %s", part.name, error)
            except Exception:  # a fault of ours: the process goes on, and so do the parts behind this one
                kept += 1
                logger.exception("not reloaded: %s: an error that nobody expected", part.name)
        logger.info(
            "SIGHUP: %d of %d are read anew; the configuration counts at a start", len(parts) - kept, len(parts)
        )


def _has_terminal() -> bool:
    try:
        os.close(os.open(TERMINAL, os.O_RDONLY | os.O_NOCTTY | os.O_CLOEXEC))
    except OSError:
        return False
    return True
