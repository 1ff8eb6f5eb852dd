"""Recurring messages: defining them, looking at them, pausing, resuming and deleting.

A recurring message is kept by one broker. Which one is worked out of its name for a new one; afterwards all masters are asked, so that
it is found again when brokers were added.

Rules of this file
1. A name stands for one recurring message of the cluster. Before one is created every broker that could have it has answered.
2. What a broker lacks is said with its name: RocketMQ's has no recurring messages.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final, NamedTuple

from orbitmq.client._async.runtime import all_of
from orbitmq.client._async.timers.own_requests import ask
from orbitmq.client.options import ProducerOptions
from orbitmq.client.recurring import (
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
from orbitmq.protocol.remoting.codes import RequestCode, ResponseCode
from orbitmq.protocol.remoting.frame import Command

if TYPE_CHECKING:
    from orbitmq.client._async.administration.admin_calls import Broker
    from orbitmq.client._async.parts import Context

_ONLY_HERE: Final = "orbitmq's broker has them; with RocketMQ's, a program of your own sends at the times you want"


class _Found(NamedTuple):
    """What one broker says about a name."""

    broker: Broker
    page: wire.RecurringPage


class Recurring:
    """Messages that a broker sends again and again, by a cron expression or an interval. See `Client.recurring`."""

    def __init__(self, client: Context) -> None:
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
        asked = definition(
            name,
            topic,
            body,
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
            tag=tag,
            key=key,
            properties=properties,
        )
        doing = f"defining recurring message {name!r}"
        route = await self._client.routes.for_sending(topic, ProducerOptions().topic_queues_count)
        keeper, able = await self._keeper(name, doing, certain=True)
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
        return await self._change(keeper, RequestCode.PUT_RECURRING, asked, doing)

    async def pause(self, name: str) -> RecurringChange:
        """No run happens until `resume`. Pausing a paused one changes nothing. `NotFoundError`."""
        return await self._set(name, paused=True)

    async def resume(self, name: str) -> RecurringChange:
        """Runs happen again; those of the pause are not made up for. `NotFoundError`."""
        return await self._set(name, paused=False)

    async def delete(self, name: str) -> RecurringChange:
        """Forget a recurring message. What its runs have sent stays. `NotFoundError`."""
        doing = f"deleting recurring message {name!r}"
        keeper = await self._known_keeper(name, doing)
        return await self._change(keeper, RequestCode.DELETE_RECURRING, wire.RecurringChange(name=name), doing)

    # --- looking

    async def get(self, name: str) -> RecurringMessage | None:
        """The recurring message of this name, in full; None when no broker keeps one."""
        found = await self._find(name, f"looking up recurring message {name!r}")
        return None if found is None else message_of(found.page.recurring[0], found.broker.name)

    async def next_runs(self, name: str, count: int = 10) -> tuple[RecurringRun, ...]:
        """The next runs, at most `count`; those that a paused one would have if it was resumed now. `NotFoundError`."""
        if not 1 <= count <= RECURRENCE_PREVIEW_MAX:
            raise ConfigurationError(f"count={count}: must be 1 to RECURRENCE_PREVIEW_MAX = {RECURRENCE_PREVIEW_MAX}")
        found = await self._find(name, f"asking for the runs of recurring message {name!r}", runs=count)
        if found is None:
            raise _missing(name)
        return tuple(RecurringRun(planned_ms, at_ms) for planned_ms, at_ms in found.page.runs)

    async def list(self, *, topic: str | None = None) -> AsyncIterator[RecurringMessage]:
        """All recurring messages (of one topic), by broker and name, without their bodies."""
        doing = "listing recurring messages"
        able = False
        refused: RemoteError | None = None
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
                    yield message_of(view, broker.name)
                if page.cursor is None:
                    break
                query.cursor = page.cursor
                page = await self._page(broker, query, doing)
        if refused is not None and not able:
            raise refused

    # --- inside

    async def _set(self, name: str, *, paused: bool) -> RecurringChange:
        doing = f"{'pausing' if paused else 'resuming'} recurring message {name!r}"
        keeper = await self._known_keeper(name, doing)
        change = wire.RecurringChange(name=name, paused=paused)
        return await self._change(keeper, RequestCode.SET_RECURRING_STATE, change, doing)

    async def _known_keeper(self, name: str, doing: str) -> Broker:
        keeper, _ = await self._keeper(name, doing)
        if keeper is None:
            raise _missing(name)
        return keeper

    async def _keeper(self, name: str, doing: str, *, certain: bool = False) -> tuple[Broker | None, Sequence[Broker]]:
        """Who keeps a recurring message, and which brokers could. With `certain` no broker may leave the question open."""
        answers = await self._ask_all(wire.RecurringQuery(name=name), doing)
        found = [answer for answer in answers if isinstance(answer, _Found)]
        keepers = [answer.broker for answer in found if answer.page.recurring]
        if len(keepers) > 1:
            raise ClientError(
                f"recurring message {name!r} is kept by several brokers: {', '.join(broker.name for broker in keepers)}",
                remedy="two programs created it at the same moment; stop one of the brokers, delete it, start the broker again",
            )
        if not keepers:
            _raise_open(answers, found, certain=certain)
        return (keepers[0] if keepers else None), [answer.broker for answer in found]

    async def _find(self, name: str, doing: str, *, runs: int = 0) -> _Found | None:
        answers = await self._ask_all(wire.RecurringQuery(name=name, runs=runs), doing)
        found = [answer for answer in answers if isinstance(answer, _Found)]
        for answer in found:
            if answer.page.recurring:
                return answer
        _raise_open(answers, found, certain=True)
        return None

    async def _ask_all(self, query: wire.RecurringQuery, doing: str) -> Sequence[_Found | ClientError]:
        """What every master says; a broker that cannot be asked is no reason to ask no other."""

        async def found(broker: Broker) -> _Found | ClientError:
            try:
                return _Found(broker, await self._page(broker, query, doing))
            except ClientError as error:
                return error

        return await all_of([found(broker) for broker in await self._masters()])

    async def _masters(self) -> Sequence[Broker]:
        from orbitmq.client._async.administration.admin_calls import AdminCalls

        return await AdminCalls(self._client).masters()

    async def _page(self, broker: Broker, query: wire.RecurringQuery, doing: str) -> wire.RecurringPage:
        answer = await self._ask(broker, RequestCode.GET_RECURRING, query, doing)
        return wire.RecurringPage.decode(answer.body)

    async def _change(
        self, broker: Broker, code: RequestCode, body: wire.RecurringDefinition | wire.RecurringChange, doing: str
    ) -> RecurringChange:
        answer = await self._ask(broker, code, body, doing)
        if answer.code == ResponseCode.QUERY_NOT_FOUND:
            raise _missing(body.name)
        return change_of(wire.RecurringAnswer.decode(answer.body), broker.name)

    async def _ask(
        self,
        broker: Broker,
        code: RequestCode,
        body: wire.RecurringDefinition | wire.RecurringChange | wire.RecurringQuery,
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
    return NotFoundError(f"there is no recurring message {name!r}", remedy="see: orbitmq recurring list")


def _raise_open(answers: Sequence[_Found | ClientError], found: Sequence[_Found], *, certain: bool) -> None:
    """Nobody has it. Say who could not be asked, as far as that matters."""
    errors = [answer for answer in answers if isinstance(answer, ClientError)]
    unsupported = [
        error
        for error in errors
        if isinstance(error, RemoteError) and error.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    ]
    silent = [error for error in errors if error not in unsupported]
    if silent and (certain or not found):
        raise silent[0]
    if unsupported and not found:
        raise unsupported[0]
