"""The pytest plugin: fixtures that give a test an embedded broker.

    def test_an_unpaid_order_is_cancelled(orbitmq_broker):
        with orbitmq_broker.connect() as mq:
            mq.send("orders", b"42", delay_level=16)
        orbitmq_broker.advance(timedelta(minutes=30))
        assert [message.body for message in orbitmq_broker.messages("orders")] == [b"42"]

`orbitmq_broker` is for plain tests, `orbitmq_async_broker` for `async def` tests. Both fixtures are plain functions and their
brokers run on threads of their own, so any plugin that runs async tests will do (pytest-asyncio, anyio's), whatever the
scope of its loops. Override the fixture `orbitmq_settings` for other settings.

Rules of this file
1. Loaded into every pytest run of every environment that has orbitmq: it imports nothing of orbitmq before a test asks
   for a broker.
2. Every test has a broker of its own. Its directory goes with the test, unless it failed and `--orbitmq-keep` says otherwise.
"""

from __future__ import annotations

import shutil
from collections.abc import Generator, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from orbitmq.testing import EmbeddedBroker, SyncEmbeddedBroker

FIXTURES = frozenset({"orbitmq_broker", "orbitmq_async_broker"})
_failed = pytest.StashKey[bool]()
_kept = pytest.StashKey[Path]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.getgroup("orbitmq").addoption(
        "--orbitmq-keep",
        choices=("never", "failed", "always"),
        default="failed",
        help="keep the data of embedded brokers after tests that failed, or after all; the report says where they are",
    )


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if not FIXTURES.isdisjoint(getattr(item, "fixturenames", ())):
        if report.failed:
            item.stash[_failed] = True
        if report.when == "teardown" and (kept := item.stash.get(_kept, None)) is not None:
            report.sections.append(("orbitmq", f"the broker's data are kept in {kept}"))
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    kept = {
        content: None
        for reports in terminalreporter.stats.values()
        for report in reports
        for title, content in getattr(report, "sections", ())
        if title == "orbitmq"
    }
    for content in kept:
        terminalreporter.write_line(f"orbitmq: {content}")


@pytest.fixture
def orbitmq_settings() -> Mapping[str, str]:
    """Broker and name server keys for the brokers of a test, as in a configuration file; override it to give some."""
    return {}


@pytest.fixture
def _orbitmq_data(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The directory of one broker."""
    data = tmp_path_factory.mktemp("orbitmq")
    yield data
    keep = request.config.getoption("--orbitmq-keep")
    if keep == "always" or (keep == "failed" and request.node.stash.get(_failed, False)):
        request.node.stash[_kept] = data
    else:
        shutil.rmtree(data)


@pytest.fixture
def orbitmq_broker(_orbitmq_data: Path, orbitmq_settings: Mapping[str, str]) -> Iterator[SyncEmbeddedBroker]:
    """A running `SyncEmbeddedBroker` of this test alone."""
    from orbitmq.testing import EmbeddedBroker

    with EmbeddedBroker.sync(data=_orbitmq_data, settings=orbitmq_settings) as broker:
        yield broker


@pytest.fixture
def orbitmq_async_broker(_orbitmq_data: Path, orbitmq_settings: Mapping[str, str]) -> Iterator[EmbeddedBroker]:
    """A running `EmbeddedBroker` of this test alone, on a thread; awaited from whatever loop the test runs on."""
    from orbitmq.testing import EmbeddedBroker

    with EmbeddedBroker.on_thread(data=_orbitmq_data, settings=orbitmq_settings) as broker:
        yield broker
