"""`pytest -n 5`: lanes on a machine with two cores, without disturbing what measures the machine.

Most tests keep one core busy, so two lanes compute. Some wait for due times, retries and other programs most of the time; those are
for the other lanes, which add little to what the machine has to do. When nothing is left that waits, a third lane computes: what
computes waits as well, a third of its time. Tests marked `alone` measure rates, lateness or
idleness; nothing runs beside those, and they come last, when the lanes have nothing else.

Rules of this file
1. Without `-n` nothing here does anything; with `-n 2` the second lane begins with what waits and computes after that.
2. A test that runs alone waits for the other lanes' present tests, and they wait for it. Waiting comes before a test's
   time limit begins.
3. Tests that share a broker or a Spark session stay on one lane, but for files that share nothing. Everything else goes file by file.
4. The longest first, as `LASTS_S` says, so that the lanes end together; of the others the suites that are long.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import tempfile
from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

TESTS: Final = Path(__file__).resolve().parent

COMPUTING_MAX: Final = 2
"""Lanes that compute: one for each core."""

SHARING: Final = frozenset({"interop", "spark"})
"""Suites whose files share a broker, ours or RocketMQ's, or a Spark session."""

APART: Final = frozenset({
    "tests/interop/test_grpc_administration.py", "tests/interop/test_grpc_clients.py", "tests/interop/test_grpc_howto.py",
    "tests/interop/test_grpc_programs.py", "tests/interop/test_http2_conformance.py",
    "tests/interop/test_java_archive.py", "tests/interop/test_java_far_timers.py", "tests/interop/test_java_pairs.py",
    "tests/interop/test_java_pending_timers.py",
    "tests/interop/test_java_proxy.py", "tests/interop/test_java_store_judge.py", "tests/interop/test_java_timer_files.py",
    "tests/interop/test_nameserver_interop.py", "tests/interop/test_newest_stores.py", "tests/interop/test_priorities.py",
    "tests/interop/test_readme_program.py",
    "tests/spark/test_clusters.py", "tests/spark/test_declarative.py", "tests/spark/test_killed_reads.py",
    "tests/spark/test_killed_writes.py", "tests/spark/test_standalone.py",
})  # fmt: skip
"""Files of these suites that start everything themselves."""

ALONE: Final = frozenset({
    "tests/chaos/test_soak.py", "tests/interop/test_lateness_meter.py", "tests/interop/test_timed_link.py",
    "tests/system/test_ceilings.py", "tests/system/test_idle.py", "tests/system/test_overload.py",
})  # fmt: skip
"""Files with the marker `alone`."""

WAITING: Final = frozenset({
    "tests/chaos", "tests/interop", "tests/spark", "tests/system/test_demo.py", "tests/unit/docs/test_console_pages.py",
})  # fmt: skip
"""Suites and files that wait most of the time: they use a third of a core."""

ORDER: Final = {"spark": 0, "interop": 1, "crash": 2, "property": 3, "system": 4}
"""The longest first. Suites that are not named come after these; what runs alone comes last."""


LASTS_S: Final = {
    "tests/spark": 1200, "tests/interop": 1000, "tests/interop/test_java_pending_timers.py": 480, "tests/spark/test_standalone.py": 420,
    "tests/spark/test_killed_writes.py": 350, "tests/interop/java": 270, "tests/spark/test_killed_reads.py": 190,
    "tests/interop/test_java_store_judge.py": 165, "tests/interop/test_java_pairs.py": 150, "tests/spark/test_declarative.py": 150,
    "tests/unit/docs/test_console_pages.py": 130, "tests/spark/test_clusters.py": 110, "tests/interop/test_java_archive.py": 95,
    "tests/crash/test_errors.py": 130, "tests/crash/test_campaign.py": 100, "tests/system/test_cli.py": 80, "tests/edges/test_edges.py": 75,
    "tests/property/test_pair_life.py": 60, "tests/chaos/test_day.py": 150,
}  # fmt: skip
"""What takes a minute or longer in a whole run on lanes, as its end says ([costs.py]); a guess is enough."""

COMPUTES, WAITS, IS_ALONE = range(3)


def scope_of(nodeid: str) -> str:
    """What is given out together with a test: its file, or all of a suite that shares something."""
    file = nodeid.partition("::")[0]
    suite = suite_of(TESTS.parent / file)
    if suite not in SHARING or file in APART | ALONE:
        return file
    return f"tests/{suite}/java" if "java" in re.split(r"[][-]", nodeid) else f"tests/{suite}"


def suite_of(path: Path) -> str:
    """The folder of `tests` that a file is in; empty for a file elsewhere."""
    return path.relative_to(TESTS).parts[0] if path.is_relative_to(TESTS) else ""


def rank(scope: str) -> int:
    """Of a suite or file that is given out."""
    if scope in ALONE:
        return IS_ALONE
    return WAITS if scope in WAITING or scope.rpartition("/")[0] in WAITING else COMPUTES


class Scheduler(LoadScopeScheduling):
    """Gives out suites that share something whole, and all others by file.

    A lane may die of its test, as of one that hangs: the test has failed and is not given out again; what is left of the lane's work
    goes to the one that takes its place, once that has said what it collected. If it collects something else, the run is over.
    """

    def _split_scope(self, nodeid: str) -> str:
        return scope_of(nodeid)

    def add_node_collection(self, node: WorkerController, collection: Sequence[str]) -> None:
        super().add_node_collection(node, collection)
        if self.collection is not None and node not in self.registered_collections:
            reason = f"{node.gateway.id} finds other tests than the lanes before it: files were changed during the run"
            self.config.pluginmanager.getplugin("dsession").shouldstop = reason

    def remove_node(self, node: WorkerController) -> str | None:
        work = self.assigned_work[node]
        died_of = next((test for unit in work.values() for test, is_over in unit.items() if not is_over), None)
        left = {
            scope: {test: False for test, is_over in unit.items() if not is_over and test != died_of}
            for scope, unit in work.items()
        }
        del self.assigned_work[node]
        self.workqueue.update({scope: unit for scope, unit in left.items() if unit})
        for other in self.nodes if self.workqueue else ():
            self._reschedule(other)
        return died_of

    def _next_scope(self, node: WorkerController) -> str | None:
        """What a lane is given next. The last of two lanes and all beyond two begin with what waits; the third computes when nothing waits
        any more."""
        place = self.nodes.index(node)
        ranks = {scope: rank(scope) for scope in self.workqueue}
        if place >= COMPUTING_MAX:
            kinds = (WAITS, COMPUTES) if place == COMPUTING_MAX else (WAITS,)
            return next((scope for kind in kinds for scope in ranks if ranks[scope] == kind), None)
        order = (WAITS, COMPUTES, IS_ALONE) if place == 1 == self.numnodes - 1 else (COMPUTES, WAITS, IS_ALONE)
        return min(ranks, key=lambda scope: order.index(ranks[scope]), default=None)

    def _assign_work_unit(self, node: WorkerController) -> None:
        scope = self._next_scope(node)
        if scope is None:
            node.shutdown()
            return
        self.workqueue.move_to_end(scope, last=False)
        super()._assign_work_unit(node)

    def _reschedule(self, node: WorkerController) -> None:
        """A lane begins a test when it knows the next one: small units are given out until it does."""
        before = -1
        while node in self.registered_collections and len(self.workqueue) != before:
            before = len(self.workqueue)
            super()._reschedule(node)


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
        items.sort(
            key=lambda item: (-LASTS_S.get(scope_of(item.nodeid), 0), ORDER.get(suite_of(item.path), len(ORDER)))
        )

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
