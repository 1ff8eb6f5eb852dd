"""Processes that tests started: who descends from whom, what they are doing, and their end.

Rules of this file
1. Nothing is killed that does not descend from a process which the caller started.
2. Looking never waits for long: a program that shows stacks has a limit of its own.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final

SHOWN_PROCESSES_MAX: Final = 30
SHOW_LIMIT_S: Final = 15
STACK_LINES_MAX: Final = 150


def end_process(pid: int) -> bool:
    """kill -9. Whether there was such a process."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


def descendants(pid: int) -> list[int]:
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            parents.setdefault(int(fields[1]), []).append(int(entry.name))
    found: list[int] = []
    ask = [pid]
    while ask:
        children = parents.get(ask.pop(), [])
        found += children
        ask += children
    return found


def command_line(pid: int) -> bytes:
    """Empty for a process that is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def end_descendants(pid: int) -> int:
    """End everything below a process; how many there were."""
    return sum([end_process(one) for one in descendants(pid)])


def within(limit_s: float, action: Callable[[], object]) -> bool:
    """Run `action` on a thread of its own; False when it is not over after that time, and then it is left alone. Raises what it raised."""
    failed: list[BaseException] = []

    def run() -> None:
        try:
            action()
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(limit_s)
    if failed:
        raise failed[0]
    return not thread.is_alive()


def show_family(pid: int) -> str:
    """What a process and everything below it are doing: command lines, and stacks where a program can tell them."""
    family = [pid, *descendants(pid)]
    shown = [_show(one) for one in family[:SHOWN_PROCESSES_MAX]]
    left = len(family) - len(shown)
    return "\n".join([*shown, *([f"and {left} processes more"] if left > 0 else [])])


def _show(pid: int) -> str:
    line = command_line(pid).replace(b"\0", b" ").decode(errors="replace")[:300]
    try:
        waits_in = Path(f"/proc/{pid}/wchan").read_text()
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return f"--- process {pid} is gone: {line}"
    return f"--- process {pid}, state {state}, in the kernel {waits_in}: {line}\n{_stack(pid, line)}"


def _stack(pid: int, line: str) -> str:
    java = Path(line.partition(" ")[0]).name == "java"
    program = shutil.which("jstack") if java else shutil.which("py-spy") or _beside_python("py-spy")
    if program is None:
        return f"(no program shows its stacks: {'jstack' if java else 'py-spy'} is not installed)"
    command = [program, str(pid)] if java else [program, "dump", "--pid", str(pid)]
    try:
        ran = subprocess.run(command, capture_output=True, text=True, timeout=SHOW_LIMIT_S, check=False)
    except subprocess.TimeoutExpired:
        return f"(it did not show its stacks within {SHOW_LIMIT_S} s)"
    lines = (ran.stdout or ran.stderr).splitlines()
    return "\n".join(lines[:STACK_LINES_MAX])


def _beside_python(name: str) -> str | None:
    """A program of the environment that runs this."""
    import sys

    path = Path(sys.executable).with_name(name)
    return str(path) if path.exists() else None
