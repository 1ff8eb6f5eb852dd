"""What clients see of stored records, and that it is what was sent."""

from __future__ import annotations

import zlib
from hashlib import md5

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.limits.wire import BODY_BYTES_MAX
from orbitmq.protocol.compression import compress
from orbitmq.protocol.grpc.delivered_messages import delivered_message, fill_message
from orbitmq.protocol.grpc.messages import DigestType, Encoding, Message, Resource, SendMessageRequest, SystemProperties
from orbitmq.protocol.grpc.messages import MessageType as GrpcType
from orbitmq.protocol.grpc.sent_messages import SendLimits, instant_ms, sent_messages
from orbitmq.protocol.ids import encode_offset_id, pack_host
from orbitmq.protocol.properties import REFUSED_TO_USERS, decode_properties, encode_properties
from orbitmq.protocol.records import MagicCode, Record
from orbitmq.protocol.sysflag import Compression, with_compression

HOST = pack_host("10.0.0.1", 10911)
NOW_MS = 1_795_500_000_123


def record(
    properties: dict[str, str] | bytes, body: bytes = b"body", sys_flag: int = 0, reconsume_times: int = 0
) -> Record:
    encoded = properties if isinstance(properties, bytes) else encode_properties(properties)
    return Record(
        MagicCode.V1, 0, 3, 0, 40, 129_768, sys_flag, NOW_MS - 9, pack_host("10.0.0.7", 5), NOW_MS, HOST,
        reconsume_times, 0, body, "Orders", encoded,
    )  # fmt: skip


def filled(stored: Record, topic: str, handle: str) -> Message:
    message = Message()
    fill_message(message, stored, topic, decode_properties(stored.properties), stored.reconsume_times, handle)
    return message


def test_every_field_of_a_delivered_message() -> None:
    stored = {"TAGS": "t", "KEYS": "k1  k2", "UNIQ_KEY": "01AB", "colour": "red", "__BORNHOST": "host-a", "PGROUP": "Orders",
              "TRACE_CONTEXT": "00-1", "__SHARDINGKEY": "g", "_SYS_MSG_PRIORITY_": "3", "__LITE_TOPIC": "l",
              "TIMER_DELIVER_MS": "1795500000007", "POP_CK": "1 2", "__RMQ.TRANSIENT.X": "y"}  # fmt: skip
    message = filled(record(stored, reconsume_times=2), "ns%Orders", "handle")
    system = message.system_properties
    assert (message.topic.resource_namespace, message.topic.name) == ("ns", "Orders")
    assert dict(message.user_properties) == {"colour": "red"}
    assert (system.tag, list(system.keys), system.message_id) == ("t", ["k1", "k2"], "01AB")
    assert (system.body_digest.type, system.body_digest.checksum) == (DigestType.MD5, md5(b"body").hexdigest().upper())
    assert (system.body_encoding, system.message_type) == (Encoding.IDENTITY, GrpcType.DELAY)
    assert (instant_ms(system.born_timestamp), instant_ms(system.store_timestamp)) == (NOW_MS - 9, NOW_MS)
    assert (system.born_host, system.store_host) == ("host-a", "10.0.0.1:10911")
    assert instant_ms(system.delivery_timestamp) == 1_795_500_000_007
    assert (system.receipt_handle, system.queue_id, system.queue_offset) == ("handle", 3, 40)
    assert (system.delivery_attempt, system.message_group, system.trace_context) == (3, "g", "00-1")
    assert (system.priority, system.lite_topic) == (3, "l")
    assert not system.HasField("dead_letter_queue")
    assert not system.HasField("invisible_duration")


def test_what_a_record_does_not_say_is_absent() -> None:
    message = delivered_message(record({}), "Orders")
    system = message.system_properties
    absent = ("tag", "delivery_timestamp", "receipt_handle", "message_group", "trace_context", "lite_topic", "priority")
    assert not any(system.HasField(name) for name in absent)
    assert system.message_id == encode_offset_id(HOST, 129_768)
    assert (system.born_host, system.message_type, system.delivery_attempt) == ("10.0.0.7", GrpcType.NORMAL, 1)


@pytest.mark.parametrize(
    ("stored", "kind"),
    [
        ({"TRAN_MSG": "true", "DELAY": "1"}, GrpcType.TRANSACTION),
        ({"DELAY": "1", "__SHARDINGKEY": "g"}, GrpcType.DELAY),
        ({"TIMER_DELAY_SEC": "1"}, GrpcType.DELAY),
        ({"__SHARDINGKEY": "g"}, GrpcType.FIFO),
    ],
)
def test_types(stored: dict[str, str], kind: GrpcType) -> None:
    assert delivered_message(record(stored), "Orders").system_properties.message_type == kind


def test_a_message_that_named_a_delay_was_due_when_it_was_stored() -> None:
    system = delivered_message(record({"TIMER_DELAY_SEC": "9"}), "Orders").system_properties
    assert instant_ms(system.delivery_timestamp) == NOW_MS


def test_a_dead_letter_names_what_it_was() -> None:
    both = {"DLQ_ORIGIN_TOPIC": "Orders", "DLQ_ORIGIN_MESSAGE_ID": "01AB"}
    queue = delivered_message(record(both), "%DLQ%group").system_properties.dead_letter_queue
    assert (queue.topic, queue.message_id) == ("Orders", "01AB")
    one = delivered_message(record({"DLQ_ORIGIN_TOPIC": "Orders"}), "%DLQ%group")
    assert not one.system_properties.HasField("dead_letter_queue")
    assert one.topic == Resource(name="%DLQ%group")


@pytest.mark.parametrize("compression", Compression)
def test_compressed_bodies_are_opened(compression: Compression) -> None:
    body = b"body" * 100
    stored = record({}, compress(body, compression), with_compression(0, compression))
    message = delivered_message(stored, "Orders")
    assert (message.body, message.system_properties.body_encoding) == (body, Encoding.IDENTITY)
    assert message.system_properties.body_digest.checksum == md5(body).hexdigest().upper()


@pytest.mark.parametrize(
    ("body", "sys_flag"),
    [(b"no stream", 0x1), (zlib.compress(b"x" * (BODY_BYTES_MAX + 1)), 0x1), (b"of a kind that nobody knows", 0x701)],
)
def test_what_cannot_be_opened_goes_out_as_it_is(body: bytes, sys_flag: int) -> None:
    message = delivered_message(record({}, body, sys_flag), "Orders")
    assert (message.body, message.system_properties.body_encoding) == (body, Encoding.GZIP)


@given(
    st.binary() | st.text(alphabet="\x01\x02TIMER_DELIVER_MS_SYS_MSG_PRIORITY_9").map(str.encode),
    st.integers(-(1 << 31), (1 << 31) - 1),
)
def test_whatever_stands_in_a_record_makes_a_message(properties: bytes, number: int) -> None:
    stored = record(properties, reconsume_times=number)
    stored.born_timestamp = stored.store_timestamp = number << 32
    message = delivered_message(stored, "Orders")
    assert Message.FromString(message.SerializeToString()) == message


WORDS = st.text(st.characters(exclude_categories=["Cc", "Cs"]), max_size=8)
NAMES = WORDS.filter(lambda name: name and name not in REFUSED_TO_USERS and not name.startswith("_"))
NOT_BLANK = WORDS.filter(lambda text: text == "" or not text.isspace())


@given(
    user=st.dictionaries(NAMES, WORDS.filter(bool), max_size=4),
    tag=NOT_BLANK.filter(lambda tag: "|" not in tag),
    keys=st.lists(NOT_BLANK.filter(lambda key: key and " " not in key), max_size=3),
    message_id=NOT_BLANK.filter(bool),
    group=NOT_BLANK,
    trace=WORDS,
    body=st.binary(min_size=1, max_size=20),
)
def test_a_message_comes_out_as_it_went_in(
    user: dict[str, str], tag: str, keys: list[str], message_id: str, group: str, trace: str, body: bytes
) -> None:
    system = SystemProperties(tag=tag, keys=keys, message_id=message_id, message_group=group, trace_context=trace)
    one = Message(topic=Resource(name="Orders"), user_properties=user, system_properties=system, body=body)
    (sent,) = sent_messages(SendMessageRequest(messages=[one]), "10.0.0.7", NOW_MS, SendLimits())
    out = delivered_message(record(sent.properties.encode(), sent.body, sent.sys_flag), "Orders")
    got = out.system_properties
    assert (out.topic, dict(out.user_properties), out.body) == (one.topic, user, body)
    assert (got.tag, list(got.keys), got.message_id) == (tag, keys, message_id)
    assert (got.message_group, got.trace_context, got.body_encoding) == (group, trace, Encoding.IDENTITY)
