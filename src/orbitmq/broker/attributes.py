"""Attributes of topics and groups: the `+key=value,-key` text of a change, and what each key may hold.

Source: RocketMQ 5.5 admin requests, attributes.

Rules of this file
1. A change is applied whole or not at all: every part is checked before the result is built.
2. Stored attributes carry no sign; only the text of a change does.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from orbitmq.broker.message_types import MESSAGE_TYPE
from orbitmq.broker.refusal import Refusal
from orbitmq.protocol.message_types import MessageType
from orbitmq.protocol.remoting.commands import ResponseCode

_LONG_MAX = 2**63 - 1


class AttributeRule(NamedTuple):
    """What an attribute may hold: one of `values`; where these are None, an integer from `low` to `high`."""

    changeable: bool
    values: frozenset[str] | None = None
    low: int = -1
    high: int = _LONG_MAX


QUEUE_TYPE = "queue.type"
CLEANUP_POLICY = "cleanup.policy"
RESERVE_TIME = "reserve.time"
LITE_EXPIRATION = "lite.topic.expiration"
PRIORITY_FACTOR = "priority.factor"

TOPIC_ATTRIBUTES: Mapping[str, AttributeRule] = {
    QUEUE_TYPE: AttributeRule(False, frozenset({"SimpleCQ", "BatchCQ"})),
    CLEANUP_POLICY: AttributeRule(False, frozenset({"DELETE", "COMPACTION"})),
    MESSAGE_TYPE: AttributeRule(True, frozenset(MessageType)),
    RESERVE_TIME: AttributeRule(True),
    LITE_EXPIRATION: AttributeRule(True),
}

GROUP_ATTRIBUTES: Mapping[str, AttributeRule] = {PRIORITY_FACTOR: AttributeRule(True, None, 0, 100)}

_LITE = "lite topics are not part of this broker"
UNBUILT_VALUES: Mapping[tuple[str, str], str] = {
    (QUEUE_TYPE, "BatchCQ"): "batch consume queues are not part of this broker",
    (CLEANUP_POLICY, "COMPACTION"): "compaction topics are not part of this broker",
    (MESSAGE_TYPE, MessageType.LITE): _LITE,
}
"""Values that RocketMQ knows and this broker cannot honour: refused, never stored as something else."""

UNBUILT_ATTRIBUTES: Mapping[str, str] = dict.fromkeys(
    (
        LITE_EXPIRATION,
        "lite.bind.topic",
        "lite.sub.client.max.event.cnt",
        "lite.sub.client.quota",
        "lite.sub.model",
        "lite.sub.reset.offset.exclusive",
        "lite.sub.reset.offset.unsubscribe",
        "lite.sub.wildcard",
    ),
    _LITE,
)
"""The same of whole attributes, whatever their value."""


def parse_attributes(text: str) -> dict[str, str]:
    """`+a=1,-b` as `{"+a": "1", "-b": ""}`; blank text is no change."""
    parsed: dict[str, str] = {}
    for part in (piece.strip() for piece in text.split(",")):
        if not part:
            continue
        name, equals, value = part.partition("=")
        name, value = name.strip(), value.strip()
        sign, key = name[:1], name[1:]
        if sign == "+" and (not equals or not value):
            raise _illegal(f"attribute {part!r} must have the form +key=value")
        if sign not in ("+", "-") or not key:
            raise _illegal(f"attribute {part!r} must begin with + (set) or - (remove)")
        if sign == "-" and equals:
            raise _illegal(f"attribute {part!r}: a removal has no value")
        if f"+{key}" in parsed or f"-{key}" in parsed:
            raise _illegal(f"attribute key {key!r} is given twice")
        parsed[name] = value
    return parsed


def alter_attributes(
    current: Mapping[str, str],
    changes: Mapping[str, str],
    rules: Mapping[str, AttributeRule],
    *,
    creating: bool,
    mixed_allowed: bool = False,
) -> dict[str, str]:
    """The attributes after `changes` (keys with sign). Raises `Refusal` and changes nothing when a part is not allowed."""
    result = dict(current)
    for signed, value in changes.items():
        sign, key = signed[:1], signed[1:]
        rule = rules.get(key)
        if sign not in ("+", "-"):
            raise _illegal(f"attribute key {signed!r} must begin with + or -")
        if sign == "+" and key in UNBUILT_ATTRIBUTES:
            raise _illegal(f"attribute {key} is refused: {UNBUILT_ATTRIBUTES[key]}")
        if rule is None:
            raise _illegal(f"unknown attribute {key!r}; known are {', '.join(sorted(rules))}")
        if sign == "-":
            if creating:
                raise _illegal(f"attribute {key!r} cannot be removed from what is being created")
            if key not in current:
                raise _illegal(f"attribute {key!r} is not set here")
            if not rule.changeable:
                raise _illegal(f"attribute {key!r} cannot be changed after the creation")
            del result[key]
            continue
        _check_value(key, value, rule, mixed_allowed=mixed_allowed)
        if not creating and not rule.changeable and current.get(key) != value:
            raise _illegal(f"attribute {key!r} cannot be changed after the creation")
        result[key] = value
    return result


def _check_value(key: str, value: str, rule: AttributeRule, *, mixed_allowed: bool) -> None:
    if rule.values is None:
        try:
            number = int(value)
        except ValueError:
            raise _illegal(f"attribute {key!r} is a number, not {value!r}") from None
        if not rule.low <= number <= rule.high:
            raise _illegal(f"attribute {key!r} lies between {rule.low} and {rule.high}, not {value}")
    elif value not in rule.values:
        raise _illegal(f"attribute {key!r} is one of {', '.join(sorted(rule.values))}, not {value!r}")
    reason = UNBUILT_VALUES.get((key, value))
    if reason is not None:
        raise _illegal(f"attribute {key}={value} is refused: {reason}")
    if key == MESSAGE_TYPE and value == "MIXED" and not mixed_allowed:
        raise Refusal(
            ResponseCode.INVALID_PARAMETER,
            "message.type MIXED is switched off on this broker (enableMixedMessageType=false)",
        )


def _illegal(remark: str) -> Refusal:
    return Refusal(ResponseCode.SYSTEM_ERROR, remark)
