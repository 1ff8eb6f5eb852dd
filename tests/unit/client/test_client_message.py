"""What may be sent, and the properties it travels with."""

from __future__ import annotations

from typing import Any

import pytest

from orbitmq.client.message import Message, Once, check_message, check_topic, encoded_properties, message_properties
from orbitmq.client.sending.outgoing import prepare
from orbitmq.clock import ManualClock
from orbitmq.errors import MessageIllegalError
from orbitmq.protocol.ids import UniqueIds

IDS = UniqueIds(ManualClock(), "10.0.0.1")


def test_all_properties() -> None:
    message = Message(b"x", tag="paid", key=["a", "b"], delay_level=3, properties={"p": "q"}, wait_stored=False)
    assert message_properties(message, "ID") == {
        "p": "q",
        "KEYS": "a b",
        "TAGS": "paid",
        "DELAY": "3",
        "WAIT": "false",
        "UNIQ_KEY": "ID",
    }


@pytest.mark.parametrize(
    "message",
    [
        Message(b""),
        Message(b"12345"),
        Message("text"),  # type: ignore[arg-type]
        Message(b"x", delay_level=-1),
        Message(b"x", key="a b"),
        Message(b"x", key=["a", ""]),
        Message(b"x", key="a\x01"),
        Message(b"x", tag=" "),
        Message(b"x", tag="a || b"),
        Message(b"x", tag="a\x02"),
        Message(b"x", properties={"TAGS": "x"}),
        Message(b"x", properties={"DELAY": "x"}),
        Message(b"x", properties={"": "x"}),
        Message(b"x", properties={"a": " "}),
        Message(b"x", properties={"a": "b\x02c"}),
    ],
)
def test_illegal_messages_are_refused(message: Message) -> None:
    with pytest.raises(MessageIllegalError):
        check_message(message, max_bytes=4)


@pytest.mark.parametrize(
    ("message", "says"),
    [
        (Message(b"x", key=42), "key is 42"),  # type: ignore[arg-type]
        (Message(b"x", key=b"42"), "key is 52; it has to be text"),  # type: ignore[arg-type]
        (Message(b"x", tag=1), "tag is 1; it has to be text"),  # type: ignore[arg-type]
        (Message(b"x", delay_level="3"), "delay_level is '3'; it has to be a whole number"),  # type: ignore[arg-type]
        (Message(b"x", delay_level=True), "delay_level is True"),
        (Message(b"x", properties={"order": 42}), r"the property 'order' is 42; it has to be text \(convert it: str"),  # type: ignore[dict-item]
        (Message(b"x", properties={1: "a"}), "the name of a property is 1"),  # type: ignore[dict-item]
    ],
)
def test_a_value_of_another_type_is_named(message: Message, says: str) -> None:
    """Programs that nobody type-checks get the same answer as for any other illegal message."""
    with pytest.raises(MessageIllegalError, match=says):
        check_message(message, max_bytes=4)


@pytest.mark.parametrize("values", [(1, 1, "k"), ("s", "1", "k"), ("s", 1.0, "k"), ("s", 1, 17)])
def test_the_three_of_once_have_types(values: tuple[Any, Any, Any]) -> None:
    with pytest.raises(MessageIllegalError, match=r"Once\.\w+ is .*; it has to be"):
        Once(*values)


def test_a_plain_message_passes() -> None:
    check_message(Message(b"1234", tag="a", key="k", properties={"a": "b"}), max_bytes=4)


@pytest.mark.parametrize("topic", ["", "a b", "SCHEDULE_TOPIC_XXXX", "x" * 128, "ä"])
def test_illegal_topics_are_refused(topic: str) -> None:
    with pytest.raises(MessageIllegalError):
        check_topic(topic)


@pytest.mark.parametrize(
    ("key", "says"),
    [(42, "ordering_key is 42"), ("a\x02TAGS\x01b", "ordering_key contains U"), ("\ud800", "surrogate")],
)
def test_an_ordering_key_is_text_that_can_be_sent(key: Any, says: str) -> None:
    with pytest.raises(MessageIllegalError, match=says):
        prepare("T", Message(b"x"), IDS, 1_000, ordering_key=key)


def test_properties_have_to_fit_a_record() -> None:
    with pytest.raises(MessageIllegalError, match="32767"):
        encoded_properties({"a": "x" * 32_767})
