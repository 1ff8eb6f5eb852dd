"""Fixtures of the interoperability tests.

Which brokers the client tests run against says `INTEROP_BROKERS` (see `rig.brokers.KINDS_UNDER_TEST`). When it says nothing, those of our
own client run against RocketMQ's, too: clients of others are judged by our broker, ours is judged by theirs.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))

pytest.register_assert_rewrite("rig.contract", "rig.ledger")

from rig.brokers import KINDS_UNDER_TEST, BrokerUnderTest, Kind  # noqa: E402
from rig.toolchain import Missing  # noqa: E402

OF_OUR_CLIENT = (
    "test_our_client",
    "test_our_filters",
    "test_our_pop_consumer",
    "test_our_producer",
    "test_our_sync_client",
    "test_ordered_pops",
    "test_our_timers",
    "test_pull_consumers",
)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One run of a client test for each kind of broker."""
    if "broker" in metafunc.fixturenames:
        is_judged_by_both = metafunc.module.__name__.endswith(OF_OUR_CLIENT) and "INTEROP_BROKERS" not in os.environ
        kinds = list(Kind) if is_judged_by_both else KINDS_UNDER_TEST
        metafunc.parametrize("broker", kinds, ids=[kind.value for kind in kinds], indirect=True, scope="session")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A first build fetches and compiles; a run of a client takes up to a minute: the usual limit is too tight here."""
    for item in items:
        if Path(__file__).parent in item.path.parents and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(900))


@pytest.fixture(scope="session")
def available() -> Callable[[Callable[[], object]], None]:
    """`available(java_build...)`: runs the look-up or build and skips the test with its reason when something is missing."""

    def check(lookup: Callable[[], object]) -> None:
        try:
            lookup()
        except Missing as missing:
            pytest.skip(str(missing))

    return check


@pytest.fixture(scope="session")
def broker(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerUnderTest]:
    """One broker of each kind for all client tests of the session."""
    kind: Kind = request.param
    try:
        under_test = BrokerUnderTest(kind, tmp_path_factory.mktemp(f"broker-{kind.value}"))
        under_test.start()
    except Missing as missing:
        pytest.skip(str(missing))
    try:
        yield under_test
        if kind is Kind.ORBITMQ:
            # The Java broker takes 15 s for it, and its orderly stop is not ours to prove.
            under_test.stop()
    finally:
        under_test.kill()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """On a lane, the broker of the session ends with the last test that shares it, not with the lane: RocketMQ's takes a seventh of a core
    when nobody asks it anything."""
    if not hasattr(item.config, "workerinput") or not isinstance(item, pytest.Function):
        return
    from lanes import scope_of

    shared = item._fixtureinfo.name2fixturedefs.get("broker")
    if shared and (nextitem is None or scope_of(nextitem.nodeid) != scope_of(item.nodeid)):
        shared[-1].finish(item._request)


@pytest.fixture
def brokers(tmp_path: Path) -> Generator[Callable[..., BrokerUnderTest], None, None]:
    """Factory of brokers that do not outlive the test: `brokers(kind, name, data=..., settings=...)`, not yet started."""
    made: list[BrokerUnderTest] = []

    def make(kind: Kind, name: str, **options: object) -> BrokerUnderTest:
        under_test = BrokerUnderTest(kind, tmp_path / name, **options)  # type: ignore[arg-type]
        made.append(under_test)
        return under_test

    yield make
    for under_test in made:
        under_test.kill()
