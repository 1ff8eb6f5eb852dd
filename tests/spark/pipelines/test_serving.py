"""The service on real Spark: streams into an archive, a topic and a table, and jobs, at the same time, through two lives."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from deltalake import DeltaTable

sys.path.insert(0, str(Path(__file__).resolve().parent))

from stored_messages import stored

from orbitmq.spark.pipelines.run import StopRequest
from orbitmq.spark.pipelines.serving.figures import ServiceFigures
from orbitmq.spark.pipelines.serving.lineage import Lineage
from orbitmq.spark.pipelines.serving.service import Service, ServiceEnd
from orbitmq.spark.pipelines.serving.service_directory import ServiceDirectory
from orbitmq.spark.pipelines.serving.service_file import read_service_file
from orbitmq.spark.pipelines.serving.work import do_part, import_all, is_up
from orbitmq.sync import connect

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from server_process import ServedProcess

LIMIT_S = 400

FILE = """
[service]
state = "{folder}/state"
[defaults]
name-server = "{name_server}"
[[stream]]
name = "whole"
sink = "archive"
topic = "{topic}"
to = "{folder}/archive"
every = "2s"
[[stream]]
name = "copy"
sink = "topic"
topic = "{topic}"
to = "{topic}-copy"
every = "1s"
where = "keys not like '%3'"
[[stream]]
name = "typed"
sink = "table"
topic = "{topic}"
to = "{folder}/typed"
quarantine = "{folder}/broken"
every = "1s"
rows-per-batch = 25
where = "payload.id >= 0"
options = {{ payload = "json", payloadSchema = "id bigint" }}
[[stream]]
name = "unknown"
sink = "archive"
topic = "no-such-topic"
to = "{folder}/nothing"
retry-timeout = "0ms"
[[stream]]
name = "theirs"
sink = "archive"
topic = "{topic}"
to = "{folder}/theirs"
[[job]]
name = "tidy"
pipeline = "compact"
archive = "{folder}/archive"
cron = "*/5 * * * * *"
"""


def send(name_server: str, topic: str, first: int, count: int) -> None:
    with connect(name_server) as client, client.producer("fillers") as producer:
        for number in range(first, first + count):
            body = b"no JSON" if number % 10 == 0 else b'{"id": %d}' % number
            producer.send(topic, body, key=f"k{number}")


class Life:
    """A service, in a thread, until `end`."""

    def __init__(self, spark: SparkSession, file: Path) -> None:
        said = read_service_file(file)
        self.figures = ServiceFigures([part.name for part in said.parts])
        self.stop = StopRequest()
        self.state = ServiceDirectory(said.service.state)
        service = Service(said, self.figures, self.state, self.stop, Lineage(), do_part)
        self.ends: list[ServiceEnd] = []
        self.thread = threading.Thread(target=lambda: self.ends.append(service.run(spark, lambda: is_up(spark))))
        self.thread.start()

    def end(self) -> ServiceEnd:
        self.stop.request()
        self.thread.join(LIMIT_S)
        self.state.close()
        return self.ends[0]

    def value(self, metric: str, part: str) -> float | None:
        for family in self.figures.families():
            for sample in family.samples:
                if family.metric.name == f"orbitmq_pipeline_{metric}" and sample.labels[:1] == (part,):
                    return float(sample.value)  # type: ignore[arg-type]
        return None


def until(true: Callable[[], bool], life: Life) -> None:
    end = time.monotonic() + LIMIT_S
    while not true():
        if time.monotonic() > end:
            pytest.fail(f"it did not come; failures: {life.figures.reasons()}")
        time.sleep(0.1)


def keys(place: Path) -> list[str]:
    return sorted(DeltaTable(place).to_pyarrow_table(columns=["keys"]).column("keys").to_pylist())


def names(first: int, count: int, *, broken: bool | None = None) -> list[str]:
    return sorted(f"k{n}" for n in range(first, first + count) if broken is None or (n % 10 == 0) is broken)


@pytest.mark.timeout(900)
def test_a_service_does_all_of_its_parts_and_goes_on_in_its_next_life(
    spark: SparkSession, server: ServedProcess, name_server: str, topic: str, tmp_path: Path
) -> None:
    import_all()
    server.create_topic(f"{topic}-copy", 4)
    theirs = tmp_path / "theirs"
    DeltaTable.create(theirs, _other_schema())
    file = tmp_path / "lake.toml"
    file.write_text(FILE.format(folder=tmp_path, name_server=name_server, topic=topic))
    send(name_server, topic, 0, 100)
    sent = 100
    for life_number in range(2):
        life = Life(spark, file)
        rows = [sent, sent - sent // 10, sent - sent // 10] if not life_number else [50, 45, 45]
        for part, count in zip(("whole", "copy", "typed"), rows, strict=True):
            until(lambda part=part, count=count, life=life: (life.value("rows_total", part) or 0) >= count, life)  # type: ignore[misc]
            assert life.value("rows_total", part) == count
        until(lambda life=life: life.value("lag_messages", "whole") == 0, life)  # type: ignore[misc]
        until(lambda life=life: (life.value("batches_total", "tidy") or 0) > 0, life)  # type: ignore[misc]
        reasons = life.figures.reasons()
        assert "no topic 'no-such-topic'" in reasons["unknown"]
        assert "no archive of orbitmq" in reasons["theirs"]
        assert reasons.keys() == {"unknown", "theirs"}
        assert life.value("lag_messages", "copy") == 0
        assert life.end() is ServiceEnd.IN_ORDER
        assert keys(tmp_path / "archive") == names(0, sent)
        assert keys(tmp_path / "typed") == names(0, sent, broken=False)
        assert keys(tmp_path / "broken") == names(0, sent, broken=True)
        copied = sorted(key for message in stored(name_server, f"{topic}-copy") for key in message.keys)
        assert copied == [name for name in names(0, sent) if not name.endswith("3")]
        if not life_number:
            send(name_server, topic, sent, 50)
            sent += 50
    assert DeltaTable(tmp_path / "broken").to_pyarrow_table().column("payloadError").null_count == 0
    assert set(DeltaTable(theirs).to_pyarrow_table().column_names) == {"id"}


def _other_schema() -> object:
    import pyarrow as pa

    return pa.schema([pa.field("id", pa.int64())])
