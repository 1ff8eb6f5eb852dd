"""What a broker can do with timer messages, asked once per connection.

A broker that does not know the properties of a timer message stores it as an ordinary one and delivers it at once, and RocketMQ's
broker does that with batches. So before the first timer message goes to a broker, it is asked for something that only ours answers;
the answer of another one tells its version.

Rules of this file
1. What a broker would deliver at once although it was sent with a due time does not leave this process.
2. Nothing is asked for messages without a due time.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Final

from orbitmq.errors import ClientError, ConnectionLostError, TimersMissingError
from orbitmq.protocol.remoting.codes import RequestCode, ResponseCode
from orbitmq.protocol.remoting.timer_bodies import TIER_NEAR, TimerQuery
from orbitmq.protocol.remoting.versions import version_name, version_ordinal

if TYPE_CHECKING:
    from orbitmq.client._async.parts import ClientContext
    from orbitmq.client.sending.outgoing import Outgoing

_TIMERS_SINCE: Final = version_ordinal("5.0.0")

_NOTHING: Final = TimerQuery(topic="TBW102", tier=TIER_NEAR, limit=1)
"""A question that is answered quickly and finds nothing: one that names a message would look into the files of the far tier."""


class TimerSupport(Enum):
    FULL = "an orbitmq broker"
    SINGLE = "RocketMQ 5: single messages, recall by handle"
    NONE = "RocketMQ before 5.0"


class KnownSupport:
    """By the address of a broker; `forget` it when a new connection was made, behind which may be another version."""

    def __init__(self, client: ClientContext) -> None:
        self._client = client
        self._known: dict[str, tuple[TimerSupport, str]] = {}

    def forget(self, address: str) -> None:
        self._known.pop(address, None)

    async def check(self, address: str, broker_name: str, outgoing: Outgoing, timeout_ms: int) -> None:
        """`TimersMissingError` when the broker would deliver this timer message at once."""
        support, version = self._known.get(address) or await self._ask(address, broker_name, timeout_ms)
        if support is TimerSupport.FULL:
            return
        if support is TimerSupport.NONE:
            raise TimersMissingError(
                f"broker {broker_name} ({address}, {version}) has no timer messages and would deliver this one to "
                f"{outgoing.topic!r} at once",
                remedy="use delay_level, or RocketMQ from 5.0 on, or orbitmq",
            )
        if outgoing.is_batch:
            raise TimersMissingError(
                f"broker {broker_name} ({address}, {version}) does not look at the due time of a batch and would deliver it to "
                f"{outgoing.topic!r} at once",
                remedy="send the messages one by one with send(), or use orbitmq",
            )

    async def _ask(self, address: str, broker_name: str, timeout_ms: int) -> tuple[TimerSupport, str]:
        try:
            answer = await self._client.network.invoke(
                address, RequestCode.LIST_TIMERS, {}, _NOTHING.encode(), timeout_ms=timeout_ms
            )
        except ClientError as error:
            raise ConnectionLostError(
                f"broker {broker_name} ({address}) does not say whether it has timer messages: {error}",
                request_sent=False,
            ) from error
        version = version_name(answer.version)
        if answer.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            support = TimerSupport.FULL
        else:
            support = TimerSupport.SINGLE if answer.version >= _TIMERS_SINCE else TimerSupport.NONE
        self._known[address] = support, version
        return support, version
