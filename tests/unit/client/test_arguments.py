"""What programs hand in and what is of the wrong kind: an error names the parameter, before anything is sent."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from enum import StrEnum
from typing import Any

import pytest
from scripted_cluster import NAME_SERVER, Cluster

import orbitmq
from orbitmq.client._async.client import Client
from orbitmq.client.arguments import check_text, check_timeout_ms, check_whole
from orbitmq.clock import ManualClock
from orbitmq.errors import ConfigurationError, MessageIllegalError, OrbitError
from orbitmq.testing import EmbeddedBroker

Run = Callable[[Callable[[], Awaitable[None]]], None]
NO_UTF_8 = b"caf\xe9".decode(errors="surrogateescape")
KINDS: tuple[Any, ...] = (5, 0.5, True, b"bytes", ["list"], {"a": "b"}, {"set"}, object(), int, timedelta.max, NO_UTF_8)
"""None of them is a name, a queue, a receipt or a setting."""


async def each(calls: dict[str, Callable[[Any], Any]]) -> list[str]:
    """Calls that take one of `KINDS`, or fail by an error that is not ours or says nothing of what was wrong."""
    wrong = []
    for name, call in calls.items():
        for kind in KINDS:
            try:
                made = call(kind)
                if hasattr(made, "__anext__"):
                    await anext(made)
                elif hasattr(made, "__await__"):
                    await made
            except OrbitError as error:
                if not str(error) or len(str(error)) > 500:
                    wrong.append(f"{name} of {kind!r}: {error}")
            except Exception as error:
                wrong.append(f"{name} of {kind!r}: {error!r}")
            else:
                wrong.append(f"{name} takes {kind!r}")
    return wrong


def test_a_wrong_kind_is_an_error_that_says_so(run: Run, cluster: Cluster) -> None:
    async def test() -> None:
        async with Client(NAME_SERVER, clock=ManualClock(), dial=cluster.dial) as mq:
            sends: dict[str, Callable[[Any], Any]] = {
                "topic": lambda it: mq.send(it, b"x"),
                "body": lambda it: mq.send("T", it if it != b"bytes" else None),
                "queue": lambda it: mq.send("T", b"x", queue=it),
                "properties": lambda it: mq.send("T", b"x", properties=it if it != {"a": "b"} else 1),
                "timeout": lambda it: mq.send("T", b"x", timeout_ms=it if it not in (5, 0.5) else "5"),
                "flag": lambda it: mq.send("T", b"x", flag=it if it != 5 and it is not True else 2**31),
                "level": lambda it: mq.send("T", b"x", delay_level=it if it != 5 else 2**63),
                "key in order": lambda it: mq.send_batch(
                    "T", [orbitmq.Message(b"x")], ordering_key=it if it != NO_UTF_8 else 1
                ),
                "batch": lambda it: mq.send_batch("T", it),
                "topic of a batch": lambda it: mq.send_batch(it, [orbitmq.Message(b"x")]),
                "topic of one-way": lambda it: mq.send_oneway(it, b"x"),
                "question": lambda it: mq.request(it, b"x"),
                "checker": lambda it: mq._sender().check_transactions(it if it is not int else None),
            }
            others: dict[str, Callable[[Any], Any]] = {
                "timer": lambda it: mq.timers.recall(it),
                "topic of timers": lambda it: mq.timers.status(topic=it, key="k"),
                "key": lambda it: mq.timers.get(topic="T", key=it),
                "id": lambda it: mq.timers.recall(topic="T", message_id=it),
                "listed": lambda it: mq.timers.list(topic=it),
                "page": lambda it: mq.timers.list(topic="T", page_count=it if it != 5 else 0),
                "counted": lambda it: mq.timers.counts(topic=it),
                "runs": lambda it: mq.recurring.next_runs("r", it if it != 5 else 0),
                "transaction": lambda it: mq.transactions.get(it),
                "answered": lambda it: mq.reply(it, b"x"),
                "name servers": lambda it: Client(it if it not in (["list"], {"set"}, {"a": "b"}) else [b"x"]),
                "options": lambda it: Client(NAME_SERVER, options=it),
                "producer": lambda it: mq.producer(it),
                "group": lambda it: mq.consumer(it, "T"),
                "topics": lambda it: mq.consumer("g", it if it != {"a": "b"} else {5: "*"}),
                "consumer": lambda it: mq.consumer("g", "T", options=it),
                "letters": lambda it: mq.dead_letter_consumer(it),
                "handlers": lambda it: orbitmq.handler("T", group="g", concurrency=it if it != 5 else 0),
                "delays": lambda it: orbitmq.handler("T", group="g", retry_delays=it),
            }
            assert await each(sends | others) == []
            assert not any(records for records in cluster.brokers["b-a"].queues.values()), "nothing was sent"

    run(test)


def test_the_longest_length_of_time_is_refused_as_too_long() -> None:
    with pytest.raises(MessageIllegalError, match="after the year 9999"):
        orbitmq.Retry(after=timedelta.max)


class Name(StrEnum):
    ORDERS = "orders"
    KEY = "order-42"


class Text(str):
    """As numpy's."""

    __slots__ = ()


@pytest.mark.parametrize("kind", [lambda text: Name(text), Text])
def test_a_text_of_a_class_of_its_own_is_a_text(kind: Callable[[str], str]) -> None:
    topic, key = kind("orders"), kind("order-42")

    async def story() -> None:
        async with EmbeddedBroker() as broker, broker.connect() as mq:
            await mq.send(topic, b"1", tag=key, key=key, properties={"p": key})
            await mq.send(topic, b"2", ordering_key=key)
            await mq.send_batch(topic, [orbitmq.Message(b"3", key=key)], ordering_key=key)
            assert (await mq.send(topic, b"4", once=key)).repeat is None
            assert (await mq.send(topic, b"4", once="order-42")).repeat is not None
            await mq.send_oneway(topic, b"5")
            await mq.send(topic, b"late", key=key, after=timedelta(hours=1))
            assert (await mq.timers.recall(topic=topic, key=key)).verdict is orbitmq.TimerVerdict.RECALLED
            await mq.admin.create_topic(topic, queues_count=8)
            bodies = {message.body for message in await broker.messages("orders")}
            assert bodies >= {b"1", b"2", b"3", b"4"}

    asyncio.run(story())


def test_a_text_that_is_no_utf_8_is_named() -> None:
    with pytest.raises(ConfigurationError, match=r"key='caf\\udce9': character 3 has no form in UTF-8 \(decode"):
        check_text("key", NO_UTF_8)


@pytest.mark.parametrize("value", [True, 0.5, "1", None, 0, 101])
def test_a_whole_number_has_bounds(value: object) -> None:
    with pytest.raises(ConfigurationError, match=r"n=.*: must be a whole number 1 to 100"):
        check_whole("n", value, 1, 100)


@pytest.mark.parametrize("value", [True, "1", None, 0, -1, float("nan"), timedelta(seconds=1)])
def test_a_time_limit_is_a_positive_number(value: object) -> None:
    with pytest.raises(ConfigurationError, match="must be at least 1, a number of milliseconds"):
        check_timeout_ms(value)


def test_a_long_value_is_shortened() -> None:
    with pytest.raises(ConfigurationError) as told:
        check_whole("n", "x" * 10_000, 1, 2)
    assert len(str(told.value)) < 200
