"""What clients may send, each bound and one beyond it, and what is stored of it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.limits.grpc import SEND_KEYS_MAX, SEND_MESSAGES_MAX
from orbitmq.limits.timers import TIMER_DELIVER_MS_MAX
from orbitmq.protocol.grpc.delivered_messages import timestamp_of
from orbitmq.protocol.grpc.messages import (
    Code,
    Duration,
    Encoding,
    Message,
    Resource,
    SendMessageRequest,
    SystemProperties,
    Timestamp,
)
from orbitmq.protocol.grpc.messages import MessageType as GrpcType
from orbitmq.protocol.grpc.sent_messages import SendLimits, SentMessage, sent_messages
from orbitmq.protocol.grpc.status import RpcError
from orbitmq.protocol.message_types import MessageType, type_of
from orbitmq.protocol.properties import decode_properties, exact_properties

NOW_MS = 1_795_500_000_000
DAY_MS = 86_400_000
LIMITS = SendLimits(body_bytes_max=1000, delay_ms_max=DAY_MS)


def message(
    *, topic: str = "Orders", body: bytes = b"body", user: dict[str, str] | None = None, **system: object
) -> Message:
    properties = SystemProperties(**{"message_id": "01AB", **system})  # type: ignore[arg-type]
    return Message(topic=Resource(name=topic), user_properties=user or {}, system_properties=properties, body=body)


def sent(*messages: Message, limits: SendLimits = LIMITS) -> list[SentMessage]:
    return sent_messages(SendMessageRequest(messages=messages), "10.0.0.7", NOW_MS, limits)


def refusal(*messages: Message) -> Code:
    with pytest.raises(RpcError) as caught:
        sent(*messages)
    return caught.value.code


def in_ms(delay_ms: int) -> Timestamp:
    return timestamp_of(NOW_MS + delay_ms)


def hours(count: int) -> Duration:
    return Duration(seconds=3600 * count)


ALLOWED = [
    message(body=b"x" * 1000),
    message(topic="T" * 127),
    message(topic="%|aZ09_-"),
    message(user={f"name{number}": "" for number in range(128)}),
    message(user={"n": "v" * 16_383}),
    message(user={"n": "\u00e4" * 8_000}, tag="t" * 83, keys=["k" * 200, "k" * 100]),
    message(user={"__SHARDINGKEY": "x", "REDIRECT": "y", " ": " "}),
    message(tag="a tag", keys=["a key", "", "\u00a0x"]),
    message(message_group="g" * 63),
    message(message_group="\u00e4" * 31),
    message(delivery_timestamp=in_ms(DAY_MS)),
    message(delivery_timestamp=in_ms(-1)),
    message(delivery_timestamp=Timestamp(seconds=-(1 << 60))),
    message(message_type=GrpcType.TRANSACTION, orphaned_transaction_recovery_duration=hours(1)),
    message(message_type=GrpcType.NORMAL, orphaned_transaction_recovery_duration=hours(2)),
    message(message_type=77, body_encoding=9, queue_id=-1),
]


@pytest.mark.parametrize("one", ALLOWED, ids=range(len(ALLOWED)))
def test_what_is_within_the_bounds_is_taken(one: Message) -> None:
    (stored,) = sent(one)
    assert stored.body == one.body
    assert exact_properties(stored.properties) is not None


BEYOND = [
    (message(topic=""), Code.ILLEGAL_TOPIC),
    (message(topic=" "), Code.ILLEGAL_TOPIC),
    (message(topic="T" * 128), Code.ILLEGAL_TOPIC),
    (message(topic="%RETRY%" + "T" * 121), Code.ILLEGAL_TOPIC),
    (message(topic="a.b"), Code.ILLEGAL_TOPIC),
    (message(topic="TBW102"), Code.ILLEGAL_TOPIC),
    (message(topic="rmq_sys_anything"), Code.ILLEGAL_TOPIC),
    (message(body=b""), Code.MESSAGE_BODY_EMPTY),
    (message(body=b"x" * 1001), Code.MESSAGE_BODY_TOO_LARGE),
    (message(user={f"name{number}": "" for number in range(129)}), Code.MESSAGE_PROPERTIES_TOO_LARGE),
    (message(user={"TAGS": "x"}), Code.ILLEGAL_MESSAGE_PROPERTY_KEY),
    (message(user={"TIMER_DELIVER_MS": "1"}), Code.ILLEGAL_MESSAGE_PROPERTY_KEY),
    (message(user={"ORBITMQ_FAR": "1"}), Code.ILLEGAL_MESSAGE_PROPERTY_KEY),
    (message(user={"a\x01b": "x"}), Code.ILLEGAL_MESSAGE_PROPERTY_KEY),
    (message(user={"a": "x\x02TRAN_MSG\x01true"}), Code.ILLEGAL_MESSAGE_PROPERTY_KEY),
    (message(user={"a": "\x7f"}), Code.ILLEGAL_MESSAGE_PROPERTY_KEY),
    (message(user={"a": "\x9f"}), Code.ILLEGAL_MESSAGE_PROPERTY_KEY),
    (message(tag=" "), Code.ILLEGAL_MESSAGE_TAG),
    (message(tag="a|b"), Code.ILLEGAL_MESSAGE_TAG),
    (message(tag="a\tb"), Code.ILLEGAL_MESSAGE_TAG),
    (message(keys=["a", " "]), Code.ILLEGAL_MESSAGE_KEY),
    (message(keys=["a\x85"]), Code.ILLEGAL_MESSAGE_KEY),
    (message(user={"n": "v" * 16_384}), Code.MESSAGE_PROPERTIES_TOO_LARGE),
    (
        message(user={"n": "\u00e4" * 8_000}, tag="t" * 83, keys=["k" * 201, "k" * 100]),
        Code.MESSAGE_PROPERTIES_TOO_LARGE,
    ),
    (message(message_id=""), Code.ILLEGAL_MESSAGE_ID),
    (message(message_id=" "), Code.ILLEGAL_MESSAGE_ID),
    (message(message_id="a\x02TRAN_MSG\x01true"), Code.ILLEGAL_MESSAGE_ID),
    (
        message(message_type=GrpcType.TRANSACTION, orphaned_transaction_recovery_duration=Duration(seconds=3601)),
        Code.BAD_REQUEST,
    ),
    (message(delivery_timestamp=in_ms(DAY_MS + 1)), Code.ILLEGAL_DELIVERY_TIME),
    (message(delivery_timestamp=Timestamp(seconds=1 << 62)), Code.ILLEGAL_DELIVERY_TIME),
    (message(message_group=" "), Code.ILLEGAL_MESSAGE_GROUP),
    (message(message_group="g" * 64), Code.ILLEGAL_MESSAGE_GROUP),
    (message(message_group="\u00e4" * 32), Code.ILLEGAL_MESSAGE_GROUP),
    (message(message_group="\n"), Code.ILLEGAL_MESSAGE_GROUP),
    (message(trace_context="a\x02b"), Code.BAD_REQUEST),
    (message(born_host="a\x02b"), Code.BAD_REQUEST),
    (message(lite_topic="a\x01b"), Code.ILLEGAL_LITE_TOPIC),
]


@pytest.mark.parametrize(("one", "code"), BEYOND, ids=range(len(BEYOND)))
def test_what_is_beyond_a_bound_has_its_code(one: Message, code: Code) -> None:
    assert refusal(one) is code


def test_a_request_has_messages_of_one_topic() -> None:
    assert refusal() is Code.MESSAGE_CORRUPTED
    assert refusal(message(), message(topic="Other")) is Code.MESSAGE_CORRUPTED
    other = message()
    other.topic.resource_namespace = "ns"
    assert refusal(message(), other) is Code.MESSAGE_CORRUPTED
    assert len(sent(message(), message())) == 2


def test_how_many_messages_a_request_has() -> None:
    assert len(sent(*[message()] * SEND_MESSAGES_MAX)) == SEND_MESSAGES_MAX
    assert refusal(*[message()] * (SEND_MESSAGES_MAX + 1)) is Code.BAD_REQUEST


@pytest.mark.parametrize("between", [["k"], ["k k"]], ids=["fields", "blanks"])
def test_how_many_keys_a_request_has(between: list[str]) -> None:
    """Each is an entry of the index that others wait for, however the client separates them."""
    half = SEND_KEYS_MAX // 2
    many = SendLimits(user_properties_bytes_max=4 * SEND_KEYS_MAX)
    keys = between * (half // len(between[0].split()))
    assert len(sent(message(keys=keys), message(keys=keys), limits=many)) == 2
    with pytest.raises(RpcError) as caught:
        sent(message(keys=keys), message(keys=[*keys, "k"]), limits=many)
    assert caught.value.code is Code.BAD_REQUEST


def test_the_first_thing_that_is_wrong_counts() -> None:
    """One message with everything wrong; what was found is put right, and the next thing is found."""
    wrong = message(
        topic="a.b", body=b"", user={"TAGS": "x"}, tag="|", keys=["\n"], message_id="", message_type=GrpcType.TRANSACTION,
        orphaned_transaction_recovery_duration=hours(2), delivery_timestamp=in_ms(2 * DAY_MS), message_group="\n",
    )  # fmt: skip
    system = wrong.system_properties
    cures = [
        (Code.ILLEGAL_TOPIC, lambda: wrong.topic.CopyFrom(Resource(name="T"))),
        (Code.MESSAGE_BODY_EMPTY, lambda: setattr(wrong, "body", b"x")),
        (Code.ILLEGAL_MESSAGE_PROPERTY_KEY, lambda: wrong.user_properties.pop("TAGS")),
        (Code.ILLEGAL_MESSAGE_TAG, lambda: setattr(system, "tag", "t")),
        (Code.ILLEGAL_MESSAGE_KEY, lambda: system.ClearField("keys")),
        (Code.ILLEGAL_MESSAGE_ID, lambda: setattr(system, "message_id", "id")),
        (Code.BAD_REQUEST, lambda: system.ClearField("orphaned_transaction_recovery_duration")),
        (Code.ILLEGAL_DELIVERY_TIME, lambda: system.ClearField("delivery_timestamp")),
        (Code.ILLEGAL_MESSAGE_GROUP, lambda: system.ClearField("message_group")),
    ]
    for code, cure in cures:
        assert refusal(wrong) is code
        cure()
    assert len(sent(wrong)) == 1


def test_without_a_limit_a_delivery_time_is_anywhere_before_the_year_10000() -> None:
    far = message(delivery_timestamp=timestamp_of(TIMER_DELIVER_MS_MAX))
    (stored,) = sent(far, limits=SendLimits())
    assert decode_properties(stored.properties)["TIMER_DELIVER_MS"] == str(TIMER_DELIVER_MS_MAX)
    assert refusal(message(delivery_timestamp=timestamp_of(TIMER_DELIVER_MS_MAX + 1))) is Code.ILLEGAL_DELIVERY_TIME


def test_what_is_stored_of_a_plain_message() -> None:
    one = message(
        user={"colour": "red", "empty": ""}, tag="t", keys=["k1", "k2"], born_timestamp=in_ms(-5), born_host="host-a"
    )
    (stored,) = sent(one)
    assert decode_properties(stored.properties) == {
        "colour": "red",
        "TAGS": "t",
        "KEYS": "k1 k2",
        "UNIQ_KEY": "01AB",
        "RECONSUME_TIME": "0",
        "PGROUP": "Orders",
        "__BORNHOST": "host-a",
        "BORN_TIMESTAMP": str(NOW_MS - 5),
    }
    assert (stored.sys_flag, stored.born_ms, stored.message_id) == (0, NOW_MS - 5, "01AB")


@pytest.mark.parametrize("born", [None, Timestamp(seconds=-1), Timestamp(seconds=1 << 60)])
def test_who_does_not_say_where_and_when_it_was_born_was_born_here_and_now(born: Timestamp | None) -> None:
    (stored,) = sent(message(born_timestamp=born, born_host=" "))
    assert stored.born_ms == NOW_MS
    assert decode_properties(stored.properties)["__BORNHOST"] == "10.0.0.7"


@pytest.mark.parametrize(
    ("one", "kind", "sys_flag", "more"),
    [
        (
            message(message_type=GrpcType.TRANSACTION, orphaned_transaction_recovery_duration=Duration(seconds=9)),
            MessageType.TRANSACTION,
            4,
            {"TRAN_MSG": "true", "CHECK_IMMUNITY_TIME_IN_SECONDS": "9"},
        ),
        (
            message(delivery_timestamp=in_ms(7), message_group="g"),
            MessageType.DELAY,
            0,
            {"TIMER_DELIVER_MS": str(NOW_MS + 7)},
        ),
        (
            message(message_group="g", trace_context="00-1"),
            MessageType.FIFO,
            0,
            {"__SHARDINGKEY": "g", "TRACE_CONTEXT": "00-1"},
        ),
        (message(priority=3), MessageType.PRIORITY, 0, {"_SYS_MSG_PRIORITY_": "3"}),
        (message(lite_topic="l"), MessageType.LITE, 0, {"__LITE_TOPIC": "l"}),
        (message(message_type=GrpcType.FIFO, body_encoding=Encoding.GZIP), MessageType.NORMAL, 1, {}),
    ],
)
def test_the_type_follows_from_what_is_stored(
    one: Message, kind: MessageType, sys_flag: int, more: dict[str, str]
) -> None:
    (stored,) = sent(one)
    values = decode_properties(stored.properties)
    assert (type_of(values), stored.sys_flag) == (kind, sys_flag)
    assert more.items() <= values.items()


def test_a_field_counts_more_than_a_user_property_of_the_same_name() -> None:
    user = {"__SHARDINGKEY": "mine", "TRACE_CONTEXT": "00-9", "REDIRECT": "kept"}
    (stored,) = sent(message(user=user, message_group="g", tag="SHARDINGKEY"))
    values = exact_properties(stored.properties)
    assert values is not None
    assert (values["__SHARDINGKEY"], values["TRACE_CONTEXT"], values["REDIRECT"]) == ("g", "00-9", "kept")


TEXT = st.text(max_size=5) | st.sampled_from(["\x01", "\x02", "a\x02TRAN_MSG\x01true", "TAGS", " "])


@given(
    user=st.dictionaries(TEXT, TEXT, max_size=3),
    system=st.fixed_dictionaries(
        {},
        optional={
            **dict.fromkeys(("tag", "message_id", "message_group", "trace_context", "born_host", "lite_topic"), TEXT),
            "keys": st.lists(TEXT, max_size=2),
            "message_type": st.integers(0, 9),
            "priority": st.integers(-(1 << 31), (1 << 31) - 1),
            "delivery_timestamp": st.builds(Timestamp, seconds=st.integers(-(1 << 63), (1 << 63) - 1)),
        },
    ),
)
def test_nothing_that_a_client_writes_becomes_a_property_of_another_name(
    user: dict[str, str], system: dict[str, object]
) -> None:
    try:
        (stored,) = sent(message(user=user, **system), limits=SendLimits())
    except RpcError as error:
        refused = error.code
        assert 40_000 <= refused < 50_000
        return
    values = exact_properties(stored.properties)
    assert values is not None
    known = {"TAGS", "KEYS", "UNIQ_KEY", "RECONSUME_TIME", "PGROUP", "__BORNHOST", "BORN_TIMESTAMP", "__SHARDINGKEY",
             "TRACE_CONTEXT", "__LITE_TOPIC", "_SYS_MSG_PRIORITY_", "TIMER_DELIVER_MS", "TRAN_MSG"}  # fmt: skip
    assert values.keys() <= known | user.keys()
    assert ("TRAN_MSG" in values) == (system.get("message_type") == GrpcType.TRANSACTION)
