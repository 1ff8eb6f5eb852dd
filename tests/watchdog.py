"""A test that hangs is named, with the stacks of all its processes, and the run goes on to its summary.

pytest-timeout ends a test that is late, once. What then waits again, as the end of a fixture may, waits for ever. So a thread looks:

    at the test's limit + 60 s    prints the test and what all processes below this one do, and ends those below
    60 s later                    ends this process: with `-n` the others go on and the test counts as failed; without, the figures are
                                  printed as they are

Rules of this file
1. Nothing here touches a test that ends in time.
2. Limits are those of pytest-timeout: the marker, or the setting; a test without one is not watched.
"""

from __future__ import annotations

import faulthandler
import os
import sys
import threading
from collections.abc import Generator
from pathlib import Path
from typing import Final

import pytest

sys.path.append(str(Path(__file__).resolve().parent))

from processes import end_descendants, show_family

GRACE_S: Final = 60.0
HUNG_EXIT_CODE: Final = 70
TOLD_CHARACTERS_MAX: Final = 2_000
"""Of each failure before, when the process ends without its summary."""


class Watchdog:
    """The plugin, in each process that runs tests."""

    def __init__(self, config: pytest.Config, *, grace_s: float = GRACE_S) -> None:
        self._config = config
        self._grace_s = grace_s
        self._err = os.fdopen(os.dup(2), "w", buffering=1)
        """Where the run prints, whatever a test captures."""
        self._over = threading.Event()

    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        limit_s = limit_of(item)
        if limit_s is None:
            return (yield)
        over = self._over = threading.Event()
        watcher = threading.Thread(target=self._watch, args=(item.nodeid, limit_s, over), daemon=True)
        watcher.start()
        try:
            return (yield)
        finally:
            over.set()

    def _watch(self, test: str, limit_s: float, over: threading.Event) -> None:
        if over.wait(limit_s + self._grace_s):
            return
        self._say(f"\nHUNG: {test} is not over {self._grace_s:g} s after its limit of {limit_s:g} s. Its processes:")
        faulthandler.dump_traceback(self._err.fileno())
        self._say(show_family(os.getpid()))
        self._say(f"{end_descendants(os.getpid())} processes below it were ended")
        if over.wait(self._grace_s):
            return
        self._say(f"HUNG: {test} does not end without them either; this process ends")
        if not hasattr(self._config, "workerinput"):
            self._say(self._figures())
        os._exit(HUNG_EXIT_CODE)

    def _say(self, text: str) -> None:
        print(text, file=self._err, flush=True)

    def _figures(self) -> str:
        reporter = self._config.pluginmanager.get_plugin("terminalreporter")
        stats = {} if reporter is None else reporter.stats
        failed = [report for kind in ("failed", "error") for report in stats.get(kind, [])]
        told = [f"FAILED {report.nodeid}\n{report.longreprtext[-TOLD_CHARACTERS_MAX:]}" for report in failed]
        return "\n".join([*told, f"{len(stats.get('passed', []))} passed, {len(failed) + 1} failed"])


def limit_of(item: pytest.Item) -> float | None:
    """Seconds that pytest-timeout gives a test; None for as many as it likes."""
    marker = item.get_closest_marker("timeout")
    if marker is not None:
        given = marker.args[0] if marker.args else marker.kwargs.get("timeout", 0)
    else:
        given = getattr(item.config, "_env_timeout", None) or item.config.getini("timeout") or 0
    return float(given) or None
