"""Messages on their way in: what a client may send, and what is stored of it.

Rules of this file
1. Checks stand in the order of RocketMQ, message by message, so the first thing that is wrong has the same code.
2. What RocketMQ does not check but would tear the stored properties apart is refused here: the separators of the property text are control
   characters, and no name or value has any.
3. Whether the topic takes messages of this type is asked where all messages are admitted.
4. The body is stored as it came, compressed or not; its digest is not looked at.

Source: RocketMQ gRPC, SendMessage: validation order, mapping.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from orbitmq.limits.grpc import (
    MESSAGE_GROUP_BYTES_MAX,
    RECOVERY_SECONDS_MAX,
    SEND_KEYS_MAX,
    SEND_MESSAGES_MAX,
    USER_PROPERTIES_BYTES_MAX,
    USER_PROPERTIES_MAX,
)
from orbitmq.limits.timers import TIMER_DELIVER_MS_MAX
from orbitmq.limits.wire import BODY_BYTES_MAX
from orbitmq.protocol.grpc.messages import (
    Code,
    Encoding,
    Message,
    SendMessageRequest,
    SystemProperties,
    Timestamp,
)
from orbitmq.protocol.grpc.messages import (
    MessageType as GrpcType,
)
from orbitmq.protocol.grpc.resource_names import topic_of
from orbitmq.protocol.grpc.status import RpcError
from orbitmq.protocol.properties import REFUSED_TO_USERS, Property
from orbitmq.protocol.sysflag import SysFlag

_CONTROL: Final = re.compile("[\x00-\x1f\x7f-\x9f]")
_COMPRESSED: Final = int(SysFlag.COMPRESSED)
_PREPARED: Final = int(SysFlag.PREPARED)
_TRANSACTION: Final = int(GrpcType.TRANSACTION)
_GZIP: Final = int(Encoding.GZIP)


class SendLimits(NamedTuple):
    """What a server allows. `user_properties_bytes_max` counts tag and keys as well. `delay_ms_max`: how far ahead a delivery time may
    be, None for as far as timers go."""

    body_bytes_max: int = BODY_BYTES_MAX
    delay_ms_max: int | None = None
    user_properties_max: int = USER_PROPERTIES_MAX
    user_properties_bytes_max: int = USER_PROPERTIES_BYTES_MAX
    message_group_bytes_max: int = MESSAGE_GROUP_BYTES_MAX
    recovery_seconds_max: int = RECOVERY_SECONDS_MAX


class SentMessage(NamedTuple):
    """One message as a front end hands it over. `properties` is the text as it stands in requests and records."""

    body: bytes
    properties: str
    sys_flag: int
    born_ms: int
    message_id: str


def sent_messages(request: SendMessageRequest, peer_host: str, now_ms: int, limits: SendLimits) -> list[SentMessage]:
    """The messages of a request, all for one topic. Raises RpcError for the first thing that is wrong. Costs 5 us for one.

    `peer_host`: where the client is, as an address without a port.
    """
    messages = request.messages
    if not messages:
        raise RpcError(Code.MESSAGE_CORRUPTED, "the request has no messages")
    if len(messages) > SEND_MESSAGES_MAX:
        raise RpcError(Code.BAD_REQUEST, f"a request has at most {SEND_MESSAGES_MAX} messages")
    resource = messages[0].topic
    topic = topic_of(resource)
    sent, key_count = [], 0
    for message in messages:
        if len(messages) > 1 and message.topic != resource:
            raise RpcError(Code.MESSAGE_CORRUPTED, "the messages of a request have one topic")
        system = message.system_properties
        values = _checked_properties(message, system, now_ms, limits)
        if len(messages) > 1 and system.keys:
            key_count += len(" ".join(system.keys).split())
            if key_count > SEND_KEYS_MAX:
                raise RpcError(
                    Code.BAD_REQUEST, f"the messages of a request have at most {SEND_KEYS_MAX} keys together"
                )
        sent.append(_stored_form(message, system, values, topic, peer_host, now_ms))
    return sent


# --- what may be sent ---------------------------------------------------------------------------------------------


def _checked_properties(message: Message, system: SystemProperties, now_ms: int, limits: SendLimits) -> dict[str, str]:
    """The user properties of a message that may be sent."""
    body_bytes = len(message.body)
    if not body_bytes:
        raise RpcError(Code.MESSAGE_BODY_EMPTY, "the body is empty")
    if body_bytes > limits.body_bytes_max:
        raise RpcError(
            Code.MESSAGE_BODY_TOO_LARGE, f"the body has {body_bytes} bytes, at most {limits.body_bytes_max} are allowed"
        )
    given, values, size = message.user_properties, dict[str, str](), 0
    if given:
        if len(given) > limits.user_properties_max:
            raise RpcError(
                Code.MESSAGE_PROPERTIES_TOO_LARGE,
                f"the message has {len(given)} user properties, at most {limits.user_properties_max} are allowed",
            )
        values = {name: given[name] for name in given}
        size = _checked_user_properties(values)
    size += _checked_labels(system)
    if size > limits.user_properties_bytes_max:
        raise RpcError(
            Code.MESSAGE_PROPERTIES_TOO_LARGE,
            f"properties, tag and keys have {size} bytes, at most {limits.user_properties_bytes_max} are allowed",
        )
    _check_text(system.message_id, "message id", Code.ILLEGAL_MESSAGE_ID)
    if system.message_type == _TRANSACTION:
        _check_recovery(system.orphaned_transaction_recovery_duration.seconds, limits.recovery_seconds_max)
    if system.HasField("delivery_timestamp"):
        _check_delivery(instant_ms(system.delivery_timestamp), now_ms, limits.delay_ms_max)
    if group := system.message_group:
        _check_group(group, limits.message_group_bytes_max)
    if lite_topic := system.lite_topic:
        _check_text(lite_topic, "lite topic", Code.ILLEGAL_LITE_TOPIC)
    _check_text_or_nothing(system.trace_context, "trace context")
    _check_text_or_nothing(system.born_host, "born host")
    return values


def _checked_user_properties(properties: dict[str, str]) -> int:
    """Bytes of the user properties."""
    size = 0
    for name, value in properties.items():
        if name in REFUSED_TO_USERS:
            raise RpcError(Code.ILLEGAL_MESSAGE_PROPERTY_KEY, f"the property name {name!r} is reserved")
        if _has_control(name) or _has_control(value):
            raise RpcError(
                Code.ILLEGAL_MESSAGE_PROPERTY_KEY,
                f"property {name[:64]!r} has a control character in its name or value",
            )
        size += _size(name) + _size(value)
    return size


def _checked_labels(system: SystemProperties) -> int:
    """Bytes of the tag and the keys."""
    tag, size = system.tag, 0
    if tag:
        _check_text(tag, "tag", Code.ILLEGAL_MESSAGE_TAG)
        if "|" in tag:
            raise RpcError(Code.ILLEGAL_MESSAGE_TAG, "the tag contains '|'")
        size = _size(tag)
    for key in system.keys:
        if key:
            _check_text(key, "key", Code.ILLEGAL_MESSAGE_KEY)
            size += _size(key)
    return size


def _check_recovery(seconds: int, seconds_max: int) -> None:
    if seconds > seconds_max:
        raise RpcError(
            Code.BAD_REQUEST,
            f"the recovery duration of a transaction is {seconds} s, at most {seconds_max} are allowed",
        )


def _check_delivery(deliver_ms: int, now_ms: int, delay_ms_max: int | None) -> None:
    if delay_ms_max is not None and deliver_ms - now_ms > delay_ms_max:
        raise RpcError(
            Code.ILLEGAL_DELIVERY_TIME,
            f"the delivery time is {deliver_ms - now_ms} ms from now, at most {delay_ms_max} are allowed",
        )
    if deliver_ms > TIMER_DELIVER_MS_MAX:
        raise RpcError(Code.ILLEGAL_DELIVERY_TIME, f"the latest delivery time is {TIMER_DELIVER_MS_MAX} ms since 1970")


def _check_group(group: str, bytes_max: int) -> None:
    _check_text(group, "message group", Code.ILLEGAL_MESSAGE_GROUP)
    if _size(group) > bytes_max:
        raise RpcError(
            Code.ILLEGAL_MESSAGE_GROUP,
            f"the message group has {_size(group)} bytes, at most {bytes_max} are allowed",
        )


def _check_text(text: str, what: str, code: Code) -> None:
    if not text or text.isspace():
        raise RpcError(code, f"the {what} is blank")
    if not text.isprintable() and _CONTROL.search(text):
        raise RpcError(code, f"the {what} has a control character")


def _check_text_or_nothing(text: str, what: str) -> None:
    if not text.isprintable() and _CONTROL.search(text):
        raise RpcError(Code.BAD_REQUEST, f"the {what} has a control character")


def _has_control(text: str) -> bool:
    return not text.isprintable() and _CONTROL.search(text) is not None


def _size(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode())


# --- what is stored -----------------------------------------------------------------------------------------------


def _stored_form(
    message: Message, system: SystemProperties, values: dict[str, str], topic: str, peer_host: str, now_ms: int
) -> SentMessage:
    """`values`: the user properties; the others are added to them."""
    message_id, born_ms = system.message_id, instant_ms(system.born_timestamp)
    if not 0 < born_ms <= TIMER_DELIVER_MS_MAX:
        born_ms = now_ms
    values |= {
        Property.TAGS: system.tag,
        Property.KEYS: " ".join(system.keys),
        Property.UNIQ_KEY: message_id,
        Property.RECONSUME_TIME: str(system.delivery_attempt),
        Property.PGROUP: topic,
        Property.BORN_HOST: system.born_host.strip() or peer_host,
        Property.BORN_TIMESTAMP: str(born_ms),
    }
    sys_flag = _COMPRESSED if system.body_encoding == _GZIP else 0
    if system.message_type == _TRANSACTION:
        sys_flag |= _PREPARED
        values[Property.TRAN_MSG] = "true"
        if system.HasField("orphaned_transaction_recovery_duration"):
            seconds = system.orphaned_transaction_recovery_duration.seconds
            values[Property.CHECK_IMMUNITY_TIME_IN_SECONDS] = str(max(seconds, 0))
    if system.HasField("delivery_timestamp"):
        values[Property.TIMER_DELIVER_MS] = str(max(instant_ms(system.delivery_timestamp), 0))
    if group := system.message_group:
        values[Property.SHARDING_KEY] = group
    if context := system.trace_context:
        values[Property.TRACE_CONTEXT] = context
    if system.HasField("priority"):
        values[Property.PRIORITY] = str(system.priority)
    if lite_topic := system.lite_topic:
        values[Property.LITE_TOPIC] = lite_topic
    text = "".join([f"{name}\x01{value}\x02" for name, value in values.items() if name and value])
    return SentMessage(message.body, text, sys_flag, born_ms, message_id)


def instant_ms(timestamp: Timestamp) -> int:
    """Milliseconds since 1970."""
    return timestamp.seconds * 1000 + timestamp.nanos // 1_000_000
