"""Runs of benchmarks against a client that only counts."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest

from orbitmq.cli.benches import bench_runs, benches
from orbitmq.cli.benches.bench_account import marked_body
from orbitmq.cli.benches.bench_runs import Consuming, make_known
from orbitmq.errors import ClientError


class Pulled:
    """A consumer that has pulled its messages already, and gives them to handlers whatever these want."""

    def __init__(self, numbers: list[int], queues: tuple[str, ...] = ()) -> None:
        self.numbers = numbers
        self.queues = [SimpleNamespace(topic=topic) for topic in queues]

    async def __aenter__(self) -> Pulled:
        return self

    async def __aexit__(self, *error: object) -> None:
        pass

    async def run(self, handler: Callable[[Any], Awaitable[None]], *, concurrency: int) -> None:
        for number in self.numbers:
            await handler(SimpleNamespace(body=marked_body(b"run-0001", number, 0, 40)))
        await asyncio.Event().wait()


class Counting:
    """A client with one such consumer, whose topics appear one by one."""

    def __init__(self, pulled: Pulled, topics: tuple[str, ...] = ()) -> None:
        self.pulled = pulled
        self.deleted: list[str] = []
        self.sent: list[str] = []
        self.asked: list[str] = []
        self._topics = list(topics)
        self.admin = self

    def consumer(self, group: str, topic: str, options: object) -> Pulled:
        return self.pulled

    async def delete_group(self, group: str) -> None:
        self.deleted.append(group)

    async def send(self, topic: str, body: bytes) -> None:
        self.sent.append(topic)

    async def topics(self) -> list[str]:
        if self._topics:
            self.asked.append(self._topics.pop(0))
        return self.asked


def consume(client: Counting, **more: Any) -> dict[str, Any]:
    async def run() -> dict[str, Any]:
        consuming = Consuming(client, "T", None, from_beginning=True)  # type: ignore[arg-type]
        told = await consuming.run(**{"count": None, "duration_s": 30, "idle_s": 0.0, "concurrency": 4, **more})
        assert client.deleted == [consuming.group]
        return told

    return asyncio.run(run())


def test_what_was_pulled_beyond_the_count_is_no_part_of_the_account() -> None:
    told = consume(Counting(Pulled([0, 1, 1, 2, 3, 4, 5, 5])), count=3, idle_s=30)
    assert (told["ended_by"], told["received"], told["distinct"], told["duplicates"]) == ("count", 4, 3, 1)
    assert told["consumed"] == 4


def test_without_a_count_everything_is_counted() -> None:
    told = consume(Counting(Pulled([0, 1, 1, 2])))
    assert (told["ended_by"], told["received"], told["distinct"]) == ("idle", 4, 3)


def test_a_topic_is_known_before_its_consumer_starts() -> None:
    client = Counting(Pulled([]), topics=("A", "B", "T"))
    asyncio.run(make_known(client, "T"))  # type: ignore[arg-type]
    assert (client.sent, client.asked) == (["T"], ["A", "B", "T"])


@pytest.mark.parametrize(("queues", "enough"), [((), False), (("%RETRY%g",), False), (("%RETRY%g", "T"), True)])
def test_a_delay_run_begins_when_its_consumer_has_queues(
    queues: tuple[str, ...], enough: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench_runs, "BENCH_JOIN_S", 0.2)

    async def run() -> None:
        consuming = Consuming(Counting(Pulled([], queues)), "T", None, from_beginning=False)  # type: ignore[arg-type]
        worker = asyncio.create_task(consuming.consume(1))
        try:
            await consuming.joined(worker)
        finally:
            await bench_runs.end(worker)

    if enough:
        asyncio.run(run())
    else:
        with pytest.raises(ClientError, match="got no queue"):
            asyncio.run(run())


@pytest.mark.parametrize(
    ("given", "seconds"), [((None, 5_000), None), ((None, None), 5.0), (("3s", 5_000), 3.0), (("3s", None), 3.0)]
)
def test_a_count_alone_is_sent_however_long_that_needs(
    given: tuple[str | None, int | None], seconds: float | None
) -> None:
    duration, count = given
    assert benches._sending_s(duration, count, "5s") == seconds


def test_a_topic_that_nobody_gets_to_know(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_runs, "BENCH_JOIN_S", 0.1)
    with pytest.raises(ClientError, match="do not know topic 'T'"):
        asyncio.run(make_known(Counting(Pulled([]), topics=("A",)), "T"))  # type: ignore[arg-type]
