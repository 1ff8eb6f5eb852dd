"""Recurring messages: defining them, looking at them, pausing, resuming and deleting.

A recurring message is kept by one broker. Which one is worked out of its name for a new one; afterwards all masters are asked, so that
it is found again when brokers were added. The name servers remember which brokers keep recurring messages (`KEEPERS`, written before the
first is), so that one that is away is missed.

Rules of this file
1. A name stands for one recurring message of the cluster. Before one is created every broker that could have it has answered: one that is
   away is a reason to refuse.
2. Twins, of times when rule 1 could not be kept, are shown. Pausing, resuming and deleting mean all of them; `merge` leaves one.
3. What a broker lacks is said with its name: RocketMQ's has no recurring messages.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final, NamedTuple

from orbitmq.client._async.runtime import all_of
from orbitmq.client._async.timers.own_requests import ask
from orbitmq.client.arguments import check_whole
from orbitmq.client.message import STORED, Message
from orbitmq.client.options import ProducerOptions
from orbitmq.client.recurring import (
    GivenRule,
    RecurringChange,
    RecurringMessage,
    RecurringRun,
    change_of,
    chosen_broker,
    definition,
    message_of,
)
from orbitmq.errors import ClientError, ConfigurationError, NotFoundError, RemoteError
from orbitmq.limits.recurrence import RECURRENCE_PREVIEW_MAX
from orbitmq.protocol.remoting import recurring_bodies as wire
from orbitmq.protocol.remoting.bodies import KVTable
from orbitmq.protocol.remoting.codes import RequestCode, ResponseCode
from orbitmq.protocol.remoting.frame import Command

if TYPE_CHECKING:
    from orbitmq.client._async.administration.admin_calls import Broker
    from orbitmq.client._async.parts import ClientContext

_SEE_LIST: Final = "see: orbitmq recurring list"
_ONLY_HERE: Final = "orbitmq's broker has them; with RocketMQ's, a program of your own sends at the times you want"


KEEPERS: Final = "ORBITMQ_RECURRING_BROKERS"
"""Namespace of the name servers' table whose keys are the brokers that keep recurring messages."""


class _Found(NamedTuple):
    """What one broker says about a name."""

    broker: Broker
    page: wire.RecurringPage


class Recurring:
    """Messages that a broker sends again and again, by a cron expression or an interval. See `Client.recurring`."""

    def __init__(self, client: ClientContext) -> None:
        self._client = client

    # --- changing

    async def put(
        self,
        name: str,
        topic: str,
        body: bytes,
        *,
        cron: str | None = None,
        every: timedelta | float | None = None,
        zone: str = "UTC",
        start: datetime | int | None = None,
        end: datetime | int | None = None,
        count_max: int | None = None,
        jitter: timedelta | float = 0,
        overlap: wire.Overlap | str = wire.Overlap.ALLOW,
        overlap_group: str | None = None,
        catch_up: wire.CatchUp | str = wire.CatchUp.LATEST,
        catch_up_max: int | None = None,
        tag: str | None = None,
        key: str | Sequence[str] | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> RecurringChange:
        """Create the recurring message of this name, or replace it. With what it is already, nothing changes: a program may call
        this at every start. A replaced one that is paused stays paused.

        cron: `minute hour day-of-month month day-of-week`, or six fields with the second in front; local time in `zone`. every: an
        interval instead, at least a second, counted from `start` or from now on. start, end: no run is earlier than start or as late as
        end. count_max: the rule ends after so many messages. jitter: each run is put off by a time of its own up to this.
        overlap: with `skip` a run is left out while `overlap_group` has not consumed the message before. catch_up: which runs
        happen late that fell due while the broker was down: `none`, the `latest`, or `all` (the last `catch_up_max` of them).
        Times are a timedelta or seconds; instants a datetime with time zone or ms since 1970.

        When this returns the definition is as durable as the broker's flush mode asks. Every run is stored exactly once. Its message
        has the properties ORBITMQ_RECURRING (the name) and ORBITMQ_PLANNED_MS.
        """
        rule = GivenRule(
            cron=cron,
            every=every,
            zone=zone,
            start=start,
            end=end,
            count_max=count_max,
            jitter=jitter,
            overlap=overlap,
            overlap_group=overlap_group,
            catch_up=catch_up,
            catch_up_max=catch_up_max,
        )
        asked = definition(name, topic, Message(body, tag=tag, key=key, properties=properties or {}), rule)
        doing = f"defining recurring message {name!r}"
        route = await self._client.routes.for_sending(topic, ProducerOptions().topic_queues_count)
        found, able = await self._keepers(name, doing)
        if len(found) > 1:
            raise ClientError(
                f"recurring message {name!r} is kept by several brokers: {', '.join(each.broker.name for each in found)}",
                remedy=f"let one of them keep it: orbitmq recurring merge {name}",
            )
        keeper = found[0].broker if found else None
        takers = {queue.broker_name for queue in route.publish_queues}
        if keeper is not None and keeper.name not in takers:
            raise ConfigurationError(
                f"recurring message {name!r} is kept by broker {keeper.name}, which does not have topic {topic!r}",
                remedy="delete it first, or give the new one another name",
            )
        if keeper is None:
            candidates = {broker.name: broker for broker in able if broker.name in takers}
            if not candidates:
                raise ClientError(f"no broker with topic {topic!r} has recurring messages", remedy=_ONLY_HERE)
            keeper = candidates[chosen_broker(name, candidates)]
        await self._remember(keeper.name)
        change = await self._change(keeper, RequestCode.PUT_RECURRING, asked, doing)
        self._client.routes.created(topic)
        return change

    async def pause(self, name: str) -> RecurringChange:
        """No run happens until `resume`. Pausing a paused one changes nothing. `NotFoundError`."""
        return await self._set(name, paused=True)

    async def resume(self, name: str) -> RecurringChange:
        """Runs happen again; those of the pause are not made up for. `NotFoundError`."""
        return await self._set(name, paused=False)

    async def delete(self, name: str) -> RecurringChange:
        """Forget a recurring message. What its runs have sent stays. `NotFoundError`."""
        return await self._change_all(
            RequestCode.DELETE_RECURRING, wire.RecurringChangeBody(name=name), f"deleting recurring message {name!r}"
        )

    async def merge(self, name: str, *, keep: str | None = None) -> RecurringMessage:
        """Leave one recurring message of this name where several brokers keep one: that of broker `keep`, or the one defined last.
        The others are deleted; what their runs have sent stays. Changes nothing where there is one. `NotFoundError`."""
        doing = f"merging recurring message {name!r}"
        found = await self._known_keepers(name, doing)
        if keep is None:
            kept = max(found, key=lambda each: (each.page.recurring[0].generation, each.broker.name))
        else:
            named = [each for each in found if each.broker.name == keep]
            if not named:
                raise NotFoundError(f"broker {keep!r} keeps no recurring message {name!r}", remedy=_SEE_LIST)
            kept = named[0]
        for each in found:
            if each is not kept:
                await self._change(
                    each.broker, RequestCode.DELETE_RECURRING, wire.RecurringChangeBody(name=name), doing
                )
        await self._remember(kept.broker.name)
        return message_of(kept.page.recurring[0], kept.broker.name)

    # --- looking

    async def get(self, name: str) -> RecurringMessage | None:
        """The recurring message of this name, in full; None when no broker keeps one."""
        found = await self._find(name, f"looking up recurring message {name!r}")
        if not found:
            return None
        return message_of(found[0].page.recurring[0], found[0].broker.name, [each.broker.name for each in found])

    async def next_runs(self, name: str, count: int = 10) -> tuple[RecurringRun, ...]:
        """The next runs, at most `count`; those that a paused one would have if it was resumed now. `NotFoundError`."""
        check_whole("count", count, 1, RECURRENCE_PREVIEW_MAX)
        found = await self._known_keepers(name, f"asking for the runs of recurring message {name!r}", runs=count)
        return tuple(RecurringRun(planned_ms, at_ms) for planned_ms, at_ms in found[0].page.runs)

    async def list(self, *, topic: str | None = None) -> AsyncIterator[RecurringMessage]:
        """All recurring messages (of one topic), by broker and name, without their bodies; those of `brokers_away` are not among them.
        Held in memory until the last broker has answered, so that twins are known."""
        doing = "listing recurring messages"
        able = False
        refused: RemoteError | None = None
        listed: list[tuple[wire.RecurringView, str]] = []
        brokers: dict[str, list[str]] = {}
        for broker in await self._masters():
            query = wire.RecurringQuery(topic=topic)
            try:
                page = await self._page(broker, query, doing)
            except RemoteError as error:
                if error.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                    raise
                refused = error
                continue
            able = True
            while True:
                for view in page.recurring:
                    listed.append((view, broker.name))
                    brokers.setdefault(view.definition.name, []).append(broker.name)
                if page.cursor is None:
                    break
                query.cursor = page.cursor
                page = await self._page(broker, query, doing)
        if refused is not None and not able:
            raise refused
        for view, broker_name in listed:
            yield message_of(view, broker_name, brokers[view.definition.name])

    async def brokers_away(self) -> Sequence[str]:
        """Brokers that keep recurring messages and are not registered at the name servers, by name: what they keep is in no list, and
        runs when they are back."""
        return await self._absent(await self._masters())

    # --- inside

    async def _set(self, name: str, *, paused: bool) -> RecurringChange:
        doing = f"{'pausing' if paused else 'resuming'} recurring message {name!r}"
        return await self._change_all(
            RequestCode.SET_RECURRING_STATE, wire.RecurringChangeBody(name=name, paused=paused), doing
        )

    async def _change_all(self, code: RequestCode, change: wire.RecurringChangeBody, doing: str) -> RecurringChange:
        """A change of the message, and of its twins; the answer is that of the first."""
        found = await self._known_keepers(change.name, doing)
        changes = [await self._change(each.broker, code, change, doing) for each in found]
        return changes[0]

    async def _known_keepers(self, name: str, doing: str, *, runs: int = 0) -> Sequence[_Found]:
        found = await self._find(name, doing, runs=runs)
        if not found:
            raise _missing(name)
        return found

    async def _keepers(self, name: str, doing: str, *, runs: int = 0) -> tuple[Sequence[_Found], Sequence[Broker]]:
        """Who keeps a recurring message, and which brokers could. Nobody does only when every broker has said so."""
        answers = await self._ask_all(wire.RecurringQuery(name=name, runs=runs), doing)
        able = [answer for answer in answers if isinstance(answer, _Found)]
        keepers = [answer for answer in able if answer.page.recurring]
        if not keepers:
            _raise_open(answers, able)
        return keepers, [answer.broker for answer in able]

    async def _find(self, name: str, doing: str, *, runs: int = 0) -> Sequence[_Found]:
        found, _ = await self._keepers(name, doing, runs=runs)
        return found

    async def _remember(self, broker_name: str) -> None:
        """Have all name servers that answer remember a keeper."""
        doing = f"remembering that broker {broker_name} keeps recurring messages"
        if not all(broker_name in table for table in await self._remembered()):
            fields = {"namespace": KEEPERS, "key": broker_name, "value": "1"}
            await self._client.name_servers.request_each(RequestCode.PUT_KV_CONFIG, fields, doing=doing)

    async def _remembered(self) -> Sequence[Mapping[str, str]]:
        """The keepers, as every name server that answers remembers them."""
        answers = await self._client.name_servers.request_each(
            RequestCode.GET_KVLIST_BY_NAMESPACE,
            {"namespace": KEEPERS},
            doing="asking which brokers keep recurring messages",
            accept=(ResponseCode.SUCCESS, ResponseCode.QUERY_NOT_FOUND),
        )
        return [KVTable.decode(answer.body).table if answer.code == ResponseCode.SUCCESS else {} for answer in answers]

    async def _ask_all(self, query: wire.RecurringQuery, doing: str) -> Sequence[_Found | ClientError]:
        """What every master says; a broker that cannot be asked is no reason to ask no other. A keeper that is not registered is
        among those that cannot."""

        async def found(broker: Broker) -> _Found | ClientError:
            try:
                return _Found(broker, await self._page(broker, query, doing))
            except ClientError as error:
                return error

        masters = await self._masters()
        away = await self._absent(masters)
        return [*await all_of([found(broker) for broker in masters]), *(_away(name, doing) for name in away)]

    async def _absent(self, masters: Sequence[Broker]) -> Sequence[str]:
        """Remembered keepers that are not among the masters."""
        remembered = {name for table in await self._remembered() for name in table}
        return sorted(remembered - {broker.name for broker in masters})

    async def _masters(self) -> Sequence[Broker]:
        from orbitmq.client._async.administration.admin_calls import AdminCalls

        return await AdminCalls(self._client).masters()

    async def _page(self, broker: Broker, query: wire.RecurringQuery, doing: str) -> wire.RecurringPage:
        answer = await self._ask(broker, RequestCode.GET_RECURRING, query, doing)
        return wire.RecurringPage.decode(answer.body)

    async def _change(
        self, broker: Broker, code: RequestCode, body: wire.RecurringDefinition | wire.RecurringChangeBody, doing: str
    ) -> RecurringChange:
        answer = await self._ask(broker, code, body, doing)
        if answer.code == ResponseCode.QUERY_NOT_FOUND:
            raise _missing(body.name)
        return change_of(wire.RecurringAnswer.decode(answer.body), broker.name, STORED[answer.code])

    async def _ask(
        self,
        broker: Broker,
        code: RequestCode,
        body: wire.RecurringDefinition | wire.RecurringChangeBody | wire.RecurringQuery,
        doing: str,
    ) -> Command:
        return await ask(
            self._client,
            (broker.name, broker.address),
            code,
            body,
            doing=doing,
            lacks=f"recurring messages ({doing})",
            remedy=_ONLY_HERE,
            accept=(ResponseCode.QUERY_NOT_FOUND,),
        )


def _missing(name: str) -> NotFoundError:
    return NotFoundError(f"there is no recurring message {name!r}", remedy=_SEE_LIST)


def _away(broker_name: str, doing: str) -> ClientError:
    return ClientError(
        f"broker {broker_name}, which keeps recurring messages, is not registered at the name servers: {doing} needs its answer",
        remedy=f"start it; if it is gone for good: orbitmq nameserver kv delete {KEEPERS} {broker_name}",
    )


def _raise_open(answers: Sequence[_Found | ClientError], found: Sequence[_Found]) -> None:
    """Nobody has it. Say who could not be asked, as far as that matters."""
    errors = [answer for answer in answers if isinstance(answer, ClientError)]
    unsupported = [
        error
        for error in errors
        if isinstance(error, RemoteError) and error.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    ]
    silent = [error for error in errors if error not in unsupported]
    if silent:
        raise silent[0]
    if unsupported and not found:
        raise unsupported[0]
