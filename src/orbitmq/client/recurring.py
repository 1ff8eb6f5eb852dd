"""Recurring messages as programs see them: what is asked for, and what a broker keeps.

Rules of this file
1. Values and checks only; asking brokers is the business of `_async/timers`.
2. What a rule means is the broker's to judge: cron expressions, zones and bounds are checked there, by the code that runs them.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple, TypeVar

import msgspec

from orbitmq.client.due_time import instant_ms, length_ms
from orbitmq.client.message import Message, SendStatus, check_message, check_topic, message_properties
from orbitmq.errors import ConfigurationError
from orbitmq.limits.recurrence import RECURRENCE_BODY_BYTES_MAX
from orbitmq.protocol.properties import Property
from orbitmq.protocol.remoting.recurring_bodies import (
    CatchUp,
    Overlap,
    RecurringAnswer,
    RecurringDefinition,
    RecurringOutcome,
    RecurringView,
)

E = TypeVar("E", Overlap, CatchUp)

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

_NOT_SHOWN: Final = frozenset({Property.TAGS, Property.KEYS, Property.WAIT})
"""Properties that stand in fields of their own, or mean nothing for a run."""


class RecurringMessage(msgspec.Struct, frozen=True, kw_only=True):
    """One recurring message as its broker keeps it.

    body: empty in lists; `body_bytes` is its size everywhere. every_ms, start_ms, end_ms, jitter_ms: as given to `put`, in
    milliseconds. stored_count: runs that became messages since the rule was made. settled_ms: runs planned for up to then have
    happened or were left out. next_ms: when the next run happens; None while paused and when there are no more. trouble: why
    runs are left out that should happen. twins: other brokers that keep one of this name as well, so that it runs several times
    (see `merge`).
    """

    name: str
    topic: str
    body: bytes
    body_bytes: int
    tag: str | None
    keys: tuple[str, ...]
    properties: Mapping[str, str]
    cron: str | None
    every_ms: int | None
    zone: str
    start_ms: int | None
    end_ms: int | None
    count_max: int | None
    jitter_ms: int
    overlap: Overlap
    overlap_group: str | None
    catch_up: CatchUp
    catch_up_max: int
    paused: bool
    made_ms: int
    stored_count: int
    settled_ms: int
    next_ms: int | None
    trouble: str | None
    broker_name: str
    twins: tuple[str, ...] = ()


class RecurringChange(NamedTuple):
    """What a call did; `recurring` is what holds now, None after `delete`. send_status: how far the broker had come with storing the
    change; what is not `SEND_OK` holds, and may be lost with fewer disks or brokers than was asked for."""

    outcome: RecurringOutcome
    recurring: RecurringMessage | None
    send_status: SendStatus = SendStatus.SEND_OK


class RecurringRun(NamedTuple):
    """A run to come: the instant of the rule, and when it happens, which with jitter is later. Both in ms since 1970."""

    planned_ms: int
    at_ms: int

    @property
    def planned(self) -> datetime:
        """The instant of the rule, in UTC."""
        return _EPOCH + timedelta(milliseconds=self.planned_ms)


class GivenRule(NamedTuple):
    """When a recurring message is sent, in the words of `Recurring.put`."""

    cron: str | None
    every: timedelta | float | None
    zone: str
    start: datetime | int | None
    end: datetime | int | None
    count_max: int | None
    jitter: timedelta | float
    overlap: Overlap | str
    overlap_group: str | None
    catch_up: CatchUp | str
    catch_up_max: int | None


def definition(name: str, topic: str, message: Message, rule: GivenRule) -> RecurringDefinition:
    """What `put` sends. `ConfigurationError`, `MessageIllegalError` for what no broker would take."""
    if (rule.cron is None) is (rule.every is None):
        raise ConfigurationError(
            f"recurring message {name!r} needs a cron expression or an interval", remedy="give one of cron and every"
        )
    check_topic(topic)
    check_message(message, RECURRENCE_BODY_BYTES_MAX)
    values = message_properties(message, "-")
    del values[Property.UNIQ_KEY]  # each run has its own
    values.pop(Property.WAIT, None)
    made = RecurringDefinition(
        name=name,
        topic=topic,
        body=bytes(message.body),
        properties=values,
        cron=rule.cron,
        zone=rule.zone,
        interval_ms=None if rule.every is None else length_ms("every", rule.every),
        start_ms=None if rule.start is None else instant_ms("start", rule.start),
        end_ms=None if rule.end is None else instant_ms("end", rule.end),
        count_max=rule.count_max,
        jitter_ms=length_ms("jitter", rule.jitter),
        overlap=_choice(Overlap, "overlap", rule.overlap),
        overlap_group=rule.overlap_group,
        catch_up=_choice(CatchUp, "catch_up", rule.catch_up),
    )
    if rule.catch_up_max is not None:
        made.catch_up_max = rule.catch_up_max
    return made


def _choice(kind: type[E], name: str, value: str) -> E:
    try:
        return kind(value)
    except ValueError:
        raise ConfigurationError(
            f"{name} is {value!r}", remedy=f"it is one of {', '.join(member.value for member in kind)}"
        ) from None


def message_of(view: RecurringView, broker_name: str, twins: Iterable[str] = ()) -> RecurringMessage:
    """A broker's answer as programs see it. `twins` are all brokers that keep one of this name, this one among them or not."""
    asked = view.definition
    return RecurringMessage(
        name=asked.name,
        topic=asked.topic,
        body=asked.body,
        body_bytes=view.body_bytes,
        tag=asked.properties.get(Property.TAGS),
        keys=tuple(asked.properties.get(Property.KEYS, "").split()),
        properties={name: value for name, value in asked.properties.items() if name not in _NOT_SHOWN},
        cron=asked.cron,
        every_ms=asked.interval_ms,
        zone=asked.zone,
        start_ms=asked.start_ms,
        end_ms=asked.end_ms,
        count_max=asked.count_max,
        jitter_ms=asked.jitter_ms,
        overlap=asked.overlap,
        overlap_group=asked.overlap_group,
        catch_up=asked.catch_up,
        catch_up_max=asked.catch_up_max,
        paused=view.paused,
        made_ms=view.begun_ms,
        stored_count=view.stored_count,
        settled_ms=view.settled_ms,
        next_ms=view.next_ms,
        trouble=view.trouble,
        broker_name=view.broker_name or broker_name,
        twins=tuple(sorted(set(twins) - {broker_name})),
    )


def change_of(answer: RecurringAnswer, broker_name: str, send_status: SendStatus) -> RecurringChange:
    """The same for the answer to a change."""
    recurring = None if answer.recurring is None else message_of(answer.recurring, broker_name)
    return RecurringChange(answer.outcome, recurring, send_status)


def chosen_broker(name: str, broker_names: Iterable[str]) -> str:
    """Which of several brokers keeps a new recurring message of this name: the same for everybody who asks, and the others stay
    with theirs when a broker comes or goes. At least one broker."""
    return max(broker_names, key=lambda broker_name: (zlib.crc32(f"{name}\0{broker_name}".encode()), broker_name))
