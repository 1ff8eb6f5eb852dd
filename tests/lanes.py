"""`pytest -n 2`: two lanes on a machine with two cores, without disturbing what measures the machine.

Most tests of servers wait most of the time, and most others keep one core busy: side by side they take little longer than the
slower of them. Tests marked `alone` measure rates, lateness or idleness; nothing runs beside those.

Rules of this file
1. Without `-n` nothing here does anything.
2. A test that runs alone waits for the other lane's present test, and the other lane waits for it. Waiting comes before a test's
   time limit begins.
3. Suites whose tests share servers, a broker or a Spark session stay on one lane, but for files that share nothing. Everything
   else goes file by file.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Generator, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

TESTS: Final = Path(__file__).resolve().parent
SHARING: Final = frozenset({"chaos", "interop", "spark", "system"})
APART: Final = frozenset(
    {"tests/spark/test_declarative.py", "tests/spark/test_killed_reads.py", "tests/spark/test_killed_writes.py"}
)
"""Files of these suites that start everything themselves, and take long."""

ORDER: Final = {"interop": 0, "crash": 1, "property": 2, "system": 4, "spark": 5, "chaos": 6}
"""What waits beside what computes, and the longest first, so that the lanes end together. Suites that are not named come third."""


def suite_of(path: Path) -> str:
    """The folder of `tests` that a file is in; empty for a file elsewhere."""
    return path.relative_to(TESTS).parts[0] if path.is_relative_to(TESTS) else ""


class Scheduler(LoadScopeScheduling):
    """Gives out suites that share something whole, and all others by file."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        suite = suite_of(self.config.rootpath / file)
        return suite if suite in SHARING and file not in APART else file


class Lanes:
    """The plugin, in the process that gives tests out and in those that run them."""

    def __init__(self, config: pytest.Config) -> None:
        given: dict[str, str] | None = getattr(config, "workerinput", None)
        self._is_lane = given is not None
        self._folder = Path(given["lanes"] if given is not None else tempfile.mkdtemp(prefix="lanes-"))

    # --- giving out -------------------------------------------------------------------------------------------------

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: WorkerController) -> None:
        node.workerinput["lanes"] = str(self._folder)

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_make_scheduler(self, config: pytest.Config, log: Producer) -> Scheduler:
        config.option.loadscopereorder = False
        return Scheduler(config, log)

    def pytest_unconfigure(self) -> None:
        if not self._is_lane:
            shutil.rmtree(self._folder, ignore_errors=True)

    # --- running ----------------------------------------------------------------------------------------------------

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items.sort(key=lambda item: ORDER.get(suite_of(item.path), 3))

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        with self._turn(alone=item.get_closest_marker("alone") is not None):
            return (yield)

    @contextmanager
    def _turn(self, *, alone: bool) -> Iterator[None]:
        """The gate is passed one by one, so nobody overtakes a test that waits for the room to be empty."""
        with ExitStack() as stack:
            with _locked(self._folder / "gate", fcntl.LOCK_EX):
                stack.enter_context(_locked(self._folder / "room", fcntl.LOCK_EX if alone else fcntl.LOCK_SH))
            yield


@contextmanager
def _locked(path: Path, kind: int) -> Iterator[None]:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, kind)
        try:
            yield
        finally:
            fcntl.flock(descriptor, fcntl.LOCK_UN)  # also for children that were forked meanwhile
    finally:
        os.close(descriptor)
