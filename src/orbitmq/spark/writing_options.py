"""Options of the data source `orbitmq` for writing: their table, and the values they give.

Rules of this file
1. Pure, as `given_options`: every mistake is found before a server is asked; so is an option that would have no effect.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from orbitmq.client.connect_settings import ConnectSettings
from orbitmq.errors import ConfigurationError
from orbitmq.limits.spark import (
    SPARK_BATCH_BYTES,
    SPARK_IDEMPOTENCY_KEY_CHARS_MAX,
    SPARK_TASK_ROWS_PER_SECOND_MAX,
    SPARK_TASK_ROWS_PER_SECOND_MIN,
)
from orbitmq.limits.wire import BODY_BYTES_MAX, FRAME_BYTES_MAX, RECORD_OVERHEAD_BYTES_MAX
from orbitmq.protocol.names import group_name_problem, topic_name_problem
from orbitmq.spark.connect_options import CONNECT_OPTIONS, connect_settings
from orbitmq.spark.given_options import KAFKA_SERVERS, GivenOptions, Option
from orbitmq.spark.typed.encoding import EncodingRules
from orbitmq.spark.typed.payload_options import PAYLOAD_WRITE_OPTIONS, PayloadOptions, payload_options

WRITE_OPTIONS: Final = (
    Option("nameServer", "`host:port`, several separated by `;`", "required", "The name servers of the cluster."),
    Option("topic", "a name", "the column `topic`", "Where all rows go, whatever a column `topic` says."),
    Option("producerGroup", "a name", "`spark-orbitmq-sink`", "The producer group of the messages."),
    Option("dedup", "`on` or `none`", "`on`", "`on`: what a repeated task has sent before is not stored again."),
    Option(
        "rowKey",
        "the name of a column",
        "the content of the row",
        "What names a row, for plans that do not divide and order their rows alike each time: text or a whole number, different in "
        "every row of a batch. A column that is none of a message's is allowed here and is not sent.",
    ),
    Option(
        "idempotencyKey",
        "a name",
        "none",
        "Batch jobs: a job that is started again with the same name does not store again what the first one stored. In `foreachBatch` a "
        "constant name for each write is enough, query and batch are added; under Spark Connect, which does not tell them, it has to hold "
        "the batch id.",
    ),
    Option(
        "idempotencyStep",
        "a whole number",
        "0",
        "Batch jobs that follow each other under one `idempotencyKey`, as parts of one larger work: which part this is. A part begins when "
        "the one before has ended well. The brokers then remember the rows of one part, not of all.",
    ),
    Option(
        "taskRowsPerSecond",
        "a number",
        "no limit",
        "At most so many rows a second in each task. Several tasks run at a time: `coalesce` says how many there are.",
    ),
    Option("batchBytes", "bytes", "524288", "Messages of one request."),
    Option("compression", "`none`, `zlib`, `lz4` or `zstd`", "`none`", "How bodies from 4 KiB on are compressed."),
    Option("maxMessageBytes", "bytes", "4194304", "The largest body; `maxMessageSize` of the brokers."),
    Option("sendTimeoutMs", "milliseconds", "10000", "Patience with one request."),
    Option(
        "retryTimeoutMs",
        "milliseconds",
        "60000",
        "How long a request is repeated while a broker is away or busy, before the task fails.",
    ),
    KAFKA_SERVERS,
    *PAYLOAD_WRITE_OPTIONS,
    *CONNECT_OPTIONS,
)
"""Every option of a write, in the order of the documentation."""

SPARKS_OWN: Final = frozenset({"checkpointlocation", "queryname", "path"})
"""What Spark hands on of its own options; a `path` has a value only when somebody gave one."""


class WriteOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What the options of a write say. Lengths are bytes, times milliseconds; None is no limit."""

    name_servers: tuple[str, ...]
    connect: ConnectSettings
    topic: str | None
    producer_group: str
    dedup: bool
    row_key: str | None
    idempotency_key: str | None
    idempotency_step: int
    task_rows_per_second: float | None
    batch_bytes: int
    compression: str
    max_message_bytes: int
    send_timeout_ms: int
    retry_timeout_ms: int
    payload: PayloadOptions | None = None
    encoding: EncodingRules | None = None


def write_options(options: Mapping[str, str], *, streaming: bool) -> WriteOptions:
    """The values of the options of one write. `ConfigurationError` says which option is wrong, and how it would be right."""
    given = GivenOptions(options, WRITE_OPTIONS, "writing", others=SPARKS_OWN)
    if given.get("path"):
        raise ConfigurationError(
            "there is no option 'path' for writing", remedy="name the topic instead: .option('topic', 'orders')"
        )
    if streaming and "idempotencyKey" in given:
        raise ConfigurationError(
            "option idempotencyKey has no effect on a stream",
            remedy="leave it out: a stream is known by its checkpoint, which keeps the id of the query",
        )
    topic, group = given.get("topic"), given.get("producerGroup") or "spark-orbitmq-sink"
    for name, problem in (
        ("topic", None if topic is None else topic_name_problem(topic)),
        ("producerGroup", group_name_problem(group)),
    ):
        if problem is not None:
            raise ConfigurationError(f"option {name}: {problem}")
    dedup = given.choice("dedup", ("on", "none")) == "on"
    if not dedup:
        for name in ("rowKey", "idempotencyKey"):
            if name in given:
                raise ConfigurationError(f"option {name} has no effect with dedup=none", remedy="leave one of them out")
    if "idempotencyStep" in given and "idempotencyKey" not in given:
        raise ConfigurationError(
            "option idempotencyStep has no effect without idempotencyKey", remedy="name the work of which it is a part"
        )
    max_bytes = given.number("maxMessageBytes", BODY_BYTES_MAX, 1, FRAME_BYTES_MAX - RECORD_OVERHEAD_BYTES_MAX)
    return WriteOptions(
        name_servers=given.name_servers(),
        connect=connect_settings(given),
        topic=topic,
        producer_group=group,
        dedup=dedup,
        row_key=given.get("rowKey"),
        idempotency_key=_job_name(given.get("idempotencyKey")),
        idempotency_step=given.number("idempotencyStep", 0, 0, 10**18 - 1),
        task_rows_per_second=_rate(given.get("taskRowsPerSecond")),
        batch_bytes=given.number("batchBytes", min(SPARK_BATCH_BYTES, max_bytes), 1, max_bytes),
        compression=given.choice("compression", ("none", "zlib", "lz4", "zstd")),
        max_message_bytes=max_bytes,
        send_timeout_ms=given.number("sendTimeoutMs", 10_000, 1, 600_000),
        retry_timeout_ms=given.number("retryTimeoutMs", 60_000, 0, 86_400_000),
        payload=payload_options(given),
    )


def _job_name(text: str | None) -> str | None:
    if text is None:
        return None
    if not text or len(text) > SPARK_IDEMPOTENCY_KEY_CHARS_MAX or not text.isascii() or not text.isprintable():
        problem = f"has 1 to {SPARK_IDEMPOTENCY_KEY_CHARS_MAX} printable ASCII characters"
    elif text.startswith("~") or "@" in text:
        problem = "does not begin with '~' and has no '@'"
    else:
        return text
    raise ConfigurationError(f"option idempotencyKey: {text[:80]!r} is no name of a job", remedy=f"it {problem}")


def _rate(text: str | None) -> float | None:
    if text is None:
        return None
    try:
        rate = float(text)
    except ValueError:
        rate = 0.0
    if not SPARK_TASK_ROWS_PER_SECOND_MIN <= rate <= SPARK_TASK_ROWS_PER_SECOND_MAX:
        raise ConfigurationError(
            f"option taskRowsPerSecond is {text[:40]!r}",
            remedy=f"it is a number from {SPARK_TASK_ROWS_PER_SECOND_MIN} to {SPARK_TASK_ROWS_PER_SECOND_MAX}",
        )
    return rate
