"""Recurring messages of a whole broker on a virtual calendar: exact times over a year and its clock changes, crashes, policies,
pauses, refusals, bounds, and topics that go away."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

import orbitmq
from orbitmq.errors import ConfigurationError, MessageIllegalError, NotFoundError, RemoteError
from orbitmq.limits import recurrence as limits
from orbitmq.protocol.names import QUARANTINE_TOPIC, RECURRING_TOPIC
from orbitmq.protocol.remoting.codes import RequestCode, ResponseCode
from orbitmq.protocol.remoting.recurring_bodies import RecurringDefinition, RecurringPage, RecurringQuery
from orbitmq.testing import EmbeddedBroker

BERLIN = ZoneInfo("Europe/Berlin")
START = datetime(2026, 1, 1, tzinfo=UTC)
MS, SECOND, MINUTE, HOUR, DAY = (
    timedelta(milliseconds=1), timedelta(seconds=1), timedelta(minutes=1), timedelta(hours=1), timedelta(days=1),
)  # fmt: skip


def _put(**changes: object) -> bytes:
    """The body of a request that defines something, with a fault."""
    values: dict[str, object] = {"name": "bad", "topic": "reports", "body": b"x", "interval_ms": 60_000}
    return RecurringDefinition(**(values | changes)).encode()  # type: ignore[arg-type]


@pytest.fixture
async def broker() -> AsyncIterator[EmbeddedBroker]:
    async with EmbeddedBroker(now=START) as running:
        yield running


@pytest.fixture
async def mq(broker: EmbeddedBroker) -> AsyncIterator[orbitmq.Client]:
    async with broker.connect() as client:
        yield client


async def stored(broker: EmbeddedBroker, topic: str = "reports") -> list[datetime]:
    """When each message was stored."""
    return [datetime.fromtimestamp(each.store_timestamp / 1_000, UTC) for each in await broker.messages(topic)]


# --- time -------------------------------------------------------------------------------------------------------------


async def test_every_morning_at_nine_for_a_year(broker: EmbeddedBroker, mq: orbitmq.Client) -> None:
    await mq.recurring.put("morning", "reports", b"good morning", cron="0 9 * * *", zone="Europe/Berlin")
    await broker.advance(366 * DAY)
    local = [each.astimezone(BERLIN) for each in await stored(broker)]
    assert {each.strftime("%H:%M:%S.%f") for each in local} == {"09:00:00.000000"}
    assert [each.date() for each in local] == [START.date() + number * DAY for number in range(366)]
    assert {each.utcoffset() for each in local} == {HOUR, 2 * HOUR}


async def test_a_run_is_there_at_its_millisecond_and_not_before(broker: EmbeddedBroker, mq: orbitmq.Client) -> None:
    start = START + timedelta(minutes=5, milliseconds=123)
    await mq.recurring.put("tick", "reports", b"x", every=90, start=start)
    await broker.advance_to(start - MS)
    assert await stored(broker) == []
    await broker.advance_to(start + 180 * SECOND)
    assert await stored(broker) == [start, start + 90 * SECOND, start + 180 * SECOND]


async def test_what_a_run_carries(broker: EmbeddedBroker, mq: orbitmq.Client) -> None:
    await mq.recurring.put(
        "tick", "reports", b"body", every=MINUTE, tag="hourly", key=["k1", "k2"], properties={"colour": "green"}
    )
    await broker.advance(2 * MINUTE)
    first, second = await broker.messages("reports")
    assert (first.body, first.tag, first.keys) == (b"body", "hourly", ("k1", "k2"))
    assert first.properties["colour"] == "green"
    assert first.properties["ORBITMQ_RECURRING"] == "tick"
    assert int(first.properties["ORBITMQ_PLANNED_MS"]) == first.store_timestamp
    assert first.message_id != second.message_id
    assert first.queue == second.queue, "consumers get them in order"


async def test_a_rule_ends_by_time_and_by_count(broker: EmbeddedBroker, mq: orbitmq.Client) -> None:
    await mq.recurring.put("three", "a", b"x", every=MINUTE, count_max=3)
    await mq.recurring.put("hour", "b", b"x", every=10 * MINUTE, end=START + HOUR)
    await broker.advance(DAY)
    assert len(await broker.messages("a")) == 3
    assert len(await broker.messages("b")) == 5
    ended = await mq.recurring.get("three")
    assert ended is not None
    assert (ended.next_ms, ended.stored_count) == (None, 3)


async def test_jitter_is_the_same_after_a_crash_and_never_early(broker: EmbeddedBroker, mq: orbitmq.Client) -> None:
    await mq.recurring.put("spread", "reports", b"x", cron="0 * * * *", jitter=30 * MINUTE)
    planned = await mq.recurring.next_runs("spread", 24)
    assert len({run.at_ms - run.planned_ms for run in planned}) > 12
    await broker.advance(6 * HOUR + 10 * SECOND)
    await broker.crash()
    await broker.advance(18 * HOUR)
    expected = [run.at_ms for run in planned if run.at_ms <= broker.now.timestamp() * 1_000]
    assert [each.store_timestamp for each in await broker.messages("reports")] == expected


# --- restarts ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("catch_up", ["none", "latest", "all"])
async def test_runs_that_were_missed(broker: EmbeddedBroker, mq: orbitmq.Client, catch_up: str) -> None:
    await mq.recurring.put("tick", "reports", b"x", every=HOUR, catch_up=catch_up, catch_up_max=3)
    await broker.crash(down=10 * HOUR + 30 * MINUTE)
    late = [int(each.properties["ORBITMQ_PLANNED_MS"]) for each in await broker.messages("reports")]
    hours = [(each / 1_000 - START.timestamp()) / 3_600 for each in late]
    assert hours == {"none": [], "latest": [10], "all": [8, 9, 10]}[catch_up]
    await broker.advance(30 * MINUTE)
    assert (await stored(broker))[-1] == START + 11 * HOUR


async def test_crashes_and_restarts_store_every_run_once(broker: EmbeddedBroker, mq: orbitmq.Client) -> None:
    await mq.recurring.put("tick", "reports", b"x", every=MINUTE)
    for number in range(12):
        await broker.advance(90 * SECOND)
        await (broker.crash() if number % 3 else broker.restart())
    assert await stored(broker) == [START + number * MINUTE for number in range(1, 19)]


async def test_a_paused_one_stays_paused_over_restarts_and_makes_up_for_nothing(
    broker: EmbeddedBroker, mq: orbitmq.Client
) -> None:
    await mq.recurring.put("tick", "reports", b"x", every=MINUTE, catch_up="all")
    await broker.advance(2 * MINUTE)
    assert (await mq.recurring.pause("tick")).outcome is orbitmq.RecurringOutcome.PAUSED
    assert (await mq.recurring.pause("tick")).outcome is orbitmq.RecurringOutcome.UNCHANGED
    await broker.advance(10 * MINUTE)
    await broker.crash()
    async with broker.connect() as again:
        assert (await again.recurring.resume("tick")).outcome is orbitmq.RecurringOutcome.RESUMED
    await broker.advance(MINUTE)
    assert await stored(broker) == [START + number * MINUTE for number in (1, 2, 13)]


# --- changes ----------------------------------------------------------------------------------------------------------


async def test_put_is_an_upsert_by_name(broker: EmbeddedBroker, mq: orbitmq.Client) -> None:
    outcome = orbitmq.RecurringOutcome
    assert (await mq.recurring.put("tick", "reports", b"x", every=MINUTE)).outcome is outcome.CREATED
    assert (await mq.recurring.put("tick", "reports", b"x", every=MINUTE)).outcome is outcome.UNCHANGED
    assert (await mq.recurring.put("tick", "reports", b"y", every=HOUR)).outcome is outcome.REPLACED
    await broker.advance(HOUR)
    assert [each.body for each in await broker.messages("reports")] == [b"y"]
    deleted = await mq.recurring.delete("tick")
    assert (deleted.outcome, deleted.recurring) == (outcome.DELETED, None)
    await broker.advance(DAY)
    assert len(await broker.messages("reports")) == 1
    assert await mq.recurring.get("tick") is None
    for call in (mq.recurring.delete, mq.recurring.pause, mq.recurring.resume, mq.recurring.next_runs):
        with pytest.raises(NotFoundError, match="no recurring message 'tick'"):
            await call("tick")


async def test_lists_and_next_runs(broker: EmbeddedBroker, mq: orbitmq.Client) -> None:
    await mq.recurring.put("b", "one", b"12345", cron="30 2 * * *", zone="Europe/Berlin")
    await mq.recurring.put("a", "two", b"x", every=30 * DAY)
    listed = [each async for each in mq.recurring.list()]
    assert [(each.name, each.body, each.body_bytes) for each in listed] == [("a", b"", 1), ("b", b"", 5)]
    assert [each.name async for each in mq.recurring.list(topic="one")] == ["b"]
    shown = await mq.recurring.get("b")
    assert shown is not None
    assert (shown.body, shown.cron, shown.zone, shown.broker_name) == (
        b"12345",
        "30 2 * * *",
        "Europe/Berlin",
        "broker-a",
    )
    await broker.advance_to(datetime(2026, 3, 28, tzinfo=UTC))
    runs = await mq.recurring.next_runs("b", 3)
    assert [run.planned.astimezone(BERLIN).strftime("%d %H:%M") for run in runs] == ["28 02:30", "29 03:00", "30 02:30"]


async def test_pages_of_a_list(mq: orbitmq.Client) -> None:
    for number in range(5):
        await mq.recurring.put(f"n{number}", "reports", b"x", every=MINUTE)
    [master] = await mq.admin.masters()
    names, query = [], RecurringQuery(limit=2)
    while True:
        answer = await mq.network.request(
            master.address, RequestCode.GET_RECURRING, {}, query.encode(), timeout_ms=3_000, doing="listing"
        )
        page = RecurringPage.decode(answer.body)
        names.append([view.definition.name for view in page.recurring])
        if page.cursor is None:
            break
        query.cursor = page.cursor
    assert names == [["n0", "n1"], ["n2", "n3"], ["n4"]]


# --- overlap ----------------------------------------------------------------------------------------------------------


async def test_a_run_is_left_out_while_the_one_before_waits(broker: EmbeddedBroker, mq: orbitmq.Client) -> None:
    await mq.recurring.put("job", "jobs", b"x", every=MINUTE, overlap="skip", overlap_group="workers")
    await broker.advance(5 * MINUTE)
    assert await stored(broker, "jobs") == [START + MINUTE]
    first = orbitmq.ConsumerOptions(consume_from=orbitmq.ConsumeFrom.FIRST)
    async with mq.consumer("workers", "jobs", options=first) as consumer:
        message = await anext(consumer)
        await message.ack()
    await broker.advance(3 * MINUTE)
    assert await stored(broker, "jobs") == [START + MINUTE, START + 6 * MINUTE]


async def test_a_topic_that_was_made_again_holds_nobody_up(broker: EmbeddedBroker, mq: orbitmq.Client) -> None:
    await mq.recurring.put("job", "jobs", b"x", every=MINUTE, overlap="skip", overlap_group="workers")
    await broker.advance(MINUTE)
    await mq.admin.delete_topic("jobs")
    await mq.admin.create_topic("jobs")
    await broker.advance(MINUTE)
    assert await stored(broker, "jobs") == [START + 2 * MINUTE]


# --- what cannot be stored --------------------------------------------------------------------------------------------


async def test_a_topic_that_goes_is_reported_and_stops_nobody_else(
    broker: EmbeddedBroker, mq: orbitmq.Client, caplog: pytest.LogCaptureFixture
) -> None:
    await mq.recurring.put("gone", "old", b"x", every=MINUTE)
    await mq.recurring.put("fine", "reports", b"x", every=MINUTE)
    await broker.advance(MINUTE)
    await mq.admin.delete_topic("old")
    with caplog.at_level(logging.ERROR, "orbitmq.timing"):
        await broker.advance(5 * MINUTE)
    assert len([line for line in caplog.messages if "'gone'" in line]) == 1, "said once"
    shown = await mq.recurring.get("gone")
    assert shown is not None
    assert "topic 'old' does not exist any more" in (shown.trouble or "")
    assert len(await broker.messages("reports")) == 6
    assert await broker.messages("old") == []
    assert await broker.messages(QUARANTINE_TOPIC) == []
    await mq.admin.create_topic("old")
    await broker.advance(MINUTE)
    assert len(await broker.messages("old")) == 1
    shown = await mq.recurring.get("gone")
    assert shown is not None
    assert shown.trouble is None


async def test_a_full_disk_makes_runs_late_and_loses_none(broker: EmbeddedBroker, mq: orbitmq.Client) -> None:
    await mq.recurring.put("tick", "reports", b"x", every=MINUTE, catch_up="all")
    await broker.advance(MINUTE)
    with broker.fail_disk():
        await broker.advance(3 * MINUTE)
        with pytest.raises(RemoteError) as refused:
            await mq.recurring.put("other", "reports", b"x", every=MINUTE)
        assert refused.value.code == ResponseCode.SERVICE_NOT_AVAILABLE
    await broker.run_until(lambda: _all_there(broker, 4))
    planned = [int(each.properties["ORBITMQ_PLANNED_MS"]) for each in await broker.messages("reports")]
    assert planned == [int((START + number * MINUTE).timestamp() * 1_000) for number in range(1, 5)]
    assert await mq.recurring.get("other") is None


async def _all_there(broker: EmbeddedBroker, count: int) -> bool:
    return len(await broker.messages("reports")) >= count


# --- bad input --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"cron": "0 9 31 2 *"}, "none of the months has such a day"),
        ({"cron": "9 o'clock"}, "five fields"),
        ({"cron": "0 9 * * *", "zone": "Europe/Nowhere"}, "table of time zones"),
        ({"every": 0.2}, "RECURRENCE_INTERVAL_MS_MIN"),
        ({"every": 60, "jitter": timedelta(days=9)}, "RECURRENCE_JITTER_MS_MAX"),
        ({"every": 60, "overlap": "skip"}, "needs the consumer group"),
        ({"every": 60, "catch_up": "all", "catch_up_max": 5_000}, "RECURRENCE_CATCH_UP_MAX"),
        ({"every": 60, "start": START + HOUR, "end": START}, "has no run"),
    ],
)
async def test_a_rule_that_cannot_be_is_refused_with_the_reason(
    broker: EmbeddedBroker, mq: orbitmq.Client, change: dict[str, object], text: str
) -> None:
    with pytest.raises(RemoteError, match=text) as refused:
        await mq.recurring.put("bad", "reports", b"x", **change)  # type: ignore[arg-type]
    assert refused.value.code == ResponseCode.INVALID_PARAMETER
    assert await mq.recurring.get("bad") is None
    assert await broker.messages(RECURRING_TOPIC) == []


async def test_what_the_client_refuses_itself(mq: orbitmq.Client) -> None:
    with pytest.raises(ConfigurationError, match="cron and every"):
        await mq.recurring.put("bad", "reports", b"x")
    with pytest.raises(ConfigurationError, match="cron and every"):
        await mq.recurring.put("bad", "reports", b"x", cron="0 9 * * *", every=60)
    with pytest.raises(ConfigurationError, match="allow, skip"):
        await mq.recurring.put("bad", "reports", b"x", every=60, overlap="forbid")
    with pytest.raises(MessageIllegalError, match="time zone"):
        await mq.recurring.put("bad", "reports", b"x", every=60, start=datetime(2026, 1, 1))
    with pytest.raises(MessageIllegalError, match="body"):
        await mq.recurring.put("bad", "reports", b"x" * (limits.RECURRENCE_BODY_BYTES_MAX + 1), every=60)
    with pytest.raises(ConfigurationError, match=f"a whole number 1 to {limits.RECURRENCE_PREVIEW_MAX}"):
        await mq.recurring.next_runs("bad", 5_000)


@pytest.mark.parametrize(
    ("body", "code", "text"),
    [
        (b"{", ResponseCode.INVALID_PARAMETER, "body of the request"),
        (b'{"name": "x"}', ResponseCode.INVALID_PARAMETER, "body of the request"),
        (_put(topic="SCHEDULE_TOPIC_XXXX"), ResponseCode.NO_PERMISSION, "system topic"),
        (_put(topic="a b"), ResponseCode.INVALID_PARAMETER, "characters other than"),
        (_put(body=b""), ResponseCode.SYSTEM_ERROR, "no body"),
        (_put(name=""), ResponseCode.INVALID_PARAMETER, "RECURRENCE_NAME_CHARS_MAX"),
        (_put(properties={"TIMER_DELAY_SEC": "5"}), ResponseCode.MESSAGE_ILLEGAL, "TIMER_DELAY_SEC"),
        (
            _put(properties={"p": "x" * 31_620}),
            ResponseCode.MESSAGE_ILLEGAL,
            "stay free",
        ),  # its runs would say which one they are
        (_put(properties={"DELAY": "3"}), ResponseCode.MESSAGE_ILLEGAL, "DELAY"),
        (_put(properties={"UNIQ_KEY": "mine"}), ResponseCode.MESSAGE_ILLEGAL, "UNIQ_KEY"),
        (_put(properties={"ORBITMQ_RUN": "1"}), ResponseCode.MESSAGE_ILLEGAL, "ORBITMQ_RUN"),
        (_put(properties={"a": "b\x02c"}), ResponseCode.MESSAGE_ILLEGAL, "propert"),
    ],
)
async def test_nonsense_on_the_wire(
    broker: EmbeddedBroker, mq: orbitmq.Client, body: bytes, code: ResponseCode, text: str
) -> None:
    [master] = await mq.admin.masters()
    with pytest.raises(RemoteError, match=text) as refused:
        await mq.network.request(
            master.address, RequestCode.PUT_RECURRING, {}, body, timeout_ms=3_000, doing="putting nonsense"
        )
    assert refused.value.code == code
    assert await broker.messages(RECURRING_TOPIC) == []


async def test_clients_forge_no_runs_and_no_records(broker: EmbeddedBroker, mq: orbitmq.Client) -> None:
    made = await mq.recurring.put("tick", "reports", b"x", every=HOUR)
    [next_run] = await mq.recurring.next_runs("tick", 1)
    assert made.recurring is not None
    with pytest.raises(MessageIllegalError):
        await mq.send(RECURRING_TOPIC, b"{}")
    with pytest.raises(MessageIllegalError, match="ORBITMQ_RUN"):
        await mq.send("reports", b"x", properties={"ORBITMQ_RUN": "1"})
    forged = {
        "UNIQ_KEY": "0" * 32,
        "ORBITMQ_RECURRING": "tick",
        "ORBITMQ_PLANNED_MS": str(next_run.planned_ms),
        "ORBITMQ_RUN": str(made.recurring.made_ms),
    }
    text = "".join(f"{name}\x01{value}\x02" for name, value in forged.items())
    fields = {
        "a": "g",
        "b": "reports",
        "c": "TBW102",
        "d": "4",
        "e": "0",
        "f": "0",
        "g": "1",
        "h": "0",
        "i": text,
        "j": "0",
    }
    [master] = await mq.admin.masters()
    await mq.network.request(
        master.address, RequestCode.SEND_MESSAGE_V2, fields, b"forged", timeout_ms=3_000, doing="forging a run"
    )
    [message] = await broker.messages("reports")
    assert "ORBITMQ_RUN" not in message.properties
    await broker.crash()
    await broker.advance(HOUR)
    assert [each.body for each in await broker.messages("reports")] == [b"forged", b"x"]


async def test_a_broker_keeps_no_more_than_its_bounds(
    broker: EmbeddedBroker, mq: orbitmq.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "RECURRENCE_DEFINITIONS_MAX", 2)
    monkeypatch.setattr(limits, "RECURRENCE_BODIES_BYTES_MAX", 10)
    await mq.recurring.put("one", "reports", b"12345", every=HOUR)
    with pytest.raises(RemoteError, match="RECURRENCE_BODIES_BYTES_MAX"):
        await mq.recurring.put("two", "reports", b"123456", every=HOUR)
    await mq.recurring.put("two", "reports", b"12345", every=HOUR)
    with pytest.raises(RemoteError, match="RECURRENCE_DEFINITIONS_MAX"):
        await mq.recurring.put("three", "reports", b"1", every=HOUR)
    await mq.recurring.put("two", "reports", b"1234", every=HOUR)
    await mq.recurring.delete("one")
    await mq.recurring.put("three", "reports", b"1", every=HOUR)
