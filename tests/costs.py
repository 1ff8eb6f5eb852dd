"""What a run costs: for each suite how long its tests took and how much CPU they and their programs used, printed at the end.

Wall time tells how full the lanes are, CPU how full the machine is: what waits can be moved beside something else, what computes can
only be made less. Budgets of CONTRIBUTING.md are held against this table.

Rules of this file
1. CPU is read from /proc when a file of tests ends, not more often: of the process that runs tests, of what it started, and of what
   those started, ended ones included. What has outlived its parent is not seen.
2. Nothing here decides about a test.
"""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Generator
from pathlib import Path
from typing import Final

import pytest

from processes import descendants

TESTS: Final = Path(__file__).resolve().parent
TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")
FILES_SHOWN: Final = 40
"""The files that took longest; what comes after them is not worth a line."""


class Costs:
    """The plugin: in each process that runs tests it reads, in the one that prints it adds up."""

    def __init__(self) -> None:
        self._read_s = cpu_s()
        self._began = time.monotonic()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_teardown(
        self, item: pytest.Item, nextitem: pytest.Item | None
    ) -> Generator[None, object, object]:
        try:
            return (yield)
        finally:
            if nextitem is None or nextitem.path != item.path:
                before, self._read_s = self._read_s, cpu_s()
                item.user_properties.append(("cpu_s", self._read_s - before))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        reports = [
            report
            for several in terminalreporter.stats.values()
            for report in several
            if isinstance(report, pytest.TestReport)
        ]
        if len({report.nodeid.partition("::")[0] for report in reports}) < 2:
            return
        terminalreporter.section(f"costs of {time.monotonic() - self._began:.0f} s")
        for line in [*table(reports), *lanes(reports)]:
            terminalreporter.write_line(line)


def table(reports: list[pytest.TestReport]) -> list[str]:
    """Suites with their wall time and CPU in seconds, then the files that took longest, with when they began and ended."""
    wall: defaultdict[str, float] = defaultdict(float)
    cpu: defaultdict[str, float] = defaultdict(float)
    first = min((report.start for report in reports), default=0.0)
    began: dict[str, float] = {}
    ended: dict[str, float] = {}
    for report in reports:
        file = report.nodeid.partition("::")[0]
        wall[file] += report.duration
        began[file] = min(began.get(file, report.start), report.start)
        ended[file] = max(ended.get(file, report.stop), report.stop)
        if report.when == "teardown":
            cpu[file] += sum(value for name, value in report.user_properties if name == "cpu_s")
    suites = defaultdict(list)
    for file in wall:
        suites[suite_of(file)].append(file)
    rows = [
        (name, sum(wall[file] for file in files), sum(cpu[file] for file in files)) for name, files in suites.items()
    ]
    rows.sort(key=lambda row: -row[1])
    rows.append(("all", sum(wall.values()), sum(cpu.values())))
    for file in sorted(wall, key=lambda file: -wall[file])[:FILES_SHOWN]:
        rows.append((f"{file}, from {began[file] - first:.0f} to {ended[file] - first:.0f} s", wall[file], cpu[file]))
    return [f"{wall_s:7.0f} s  {cpu_s:7.0f} s CPU  {name}" for name, wall_s, cpu_s in rows]


def lanes(reports: list[pytest.TestReport]) -> list[str]:
    """Of each lane how long its tests took, when the last ended (from the start of the first of all), and its file."""
    named = [(report.node.gateway.id, report) for report in reports if hasattr(report, "node")]
    began = min((report.start for _, report in named), default=0.0)
    lines = []
    for lane in sorted({lane for lane, _ in named}):
        of_lane = [report for name, report in named if name == lane]
        last = max(of_lane, key=lambda report: report.stop)
        busy_s = sum(report.duration for report in of_lane)
        lines.append(
            f"{busy_s:7.0f} s of tests on lane {lane}, until {last.stop - began:.0f} s, {last.nodeid.partition('::')[0]}"
        )
    return lines


def suite_of(file: str) -> str:
    """`tests/NAME` of a file of tests."""
    return "/".join(file.split("/")[:2])


def cpu_s() -> float:
    """CPU seconds of this process and of everything below it so far."""
    return sum(_cpu_of(pid) for pid in (os.getpid(), *descendants(os.getpid())))


def _cpu_of(pid: int) -> float:
    """Of a process and of its children that have ended and were waited for."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return sum(map(int, fields[11:15])) / TICKS_PER_S
