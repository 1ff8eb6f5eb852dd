"""Faults of the machine below a real server: a preloaded library, and the page of memory by which a test tells it what to do.

Rules of this file
1. The layout is that of `struct control` in faults.c. Offsets of files are bytes; the clock is moved in nanoseconds.
2. Nothing happens until it is asked for, and a server that runs is told without a signal.
"""

from __future__ import annotations

import atexit
import functools
import mmap
import shutil
import subprocess
import tempfile
import uuid
from enum import IntEnum
from pathlib import Path
from struct import Struct
from typing import Final

SOURCE: Final = Path(__file__).with_name("faults.c")
NS_PER_MS: Final = 1_000_000

_HEAD: Final = Struct("=qq6q512s512s512s")
_RULE: Final = Struct("=8q200s")
_RULES: Final = 16
_COUNTS_AT: Final = 16
_ROOT_AT, _COPIES_AT, _BOOT_AT = (_HEAD.size - 512 * left for left in (3, 2, 1))


class Kind(IntEnum):
    """Calls that can fail."""

    READ = 0
    READ_NOWAIT = 1
    """Reads of what is in memory only; EAGAIN says that it is not."""
    WRITE = 2
    OPEN = 3
    SYNC = 4
    ALLOCATE = 5
    """Reserving space, and changing a file's size."""


class NoCompilerError(Exception):
    """The library cannot be made here."""


@functools.cache
def library() -> Path:
    """The compiled library. Cost: half a second, once for each process."""
    compiler = shutil.which("cc")
    if compiler is None:
        raise NoCompilerError("there is no C compiler named cc, which makes the library of faults")
    folder = tempfile.mkdtemp(prefix="edges-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    target = Path(folder) / "faults.so"
    command = [compiler, "-shared", "-fPIC", "-O2", "-Wall", "-Wextra", "-Werror", "-o", str(target), str(SOURCE)]
    subprocess.run([*command, "-ldl", "-pthread"], check=True)
    return target


class Faults:
    """What one server meets. `root` is the folder whose files may fail."""

    def __init__(self, folder: Path, root: Path) -> None:
        """folder: for the control page, and for what was synced."""
        folder.mkdir(parents=True, exist_ok=True)
        self._path = folder / "control"
        self._path.write_bytes(bytes(_HEAD.size + _RULES * _RULE.size))
        with self._path.open("r+b") as file:
            self._page = mmap.mmap(file.fileno(), 0)
        self._folder = self._copies = folder
        self._root = root
        self._text(_ROOT_AT, str(root.resolve()))
        self._rules = 0

    def _text(self, at: int, value: str) -> None:
        data = value.encode()
        assert len(data) < 512, "paths of this test are too long for the library of faults"
        self._page[at : at + 512] = data.ljust(512, b"\0")

    def _number(self, at: int) -> int:
        return int.from_bytes(self._page[at : at + 8], "little", signed=True)

    def _set(self, at: int, value: int) -> None:
        self._page[at : at + 8] = value.to_bytes(8, "little", signed=True)

    def environment(self) -> dict[str, str]:
        """What the server needs in its environment."""
        return {"LD_PRELOAD": str(library()), "EDGES_CONTROL": str(self._path)}

    # --- calls that fail ------------------------------------------------------------------------------------------------

    def fail(
        self,
        kind: Kind,
        error: int,
        part: str,
        *,
        delay_ms: int = 0,
        skip: int = 0,
        times: int = 1 << 40,
        begin: int = 0,
        end: int = 1 << 60,
    ) -> int:
        """Let calls on files whose path contains `part` fail, those on bytes from `begin` to `end`: the first `skip` of them
        pass, the next `times` fail after `delay_ms`; with error 0 they only take that longer. Gives the rule's number."""
        number = self._rules % _RULES
        self._rules += 1
        at = _HEAD.size + number * _RULE.size
        self._page[at : at + _RULE.size] = _RULE.pack(
            kind, error, delay_ms * 1000, skip, times, begin, end, 0, part.encode()
        )
        return number

    def hits(self, rule: int) -> int:
        """Calls that the rule has looked at, those that passed among them."""
        return self._number(_HEAD.size + rule * _RULE.size + 56)

    def heal(self, rule: int) -> None:
        self._set(_HEAD.size + rule * _RULE.size + 32, 0)

    def count(self, kind: Kind) -> int:
        """Calls of the kind so far, of all servers with this page."""
        return self._number(_COUNTS_AT + 8 * kind)

    def forget_syncs(self, forget: bool = True) -> None:
        """Let every sync succeed without doing anything."""
        self._set(8, int(forget))

    # --- the clock --------------------------------------------------------------------------------------------------------

    def move_clock(self, ms: int) -> None:
        """Let the server's wall clock be that far from the machine's."""
        self._set(0, ms * NS_PER_MS)

    # --- power ------------------------------------------------------------------------------------------------------------

    def keep_what_is_synced(self) -> None:
        """From now on a copy of what a power failure would leave is kept; say so before the server starts. Everything that is
        there now counts as synced. The server sees a start of the machine of its own."""
        copies = self._copies = self._folder / f"synced-{uuid.uuid4()}"
        for name in ("names", "content", "pins"):
            (copies / name).mkdir(parents=True)
        for path in sorted(self._root.rglob("*")):
            name = copies / "names" / path.relative_to(self._root)
            if path.is_dir():
                name.mkdir()
                continue
            number = str(path.stat().st_ino)
            (copies / "pins" / number).hardlink_to(path)
            _copy(path, copies / "content" / number)
            name.hardlink_to(copies / "content" / number)
        self._text(_COPIES_AT, str(copies))
        boot = copies / "boot_id"
        boot.write_text(f"{uuid.uuid4()}\n", encoding="ascii")
        self._text(_BOOT_AT, str(boot))

    def cut_power(self) -> None:
        """Make the folder what the power failure leaves, and go on. The server must be dead."""
        shutil.rmtree(self._root)
        _copy(self._copies / "names", self._root)
        self.keep_what_is_synced()


def _copy(source: Path, target: Path) -> None:
    subprocess.run(["cp", "-r", "--sparse=always", str(source), str(target)], check=True)
