"""Topic attributes: the `+key=value,-key` text of a topic change, and what each key may hold.

Source: RocketMQ 5 admin requests, topic attributes.

Rules of this file
1. A change is applied whole or not at all: every part is checked before the result is built.
2. Stored attributes carry no sign; only the text of a change does.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from orbitmq.broker.refusal import Refusal
from orbitmq.protocol.remoting.commands import ResponseCode

_LONG_MAX = 2**63 - 1


class AttributeRule(NamedTuple):
    """`values` lists what is allowed; None means an integer from -1 to the largest signed 64-bit number."""

    changeable: bool
    values: frozenset[str] | None


MESSAGE_TYPE = "message.type"
QUEUE_TYPE = "queue.type"
CLEANUP_POLICY = "cleanup.policy"
RESERVE_TIME = "reserve.time"

TOPIC_ATTRIBUTES: Mapping[str, AttributeRule] = {
    QUEUE_TYPE: AttributeRule(False, frozenset({"SimpleCQ", "BatchCQ"})),
    CLEANUP_POLICY: AttributeRule(False, frozenset({"DELETE", "COMPACTION"})),
    MESSAGE_TYPE: AttributeRule(True, frozenset({"UNSPECIFIED", "NORMAL", "FIFO", "DELAY", "TRANSACTION", "MIXED"})),
    RESERVE_TIME: AttributeRule(True, None),
}

UNBUILT_VALUES: Mapping[tuple[str, str], str] = {
    (QUEUE_TYPE, "BatchCQ"): "batch consume queues are not part of this broker",
    (CLEANUP_POLICY, "COMPACTION"): "compaction topics are not part of this broker",
}
"""Values that RocketMQ knows and this broker cannot honour: refused, never stored as something else."""


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
    current: Mapping[str, str], changes: Mapping[str, str], *, creating: bool, mixed_allowed: bool
) -> dict[str, str]:
    """The attributes after `changes` (keys with sign). Raises `Refusal` and changes nothing when a part is not allowed."""
    result = dict(current)
    for signed, value in changes.items():
        sign, key = signed[:1], signed[1:]
        rule = TOPIC_ATTRIBUTES.get(key)
        if sign not in ("+", "-"):
            raise _illegal(f"attribute key {signed!r} must begin with + or -")
        if rule is None:
            raise _illegal(f"unknown attribute {key!r}; known are {', '.join(sorted(TOPIC_ATTRIBUTES))}")
        if sign == "-":
            if creating:
                raise _illegal(f"attribute {key!r} cannot be removed from a topic that is being created")
            if key not in current:
                raise _illegal(f"attribute {key!r} is not set on this topic")
            if not rule.changeable:
                raise _illegal(f"attribute {key!r} cannot be changed after the topic was created")
            del result[key]
            continue
        _check_value(key, value, rule, mixed_allowed=mixed_allowed)
        if not creating and not rule.changeable and current.get(key) != value:
            raise _illegal(f"attribute {key!r} cannot be changed after the topic was created")
        result[key] = value
    return result


def _check_value(key: str, value: str, rule: AttributeRule, *, mixed_allowed: bool) -> None:
    if rule.values is None:
        try:
            number = int(value)
        except ValueError:
            raise _illegal(f"attribute {key!r} is a number, not {value!r}") from None
        if not -1 <= number <= _LONG_MAX:
            raise _illegal(f"attribute {key!r} lies between -1 and {_LONG_MAX}, not {value}")
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
