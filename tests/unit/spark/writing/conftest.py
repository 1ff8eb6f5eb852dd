"""A writer's task without Spark: on a real client and an embedded broker, or on a sink that only takes note."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from typing import Any

import pytest

pa = pytest.importorskip("pyarrow", reason="the extra 'spark' is not installed")

from orbitmq.client.connect_settings import ConnectSettings  # noqa: E402
from orbitmq.protocol.batches import decode_batch  # noqa: E402
from orbitmq.protocol.properties import decode_properties  # noqa: E402
from orbitmq.protocol.remoting.idempotence_bodies import FinishEpoch, ScopeView  # noqa: E402
from orbitmq.spark.writing.row_columns import row_columns  # noqa: E402
from orbitmq.spark.writing.scopes import Writer  # noqa: E402
from orbitmq.spark.writing.sending import Frame, WritableTopic, WriterClient  # noqa: E402
from orbitmq.spark.writing.task_writer import Marks, TaskWriter  # noqa: E402
from orbitmq.spark.writing_options import WriteOptions, write_options  # noqa: E402
from orbitmq.testing.blocking import SyncEmbeddedBroker  # noqa: E402
from orbitmq.testing.embedded import EmbeddedBroker  # noqa: E402

TYPES = {
    "string": "string",
    "binary": "binary",
    "large_string": "string",
    "large_binary": "binary",
    "int64": "bigint",
    "int32": "int",
    "timestamp[us, tz=UTC]": "timestamp",
}


def spark_type(kind: Any) -> str:
    return "map<string,string>" if pa.types.is_map(kind) else TYPES[str(kind)]


def places_of(batch: Any, options: WriteOptions) -> dict[str, int]:
    fields = [(field.name, spark_type(field.type)) for field in batch.schema]
    return row_columns(fields, options.row_key, topic_needed=options.topic is None)


def options_of(name_servers: str = "127.0.0.1:1", topic: str | None = "orders", **more: object) -> WriteOptions:
    given = {"nameServer": name_servers, **({} if topic is None else {"topic": topic}), **more}
    return write_options({name: str(value) for name, value in given.items()}, streaming=False)


class NotingSink:
    """Brokers that answer everything. `stored` has what reached them; a `known` scope is what they remember of before."""

    def __init__(self, queue_counts: dict[str, int] | None = None, scopes: list[ScopeView] | None = None) -> None:
        self.queue_counts = queue_counts or {"broker-a": 4}
        self.scopes: list[ScopeView] | None = scopes if scopes is not None else []
        self.frames: list[Frame] = []
        self.ends: list[tuple[str, str, FinishEpoch]] = []
        self.asked: list[str] = []

    def known(self, topic: str, prefix: str) -> WritableTopic:
        self.asked.append(prefix)
        return WritableTopic(self.queue_counts, self.scopes)

    def send(self, frames: Sequence[Frame]) -> None:
        self.frames += frames

    def finish(self) -> frozenset[tuple[str, str]]:
        return frozenset()

    def end_epoch(self, topic: str, broker: str, end: FinishEpoch, *, needed: bool) -> None:
        self.ends.append((topic, broker, end))

    @property
    def stored(self) -> list[tuple[Frame, bytes, dict[str, str]]]:
        """Frame, body and properties of each message, in the order of sending."""
        found = []
        for frame in self.frames:
            if frame.properties is not None:
                found.append((frame, bytes(frame.body), decode_properties(frame.properties)))
            else:
                for item in decode_batch(frame.body):
                    found.append((frame, item.body, decode_properties(item.properties)))
        return found

    @property
    def bodies(self) -> list[bytes]:
        return [body for _, body, _ in self.stored]


def write_noted(
    sink: NotingSink, *batches: Any, writer: Writer | None = None, part: int = 0, options: WriteOptions | None = None
) -> tuple[int, Marks]:
    options = options or options_of()
    numbers = iter(range(0, 1 << 40, 1 << 20))
    task = TaskWriter(
        options, places_of(batches[0], options), writer, part, sink, lambda count: ("0" * 20, next(numbers))
    )
    return task.write(batches)


class Rig:
    """A broker and the client of a worker."""

    def __init__(self, broker: SyncEmbeddedBroker, topic: str) -> None:
        self.broker = broker
        self.topic = topic
        self.options = options_of(broker.address, topic, retryTimeoutMs=5_000, sendTimeoutMs=2_000)
        self.cluster = WriterClient((broker.address,), ConnectSettings())

    def write(self, *batches: Any, writer: Writer | None, part: int = 0, **options: object) -> tuple[int, Marks]:
        """One attempt of a task."""
        chosen = self.options if not options else options_of(self.broker.address, self.topic, **options)
        return self.attempt(batches, places_of(batches[0], chosen), writer, part, chosen)

    def attempt(
        self,
        batches: Iterable[Any],
        places: dict[str, int],
        writer: Writer | None,
        part: int = 0,
        options: WriteOptions | None = None,
    ) -> tuple[int, Marks]:
        options = options or self.options
        sending = self.cluster.sending(options, f"partition {part}", may_be_over=writer is not None and writer.ends)
        with closing(sending):
            return TaskWriter(options, places, writer, part, sending, self.cluster.unique_ids).write(batches)

    @staticmethod
    def options_for(address: str) -> WriteOptions:
        """With little patience."""
        return options_of(address, retryTimeoutMs=300, sendTimeoutMs=1_000)

    def bodies(self) -> Counter[bytes]:
        return Counter(bytes(message.body) for message in self.broker.messages(self.topic))


@pytest.fixture(scope="session")
def sink() -> type[NotingSink]:
    return NotingSink


@pytest.fixture(scope="session")
def write() -> Callable[..., tuple[int, Marks]]:
    """Write batches into a `NotingSink`."""
    return write_noted


@pytest.fixture
def rig() -> Iterator[Rig]:
    with EmbeddedBroker.sync() as broker:
        with broker.connect() as client:
            client.admin.create_topic("orders", queues_count=4)
        made = Rig(broker, "orders")
        try:
            yield made
        finally:
            made.cluster.close()
