"""Plays the consoles of a page: every command is run as it is printed, and what it prints is compared.

A block that begins with ```console is what somebody sees in a terminal: `$ command`, then its output, `^C` where Ctrl-C is pressed. After
the language may stand `terminal 2`: a terminal of its own, in which a command may go on running while the page continues elsewhere; a
later block of the same terminal shows what it prints next. A block that begins with ```python NAME.py is a file of the working
directory.

Compared is line by line, with these liberties:

* `...` in a line stands for any text, and alone for any number of lines;
* ids, times and client ids need only have their form, and blanks any width;
* `9876`, `10911`, `8081`, `5557` and `10921` stand for the ports of the test.

Rules of this file
1. Commands find `orbitmq` and `python` of this environment, an empty home, and no variable of ours but the name server's.
2. `orbitmq serve` gets the test's ports, and levels of a second unless the page sets its own. A page without it finds a server running.
3. A command ends with exit code 0, or the page shows its `error:`.
4. What a page starts ends with it, by `^C` of the page or by the session. Nothing else is signalled.
"""

from __future__ import annotations

import contextlib
import os
import queue
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from doc_pages import Block
from tests.worlds.listening_ports import ports_in_a_row

LINE_LIMIT_S: Final = 30.0
LOOK_AGAIN_S: Final = 10.0
LOOKS: Final = re.compile(r"orbitmq (tail|replica status|group lag|topic stats|message show)|curl ")
"""Commands that only look, at something that other programs are just doing."""
PORTS: Final = ("9876", "10911", "8081", "5557", "10921")
SHORT_LEVELS: Final = " ".join(["1s"] * 18)
ANY: Final = "..."
PYTEST: Final = "-p no:asyncio -p no:cacheprovider -p no:orbitmq -p orbitmq.testing.plugin"
"""A reader has pytest with our plugin and no other; ours by name, so that it is this one where the installed entry points are older."""
FORMS: Final = (
    (r"\b[0-9A-F]{32}\b", "<id>"),
    (r"\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d([.,]\d+)?Z?", "<time>"),
    (r"\b\d+\.\d+\.\d+\.\d+@\d+#\d+", "<client>"),
)
COMMAND, INTERRUPT, REFUSED = "$ ", "^C", "error:"


class MismatchError(AssertionError):
    """A page shows something else than what happens."""


class Terminal:
    """One terminal: at most one command at a time, and the lines that it has printed."""

    def __init__(self, session: Session, *, stays: bool) -> None:
        """`stays`: its commands are single programs that may go on running."""
        self._session = session
        self.stays = stays
        self._lines: queue.Queue[str | None] = queue.Queue()
        self._process: subprocess.Popen[str] | None = None
        self._ended = True

    def start(self, command: str) -> None:
        assert self._ended, "the command before still runs; end it with ^C"
        # The program in the place of the shell, so that ^C meets nobody else.
        before = "exec " if self.stays else ""
        with interruptible():
            self._process = subprocess.Popen(
                ["/bin/sh", "-c", before + self._session.real(command)],
                cwd=self._session.folder,
                env=self._session.environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                start_new_session=True,
            )
        self._ended = False
        threading.Thread(target=self._read, args=(self._process,), daemon=True).start()

    def _read(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            self._lines.put(line.rstrip("\n"))
        self._lines.put(None)

    def _next(self, ends: float) -> str | None:
        """The next line, None at the end of the command's output. TimeoutError."""
        if self._ended:
            return None
        try:
            line = self._lines.get(timeout=max(ends - time.monotonic(), 0.001))
        except queue.Empty:
            raise TimeoutError from None
        if line is None:
            self._ended = True
            return None
        return self._session.documented(line)

    def expect(self, lines: Sequence[str], *, to_the_end: bool) -> None:
        """Compare what comes next with `lines`; with `to_the_end` nothing may follow, and the command has ended."""
        ends = time.monotonic() + LINE_LIMIT_S
        seen: list[str] = []
        skipping = False
        for expected in lines:
            if expected.strip() == ANY:
                skipping = True
                continue
            while True:
                line = self._line(ends, expected, seen)
                if matches(expected, line):
                    break
                if not skipping:
                    raise MismatchError(f"the page shows\n  {expected}\nand the command prints\n  " + "\n  ".join(seen))
            skipping = False
        while to_the_end and not self._ended:
            line = self._line(ends, None, seen)
            if line is not None and not skipping:
                raise MismatchError("the page ends before\n  " + "\n  ".join(seen))

    def _line(self, ends: float, expected: str | None, seen: list[str]) -> str | None:
        try:
            line = self._next(ends)
        except TimeoutError:
            raise MismatchError(
                f"nothing more came; the page shows {expected!r} after\n  " + "\n  ".join(seen)
            ) from None
        if line is None:
            if expected is not None:
                raise MismatchError(f"the command ended; the page shows {expected!r} after\n  " + "\n  ".join(seen))
            return None
        seen.append(line)
        return line

    def interrupt(self) -> int:
        """Ctrl-C, and the exit code; what is printed meanwhile is left out."""
        assert self._process is not None
        assert self._process.poll() is None, "nothing runs here that ^C could end"
        os.killpg(self._process.pid, signal.SIGINT)
        ends = time.monotonic() + LINE_LIMIT_S
        with contextlib.suppress(TimeoutError):
            while self._next(ends) is not None:
                pass
        return self._process.wait(LINE_LIMIT_S)

    def exit_code(self) -> int:
        assert self._process is not None
        return self._process.wait(LINE_LIMIT_S)

    def close(self) -> None:
        """End what is left, its children included, and forget what it printed."""
        if self._process is not None and self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGTERM)
            try:
                self._process.wait(LINE_LIMIT_S)
            except subprocess.TimeoutExpired:
                os.killpg(self._process.pid, signal.SIGKILL)
                self._process.wait()
        while not self._ended:
            self._ended = self._lines.get(timeout=LINE_LIMIT_S) is None


class Session:
    """What a reader does with one page, in one working directory."""

    def __init__(self, folder: Path, programs: Path) -> None:
        self.folder = folder
        row = ports_in_a_row(8)  # the broker's second port is two below, the one for slaves above it
        own = (row[0], row[3], row[5], row[6], row[7])
        self._ports = dict(zip(PORTS, map(str, own), strict=True))
        for command, arguments in (("python", ""), ("orbitmq", " -m orbitmq")):
            shim = programs / command
            shim.write_text(f'#!/bin/sh\nexec "{sys.executable}"{arguments} "$@"\n', encoding="utf-8")
            shim.chmod(0o755)
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(("ORBITMQ_", "NAMESRV_"))}
        self.environment = {
            **inherited,
            "PATH": f"{programs}:{os.environ['PATH']}",
            "HOME": str(programs),
            "XDG_CONFIG_HOME": str(programs / "configuration"),
            "ORBITMQ_NAMESRV": self.address,
            "PYTHONUNBUFFERED": "1",
            "COLUMNS": "200",
            "PYTEST_ADDOPTS": PYTEST,
        }
        self._terminals: dict[str, Terminal] = {}

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._ports['9876']}"

    def real(self, text: str) -> str:
        """With the ports of the test, and what `orbitmq serve` needs here."""
        if text.startswith("orbitmq serve ") and "messageDelayLevel" not in text:
            text += f" --set 'messageDelayLevel={SHORT_LEVELS}'"
        if text.startswith("orbitmq serve "):
            text += " --nameserver-port 9876 --broker-port 10911 --grpc-port 8081 --http-port 5557"
        return re.sub(r"\b(9876|10911|8081|5557|10921)\b", lambda found: self._ports[found[1]], text)

    def documented(self, text: str) -> str:
        for port, own in self._ports.items():
            text = re.sub(rf"\b{own}\b", port, text)
        return text

    def serve(self) -> None:
        """A server for a page that does not start one."""
        terminal = self._terminals["server"] = Terminal(self, stays=True)
        terminal.start("orbitmq serve --data data")
        terminal.expect(["...", "orbitmq serves ..."], to_the_end=False)

    def write(self, block: Block) -> None:
        """A program of the page as a file."""
        (self.folder / block.info).write_text(self.real(block.text), encoding="utf-8")

    def play(self, block: Block) -> None:
        """One console block. MismatchError names its place."""
        terminal = self._terminals.setdefault(block.info, Terminal(self, stays=bool(block.info)))
        try:
            for command, lines in steps(block.text):
                if command == INTERRUPT:
                    if code := terminal.interrupt():
                        raise MismatchError(f"^C ends it with exit code {code}")
                elif command is None:
                    terminal.expect(lines, to_the_end=not terminal.stays)
                else:
                    self._run(terminal, command, lines)
        except (MismatchError, AssertionError) as error:
            raise MismatchError(f"{block.place}: {error}") from error

    def _run(self, terminal: Terminal, command: str, lines: list[str]) -> None:
        """One command. A reader who looks too early looks again, and so do we."""
        ends = time.monotonic() + LOOK_AGAIN_S
        while True:
            terminal.start(command)
            try:
                terminal.expect(lines, to_the_end=not terminal.stays)
                if terminal.stays or not terminal.exit_code() or any(line.startswith(REFUSED) for line in lines):
                    return
                raise MismatchError(f"exit code {terminal.exit_code()} of {command}, and no error is shown")
            except MismatchError:
                if not LOOKS.match(command) or time.monotonic() > ends:
                    raise
            terminal.close()

    def close(self) -> None:
        for terminal in reversed(self._terminals.values()):
            terminal.close()


def steps(text: str) -> Iterator[tuple[str | None, list[str]]]:
    """(command or `^C`, lines printed then); the first without a command when the block goes on with what ran before."""
    command: str | None = None
    lines: list[str] = []
    begun = False
    for line in text.splitlines():
        if line.startswith(COMMAND) or line == INTERRUPT:
            if begun:
                yield command, lines
            command, lines = line.removeprefix(COMMAND), []
        else:
            lines.append(line)
        begun = True
    yield command, lines


def matches(expected: str, line: str | None) -> bool:
    if line is None:
        return False
    pattern = ".*".join(re.escape(piece) for piece in plain(expected).split(ANY))
    return re.fullmatch(pattern, plain(line)) is not None


def plain(line: str) -> str:
    for form, word in FORMS:
        line = re.sub(form, word, line)
    return " ".join(line.split())


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """What is started here can be interrupted, even when this process ignores Ctrl-C because it runs in the background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
