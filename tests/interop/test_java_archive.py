"""An archive of what RocketMQ 5.3.3 stored, from its topics and from its directory, is what its own consumer reads."""

from __future__ import annotations

import hashlib
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from rig.brokers import BrokerUnderTest, Kind
from rig.drivers import Event, store_reader
from rig.ledger import SMALL_FILES, TOPICS, Ledger, read
from rig.toolchain import BROKER_VERSION, java_build

import orbitmq.spark
from orbitmq.errors import SparkUnavailableError
from orbitmq.spark import session
from orbitmq.spark.pipelines import archive

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

sys.path.append(str(Path(__file__).resolve().parents[1] / "spark"))

from class_archive import quick_environment

pytestmark = pytest.mark.java

COUNT, DELAYED_COUNT = 300, 20
DELIVERY_LIMIT_S = 180
SAME = ("topic", "queueId", "queueOffset", "msgId", "tags", "keys", "flag", "reconsumeTimes")


@pytest.fixture(autouse=True)
def _java(available: Callable[[Callable[[], object]], None]) -> None:
    available(lambda: java_build(BROKER_VERSION))


@pytest.fixture
def spark(monkeypatch: pytest.MonkeyPatch) -> Iterator[SparkSession]:
    for name, value in quick_environment().items():
        monkeypatch.setenv(name, value)
    try:
        started = session("local[2]", **{"spark.sql.shuffle.partitions": 2, "spark.ui.showConsoleProgress": False})
    except SparkUnavailableError as reason:
        pytest.skip(str(reason))
    yield started
    started.stop()


def consumed(broker: BrokerUnderTest, ledger: Ledger, folder: Path) -> list[Event]:
    """All messages as RocketMQ's consumer reads them, when the delayed ones are delivered."""
    ends = time.monotonic() + DELIVERY_LIMIT_S
    with store_reader(broker.name_server, folder) as driver:
        while True:
            content = read(driver)
            if content.holds(ledger.entries):
                return [event for events in content.by_key.values() for event in events]
            assert time.monotonic() < ends
            time.sleep(0.5)


def assert_same(spark: SparkSession, place: Path, events: list[Event]) -> None:
    found = {(row["topic"], row["queueId"], row["queueOffset"]): row for row in rows(spark, place)}
    assert len(found) == len(rows(spark, place)) == len(events)
    for event in events:
        row = found[event["topic"], event["queueId"], event["queueOffset"]]
        assert [row[name] for name in SAME] == [event[name] for name in SAME]
        assert row["commitLogOffset"] == event["physicalOffset"]
        assert hashlib.sha1(row["body"]).hexdigest() == event["bodySha1"]
        assert (row["born_ms"], row["stored_ms"]) == (event["bornAt"], event["storeAt"])
        assert row["properties"].items() <= event["properties"].items()
        assert row["day"] == time.strftime("%Y-%m-%d", time.gmtime(event["storeAt"] / 1000))


def rows(spark: SparkSession, place: Path) -> list[dict[str, Any]]:
    frame = orbitmq.spark.archive(str(place), spark=spark).selectExpr(
        "* except (day)", "cast(day AS string) AS day", "unix_millis(bornTimestamp) AS born_ms",
        "unix_millis(storeTimestamp) AS stored_ms",
    )  # fmt: skip
    return [row.asDict() for row in frame.collect()]


def test_what_its_own_consumer_reads(
    brokers: Callable[..., BrokerUnderTest], spark: SparkSession, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    broker = brokers(Kind.JAVA, "java", data=data, settings=SMALL_FILES).start()
    ledger = Ledger("archive", 1)
    with broker.wire() as wire:
        ledger.create_topics(wire)
        ledger.write(wire, DELAYED_COUNT, level=1)
        ledger.write(wire, COUNT)
    events = consumed(broker, ledger, tmp_path / "reader")
    assert len(events) >= COUNT + DELAYED_COUNT
    archive(spark, to=str(tmp_path / "topics"), name_server=broker.name_server, topic=list(TOPICS))
    assert_same(spark, tmp_path / "topics", events)
    archive(spark, to=str(tmp_path / "running"), store=[str(data)], topic=list(TOPICS))
    assert_same(spark, tmp_path / "running", events)
    broker.stop()
    archive(spark, to=str(tmp_path / "stopped"), store=[f"java={data}"], topic=list(TOPICS))
    assert_same(spark, tmp_path / "stopped", events)
