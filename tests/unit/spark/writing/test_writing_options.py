"""Options and columns of a write: what is taken, and what is refused with which words."""

from __future__ import annotations

import pytest
from tests.unit.spark.test_connect_options import CONNECTING

from orbitmq.errors import ConfigurationError
from orbitmq.spark.writing.row_columns import ROW_KEY, row_columns
from orbitmq.spark.writing_options import WRITE_OPTIONS, write_options

GIVEN = {"nameserver": "localhost:9876", "topic": "orders"}


def test_defaults():
    options = write_options(GIVEN, streaming=False)
    assert options.name_servers == ("localhost:9876",)
    assert (options.topic, options.dedup, options.batch_bytes, options.compression) == ("orders", True, 524_288, "none")


def test_every_option_in_any_letter_case():
    values = {
        "NAMESERVER": "a:1;b:2", "Topic": "t", "producerGroup": "g", "DEDUP": "ON", "rowKey": "id", "idempotencyKey": "night 1",
        "idempotencyStep": "12", "taskRowsPerSecond": "2.5",
        "batchBytes": "1000", "compression": "zstd", "maxMessageBytes": "2000", "sendTimeoutMs": "5", "retryTimeoutMs": "0",
        "payload": "avro", "payloadSchema": "{}", "payloadRegistry": "http://host", "payloadSubject": "s", "payloadRegistryUser": "me",
        "payloadRegistrySecretFile": "/x", **CONNECTING,
    }  # fmt: skip
    others = {"kafka.bootstrap.servers": "a:1", "payloadMessage": "shop.Order"}
    values |= dict.fromkeys(others, "")
    assert {name.lower() for name in values} == {option.name.lower() for option in WRITE_OPTIONS}
    options = write_options(values, streaming=False)
    assert options.name_servers == ("a:1", "b:2")
    assert (options.row_key, options.idempotency_key, options.retry_timeout_ms) == ("id", "night 1", 0)
    assert (options.idempotency_step, options.task_rows_per_second) == (12, 2.5)


def test_what_spark_hands_on_of_its_own_is_no_mistake():
    write_options({**GIVEN, "checkpointLocation": "/x", "queryName": "q", "path": ""}, streaming=True)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"colour": "red"}, "no option 'colour' for writing .*nameServer, topic, producerGroup"),
        ({"rowkeys": "id"}, "no option 'rowkeys' for writing .did you mean rowKey. the options are"),
        ({"path": "/x"}, "no option 'path' .*name the topic"),
        ({"nameServer": ""}, "nameServer is missing"),
        ({"topic": "a b"}, "option topic: "),
        ({"producerGroup": "a b"}, "option producerGroup: "),
        ({"dedup": "maybe"}, "option dedup: 'maybe' is not one of on, none"),
        ({"dedup": "none", "rowKey": "id"}, "rowKey has no effect"),
        ({"dedup": "none", "idempotencyKey": "k"}, "idempotencyKey has no effect"),
        ({"idempotencyKey": "a@b"}, "has no '@'"),
        ({"idempotencyKey": "~a"}, "does not begin with"),
        ({"idempotencyKey": "k" * 65}, "1 to 64 printable"),
        ({"idempotencyStep": "1"}, "idempotencyStep has no effect without idempotencyKey"),
        ({"idempotencyKey": "k", "idempotencyStep": "-1"}, "option idempotencyStep: '-1'"),
        ({"taskRowsPerSecond": "0"}, "taskRowsPerSecond is '0'.* from 0.001 to 1000000"),
        ({"taskRowsPerSecond": "nan"}, "taskRowsPerSecond is 'nan'"),
        ({"taskRowsPerSecond": "fast"}, "taskRowsPerSecond is 'fast'"),
        ({"batchBytes": "many"}, "option batchBytes: 'many' is not a whole number from 1"),
        ({"batchBytes": "5000000"}, "1 to 4194304"),
        ({"compression": "rar"}, "option compression: 'rar'"),
        ({"sendTimeoutMs": "0"}, "sendTimeoutMs"),
    ],
)
def test_mistakes_are_named(more, words):
    given = {name.lower(): value for name, value in {**GIVEN, **{k.lower(): v for k, v in more.items()}}.items()}
    with pytest.raises(ConfigurationError, match=words):
        write_options(given, streaming=False)


def test_a_stream_has_no_idempotency_key():
    with pytest.raises(ConfigurationError, match="no effect on a stream"):
        write_options({**GIVEN, "idempotencyKey": "k"}, streaming=True)


# --- columns ----------------------------------------------------------------------------------------------------------


def test_places_of_columns_by_their_names():
    fields = [("Tags", "string"), ("BODY", "binary"), ("order_id", "bigint")]
    assert row_columns(fields, "order_id", topic_needed=False) == {"tags": 0, "body": 1, ROW_KEY: 2}


def test_a_row_key_may_be_a_column_of_the_message():
    fields = [("body", "string"), ("keys", "string")]
    assert row_columns(fields, "keys", topic_needed=False) == {"body": 0, "keys": 1, ROW_KEY: 1}


def test_a_row_key_that_is_called_key_is_no_key_of_a_message():
    places = row_columns([("body", "string"), ("key", "bigint")], "key", topic_needed=False)
    assert places == {"body": 0, "rowKey": 1}


@pytest.mark.parametrize(
    ("fields", "row_key", "words"),
    [
        ([("body", "string"), ("price", "int")], None, "column 'price' is nothing that a message has .*body, topic, tags"),
        ([("tags", "string")], None, "no column body"),
        ([("body", "int")], None, "column 'body' is of type int .*string or binary"),
        ([("body", "string"), ("deliverTimestamp", "bigint")], None, "deliverTimestamp.* timestamp: cast it"),
        ([("body", "string"), ("deliverTimestamp", "timestamp_ntz")], None, "deliverTimestamp.* timestamp: cast it"),
        ([("body", "string"), ("properties", "map<string,int>")], None, "map<string,string>"),
        ([("body", "string"), ("Body", "string")], None, "body is there twice"),
        ([("body", "string"), ("shardingKey", "string"), ("messageGroup", "string")], None, "both columns"),
        ([("body", "string")], "id", "rowKey names 'id'"),
        ([("body", "string"), ("id", "double")], "id", "a row key is string or tinyint"),
    ],
)  # fmt: skip
def test_wrong_columns_are_named(fields, row_key, words):
    with pytest.raises(ConfigurationError, match=words):
        row_columns(fields, row_key, topic_needed=False)


def test_without_the_option_there_has_to_be_a_topic():
    with pytest.raises(ConfigurationError, match="nothing says where the rows go"):
        row_columns([("body", "string")], None, topic_needed=True)
