"""Every option of a read: what it means, and what a mistake in it is told."""

from __future__ import annotations

import pickle

import pytest
from tests.unit.spark.test_connect_options import CONNECTING

from orbitmq.columns.message_columns import PropertiesForm
from orbitmq.errors import ConfigurationError
from orbitmq.protocol.remoting.bodies import MessageQueue
from orbitmq.spark.given_options import KAFKA_SERVERS, ReadKind
from orbitmq.spark.options import (
    EARLIEST,
    LATEST,
    READ_OPTIONS,
    Bound,
    ReadOptions,
    Subscribed,
    read_options,
)

NEEDED = {"nameserver": "a:9876;b:9876", "topic": "orders"}
A0, A1 = MessageQueue("orders", "broker-a", 0), MessageQueue("orders", "broker-a", 1)


def options(*, streaming: bool = False, **given: str) -> ReadOptions:
    return read_options({**NEEDED, **given}, streaming=streaming)


def test_what_stands_without_being_said() -> None:
    batch, stream = options(), options(streaming=True)
    assert batch.name_servers == ("a:9876", "b:9876")
    assert batch.subscribed == Subscribed(("orders",))
    assert (batch.starting, stream.starting) == (Bound(EARLIEST), Bound(LATEST))
    assert batch.ending == Bound(LATEST)
    assert batch.fail_on_data_loss
    assert batch.late_start_is_error
    assert (batch.pull_count, batch.pull_timeout_ms, batch.retry_timeout_ms) == (1_000, 3_000, 60_000)
    assert (batch.max_rows, batch.min_rows, batch.min_partitions, batch.max_partition_rows) == (None,) * 4
    assert stream.max_delay_ms == 15 * 60_000
    assert stream.refresh_ms == 200
    assert batch.expression == "*"
    assert batch.properties is None
    assert pickle.loads(pickle.dumps(stream)) == stream


def test_names_count_in_any_case() -> None:
    assert options(MinPartitions="3", MAXRECORDSPERPARTITION="9").min_partitions == 3


def test_what_is_read() -> None:
    def subscribed(**given: str) -> Subscribed:
        return read_options({"nameServer": "a:1", **given}, streaming=False).subscribed

    assert subscribed(subscribe=" b, a ,a") == Subscribed(("a", "b"))
    assert subscribed(subscribePattern="or.*") == Subscribed(pattern="or.*")
    assigned = '{"orders": {"broker-a": [0, 1]}}'
    assert subscribed(assign=assigned) == Subscribed(("orders",), queues=frozenset({A0, A1}))


def test_where_it_begins_and_ends() -> None:
    found = options(startingoffsets='{"orders": {"broker-a": {"0": 23, "1": -2}}}', endingoffsets="LATEST")
    assert found.starting == Bound(EARLIEST, offsets={A0: 23, A1: EARLIEST})
    assert (found.starting.place(A0), found.starting.place(MessageQueue("orders", "b", 0))) == (23, EARLIEST)
    timed = options(startingoffsetsbytimestamp='{"orders": {"broker-a": {"1": 1700}}}', endingtimestamp="99")
    assert (timed.starting.time_ms(A0), timed.starting.time_ms(A1)) == (None, 1700)
    assert timed.ending.time_ms(A0) == 99


@pytest.mark.parametrize(
    ("text", "wanted"), [("500ms", 500), ("30s", 30_000), ("2 h", 7_200_000), ("1500", 1_500), ("5 min", 300_000)]
)
def test_durations(text: str, wanted: int) -> None:
    assert options(streaming=True, maxtriggerdelay=text).max_delay_ms == wanted


def test_the_group_is_the_same_whenever_the_same_is_read() -> None:
    assert options().group == options(minpartitions="3").group != options(subexpression="paid").group
    assert options().group.startswith("spark-orbitmq-source-")
    assert options(groupidprefix="reports").group.startswith("reports-")
    assert options(group="reports").group == "reports"


def test_forms_of_properties() -> None:
    assert options(includeproperties="JSON").properties is PropertiesForm.JSON


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"nameserver": ""}, "nameServer is missing"),
        ({"nameserver": "a"}, "not host:port"),
        ({"topic": ""}, "nothing says what to read"),
        ({"subscribe": "x"}, "topic and subscribe are given together"),
        ({"topic": "a b"}, "option topic: "),
        ({"topic": "", "subscribepattern": "("}, "is no regular expression"),
        ({"topic": "", "subscribepattern": "a{99999999999}"}, "is no regular expression: the repetition number"),
        ({"topic": "", "subscribepattern": "(" * 5_000}, r"'\({40}\.\.\.' is no regular expression"),
        ({"topic": "", "assign": "{}"}, "assign names no queue"),
        ({"topic": "", "assign": "[1]"}, "assign cannot be read"),
        ({"topic": "", "assign": '{"orders": {"broker-a": [' + "[" * 9_000}, "assign cannot be read"),
        (
            {"startingoffsets": "newest"},
            "startingOffsets: 'newest' says no offsets: JSON is malformed.*write earliest, or by queue {",
        ),
        ({"startingoffsets": "{}"}, "startingOffsets: '{}' says no offsets .write earliest, or by queue {"),
        ({"startingoffsets": '{"orders": {"broker-a": {}}}'}, "says no offsets"),
        ({"startingoffsets": '{"orders": {"0": 23}}'}, "says no offsets: Expected `object`, got `int` - at"),
        ({"startingoffsets": '{"orders": {"broker-a": {"0": "1"}}}'}, "says no offsets: Expected `int`, got `str`"),
        ({"startingoffsets": "7"}, "'7' says no offsets: Expected `object`, got `int`"),
        ({"startingoffsets": "[" * 9_000}, r"'\[{40}\.\.\.' says no offsets"),
        ({"endingoffsets": '{"orders": {}}'}, "says no offsets .write latest, or by queue {"),
        ({"startingoffsetsbytimestamp": "{}"}, "'{}' says no times .write by queue, in milliseconds since 1970, {"),
        ({"endingoffsetsbytimestamp": "1700"}, "endingOffsetsByTimestamp: '1700' says no times: "),
        ({"startingoffsets": '{"orders": {"broker-a": {"x": 1}}}'}, "'x' is no queue id"),
        ({"startingoffsets": '{"orders": {"broker-a": {"%s": 1}}}' % ("9" * 5_000)}, "9' is no queue id"),
        ({"startingoffsets": '{"orders": {"broker-a": {"0": -3}}}'}, "-3 is out of range"),
        ({"startingoffsets": "latest"}, "cannot begin at the latest"),
        ({"endingoffsets": "earliest"}, "cannot end at the earliest"),
        ({"startingoffsets": "earliest", "startingtimestamp": "1"}, "say different things"),
        ({"startingtimestamp": "yesterday"}, "is not a whole number"),
        ({"startingoffsetsbytimestampstrategy": "skip"}, "not one of error, latest"),
        ({"minpartitions": "0"}, "option minPartitions: '0'"),
        ({"pullbatchsize": "99999999"}, "from 1 to 65536"),
        (
            {"pulltimeoutms": str(2**62)},
            "option pullTimeoutMs: '4611686018427387904' is not a whole number from 1 to 600000",
        ),
        ({"failondataloss": "maybe"}, "not one of true, false"),
        ({"subexpression": "||"}, "tag"),
        ({"group": "g", "groupidprefix": "p"}, "given together"),
        ({"group": "a b"}, "option group: "),
        ({"includeproperties": "xml"}, "not one of map, json, none"),
        (
            {"topics": "x"},
            "no option 'topics' for reading .did you mean topic. the options are nameServer, topic, subscribe,",
        ),
        ({"startingOfset": "x"}, "no option 'startingofset' .*did you mean startingOffsets"),
        ({"colour": "x"}, "no option 'colour' for reading .the options are nameServer, topic, subscribe,"),
        ({"maxoffsetspertrigger": "5"}, "maxOffsetsPerTrigger has no effect on a batch read; it is for streams"),
    ],
)
def test_mistakes(given: dict[str, str], text: str) -> None:
    with pytest.raises(ConfigurationError, match=text):
        options(**given)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"endingoffsets": "latest"}, "endingOffsets has no effect on a stream; it is for batch reads"),
        (
            {"minoffsetspertrigger": "9", "maxoffsetspertrigger": "8"},
            "minOffsetsPerTrigger is 9 and maxOffsetsPerTrigger 8: no batch could have so many rows",
        ),
        ({"maxtriggerdelay": "5 minutes"}, "option maxTriggerDelay: '5minutes' is no span"),
        ({"maxtriggerdelay": "soon"}, "option maxTriggerDelay: 'soon' is no span of time such as 500ms, 30s"),
    ],
)
def test_mistakes_of_streams(given: dict[str, str], text: str) -> None:
    with pytest.raises(ConfigurationError, match=text):
        options(streaming=True, **given)


REGISTRY = {"payload": "avro", "payloadRegistry": "http://host"}
TOGETHER = {
    "payloadMessage": {"payload": "protobuf", "payloadSchema": "orders.pb"},
    "payloadRegistry": REGISTRY,
    "payloadSubject": REGISTRY,
    "payloadRegistryUser": {**REGISTRY, "payloadRegistrySecretFile": "/secret"},
    "payloadRegistrySecretFile": {**REGISTRY, "payloadRegistryUser": "me"},
}
"""What an option needs beside it."""


def test_every_option_of_the_table_is_understood() -> None:
    values = {
        "startingOffsets": "earliest", "endingOffsets": "latest", "startingOffsetsByTimestampStrategy": "latest",
        "maxTriggerDelay": "1m", "failOnDataLoss": "false", "subExpression": "a || b", "group": "g",
        "includeProperties": "none", "pushdown": "true", "nameServer": "a:1", "topic": "orders", **CONNECTING,
        "kafka.bootstrap.servers": "a:1,b:2", "includeHeaders": "true", "payload": "json", "payloadMode": "failfast",
        "payloadFraming": "confluent", "payloadRegistry": "http://host", "subSql": "a > 1",
    }  # fmt: skip
    for option in READ_OPTIONS:
        if option.name in ("subscribe", "subscribePattern", "assign") or "imestamp" in option.name:
            continue
        given = {
            **{name: value for name, value in NEEDED.items() if option is not KAFKA_SERVERS or name == "topic"},
            **(CONNECTING if option.name in CONNECTING else {}),
            **TOGETHER.get(option.name, {"payload": "json"} if option.name.startswith("payload") else {}),
            option.name.lower(): values.get(option.name, "7"),
        }
        read_options(given, streaming=option.reads is ReadKind.STREAM)
