"""Signals of a server process: what they ask, what is said of it, and that none of them but the two for a stop ends anything."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from orbitmq.clock import SystemClock
from orbitmq.errors import ConfigurationError
from orbitmq.server.process.signals import ProcessSignals, ReloadPart, reads_now
from orbitmq.server.process.supervisor import Supervisor
from orbitmq.telemetry.logs import BoundedHandler, begin_logging


@pytest.fixture
def log(tmp_path: Path) -> Iterator[BoundedHandler]:
    before = list(logging.getLogger().handlers), logging.getLogger().level
    handler = begin_logging("text", (), file=tmp_path / "log")
    yield handler
    handler.close()
    logging.getLogger().handlers[:], _ = before
    logging.getLogger().setLevel(before[1])


def signals_of(log: BoundedHandler, has_terminal: Callable[[], bool] | None = None) -> ProcessSignals:
    """Of a process that nobody supervises."""
    return ProcessSignals(log, Supervisor({}, SystemClock()), has_terminal)


async def settled(signals: ProcessSignals) -> None:
    while signals._reloading is not None:
        await signals._reloading


async def test_a_reload_says_of_each_part_what_came_of_it(log: BoundedHandler, tmp_path: Path) -> None:
    def broken() -> str:
        raise ConfigurationError("line 3 is no account")

    signals = signals_of(log)
    signals.parts = lambda: [
        ReloadPart("the accounts", reads_now(broken)),
        ReloadPart("the certificate", reads_now(lambda: "new connections use it")),
    ]
    signals.hang_up()
    await settled(signals)
    said = (tmp_path / "log").read_text()
    assert "SIGHUP: reading anew: the log file, the accounts, the certificate\n" in said
    assert "ERROR orbitmq.server not reloaded, what was in force stays: the accounts: line 3 is no account\n" in said
    assert "reloaded the certificate: new connections use it\n" in said, "one that fails keeps no other from it"
    assert "SIGHUP: 2 of 3 are read anew" in said
    assert not signals.stop.is_set()


async def test_an_error_that_nobody_expected_is_in_the_log_and_the_parts_behind_it_are_read(
    log: BoundedHandler, tmp_path: Path
) -> None:
    def defect() -> str:
        raise ZeroDivisionError

    signals = signals_of(log)
    signals.parts = lambda: [
        ReloadPart("the accounts", reads_now(defect)),
        ReloadPart("the certificate", reads_now(lambda: "new connections use it")),
    ]
    signals.hang_up()
    await settled(signals)
    said = (tmp_path / "log").read_text()
    assert "not reloaded: the accounts: an error that nobody expected" in said
    assert "ZeroDivisionError" in said
    assert "SIGHUP: 2 of 3 are read anew" in said


async def test_reloads_that_are_asked_for_meanwhile_are_one(log: BoundedHandler) -> None:
    running, most, runs = 0, 0, 0

    async def slow() -> str:
        nonlocal running, most, runs
        running, runs = running + 1, runs + 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1
        return "done"

    signals = signals_of(log)
    signals.parts = lambda: [ReloadPart("slow", slow)]
    signals.hang_up()
    await asyncio.sleep(0)
    for _ in range(5):
        signals.hang_up()
    await settled(signals)
    assert (most, runs) == (1, 2)


async def test_a_rotated_log_file_is_opened_anew(log: BoundedHandler, tmp_path: Path) -> None:
    signals = signals_of(log)
    (tmp_path / "log").rename(tmp_path / "log.1")
    signals.reopen_log()
    assert "SIGUSR1: opened anew" in (tmp_path / "log").read_text()
    assert not (tmp_path / "log.1").read_text()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a file without room is needed")
def test_a_log_file_without_room_is_left_for_a_new_one(tmp_path: Path) -> None:
    """It may be deleted already, and take up the room that is missing until it is closed."""
    handler = BoundedHandler(sys.stderr, file=Path("/dev/full"))
    full, handler.file = handler.stream, tmp_path / "log"
    full.write("a line that there is no room for\n")
    handler.reopen()
    assert full.closed
    handler.emit(logging.makeLogRecord({"msg": "the next line", "levelname": "INFO"}))
    assert (tmp_path / "log").read_text() == "the next line\n"
    handler.close()


async def test_a_log_file_that_cannot_be_opened_leaves_the_one_in_use(log: BoundedHandler, tmp_path: Path) -> None:
    signals = signals_of(log)
    (tmp_path / "log").rename(tmp_path / "log.1")
    (tmp_path / "log").mkdir()
    signals.reopen_log()
    signals.hang_up()
    await settled(signals)
    said = (tmp_path / "log.1").read_text()
    assert "SIGUSR1: the log file in use stays" in said
    assert "not reloaded, what was in force stays: the log file" in said


async def test_the_hang_up_of_the_own_terminal_is_a_stop_in_order(log: BoundedHandler) -> None:
    there = True
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)  # under nohup a test, too, would be left alone
    signals = signals_of(log, has_terminal=lambda: there)
    signals.install()
    try:
        signals.hang_up()
        await settled(signals)
        assert not signals.stop.is_set(), "somebody else sent it"
        there = False
        os.kill(os.getpid(), signal.SIGHUP)
        await asyncio.wait_for(signals.stop.wait(), 30)
        assert signals.reason == "its terminal is gone"
    finally:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1):
            asyncio.get_running_loop().remove_signal_handler(number)
        signal.signal(signal.SIGHUP, before)


async def test_the_first_reason_for_a_stop_counts(log: BoundedHandler) -> None:
    signals = signals_of(log)
    signals.end("SIGTERM")
    signals.end("SIGINT")
    assert signals.reason == "SIGTERM"


# --- during a start -----------------------------------------------------------------------------------------------------

SLOW_START = """
import asyncio, pathlib, signal, sys, time
from orbitmq.server import lifecycle
from orbitmq.server.configuration.settings import Overrides, Role, load_settings

async def start(process, store_is_open):
    if sys.argv[2] == "open":
        store_is_open()
        signal.raise_signal(signal.SIGTERM)
        await asyncio.sleep(0.01)  # the loop hears of it
    else:
        signal.raise_signal(signal.SIGTERM)
        time.sleep(60)  # as the store does while it is read

lifecycle.ServerProcess.start = start
lifecycle.serve(load_settings(roles=[Role.NAMESERVER], overrides=Overrides(data=pathlib.Path(sys.argv[1]))))
"""


@pytest.mark.parametrize(
    ("stage", "code", "said"),
    [
        ("read", -signal.SIGTERM, ["stopped before the store was open: SIGTERM"]),
        ("open", 0, ["SIGTERM: the start comes to its end first", "stopping: SIGTERM", "stopped in order"]),
    ],
)
def test_a_stop_during_a_start_is_heeded_and_told(tmp_path: Path, stage: str, code: int, said: list[str]) -> None:
    """While the store is opened, which may take minutes, nothing is served yet: that is over at once, as a kill may end it as well."""
    done = subprocess.run(
        [sys.executable, "-c", SLOW_START, str(tmp_path), stage],
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert (done.returncode, done.stdout) == (code, ""), done.stderr
    lines = [
        line
        for line in done.stderr.splitlines()
        if "orbitmq.server" in line and " the event loop of asyncio" not in line
    ]
    assert len(lines) == len(said), done.stderr
    assert all(text in line for text, line in zip(said, lines, strict=True)), done.stderr


def test_a_signal_that_comes_while_the_server_is_loaded_waits(tmp_path: Path) -> None:
    """A rotation of logs would end a broker that begins."""
    source = (
        "import signal\nfrom orbitmq.server.process.signals import hold_signals, let_signals\nhold_signals()\n"
        "signal.raise_signal(signal.SIGUSR1)\nsignal.signal(signal.SIGUSR1, lambda *_: print('heard'))\nlet_signals()"
    )
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, timeout=50, check=False)
    assert (done.returncode, done.stdout) == (0, "heard\n"), done.stderr
