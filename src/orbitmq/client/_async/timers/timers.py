"""Timer messages that wait: recalling, rescheduling, listing and counting them.

Rules of this file
1. A broker that can know is asked; several that can know are asked at the same time, and their answers are one.
2. A change that may concern several timer messages and was not allowed to (`all`) changes none, on however many brokers they are.
3. What a broker lacks is said with its name. The one thing that RocketMQ's broker can do as well, a recall by handle, is done.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias, TypeVar

from orbitmq.client._async.runtime import all_of, log
from orbitmq.client._async.timers.merged_list import Master, MergedList
from orbitmq.client._async.timers.own_requests import ask, restored
from orbitmq.client._async.timers.timer_support import KnownSupport
from orbitmq.client.arguments import check_text, check_whole
from orbitmq.client.due_time import instant_ms, length_ms
from orbitmq.client.message import STORED, SendStatus
from orbitmq.client.timers import (
    HasTimer,
    MeantTimers,
    TimerCounts,
    TimerMatch,
    TimerMessage,
    TimerOutcome,
    TimerVerdict,
    TimerView,
    match,
    meant,
    merged_counts,
    outcome,
    read_handle,
    view,
)
from orbitmq.errors import ClientError, ConfigurationError, RemoteError
from orbitmq.limits.timers import TIMER_PAGE_MAX
from orbitmq.protocol.names import CLIENT_INNER_PRODUCER_GROUP
from orbitmq.protocol.remoting import timer_bodies as wire
from orbitmq.protocol.remoting.bodies.json_body import JsonBody
from orbitmq.protocol.remoting.codes import RequestCode, ResponseCode
from orbitmq.protocol.remoting.frame import Command

if TYPE_CHECKING:
    from orbitmq.client._async.parts import ClientContext

_Body = TypeVar("_Body", bound=JsonBody)

_CHANGES: Final = {
    RequestCode.RECALL_TIMERS: "recalled",
    RequestCode.RESCHEDULE_TIMERS: "rescheduled",
    RequestCode.TIMER_STATUS: "looked up",
    RequestCode.GET_TIMER: "shown",
}
_ONLY_HERE: Final = "orbitmq's broker has it; RocketMQ's recalls by handle only, from 5.3.2 on"


class _Told(NamedTuple):
    master: Master
    answers: wire.TimerAnswers
    send_status: SendStatus


_Asked: TypeAlias = Sequence[_Told]
"""Brokers with what they answered."""


class Timers:
    """What waits for its due time on the brokers. See `Client.timers`."""

    def __init__(self, client: ClientContext) -> None:
        self._client = client
        self.support = KnownSupport(client)

    # --- changing

    async def recall(
        self,
        timer: HasTimer | str | None = None,
        *,
        topic: str | None = None,
        message_id: str | None = None,
        key: str | None = None,
        all: bool = False,
    ) -> TimerOutcome:
        """Cancel a timer message that has not been delivered yet.

        timer: the receipt of its send, a `TimerView`, or a recall handle. Without it: topic and message_id, or topic and key. A key that
        several have recalls none of them without `all`. The verdict is the truth when the call returns, and a recall is then as durable
        as the broker's flush mode asks. Calling again after a lost connection is harmless.

        RocketMQ's broker takes recalls by handle only, from 5.3.2 on with `recallMessageEnable=true`, and does not tell whether they
        take effect: `TimerVerdict.ASKED`.
        """
        wanted = meant(timer, topic, message_id, key, several=all)
        return await self._change(RequestCode.RECALL_TIMERS, wanted, wire.ChangeTimers(selector=wanted.selector))

    async def reschedule(
        self,
        timer: HasTimer | str | None = None,
        *,
        topic: str | None = None,
        message_id: str | None = None,
        key: str | None = None,
        all: bool = False,
        at: datetime | int | None = None,
        after: timedelta | float | None = None,
    ) -> TimerOutcome:
        """Give a timer message that has not been delivered yet another due time, earlier or later.

        The message is named as in `recall`. at: a datetime with time zone, or ms since 1970; one that has passed delivers at once.
        after: from now on by the broker's clock, a timedelta or seconds. A crash leaves the old time or the new one, and one message.
        """
        if (at is None) is (after is None):
            raise ConfigurationError("reschedule needs a new due time", remedy="give one of at and after")
        wanted = meant(timer, topic, message_id, key, several=all)
        change = wire.ChangeTimers(
            selector=wanted.selector,
            deliver_ms=None if at is None else instant_ms("at", at),
            delay_ms=None if after is None else length_ms("after", after),
        )
        return await self._change(RequestCode.RESCHEDULE_TIMERS, wanted, change)

    # --- looking

    async def status(
        self,
        timer: HasTimer | str | None = None,
        *,
        topic: str | None = None,
        message_id: str | None = None,
        key: str | None = None,
    ) -> TimerOutcome:
        """What has become of a timer message, named as in `recall`; of all that have a key."""
        wanted = meant(timer, topic, message_id, key, several=True)
        return _outcome(await self._status(await self._masters(wanted), wanted))

    async def get(
        self,
        timer: HasTimer | str | None = None,
        *,
        topic: str | None = None,
        message_id: str | None = None,
        key: str | None = None,
    ) -> TimerMessage | None:
        """A pending timer message in full, named as in `recall`; None when none is pending. `ClientError` when a key names several."""
        wanted = meant(timer, topic, message_id, key, several=False)
        masters = await self._masters(wanted)
        doing = _doing(RequestCode.GET_TIMER, wanted)
        body = wire.ChangeTimers(selector=wanted.selector)
        try:
            answers = await all_of(
                [self._ask(master, RequestCode.GET_TIMER, body, wire.TimerMessageBody, doing) for master in masters]
            )
        except RemoteError as error:
            if error.code == ResponseCode.TOPIC_NOT_EXIST:
                await self._client.routes.get(wanted.topic)  # says how to create it
            raise
        found = [
            TimerMessage(
                view(answer.timer, master.broker_name), await restored(answer.body, answer.sys_flag), answer.properties
            )
            for master, answer in zip(masters, answers, strict=True)
            if answer.verdict is wire.Verdict.PENDING and answer.timer is not None
        ]
        several = len(found) > 1 and wanted.selector.key is not None  # else copies of one message
        if several or any(answer.verdict is wire.Verdict.AMBIGUOUS for answer in answers):
            raise ClientError(
                f"several {wanted.text} are pending", remedy="name one by its message_id; list() shows them"
            )
        return found[0] if found else None

    async def list(
        self,
        *,
        topic: str | None = None,
        due_from: datetime | int | None = None,
        due_until: datetime | int | None = None,
        key: str | None = None,
        key_prefix: str | None = None,
        page_count: int = 100,
        on_left_out: Callable[[str, int], None] | None = None,
    ) -> AsyncIterator[TimerView]:
        """What is pending on all brokers, earliest due first, fetched page by page as it is asked for.

        due_from is included, due_until is not. key, key_prefix: with a topic; one of the two. page_count: how many a broker is asked
        for at a time. What is sent, recalled or delivered meanwhile may or may not be among them.
        on_left_out: called with the name of a broker and a number when up to so many messages wait there within these times that
        cannot be listed, because files of its far tier are damaged; without it a warning is logged.
        """
        check_whole("page_count", page_count, 1, TIMER_PAGE_MAX)
        for name, text in (("topic", topic), ("key", key), ("key_prefix", key_prefix)):
            check_text(name, text)
        if topic is None and (key is not None or key_prefix is not None):
            raise ConfigurationError("a key without topic", remedy="name the topic: keys belong to one")
        if key is not None and key_prefix is not None:
            raise ConfigurationError("both key and key_prefix are given", remedy="give one of them")
        query = wire.TimerQuery(
            topic=topic,
            from_ms=None if due_from is None else instant_ms("due_from", due_from),
            until_ms=None if due_until is None else instant_ms("due_until", due_until),
            key=key,
            key_prefix=key_prefix,
            limit=page_count,
        )
        merged = MergedList(self._page, on_left_out or _warn_left_out)
        async for timer in merged.timers(await self._masters_of(topic), query):
            yield timer

    async def counts(
        self,
        *,
        topic: str | None = None,
        due_from: datetime | int | None = None,
        due_until: datetime | int | None = None,
        bucket: timedelta | float | None = None,
    ) -> TimerCounts:
        """How many are pending on all brokers together; with `bucket`, the width of a span of due times, also how many in each."""
        check_text("topic", topic)
        width_ms = 0 if bucket is None else length_ms("bucket", bucket)
        if bucket is not None and not width_ms:
            raise ConfigurationError(f"bucket={bucket!s}: must be at least a millisecond")
        query = wire.CountQuery(
            topic=topic,
            from_ms=None if due_from is None else instant_ms("due_from", due_from),
            until_ms=None if due_until is None else instant_ms("due_until", due_until),
            bucket_ms=width_ms,
        )
        masters = await self._masters_of(topic)
        doing = "counting pending timer messages"
        counts = await all_of(
            [self._ask(master, RequestCode.COUNT_TIMERS, query, wire.TimerCountsBody, doing) for master in masters]
        )
        return merged_counts(counts, topic)

    async def far_tier(self, action: wire.FarTierAction = wire.FarTierAction.STATUS) -> dict[str, wire.FarTierState]:
        """How the far tier of every broker does, by the broker's name; with an action, what it begins to do."""
        masters = await self._masters_of(None)
        request, doing = wire.FarTierRequest(action), "the far tier of timer messages"
        states = await all_of(
            [self._ask(master, RequestCode.FAR_TIER, request, wire.FarTierState, doing) for master in masters]
        )
        return {master.broker_name: state for master, state in zip(masters, states, strict=True)}

    # --- inside

    async def _change(self, code: RequestCode, wanted: MeantTimers, change: wire.ChangeTimers) -> TimerOutcome:
        masters = await self._masters(wanted)
        if len(masters) == 1:
            try:
                return _outcome(await self._ask_all(masters, code, change, wanted))
            except RemoteError as error:
                is_lacking = error.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
                if not is_lacking or code is not RequestCode.RECALL_TIMERS or wanted.handle is None:
                    raise
                return await self._recall_by_handle(masters[0], wanted, wanted.handle)
        seen = await self._status(masters, wanted)
        pending = _pending(seen)
        if not pending:
            return _outcome(seen)
        if not wanted.selector.all and not _is_one([answer for _, answer in pending]):
            return TimerOutcome(TimerVerdict.AMBIGUOUS, _outcome(seen).matches)
        having = sorted({master for master, _ in pending})
        asked = await self._ask_all(having, code, change, wanted)
        if wanted.selector.key is None:  # copies that other brokers have delivered
            asked = [*asked, *(one for one in seen if one.master not in having)]
        return _outcome(asked)

    async def _status(self, masters: Sequence[Master], wanted: MeantTimers) -> _Asked:
        """What each broker knows of all that is meant."""
        question = wire.ChangeTimers(selector=_with_all(wanted.selector))
        return await self._ask_all(masters, RequestCode.TIMER_STATUS, question, wanted)

    async def _recall_by_handle(self, master: Master, wanted: MeantTimers, handle: str) -> TimerOutcome:
        """RocketMQ's own request."""
        answer = await self._client.network.insist(
            master.address,
            RequestCode.RECALL_MESSAGE,
            {
                "producerGroup": CLIENT_INNER_PRODUCER_GROUP,
                "topic": wanted.topic,
                "recallHandle": handle,
                "bname": master.broker_name,
            },
            timeout_ms=self._client.options.request_timeout_ms,
            doing=f"recalling {wanted.text} by its handle at broker {master.broker_name}, which is RocketMQ's: from 5.3.2 on "
            "it can, with recallMessageEnable=true",
            accept=(ResponseCode.SUCCESS, ResponseCode.ILLEGAL_OPERATION),
        )
        if answer.code == ResponseCode.SUCCESS:
            return TimerOutcome(TimerVerdict.ASKED, (TimerMatch(TimerVerdict.ASKED),))
        if read_handle(handle).timestamp_ms <= self._client.clock.now_ms():
            return TimerOutcome(TimerVerdict.TOO_LATE, (TimerMatch(TimerVerdict.TOO_LATE),))
        raise RemoteError(
            answer.code,
            f"broker {master.broker_name} does not recall {wanted.text}: {answer.remark or 'no remark'}",
            address=master.address,
        )

    async def _masters(self, wanted: MeantTimers) -> Sequence[Master]:
        """Brokers that can know what is meant. One that has left the routes lately is asked until it is back, or the time is over: that
        nobody else knows a message says nothing of it."""
        if wanted.broker_name is None:
            away = [Master(*each) for each in self._client.routes.missed_masters(wanted.topic)]
            return [*await self._masters_of(wanted.topic, or_none=bool(away)), *away]
        routes = self._client.routes
        address = routes.master(wanted.broker_name, wanted.topic)
        if address is None:
            await routes.refresh(wanted.topic)
            address = routes.master(wanted.broker_name, wanted.topic) or routes.last_master(wanted.broker_name)
        if address is None:
            raise ClientError(
                f"broker {wanted.broker_name}, which has {wanted.text}, has no master at the name servers",
                remedy="it has what it stored when it runs again",
            )
        return [Master(wanted.broker_name, address)]

    async def _masters_of(self, topic: str | None, *, or_none: bool = False) -> Sequence[Master]:
        """All masters with a topic, or of the cluster, ordered by name: what waits outlives its topic."""
        route = None if topic is None else await self._client.routes.find(topic)
        if route is None:
            from orbitmq.client._async.administration.admin_calls import AdminCalls

            return [Master(broker.name, broker.address) for broker in await AdminCalls(self._client).masters()]
        masters = [(name, route.master(name)) for name in sorted(route.brokers)]
        found = [Master(name, address) for name, address in masters if address is not None]
        if not found and not or_none:
            raise ClientError(
                f"no broker of topic {topic!r} has a master at present",
                remedy="check that it runs: orbitmq topic route",
            )
        return found

    async def _ask_all(
        self, masters: Sequence[Master], code: RequestCode, change: wire.ChangeTimers, wanted: MeantTimers
    ) -> _Asked:
        doing = _doing(code, wanted)
        missing: list[RemoteError] = []

        async def told_by(master: Master) -> _Told:
            try:
                answer = await self._answer(master, code, change, doing)
                return _Told(master, wire.TimerAnswers.decode(answer.body), STORED[answer.code])
            except RemoteError as error:
                if error.code != ResponseCode.TOPIC_NOT_EXIST:
                    raise
                missing.append(error)
                none = wire.TimerAnswers([wire.TimerAnswer(wire.Verdict.NOT_FOUND)])
                return _Told(master, none, SendStatus.SEND_OK)

        asked = await all_of([told_by(master) for master in masters])
        if missing and len(missing) == len(masters):
            await self._client.routes.get(wanted.topic)  # says how to create it
            raise missing[0]
        return asked

    async def _page(self, master: Master, query: wire.TimerQuery) -> wire.TimerPage:
        return await self._ask(master, RequestCode.LIST_TIMERS, query, wire.TimerPage, "listing pending timer messages")

    async def _ask(self, master: Master, code: RequestCode, body: JsonBody, kind: type[_Body], doing: str) -> _Body:
        return kind.decode((await self._answer(master, code, body, doing)).body)

    async def _answer(self, master: Master, code: RequestCode, body: JsonBody, doing: str) -> Command:
        lacks = f"request for {doing}"
        return await ask(self._client, master, code, body, doing=doing, lacks=lacks, remedy=_ONLY_HERE)


def _warn_left_out(broker_name: str, count: int) -> None:
    log.warning("broker %s cannot list up to %d timer messages: files of its far tier are damaged", broker_name, count)


def _doing(code: RequestCode, wanted: MeantTimers) -> str:
    return f"{wanted.text} to be {_CHANGES[code]}"


def _with_all(selector: wire.TimerSelector) -> wire.TimerSelector:
    return wire.TimerSelector(selector.handle, selector.topic, selector.message_id, selector.key, True)


def _pending(asked: _Asked) -> Sequence[tuple[Master, wire.TimerAnswer]]:
    """What waits, with the broker that has it."""
    return [
        (master, answer)
        for master, answers, _ in asked
        for answer in answers.answers
        if answer.verdict is wire.Verdict.PENDING
    ]


def _is_one(pending: Sequence[wire.TimerAnswer]) -> bool:
    """Whether what waits is one message, or copies of one that a sender's retry stored at brokers."""
    names = {None if answer.timer is None else answer.timer.message_id for answer in pending}
    return len(pending) == 1 or (len(names) == 1 and None not in names)


def _outcome(asked: _Asked) -> TimerOutcome:
    """One answer out of those of brokers."""
    return outcome(
        [match(answer, told.master.broker_name) for told in asked for answer in told.answers.answers],
        sum(told.answers.changed for told in asked),
        more=any(told.answers.more for told in asked),
        send_status=next(
            (told.send_status for told in asked if told.send_status is not SendStatus.SEND_OK), SendStatus.SEND_OK
        ),
    )
