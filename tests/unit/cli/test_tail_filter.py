"""What tail prints and how, without a server."""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Callable
from typing import Any

import pytest
import typer
from scripted_server import Ran

from orbitmq.cli.messages.tail_filter import TailFilter
from orbitmq.cli.messages.tail_format import TailFormat, check_template, print_message
from orbitmq.protocol.ids import pack_host
from orbitmq.protocol.properties import encode_properties
from orbitmq.protocol.records import Record, encode_stored, iter_records

Run = Callable[..., Ran]
ZLIB_COMPRESSED = 0x1


def record(body: bytes = b"fresh trout", properties: dict[str, str] | None = None, sys_flag: int = 0) -> Record:
    host = pack_host("127.0.0.1", 10911)
    stored = encode_stored(
        topic=b"orders", queue_id=3, flag=0, queue_offset=8, physical_offset=0, sys_flag=sys_flag,
        born_timestamp=1_700_000_000_000, born_host=host, store_timestamp=1_700_000_000_123, store_host=host,
        reconsume_times=0, prepared_transaction_offset=0, body=body, body_crc=0,
        properties=encode_properties(properties or {"KEYS": "k1 k2", "TAGS": "fish", "city": "Genf"}),
    )  # fmt: skip
    return next(iter(iter_records(stored)))


@pytest.mark.parametrize(
    ("condition", "takes"),
    [
        ({}, True),
        ({"keys": ("k2", "other")}, True),
        ({"keys": ("k",)}, False),
        ({"properties": {"city": "Genf"}}, True),
        ({"properties": {"city": "Genf", "land": "CH"}}, False),
        ({"contains": b"trout"}, True),
        ({"contains": b"pike"}, False),
        ({"pattern": re.compile("^fresh .*t$")}, True),
        ({"pattern": re.compile("^trout")}, False),
        ({"keys": ("k1",), "contains": b"pike"}, False),
    ],
)
def test_all_conditions_hold(condition: dict[str, Any], takes: bool) -> None:
    assert TailFilter(**condition).takes(record()) is takes


def test_bodies_are_looked_at_as_they_were_sent() -> None:
    packed = record(zlib.compress(b"fresh trout"), sys_flag=ZLIB_COMPRESSED)
    assert TailFilter(contains=b"trout").takes(packed)


def test_a_body_that_cannot_be_read_matches_no_condition_on_bodies() -> None:
    damaged = record(b"no zlib", sys_flag=ZLIB_COMPRESSED)
    assert not TailFilter(contains=b"zlib").takes(damaged)
    assert TailFilter(keys=("k1",)).takes(damaged)


def test_a_body_that_is_no_text_can_be_searched() -> None:
    assert TailFilter(pattern=re.compile("x")).takes(record(b"\xff\xfex"))


def test_the_forms(capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    print_message(record(b"\xff\n"), "broker-a", TailFormat.RAW)
    print_message(record(), "broker-a", TailFormat.TEXT)
    print_message(record(), "broker-a", TailFormat.JSON)
    template = "{broker} {queue}@{queue_offset:04d} {tag} <{properties[city]}{properties[none]}> {body}"
    print_message(record(), "broker-a", TailFormat.TEXT, template)
    raw, empty, text, document, own = capsysbinary.readouterr().out.split(b"\n")[:5]
    assert (raw, empty) == (b"\xff", b"")
    assert text == b"2023-11-14T22:13:20.123Z orders/3@8 [fish] fresh trout"
    assert json.loads(document)["broker"] == "broker-a"
    assert own == b"broker-a 3@0008 fish <Genf> fresh trout"


@pytest.mark.parametrize("template", ["{colour}", "{0}", "{body", "{queue_offset:q}", "{body.nothing}"])
def test_a_wrong_template_is_a_usage_error(template: str) -> None:
    with pytest.raises(typer.BadParameter, match="it may name topic, "):
        check_template(template)


@pytest.mark.parametrize(
    "arguments",
    [
        ("--from-beginning", "--since", "10m"),
        ("--offset", 1, "--since", "10m"),
        ("--template", "{body}", "--format", "raw"),
        ("--template", "{colour}"),
        ("--regex", "("),
        ("--since", "soon"),
        ("--property", "city"),
    ],
)
def test_mistakes_are_told_before_anything_is_read(orbitmq: Run, arguments: tuple[object, ...]) -> None:
    assert orbitmq("tail", "orders", *arguments, "-n", "127.0.0.1:1").code == 2
