"""What a message says of itself: read once, kept as it is where that is possible."""

from __future__ import annotations

import pytest

from orbitmq.broker.message_properties import (
    CANCEL,
    LEVEL,
    MARKS,
    ONCE,
    OURS,
    PLACED,
    STAMPED,
    STATED,
    facts_of,
    read_facts,
    row_facts,
)
from orbitmq.protocol.batches import BatchItem, batch_rows, encode_batch
from orbitmq.protocol.properties import Property


@pytest.mark.parametrize("text", ["KEYS\x01k\x02UNIQ_KEY\x01u\x02", "KEYS\x01k\x02UNIQ_KEY\x01u"])
def test_a_tidy_text_is_kept(text):
    facts = read_facts(text)
    assert (facts.values, facts.marks, facts.kept) == (
        {"KEYS": "k", "UNIQ_KEY": "u"}, 0, b"KEYS\x01k\x02UNIQ_KEY\x01u\x02",
    )  # fmt: skip


@pytest.mark.parametrize("text", ["", "a\x01b\x02a\x01c\x02", "a\x01\x02", "junk", "a\x01ü\x02", "a\x01\ud800\x02"])
def test_any_other_text_is_written_anew(text):
    assert read_facts(text).kept is None


def test_what_no_sender_may_say_is_left_out():
    facts = read_facts("a\x01b\x02CLUSTER\x01c\x02ORBITMQ_DUE_MS\x017\x02")
    assert (facts.values, facts.kept) == ({"a": "b"}, None)
    assert facts.marks == OURS | STAMPED


def test_marks_say_what_names_ask_for():
    assert read_facts("TIMER_DELIVER_MS\x011\x02TIMER_DEL_UNIQKEY\x01k\x02").marks == STATED | CANCEL
    assert facts_of({"DELAY": "1", "REAL_TOPIC": "T", Property.ONCE_SCOPE: "s"}).marks == LEVEL | PLACED | ONCE
    assert facts_of({"DELAY": "1", "a": "b"}).without({"DELAY"}).marks == 0


def test_messages_of_a_batch_say_the_same():
    items = [
        BatchItem(0, b"x", text)
        for text in (b"a\x01b", b"a\x01\xc3\xbc\x02", b"", b"\xff\x01b\x02", b"CLUSTER\x01c\x02")
    ]
    found = [row_facts(row) for row in batch_rows(encode_batch(items), MARKS)]
    assert [facts.kept for facts in found] == [b"a\x01b\x02", b"a\x01\xc3\xbc\x02", None, None, None]
    assert [facts.values for facts in found] == [{"a": "b"}, {"a": "ü"}, {}, {"�": "b"}, {}]
