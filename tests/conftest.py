"""Rules that hold for every test, figures that tests print, and the golden stores.

A test that cannot run says why (`pytest.skip`) and is counted. With ORBITMQ_REQUIRE_ALL=1, which continuous
integration sets, a skip is a failure: there everything has to run.
"""

from __future__ import annotations

import gc
import json
import lzma
import os
import signal
import sys
import tarfile
from collections.abc import Callable, Generator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import settings

settings.register_profile("untimed", settings.default, deadline=None)  # the machine may be busy
settings.load_profile("untimed")

REQUIRE_ALL = os.environ.get("ORBITMQ_REQUIRE_ALL") == "1"

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell starts background jobs deaf to Ctrl-C, and their children inherit it; some tests press it.
    signal.signal(signal.SIGINT, signal.default_int_handler)


JUDGES_OF_PROGRAMS = frozenset({"chaos", "crash", "edges", "interop", "spark", "system"})
"""Suites whose tests watch programs by the clock of a machine that others load too."""

SECOND_TRY_AFTER_S = 2

HAS_FAILED = pytest.StashKey[bool]()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """In continuous integration a judge of programs that fails is tried once more; the run says so, with what failed first.

    How many may be, in a whole run, is given by `.ci/run`.
    """
    tests = Path(__file__).resolve().parent
    judges = tuple(f"{tests / suite}{os.sep}" for suite in JUDGES_OF_PROGRAMS)
    for item in items if REQUIRE_ALL else ():
        if str(item.path).startswith(judges):
            item.add_marker(pytest.mark.flaky(reruns=1, reruns_delay=SECOND_TRY_AFTER_S))


def pytest_collection() -> None:
    """Almost nothing of what is made meanwhile is garbage; looking for it is a quarter of what collecting a whole run takes."""
    gc.disable()


def pytest_collection_finish() -> None:
    """What was collected stays to the end: it is not looked through at every collection of garbage, of which tests of crashes ask for
    thousands, with 660,000 objects of a whole run half a second each."""
    gc.enable()
    gc.collect()
    gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if REQUIRE_ALL and report.skipped and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        report.outcome = "failed"
        report.longrepr = f"skipped although everything is required to run here: {reason}"
    item.stash[HAS_FAILED] = report.failed
    return report


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> None:
    """What a failed judge of programs used is ended, servers that others share too: its second try finds nothing that the first left."""
    if item.get_closest_marker("flaky") is not None and item.stash[HAS_FAILED]:
        item.session._setupstate.teardown_exact(None)


def pytest_configure(config: pytest.Config) -> None:
    """With `-n 2` the suites share the machine by the rules of `lanes`; a test that hangs is ended by `watchdog`."""
    sys.path.insert(0, str(Path(__file__).resolve().parent))
    if sys.platform == "linux":
        from costs import Costs

        config.pluginmanager.register(Costs())
    if config.pluginmanager.has_plugin("timeout"):
        from watchdog import Watchdog

        config.pluginmanager.register(Watchdog(config))
    if hasattr(config, "workerinput") or getattr(config.option, "numprocesses", None):
        from lanes import Lanes

        config.pluginmanager.register(Lanes(config))


@pytest.fixture
def figure(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """Adds a line to the figures printed at the end of the run, whichever process the test runs in."""
    return lambda line: request.node.user_properties.append(("figure", line))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    reports = [report for several in terminalreporter.stats.values() for report in several]
    figures = [
        f"{report.nodeid.partition('::')[0]}: {value}"
        for report in reports
        if isinstance(report, pytest.TestReport) and report.when == "call"
        for name, value in report.user_properties
        if name == "figure"
    ]
    if figures:
        terminalreporter.section("figures")
        for line in figures:
            terminalreporter.write_line(line)


STORES = Path(__file__).parent / "vectors" / "stores"
STORE_NAMES = sorted(path.name.removesuffix(".tar.xz") for path in STORES.glob("*.tar.xz"))


class GoldenStore(NamedTuple):
    """A directory written by the Java broker, unpacked for this test alone, and what it contains."""

    root: Path
    expected: dict[str, Any]


def unpack_store(name: str, into: Path) -> Path:
    """Unpack a store; long runs of zeros become holes, as the Java broker leaves them."""
    with tarfile.open(STORES / f"{name}.tar.xz") as archive:
        for member in archive:
            target = into / member.name
            if member.isdir():
                target.mkdir(parents=True, exist_ok=True)
                continue
            source = archive.extractfile(member)
            assert source is not None
            target.parent.mkdir(parents=True, exist_ok=True)
            with target.open("wb") as file:
                while chunk := source.read(1 << 16):
                    if chunk.count(0) == len(chunk):
                        file.seek(len(chunk), os.SEEK_CUR)
                    else:
                        file.write(chunk)
                file.truncate(member.size)
    return into / name


def expected_of_store(name: str) -> dict[str, Any]:
    expected: dict[str, Any] = json.loads(lzma.decompress((STORES / f"{name}.expected.json.xz").read_bytes()))
    return expected


@pytest.fixture
def golden_store(tmp_path: Path) -> Callable[[str], GoldenStore]:
    """Unpacks a store of tests/vectors/stores by name, for a test that changes it."""
    return lambda name: GoldenStore(unpack_store(name, tmp_path), expected_of_store(name))


@pytest.fixture(scope="session")
def shared_store(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], GoldenStore]:
    """The same, unpacked once for all tests that only read."""

    @cache
    def unpack(name: str) -> GoldenStore:
        return GoldenStore(unpack_store(name, tmp_path_factory.mktemp("stores")), expected_of_store(name))

    return unpack


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test with an argument `store_name` runs once for each golden store."""
    if "store_name" in metafunc.fixturenames:
        metafunc.parametrize("store_name", STORE_NAMES)
