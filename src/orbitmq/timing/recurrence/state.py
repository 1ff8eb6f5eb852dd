"""What is known about a recurring message, and how a request changes it.

Nothing is stored ahead: a run becomes a message at the instant at which it happens. A change therefore has nothing to take back:
the rule in force when a run happens decides, and messages that runs have left behind stay what they are.

* *Create*: runs planned for later than now happen.
* *Replace*: runs of the old rule do not happen any more. One that has been planned for and waits for its jitter is made over to the
  new rule, if that has it as well: it is neither lost nor doubled.
* *Replace with the same*: nothing changes, not even the generation.
* *Pause*: no run happens, also none that waits for its jitter.
* *Resume*: runs planned for later than now happen; those of the pause are not made up for.
* *Delete*: no run happens.

Rules of this file
1. Functions of a state, a request and `now_ms`. The record they return makes the change last and is written before anybody is told.
2. Generations only grow, also from a deleted message to a new one of its name, so that no two runs have the same identity. That is
   why a generation is a time and not a small number.
3. What is settled stays settled: a clock that was set back brings no run a second time. What a clock that was far ahead has settled or
   begun (`ahead_ms`) stays so until somebody says otherwise: a definition, also the same one, and a pause with its resumption begin a
   generation from now on.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from orbitmq.errors import ConfigurationError
from orbitmq.limits.recurrence import RECURRENCE_AHEAD_MS_MAX, RECURRENCE_BODY_BYTES_MAX
from orbitmq.limits.wire import PROPERTIES_BYTES_MAX
from orbitmq.protocol.names import topic_name_problem
from orbitmq.protocol.properties import encode_properties
from orbitmq.protocol.remoting.recurring_bodies import RecurringOutcome
from orbitmq.timing.recurrence.rule import Rule
from orbitmq.timing.recurrence.schedule import Schedule


class RunMessage(msgspec.Struct, frozen=True):
    """What every run sends. Admission decides about its properties as about those of any message."""

    topic: str
    body: bytes
    properties: dict[str, str] = {}


class RunPlace(msgspec.Struct, frozen=True):
    """Where the message of a run is."""

    queue_id: int
    queue_offset: int


class RunProgress(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How far a generation is."""

    settled_ms: int
    """Runs planned for up to this instant have happened or been left out."""
    stored_count: int = 0
    """Runs of this generation that have become messages."""
    last: RunPlace | None = None
    """The message of the latest run, also of an earlier generation with the same topic."""


class RecurringState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One recurring message."""

    name: str
    generation: int
    begun_ms: int
    """When this generation was made."""
    rule: Rule
    message: RunMessage
    progress: RunProgress
    paused: bool = False

    def schedule(self) -> Schedule:
        """The runs of this generation; made once and kept by whoever asks often. ConfigurationError as `Schedule`."""
        return Schedule(self.name, self.generation, self.rule, self.begun_ms)


class Change(NamedTuple):
    """The answer to a request. `state` is what holds afterwards, None when there is no such message any more.

    Where the outcome is UNCHANGED nothing is to be written.
    """

    outcome: RecurringOutcome
    state: RecurringState | None


def define(current: RecurringState | None, name: str, rule: Rule, message: RunMessage, now_ms: int) -> Change:
    """Create the message of this name, or replace it. A paused one stays paused: who paused it decides when it goes on.

    ConfigurationError, and nothing changes, when the name, the rule or the message is not usable.
    """
    _check_message(message)
    if current is None:
        made = RecurringState(
            name=name,
            generation=now_ms,
            begun_ms=now_ms,
            rule=rule,
            message=message,
            progress=RunProgress(settled_ms=now_ms),
        )
        made.schedule()
        return Change(RecurringOutcome.CREATED, made)
    wrong = ahead_ms(current, now_ms) > 0
    if (current.rule, current.message) == (rule, message) and not wrong:
        return Change(RecurringOutcome.UNCHANGED, current)
    made = RecurringState(
        name=name,
        generation=max(current.generation + 1, now_ms),
        begun_ms=now_ms,
        rule=rule,
        message=message,
        progress=RunProgress(
            settled_ms=now_ms if wrong else max(current.progress.settled_ms, _made_over_from(current, now_ms) - 1),
            last=current.progress.last if current.message.topic == message.topic else None,
        ),
        paused=current.paused,
    )
    made.schedule()
    return Change(RecurringOutcome.REPLACED, made)


def pause(current: RecurringState) -> Change:
    """No run happens until it is resumed."""
    if current.paused:
        return Change(RecurringOutcome.UNCHANGED, current)
    return Change(RecurringOutcome.PAUSED, msgspec.structs.replace(current, paused=True))


def resume(current: RecurringState, now_ms: int) -> Change:
    """Runs happen again; those of the pause are settled."""
    if not current.paused:
        return Change(RecurringOutcome.UNCHANGED, current)
    if ahead_ms(current, now_ms):
        current = _begun_anew(current, now_ms)
    settled_ms = max(current.progress.settled_ms, now_ms)
    progress = msgspec.structs.replace(current.progress, settled_ms=settled_ms)
    return Change(RecurringOutcome.RESUMED, msgspec.structs.replace(current, paused=False, progress=progress))


def ahead_ms(current: RecurringState, now_ms: int) -> int:
    """By how much a message was begun or settled later than now, which only a clock that was ahead can do; 0 when it is in order.
    Until then it has no runs."""
    last_ms = max(current.begun_ms, current.progress.settled_ms)
    return last_ms - now_ms if last_ms - now_ms > RECURRENCE_AHEAD_MS_MAX else 0


def _begun_anew(current: RecurringState, now_ms: int) -> RecurringState:
    """The same rule from now on, as a generation of its own: a run of the time that was settled by mistake is another one."""
    return msgspec.structs.replace(
        current,
        generation=max(current.generation + 1, now_ms),
        begun_ms=min(current.begun_ms, now_ms),
        progress=msgspec.structs.replace(current.progress, settled_ms=now_ms),
    )


def delete() -> Change:
    """The message is forgotten. What its runs have stored stays."""
    return Change(RecurringOutcome.DELETED, None)


def _made_over_from(current: RecurringState, now_ms: int) -> int:
    """The first instant that a new rule decides about: that of a run which has been planned for and not happened, or what
    comes after now."""
    if not current.paused and not is_used_up(current):
        waiting = current.schedule().next(current.progress.settled_ms)
        if waiting is not None and waiting.planned_ms <= now_ms:
            return waiting.planned_ms
    return now_ms + 1


def is_used_up(current: RecurringState) -> bool:
    """The generation has had all runs that its rule allows."""
    count_max = current.rule.count_max
    return count_max is not None and current.progress.stored_count >= count_max


def _check_message(message: RunMessage) -> None:
    problem = topic_name_problem(message.topic)
    if problem is not None:
        raise ConfigurationError(f"a recurring message cannot be sent: {problem}", remedy="name an ordinary topic")
    if len(message.body) > RECURRENCE_BODY_BYTES_MAX:
        raise ConfigurationError(
            f"the body of the recurring message has {len(message.body)} bytes, at most RECURRENCE_BODY_BYTES_MAX = "
            f"{RECURRENCE_BODY_BYTES_MAX} are allowed",
            remedy="send a reference to the data, not the data",
        )
    properties_bytes = len(encode_properties(message.properties))
    if properties_bytes > PROPERTIES_BYTES_MAX:
        raise ConfigurationError(
            f"the properties of the recurring message have {properties_bytes} bytes, at most PROPERTIES_BYTES_MAX = "
            f"{PROPERTIES_BYTES_MAX} are allowed",
            remedy="put the data into the body",
        )
