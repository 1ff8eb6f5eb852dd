"""Options of a read of log files, and what is said about wrong ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from orbitmq.errors import ConfigurationError
from orbitmq.limits.columns import LOG_PARTITION_BYTES
from orbitmq.spark.log_files.log_options import LOG_OPTIONS, log_options


def test_defaults() -> None:
    options = log_options({"path": "/data/store"})
    assert options.path == "/data/store"
    assert options.selection.topics == frozenset()
    assert (options.selection.pattern, options.starting_position, options.selection.ending_ms, options.properties) == (
        None,
    ) * 4
    assert options.partition_bytes == LOG_PARTITION_BYTES
    assert options.verify_checksums
    assert not options.selection.include_internal


def test_all_of_them_in_any_letter_case() -> None:
    given = {
        "PATH": "s3://bucket/store",
        "SUBSCRIBE": "a, b",
        "startingposition": "5",
        "endingPosition": "6",
        "startingTimestamp": "7",
        "endingTimestamp": "8",
        "maxPartitionBytes": "9",
        "includeProperties": "JSON",
        "includeInternal": "True",
        "brokerName": "broker-a",
        "verifyChecksums": "false",
        "onDamage": "quarantine",
        "quarantinePath": "/bad",
    }
    options = log_options(given)
    assert options.selection.topics == {"a", "b"}
    selection = options.selection
    assert (options.starting_position, options.ending_position) == (5, 6)
    assert (selection.starting_ms, selection.ending_ms, selection.include_internal) == (7, 8, True)
    assert (options.partition_bytes, options.properties) == (9, "json")
    assert (options.broker_name, options.verify_checksums, options.quarantine_path) == ("broker-a", False, "/bad")
    assert {name.lower() for name in given} <= {option.name.lower() for option in LOG_OPTIONS}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "the directory to read is missing"),
        ({"nameServer": "a:1"}, "no option 'nameserver' .*the options are path, topic"),
        ({"topic": "a", "subscribe": "b"}, "topic and subscribe are given together"),
        ({"topic": "a b"}, "option topic: the topic name 'a b'"),
        ({"subscribePattern": "("}, "no regular expression"),
        ({"startingPosition": "-1"}, "option startingPosition: '-1' is not a whole number from 0 on"),
        ({"maxPartitionBytes": "0"}, "from 1 on"),
        ({"endingTimestamp": "yesterday"}, "'yesterday' is not a whole number"),
        ({"includeProperties": "xml"}, "'xml' is not one of map, json, none"),
        ({"onDamage": "ignore"}, "'ignore' is not one of fail, quarantine"),
        ({"onDamage": "quarantine"}, "need each other"),
        ({"quarantinePath": "/bad"}, "need each other"),
    ],
)
def test_what_is_wrong_is_said(given: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        log_options(given if not given or "nameServer" in given else {"path": "/data", **given})


def test_every_option_is_in_the_guide() -> None:
    page = Path(__file__).parents[4] / "docs" / "howto" / "read-a-store-with-spark.md"
    rows = "".join(line for line in page.read_text(encoding="utf-8").splitlines() if line.startswith("| `"))
    assert [option.name for option in LOG_OPTIONS if f"`{option.name}`" not in rows] == []
