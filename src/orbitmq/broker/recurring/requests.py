"""Requests about recurring messages: define (20020), look (20021), pause and resume (20022), delete (20023).

Rules of this file
1. A definition is judged as the sends it stands for: topic, sizes, properties, and whether the broker takes messages at all.
2. A change is answered when its record is as durable as the flush mode asks; asking for what holds already, as soon as
   that is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from orbitmq.access.audit import About, Subject
from orbitmq.access.gate import LedTo
from orbitmq.broker.core import BrokerCore
from orbitmq.broker.put_answers import ANSWERS, IN_PART, NOT_CONFIRMED, fate
from orbitmq.broker.recurring.run_sending import BrokerRuns, reserved_property
from orbitmq.broker.refusal import Refusal
from orbitmq.broker.room import RequestHandler, Room
from orbitmq.errors import ConfigurationError, ProtocolError, RecordError, StoreUnwritableError
from orbitmq.limits import recurrence as limits
from orbitmq.protocol.names import AUTO_CREATE_TOPIC
from orbitmq.protocol.remoting.bodies.json_body import JsonBody
from orbitmq.protocol.remoting.commands import RequestCode, ResponseCode
from orbitmq.protocol.remoting.frame import Command, response
from orbitmq.protocol.remoting.peer import Peer
from orbitmq.protocol.remoting.recurring_bodies import (
    RecurringAnswer,
    RecurringChangeBody,
    RecurringDefinition,
    RecurringPage,
    RecurringQuery,
    RecurringView,
)
from orbitmq.store.durability import OnDone, PutStatus
from orbitmq.timing.recurrence.rule import Rule
from orbitmq.timing.recurrence.runner import Recurrences
from orbitmq.timing.recurrence.state import Change, RecurringState, RunMessage

Body = TypeVar("Body", bound=JsonBody)


class RecurringProcessor(Room):
    def __init__(self, core: BrokerCore, recurrences: Recurrences, sender: BrokerRuns) -> None:
        """Makes the messages of runs, which happen while `recurrences` are attached."""
        self._settings = core.settings
        self._recurrences = recurrences
        self._sender = sender
        self._unwritable = core.unwritable
        self._store = core.store
        recurrences.sender = sender

    def handlers(self) -> Mapping[RequestCode, RequestHandler]:
        return {
            RequestCode.PUT_RECURRING: self.put,
            RequestCode.GET_RECURRING: self.get,
            RequestCode.SET_RECURRING_STATE: self.set_state,
            RequestCode.DELETE_RECURRING: self.delete,
        }

    def led_to(self) -> Mapping[RequestCode, LedTo]:
        return {
            RequestCode.PUT_RECURRING: lambda command: self._topics_of(_body(command, RecurringDefinition).name),
            RequestCode.GET_RECURRING: self._topics_shown,
            RequestCode.SET_RECURRING_STATE: lambda command: self._topics_of(_body(command, RecurringChangeBody).name),
            RequestCode.DELETE_RECURRING: lambda command: self._topics_of(_body(command, RecurringChangeBody).name),
        }

    def subjects(self) -> Mapping[RequestCode, Subject]:
        return {
            RequestCode.PUT_RECURRING: _about_definition,
            RequestCode.SET_RECURRING_STATE: _about_change,
            RequestCode.DELETE_RECURRING: _about_change,
        }

    # --- requests ---------------------------------------------------------------------------------------------------

    def put(self, command: Command, peer: Peer) -> Command | None:
        definition = _body(command, RecurringDefinition)
        rule, message = rule_of(definition), RunMessage(definition.topic, definition.body, definition.properties)
        name = reserved_property(message)
        if name is not None:
            raise Refusal(
                ResponseCode.MESSAGE_ILLEGAL,
                f"property {name} cannot be given to a recurring message: it has times, an identity and a place of its own",
            )

        def change(on_done: OnDone) -> Change:
            self._sender.check(
                definition.name, message, template=AUTO_CREATE_TOPIC, queues=self._settings.default_topic_queue_nums
            )
            return self._recurrences.put(definition.name, rule, message, on_done)

        return self._change(command, peer, change)

    def set_state(self, command: Command, peer: Peer) -> Command | None:
        wanted = _body(command, RecurringChangeBody)
        state = self._known(wanted.name)
        return self._change(
            command, peer, lambda on_done: self._recurrences.set_paused(state, paused=wanted.paused, on_done=on_done)
        )

    def delete(self, command: Command, peer: Peer) -> Command | None:
        state = self._known(_body(command, RecurringChangeBody).name)
        return self._change(command, peer, lambda on_done: self._recurrences.delete(state, on_done))

    def get(self, command: Command, peer: Peer) -> Command | None:
        query = _body(command, RecurringQuery)
        if query.name is None:
            return _answer(command, self._page(query))
        state = self._recurrences.get(query.name)
        if state is None:
            return _answer(command, RecurringPage(recurring=[]))
        runs = self._recurrences.upcoming(state, min(query.runs, limits.RECURRENCE_PREVIEW_MAX))
        page = RecurringPage(recurring=[self._view(state)], runs=[(run.planned_ms, run.at_ms) for run in runs])
        return _answer(command, page)

    # --- inside -----------------------------------------------------------------------------------------------------

    def _page(self, query: RecurringQuery) -> RecurringPage:
        wanted = sorted(
            (state for state in self._recurrences if query.topic is None or state.message.topic == query.topic),
            key=lambda state: state.name,
        )
        after = query.cursor
        if after is not None:
            wanted = [state for state in wanted if state.name > after]
        limit = max(1, min(query.limit, limits.RECURRENCE_PAGE_MAX))
        shown = wanted[:limit]
        return RecurringPage(
            recurring=[self._view(state, with_body=False) for state in shown],
            cursor=shown[-1].name if len(wanted) > limit else None,
        )

    def _topics_shown(self, command: Command) -> list[str] | list[str | None]:
        """What GET_RECURRING is about; a page that names no topic is about all."""
        query = _body(command, RecurringQuery)
        return [query.topic] if query.name is None else self._topics_of(query.name)

    def _topics_of(self, name: str) -> list[str]:
        """The topic that the recurring message of that name goes to, if there is one."""
        state = self._recurrences.get(name)
        return [] if state is None else [state.message.topic]

    def _known(self, name: str) -> RecurringState:
        state = self._recurrences.get(name)
        if state is None:
            raise Refusal(
                ResponseCode.QUERY_NOT_FOUND,
                f"broker {self._settings.broker_name!r} keeps no recurring message {name[: limits.RECURRENCE_NAME_CHARS_MAX]!r}",
            )
        return state

    def _change(self, command: Command, peer: Peer, change: Callable[[OnDone], Change]) -> Command | None:
        """Make a change; the answer comes when it lasts. Raises Refusal."""
        answers: list[RecurringAnswer] = []

        def stored(status: PutStatus) -> None:
            if command.is_oneway:
                return
            if status is PutStatus.PUT_OK:
                peer.send(_answer(command, answers[0]))
            elif status.is_kept:
                peer.send(
                    response(command, ANSWERS[status], f"the change {IN_PART[status]}", None, answers[0].encode())
                )
            else:
                status = fate(status, is_over=self._store.is_over)
                is_unknown = status is PutStatus.UNKNOWN
                peer.send(
                    response(command, ANSWERS[status], NOT_CONFIRMED if is_unknown else self._unwritable().remark)
                )

        try:
            made = change(stored)
        except ConfigurationError as error:
            raise Refusal(ResponseCode.INVALID_PARAMETER, str(error)) from error
        except StoreUnwritableError as error:
            raise self._unwritable() from error
        except RecordError as error:
            raise Refusal(ResponseCode.MESSAGE_ILLEGAL, f"the definition cannot be stored: {error}") from error
        answers.append(RecurringAnswer(outcome=made.outcome, recurring=self._view_of(made)))
        return None

    def _view_of(self, made: Change) -> RecurringView | None:
        return None if made.state is None else self._view(made.state)

    def _view(self, state: RecurringState, *, with_body: bool = True) -> RecurringView:
        last = state.progress.last
        return RecurringView(
            definition=definition_of(state, with_body=with_body),
            generation=state.generation,
            begun_ms=state.begun_ms,
            paused=state.paused,
            settled_ms=state.progress.settled_ms,
            stored_count=state.progress.stored_count,
            next_ms=self._recurrences.due_ms(state.name),
            last_queue_id=None if last is None else last.queue_id,
            last_queue_offset=None if last is None else last.queue_offset,
            trouble=self._recurrences.trouble(state.name),
            body_bytes=len(state.message.body),
            broker_name=self._settings.broker_name,
        )


def rule_of(definition: RecurringDefinition) -> Rule:
    """The rule that a definition asks for; not checked."""
    return Rule(
        cron=definition.cron,
        zone=definition.zone,
        interval_ms=definition.interval_ms,
        start_ms=definition.start_ms,
        end_ms=definition.end_ms,
        count_max=definition.count_max,
        jitter_ms=definition.jitter_ms,
        overlap=definition.overlap,
        overlap_group=definition.overlap_group,
        catch_up=definition.catch_up,
        catch_up_max=definition.catch_up_max,
    )


def definition_of(state: RecurringState, *, with_body: bool) -> RecurringDefinition:
    """What was asked for, from what is kept."""
    rule, message = state.rule, state.message
    return RecurringDefinition(
        name=state.name,
        topic=message.topic,
        body=message.body if with_body else b"",
        properties=message.properties,
        cron=rule.cron,
        zone=rule.zone,
        interval_ms=rule.interval_ms,
        start_ms=rule.start_ms,
        end_ms=rule.end_ms,
        count_max=rule.count_max,
        jitter_ms=rule.jitter_ms,
        overlap=rule.overlap,
        overlap_group=rule.overlap_group,
        catch_up=rule.catch_up,
        catch_up_max=rule.catch_up_max,
    )


def _about_definition(command: Command, peer: Peer) -> About:
    """All but the message."""
    asked = _body(command, RecurringDefinition)
    return About(said=f"name={asked.name} topic={asked.topic} cron={asked.cron} intervalMs={asked.interval_ms}")


def _about_change(command: Command, peer: Peer) -> About:
    asked = _body(command, RecurringChangeBody)
    return About(said=f"name={asked.name} paused={str(asked.paused).lower()}")


def _body(command: Command, kind: type[Body]) -> Body:
    try:
        return kind.decode(command.body)
    except ProtocolError as error:
        raise Refusal(ResponseCode.INVALID_PARAMETER, f"the body of the request: {error}") from error


def _answer(command: Command, body: RecurringPage | RecurringAnswer) -> Command:
    return response(command, ResponseCode.SUCCESS, None, None, body.encode())
