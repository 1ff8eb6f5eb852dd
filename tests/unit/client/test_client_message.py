"""What may be sent, and the properties it travels with."""

from __future__ import annotations

import pytest

from orbitmq.client.message import Message, check_message, check_topic, encoded_properties, message_properties
from orbitmq.errors import MessageIllegalError


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


def test_a_plain_message_passes() -> None:
    check_message(Message(b"1234", tag="a", key="k", properties={"a": "b"}), max_bytes=4)


@pytest.mark.parametrize("topic", ["", "a b", "SCHEDULE_TOPIC_XXXX", "x" * 128, "ä"])
def test_illegal_topics_are_refused(topic: str) -> None:
    with pytest.raises(MessageIllegalError):
        check_topic(topic)


def test_properties_have_to_fit_a_record() -> None:
    with pytest.raises(MessageIllegalError, match="32767"):
        encoded_properties({"a": "x" * 32_767})
