"""Which dead letters are meant, what they are sent as, and what makes a repeat one."""

from __future__ import annotations

from typing import Any

import pytest

from orbitmq.client.redrive import (
    ORIGIN_PROPERTY,
    DeadLetters,
    RedriveResult,
    Refusal,
    Span,
    once_of,
    origin_topic,
    progress_group,
    redriven,
    span_of,
    wait_ms,
)
from orbitmq.client.stored import StoredMessage
from orbitmq.errors import ConfigurationError
from orbitmq.limits.broker import ONCE_KEY_BYTES_MAX, ONCE_MEMORY_BYTES_MAX, ONCE_SCOPE_BYTES_MAX
from orbitmq.limits.client import REDRIVE_REFUSALS_KEPT_MAX, REDRIVE_SCOPE_LETTERS
from orbitmq.protocol.ids import pack_host
from orbitmq.protocol.names import REDRIVE_GROUP, group_name_problem
from orbitmq.protocol.properties import decode_properties, encode_properties
from orbitmq.protocol.records import encode_stored, iter_records
from orbitmq.protocol.remoting.bodies import MessageQueue

DLQ = MessageQueue("%DLQ%payers", "broker-a", 0)
DEAD = {
    "RETRY_TOPIC": "bills", "DLQ_ORIGIN_TOPIC": "%RETRY%payers", "DLQ_ORIGIN_MESSAGE_ID": "OLD", "ORIGIN_MESSAGE_ID": "OLD",
    "UNIQ_KEY": "U1", "KEYS": "k1 k2", "TAGS": "due", "city": "Genf", "__SHARDINGKEY": "customer-7", "RECONSUME_TIME": "16",
    "MAX_RECONSUME_TIMES": "16", "DELAY": "18", "REAL_TOPIC": "%RETRY%payers", "REAL_QID": "0", "WAIT": "true",
    "CONSUME_START_TIME": "5", "ORBITMQ_SCOPE": "~x", "ORBITMQ_EPOCH": "3", "ORBITMQ_DUE_MS": "9", "MSG_REGION": "r",
    "error": "card declined",
}  # fmt: skip


def dead(properties: dict[str, str] | None = None, offset: int = 4) -> StoredMessage:
    host = pack_host("127.0.0.1", 10911)
    stored = encode_stored(
        topic=b"%DLQ%payers", queue_id=0, flag=9, queue_offset=offset, physical_offset=0, sys_flag=0, born_timestamp=1,
        born_host=host, store_timestamp=2, store_host=host, reconsume_times=16, prepared_transaction_offset=0,
        body=b"bill", body_crc=0, properties=encode_properties(DEAD if properties is None else properties),
    )  # fmt: skip
    record = next(iter(iter_records(stored)))
    return StoredMessage(record, b"bill", decode_properties(record.properties), DLQ)


def test_it_starts_anew_and_keeps_what_the_program_gave_it() -> None:
    sent = redriven(dead(), None)
    assert sent is not None
    assert (sent.topic, sent.tag, sent.keys, sent.ordering_key) == ("bills", "due", ("k1", "k2"), "customer-7")
    assert sent.properties == {"city": "Genf", "error": "card declined", ORIGIN_PROPERTY: "U1"}


def test_another_topic_may_be_named() -> None:
    sent = redriven(dead(), "elsewhere")
    assert sent is not None
    assert sent.topic == "elsewhere"


@pytest.mark.parametrize(
    ("properties", "topic"),
    [
        ({"RETRY_TOPIC": "bills"}, "bills"),
        ({"DLQ_ORIGIN_TOPIC": "bills"}, "bills"),
        ({"DLQ_ORIGIN_TOPIC": "%RETRY%payers"}, None),  # never send it to where it would die again unseen
        ({"city": "Genf"}, None),
    ],
)
def test_where_it_came_from(properties: dict[str, str], topic: str | None) -> None:
    assert origin_topic(dead(properties)) == topic
    assert (redriven(dead(properties), None) is None) == (topic is None)


@pytest.mark.parametrize(
    ("selection", "takes"),
    [
        ({}, True),
        ({"keys": frozenset({"k2", "k9"})}, True),
        ({"keys": frozenset({"k9"})}, False),
        ({"tags": frozenset({"due"})}, True),
        ({"tags": frozenset({"paid"})}, False),
        ({"properties": {"city": "Genf"}}, True),
        ({"properties": {"city": "Bern"}}, False),
        ({"topic": "bills"}, True),
        ({"topic": "letters"}, False),
        ({"reason": "declined"}, True),
        ({"reason": "bills"}, False),  # stands in the protocol's own properties only
        ({"keys": frozenset({"k1"}), "tags": frozenset({"paid"})}, False),
    ],
)
def test_all_that_is_asked_holds(selection: dict[str, Any], takes: bool) -> None:
    assert DeadLetters(**selection).takes(dead()) is takes


def test_a_span_of_time_needs_a_beginning_before_its_end() -> None:
    with pytest.raises(ConfigurationError):
        DeadLetters(since_ms=5, until_ms=5)


def test_a_repeat_is_the_same_dead_letter_not_the_same_message() -> None:
    assert once_of("payers", dead(), "bills", None) == once_of("payers", dead(), "bills", None)
    died_again = dead(offset=5)
    assert once_of("payers", dead(), "bills", None) != once_of("payers", died_again, "bills", None)
    assert once_of("payers", dead(), "bills", None) != once_of("payers", dead(), "bills", "again")
    assert once_of("payers", dead(), "bills", None) != once_of("payers", dead(), "elsewhere", None)


KEY_BYTES = 150
"""What a remembered key takes at most; those of large epochs are packed and take a third."""


def test_no_scope_has_more_letters_than_a_broker_takes_of_one() -> None:
    def scope(offset: int) -> str:
        return once_of("payers", dead(offset=offset), "bills", None).scope

    assert scope(0) == scope(REDRIVE_SCOPE_LETTERS - 1) != scope(REDRIVE_SCOPE_LETTERS)
    assert scope(0).startswith("redrive.payers/")
    assert REDRIVE_SCOPE_LETTERS * KEY_BYTES * 5 <= ONCE_MEMORY_BYTES_MAX


def test_names_that_are_too_long_are_digested() -> None:
    once = once_of("g" * 255, dead({"UNIQ_KEY": "u" * 1_100}), "t", None)
    assert len(once.scope) <= ONCE_SCOPE_BYTES_MAX
    assert len(once.key) <= ONCE_KEY_BYTES_MAX
    assert once != once_of("g" * 255, dead({"UNIQ_KEY": "u" * 1_101}), "t", None)


def test_each_selection_keeps_a_place_of_its_own() -> None:
    assert progress_group(DeadLetters(), None) == REDRIVE_GROUP
    places = [
        progress_group(DeadLetters(tags=frozenset({"a"})), None),
        progress_group(DeadLetters(tags=frozenset({"b"})), None),
        progress_group(DeadLetters(since_ms=1), None),
        progress_group(DeadLetters(), "elsewhere"),
        REDRIVE_GROUP,
    ]
    assert len(set(places)) == len(places)
    assert [group_name_problem(place) for place in places] == [None] * len(places)


def test_the_order_in_which_a_selection_was_written_has_no_meaning() -> None:
    one = DeadLetters(tags=frozenset(["a", "b", "c"]), properties={"x": "1", "y": "2"})
    other = DeadLetters(tags=frozenset(["c", "b", "a"]), properties={"y": "2", "x": "1"})
    assert progress_group(one, None) == progress_group(other, None)


@pytest.mark.parametrize(
    ("first", "end", "kept", "since", "until", "span"),
    [
        (3, 10, None, None, None, (3, 10)),
        (3, 10, 7, None, None, (7, 10)),
        (3, 10, 1, None, None, (3, 10)),  # retention took what was before
        (0, 4, 9, None, None, (0, 4)),  # the topic was made anew
        (3, 10, 10, None, None, (10, 10)),
        (3, 10, None, 5, 8, (5, 8)),
        (3, 10, 6, 5, 8, (6, 8)),
        (3, 10, 9, None, 8, (9, 9)),
    ],
)
def test_what_a_run_looks_at(
    first: int, end: int, kept: int | None, since: int | None, until: int | None, span: tuple[int, int]
) -> None:
    assert span_of(DLQ, first, end, kept, since, until) == Span(DLQ, *span)


def test_the_rate_is_kept_on_average() -> None:
    assert [wait_ms(count, 0, 10.0) for count in (0, 1, 25)] == [0, 100, 2_500]
    assert wait_ms(1, 500, 10.0) == 0
    assert wait_ms(1_000_000, 0, None) == 0


def test_the_account_adds_up_and_names_a_bounded_number() -> None:
    result = RedriveResult(group="g", dry_run=False)
    result.sent("bills")
    result.passed()
    for number in range(REDRIVE_REFUSALS_KEPT_MAX + 5):
        result.refuse(Refusal(DLQ, number, "U", "why"))
    assert result.looked_at == result.redriven + result.passed_over + result.refused
    assert (result.topics, len(result.refusals)) == ({"bills": 1}, REDRIVE_REFUSALS_KEPT_MAX)
