"""Reading scope, epoch and key, above all from records that another broker stored without understanding them."""

from __future__ import annotations

import msgspec
import pytest

from orbitmq.broker.idempotence.identity import SendIdentity, SendReader, digest_of, identity_in_log, read_identity
from orbitmq.broker.refusal import Refusal
from orbitmq.protocol.properties import encode_properties
from orbitmq.store.dispatch import Dispatched

VALUES = {"UNIQ_KEY": "U1", "ORBITMQ_SCOPE": "jobs", "ORBITMQ_EPOCH": "7", "ORBITMQ_ONCE_KEY": "k"}
SEND = SendIdentity("jobs", 7, digest_of("T", "k"))


def stored(values: dict[str, str], **fields: object) -> Dispatched:
    entry = Dispatched(100, 50, "T", 2, 5, 0, 1, None, None, 0, 0, encode_properties(values))
    return msgspec.structs.replace(entry, **fields)


def test_a_stored_send_is_known_with_the_queue_its_sender_was_told() -> None:
    assert identity_in_log(stored(VALUES)) == (SEND, 2)


def test_a_waiting_delayed_message_is_known_by_its_real_topic_and_queue() -> None:
    values = VALUES | {"REAL_TOPIC": "T", "REAL_QID": "9", "DELAY": "3"}
    assert identity_in_log(stored(values, topic="SCHEDULE_TOPIC_XXXX")) == (SEND, 9)


@pytest.mark.parametrize("values", [{"REAL_QID": "1"}, {"REAL_TOPIC": "T", "REAL_QID": "-1"}, {"REAL_TOPIC": "T"}])
def test_a_delayed_message_without_its_place_is_no_send(values: dict[str, str]) -> None:
    assert identity_in_log(stored(VALUES | values, topic="SCHEDULE_TOPIC_XXXX")) is None


@pytest.mark.parametrize(
    ("values", "fields"),
    [
        ({}, {"prepared_transaction_offset": 51}),
        ({}, {"sys_flag": 0x4}),
        ({}, {"sys_flag": 0x8}),
        ({}, {"topic": "%RETRY%g"}),
        ({}, {"topic": "%DLQ%g"}),
        ({"RETRY_TOPIC": "T"}, {}),
        ({"ORIGIN_MESSAGE_ID": "1"}, {}),
        ({"RETRY_TOPIC": "T", "REAL_TOPIC": "%RETRY%g", "REAL_QID": "0"}, {"topic": "SCHEDULE_TOPIC_XXXX"}),
        ({"ORBITMQ_EPOCH": "often"}, {}),
        ({"ORBITMQ_SCOPE": "x" * 300}, {}),
    ],
    ids=[
        "a delivery", "a half message", "a commit", "a retry", "a dead letter", "a copy", "another copy",
        "a waiting retry", "nonsense", "a name too long",
    ],
)  # fmt: skip
def test_what_is_no_send_of_its_own(values: dict[str, str], fields: dict[str, object]) -> None:
    assert identity_in_log(stored(VALUES | values, **fields)) is None


def test_a_record_without_the_properties_is_none() -> None:
    assert identity_in_log(stored({"UNIQ_KEY": "U1", "text": "ORBITMQ_SCOPE"})) is None


def test_text_that_is_no_unicode_has_a_digest_too() -> None:
    assert 0 <= digest_of("T", "\ud800") < 1 << 128


# --- many sends to one topic


@pytest.mark.parametrize(
    "says",
    [
        {},
        {"ORBITMQ_ONCE_KEY": "k"},
        {"ORBITMQ_EPOCH": "1", "ORBITMQ_ONCE_KEY": "k"},
        {"ORBITMQ_SCOPE": "s", "ORBITMQ_ONCE_KEY": "k"},
        {"ORBITMQ_SCOPE": "s", "ORBITMQ_EPOCH": "1"},
        {"ORBITMQ_SCOPE": "s", "ORBITMQ_EPOCH": "1", "UNIQ_KEY": "u"},
        {"ORBITMQ_SCOPE": "s", "ORBITMQ_EPOCH": "1", "ORBITMQ_ONCE_KEY": "k"},
        {"ORBITMQ_SCOPE": "s", "ORBITMQ_EPOCH": "01", "ORBITMQ_ONCE_KEY": "k\u00e9\ud800"},
        {"ORBITMQ_SCOPE": "s", "ORBITMQ_EPOCH": "2", "ORBITMQ_ONCE_KEY": "k"},
        {"ORBITMQ_SCOPE": "s", "ORBITMQ_EPOCH": "x", "ORBITMQ_ONCE_KEY": "k"},
        {"ORBITMQ_SCOPE": "other", "ORBITMQ_EPOCH": "1", "ORBITMQ_ONCE_KEY": "k"},
        {"ORBITMQ_SCOPE": "s", "ORBITMQ_EPOCH": "1", "ORBITMQ_ONCE_KEY": "k" * 10_000},
    ],
)
def test_a_reader_of_many_sends_reads_each_as_if_it_were_alone(says: dict[str, str]) -> None:
    def alone() -> object:
        try:
            return read_identity("topic", says)
        except Refusal as refusal:
            return refusal.remark

    reader = SendReader("topic")
    before = {"ORBITMQ_SCOPE": "s", "ORBITMQ_EPOCH": "1", "ORBITMQ_ONCE_KEY": "before"}
    for values in ({}, before):
        assert reader.read(values) == read_identity("topic", values)
        try:
            found: object = reader.read(says)
        except Refusal as refusal:
            found = refusal.remark
        assert found == alone()
