"""Options of the data source `orbitmq` for writing: their table, and the values they give.

Rules of this file
1. Pure: text in, values out; every mistake in an option is found before a server is asked.
2. Names count in any letter case. An unknown one is an error that lists the known ones; so is one that would have no effect.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

import msgspec

from orbitmq.client.addresses import parse_addresses
from orbitmq.errors import ConfigurationError
from orbitmq.limits.spark import (
    SPARK_BATCH_BYTES,
    SPARK_IDEMPOTENCY_KEY_CHARS_MAX,
    SPARK_TASK_ROWS_PER_SECOND_MAX,
    SPARK_TASK_ROWS_PER_SECOND_MIN,
)
from orbitmq.limits.wire import BODY_BYTES_MAX, FRAME_BYTES_MAX, RECORD_OVERHEAD_BYTES_MAX
from orbitmq.protocol.names import group_name_problem, topic_name_problem


class WriteOption(NamedTuple):
    name: str
    values: str
    default: str
    meaning: str


WRITE_OPTIONS: Final = (
    WriteOption("nameServer", "`host:port`, several separated by `;`", "required", "The name servers of the cluster."),
    WriteOption("topic", "a name", "the column `topic`", "Where all rows go, whatever a column `topic` says."),
    WriteOption("producerGroup", "a name", "`spark-orbitmq-sink`", "The producer group of the messages."),
    WriteOption("dedup", "`on` or `none`", "`on`", "`on`: what a repeated task has sent before is not stored again."),
    WriteOption(
        "rowKey",
        "the name of a column",
        "the content of the row",
        "What names a row, for plans that do not divide and order their rows alike each time: text or a whole number, different in "
        "every row of a batch. A column that is none of a message's is allowed here and is not sent.",
    ),
    WriteOption(
        "idempotencyKey",
        "a name",
        "none",
        "Batch jobs: a job that is started again with the same name does not store again what the first one stored.",
    ),
    WriteOption(
        "idempotencyStep",
        "a whole number",
        "0",
        "Batch jobs that follow each other under one `idempotencyKey`, as parts of one larger work: which part this is. A part begins when "
        "the one before has ended well. The brokers then remember the rows of one part, not of all.",
    ),
    WriteOption(
        "taskRowsPerSecond",
        "a number",
        "no limit",
        "At most so many rows a second in each task. Several tasks run at a time: `coalesce` says how many there are.",
    ),
    WriteOption("batchBytes", "bytes", "524288", "Messages of one request."),
    WriteOption("compression", "`none`, `zlib`, `lz4` or `zstd`", "`none`", "How bodies from 4 KiB on are compressed."),
    WriteOption("maxMessageBytes", "bytes", "4194304", "The largest body; `maxMessageSize` of the brokers."),
    WriteOption("sendTimeoutMs", "milliseconds", "10000", "Patience with one request."),
    WriteOption(
        "retryTimeoutMs",
        "milliseconds",
        "60000",
        "How long a request is repeated while a broker is away or busy, before the task fails.",
    ),
)
"""Every option of a write, in the order of the documentation."""

SPARKS_OWN: Final = frozenset({"checkpointlocation", "queryname", "path"})
"""What Spark hands on of its own options; a `path` has a value only when somebody gave one."""


class WriteOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What the options of a write say. Lengths are bytes, times milliseconds; None is no limit."""

    name_servers: tuple[str, ...]
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


def write_options(options: Mapping[str, str], *, streaming: bool) -> WriteOptions:
    """The values of the options of one write. `ConfigurationError` says which option is wrong, and how it would be right."""
    given = {name.lower(): str(value).strip() for name, value in options.items() if value is not None}
    _check_known(given, streaming)
    if not given.get("nameserver"):
        raise ConfigurationError(
            "option nameServer is missing", remedy='for example .option("nameServer", "localhost:9876")'
        )
    topic, group = given.get("topic"), given.get("producergroup", "spark-orbitmq-sink")
    for name, problem in (
        ("topic", None if topic is None else topic_name_problem(topic)),
        ("producerGroup", group_name_problem(group)),
    ):
        if problem is not None:
            raise ConfigurationError(f"option {name}: {problem}")
    dedup = _choice(given, "dedup", ("on", "none")) == "on"
    if not dedup:
        for name in ("rowKey", "idempotencyKey"):
            if name.lower() in given:
                raise ConfigurationError(f"option {name} has no effect with dedup=none", remedy="leave one of them out")
    if "idempotencystep" in given and "idempotencykey" not in given:
        raise ConfigurationError(
            "option idempotencyStep has no effect without idempotencyKey", remedy="name the work of which it is a part"
        )
    max_bytes = _number(given, "maxMessageBytes", BODY_BYTES_MAX, 1, FRAME_BYTES_MAX - RECORD_OVERHEAD_BYTES_MAX)
    return WriteOptions(
        name_servers=parse_addresses(given["nameserver"]),
        topic=topic,
        producer_group=group,
        dedup=dedup,
        row_key=given.get("rowkey"),
        idempotency_key=_job_name(given.get("idempotencykey")),
        idempotency_step=_number(given, "idempotencyStep", 0, 0, 10**18 - 1),
        task_rows_per_second=_rate(given.get("taskrowspersecond")),
        batch_bytes=_number(given, "batchBytes", min(SPARK_BATCH_BYTES, max_bytes), 1, max_bytes),
        compression=_choice(given, "compression", ("none", "zlib", "lz4", "zstd")),
        max_message_bytes=max_bytes,
        send_timeout_ms=_number(given, "sendTimeoutMs", 10_000, 1, 600_000),
        retry_timeout_ms=_number(given, "retryTimeoutMs", 60_000, 0, 86_400_000),
    )


def _check_known(given: Mapping[str, str], streaming: bool) -> None:
    known = {option.name.lower() for option in WRITE_OPTIONS}
    for name in given:
        if name not in known and not (name in SPARKS_OWN and (name != "path" or not given[name])):
            raise ConfigurationError(
                f"there is no option {name!r} for writing",
                remedy=f"the options are {', '.join(option.name for option in WRITE_OPTIONS)}",
            )
    if streaming and "idempotencykey" in given:
        raise ConfigurationError(
            "option idempotencyKey has no effect on a stream",
            remedy="leave it out: a stream is known by its checkpoint, which keeps the id of the query",
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


def _choice(given: Mapping[str, str], name: str, values: tuple[str, ...]) -> str:
    """One of `values`, of which the first is the default."""
    value = given.get(name.lower(), values[0]).lower()
    if value not in values:
        raise ConfigurationError(f"option {name} is {value!r}", remedy=f"it is one of {', '.join(values)}")
    return value


def _number(given: Mapping[str, str], name: str, default: int, lowest: int, highest: int) -> int:
    text = given.get(name.lower())
    if text is None:
        return default
    if not (text.isascii() and text.isdigit() and len(text) < 19 and lowest <= int(text) <= highest):
        raise ConfigurationError(
            f"option {name} is {text[:40]!r}", remedy=f"it is a whole number from {lowest} to {highest}"
        )
    return int(text)
