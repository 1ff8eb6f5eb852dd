"""A task of a redrive without Spark: rows become letters, letters are settled on an embedded broker, accounts are added up."""

from __future__ import annotations

import time
from collections import Counter
from typing import Any

import msgspec
import pytest

pa = pytest.importorskip("pyarrow", reason="the extra 'spark' is not installed")

from orbitmq.client._async.administration.redrive import Redrive  # noqa: E402
from orbitmq.client.connect_settings import ConnectSettings  # noqa: E402
from orbitmq.client.options import ConsumerOptions  # noqa: E402
from orbitmq.client.redrive import RedriveOrder, RedriveResult, Refusal, once_of  # noqa: E402
from orbitmq.errors import ClientError  # noqa: E402
from orbitmq.limits.client import REDRIVE_REFUSALS_KEPT_MAX  # noqa: E402
from orbitmq.protocol.remoting.bodies import MessageQueue  # noqa: E402
from orbitmq.spark.pipelines.redriving.dead_letters import Account, letters, settle_batches, together  # noqa: E402
from orbitmq.testing.blocking import SyncEmbeddedBroker  # noqa: E402
from orbitmq.testing.embedded import EmbeddedBroker  # noqa: E402

QUEUE = MessageQueue("%DLQ%g", "broker-a", 0)


def batch(count: int, first: int = 0, **properties: str) -> Any:
    given = {"RETRY_TOPIC": "bills", "TAGS": "due", "city": "Genf", "RECONSUME_TIME": "16", **properties}
    numbers = range(first, first + count)
    return pa.RecordBatch.from_pydict(
        {
            "topic": ["%DLQ%g"] * count,
            "flag": pa.array([7] * count, pa.int32()),
            "body": pa.array([b"bill %d" % number for number in numbers], pa.binary()),
            "properties": pa.array(
                [[*given.items(), ("UNIQ_KEY", f"U{number}")] for number in numbers], pa.map_(pa.string(), pa.string())
            ),
            "brokerName": ["broker-a"] * count,
            "queueId": pa.array([0] * count, pa.int32()),
            "queueOffset": pa.array(numbers, pa.int64()),
            "storeHost": ["127.0.0.1:10911"] * count,
            "commitLogOffset": pa.array([1_000 + number for number in numbers], pa.int64()),
        }
    )


@pytest.fixture(scope="module")
def broker() -> Any:
    with EmbeddedBroker.sync() as started:
        with started.connect() as client:
            client.admin.create_topic("bills", queues_count=4)
        yield started


def settle(broker: SyncEmbeddedBroker, group: str, *batches: Any, **options: Any) -> Account:
    [found] = settle_batches((broker.address,), ConnectSettings(), RedriveOrder(group=group, **options), batches)
    return msgspec.json.decode(found["account"][0].as_py(), type=Account)


def stored(broker: SyncEmbeddedBroker) -> Counter[bytes]:
    return Counter(bytes(message.body) for message in broker.messages("bills"))


def test_a_row_is_the_letter_that_it_was() -> None:
    [letter] = letters(batch(1, first=4, KEYS="k1 k2", __SHARDINGKEY="s"))
    assert (letter.queue, letter.queue_offset, letter.flag, letter.body) == (QUEUE, 4, 7, b"bill 4")
    assert (letter.tag, letter.keys, letter.ordering_key, letter.message_id) == ("due", ("k1", "k2"), "s", "U4")
    assert once_of("g", letter, "bills", None).key == "broker-a/0/4/U4>bills"
    row = batch(1).to_pylist()[0]
    [nameless] = letters(
        pa.RecordBatch.from_pylist([{**row, "properties": [], "storeHost": "[::1]:10911"}], batch(1).schema)
    )
    assert nameless.message_id == "00000000000000000000000000000001" + "00002A9F" + f"{1_000:016X}"


def test_a_task_that_runs_again_sends_nothing_twice(broker: SyncEmbeddedBroker) -> None:
    before = stored(broker)
    for _ in range(2):
        account = settle(broker, "g1", batch(30), batch(20, first=30))
        assert (account.result.redriven, account.result.topics, account.places) == (50, {"bills": 50}, [(QUEUE, 50)])
    assert stored(broker) - before == Counter(b"bill %d" % number for number in range(50))


def test_a_count_ends_it_at_a_place_that_is_told(broker: SyncEmbeddedBroker) -> None:
    before = stored(broker)
    account = settle(broker, "g2", batch(10), max_count=4)
    assert (account.result.redriven, account.places) == (4, [(QUEUE, 4)])
    assert (stored(broker) - before).total() == 4


def test_a_dry_run_sends_nothing(broker: SyncEmbeddedBroker) -> None:
    before = stored(broker)
    account = settle(broker, "g3", batch(10), dry_run=True)
    assert (account.result.redriven, account.result.dry_run) == (10, True)
    assert stored(broker) == before


def test_letters_that_cannot_be_sent_are_named(broker: SyncEmbeddedBroker) -> None:
    account = settle(
        broker, "g4", batch(3), batch(1, first=3, RETRY_TOPIC="%RETRY%g4"), batch(1, first=4, RETRY_TOPIC="gone")
    )
    assert (account.result.redriven, account.result.refused, account.result.looked_at) == (3, 2, 5)
    assert [(one.queue_offset, one.message_id) for one in account.result.refusals] == [(3, "U3"), (4, "U4")]
    assert "does not say which topic" in account.result.refusals[0].why
    assert "there is no topic 'gone' any more" in account.result.refusals[1].why


def test_the_first_letter_that_comes_back_to_an_orderly_group_is_the_last(broker: SyncEmbeddedBroker) -> None:
    with (
        broker.connect() as client,
        client.consumer("g7", "bills", options=ConsumerOptions(orderly=True)) as consumer,
    ):
        client.admin.create_topic("%DLQ%g7", queues_count=1)
        ends = time.monotonic() + 120
        while not consumer.queues:
            assert time.monotonic() < ends, "the consumer has no queue after 120 s"
            time.sleep(0.01)
        account = settle(broker, "g7", batch(300), only_group=True)
    assert account.came_back
    assert account.places == [(QUEUE, 1)]
    assert (account.result.redriven, account.result.refused, account.result.looked_at) == (0, 1, 1)
    assert "consumes in order" in account.result.refusals[0].why


def test_a_letter_that_fails_otherwise_ends_the_task(
    broker: SyncEmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    settled = Redrive.settle

    async def settle_some(self: Redrive, message: Any, producer: Any) -> None:
        if message.queue_offset == 3:
            raise ClientError("the broker went away")
        await settled(self, message, producer)

    monkeypatch.setattr(Redrive, "settle", settle_some)
    with pytest.raises(ClientError, match="the broker went away"):
        settle(broker, "g5", batch(500))


def test_accounts_are_added_up() -> None:
    refusals = [Refusal(QUEUE, number, "U", "why") for number in range(REDRIVE_REFUSALS_KEPT_MAX)]
    one = RedriveResult(
        group="g",
        dry_run=False,
        looked_at=5,
        redriven=2,
        passed_over=1,
        refused=2,
        topics={"a": 2},
        refusals=refusals[:2],
    )
    two = RedriveResult(
        group="g", dry_run=False, looked_at=900, redriven=3, passed_over=0, refused=897, topics={"a": 1, "b": 2}, refusals=refusals,
    )  # fmt: skip
    whole = RedriveResult(group="g", dry_run=False)
    assert together(whole, [Account(one, [(QUEUE, 7)]), Account(two, [(QUEUE, 5)])]) == {QUEUE: 7}
    assert (whole.looked_at, whole.redriven, whole.passed_over, whole.refused) == (905, 5, 1, 899)
    assert whole.topics == {"a": 3, "b": 2}
    assert len(whole.refusals) == REDRIVE_REFUSALS_KEPT_MAX
