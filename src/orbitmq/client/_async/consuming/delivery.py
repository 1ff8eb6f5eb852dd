"""A message in the hands of the program that consumes it.

Rules of this file
1. A message is settled once: acknowledged, sent back to be retried, or sent to the dead letters. Settling it a second time the same
   way does nothing; settling it in another way is an error of the program.
2. A message that is not settled comes again: delivery is at least once.
3. Settling has no effect on a queue that has moved to another member of the group; that member gets the message again, and the
   settling call answers False.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Protocol

from orbitmq.client.due_time import length_ms
from orbitmq.client.stored import StoredMessage
from orbitmq.errors import ClientError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import timedelta

    from orbitmq.protocol.records import Record
    from orbitmq.protocol.remoting.bodies import MessageQueue


class Settlement(Enum):
    """What became of a message."""

    PENDING = "not settled yet"
    ACKED = "acknowledged"
    RETRIED = "sent back to be retried"
    DEAD_LETTERED = "sent to the dead letters"


class Settler(Protocol):
    """Carries out what the program decides about a message."""

    def holds(self, message: ReceivedMessage) -> bool: ...

    def begin(self, message: ReceivedMessage, now_ms: int) -> bool:
        """The program begins with it; False when it must not."""
        ...

    def ack(self, message: ReceivedMessage) -> bool: ...

    async def send_back(self, message: ReceivedMessage, delay_level: int, after_ms: int | None) -> bool: ...

    async def reply(
        self,
        message: ReceivedMessage,
        body: bytes,
        tag: str | None,
        properties: Mapping[str, str] | None,
        timeout_ms: int,
    ) -> None: ...


class ReceivedMessage(StoredMessage):
    """One delivered message.

    reconsume_times: earlier attempts of this group; 0 at the first delivery.
    settlement: what became of it here.
    problem: why its body cannot be restored; None for every message that reaches a program.
    """

    __slots__ = ("problem", "settlement", "settler")

    def __init__(
        self,
        record: Record,
        body: bytes,
        properties: dict[str, str] | None,
        queue: MessageQueue,
        settler: Settler,
        problem: str | None = None,
    ) -> None:
        # As the constructor of StoredMessage, without the call: this runs for every message.
        self.record = record
        self.body = body
        self._properties = properties
        self.queue = queue
        self.queue_offset = record.queue_offset
        self.reconsume_times = record.reconsume_times
        self.settler = settler
        self.problem = problem
        self.settlement = Settlement.PENDING

    @property
    def held(self) -> bool:
        """Whether it is unsettled and its queue still belongs to this consumer. Looks only: any thread may ask at any time."""
        return self.settler.holds(self)

    # --- settling

    async def ack(self) -> bool:
        """Done. False when the queue has moved to another member meanwhile: the message comes again there.

        Cheap, without a request: the group's progress is written every few seconds and when the consumer closes.
        """
        if not self._settle(Settlement.ACKED):
            return True
        return self.settler.ack(self)

    async def retry(self, delay_level: int = 0, *, after: timedelta | float | None = None) -> bool:
        """Failed; deliver it again later, and to the dead letters after the group's maximum of attempts.

        delay_level: 0 lets the broker choose, longer with each attempt (10 s, 30 s, 1 m ...); n waits the n-th step of the level list.
        after: instead, exactly so long: a timedelta, or seconds. A broker without timer messages waits the nearest step of the level list.
        Returns when a broker has taken it back. When none can be reached it is delivered again here after some seconds.
        """
        if delay_level < 0:
            raise ValueError(f"delay_level is {delay_level}; use dead_letter() to give a message up")
        if after is None:
            return await self._send_back(Settlement.RETRIED, delay_level)
        if delay_level:
            raise ValueError(f"both delay_level={delay_level} and after={after} are given; give one of them")
        return await self._send_back(Settlement.RETRIED, 0, length_ms("after", after))

    async def dead_letter(self) -> bool:
        """Give up: move it to the group's dead-letter topic `%DLQ%<group>` without further attempts."""
        return await self._send_back(Settlement.DEAD_LETTERED, -1)

    async def reply(
        self,
        body: bytes,
        *,
        tag: str | None = None,
        properties: Mapping[str, str] | None = None,
        timeout_ms: int = 3_000,
    ) -> None:
        """Answer a message that was sent with `request`; returns when the program that asked has the answer.

        Settles nothing: acknowledge the message as ever. `ClientError` when it is no request, or when the one who asked cannot be reached,
        usually because it has given up waiting.
        """
        await self.settler.reply(self, body, tag, properties, timeout_ms)

    async def _send_back(self, settlement: Settlement, delay_level: int, after_ms: int | None = None) -> bool:
        if not self._settle(settlement):
            return True
        try:
            return await self.settler.send_back(self, delay_level, after_ms)
        except BaseException:
            self.settlement = Settlement.PENDING  # interrupted: nobody knows whether a broker has it; it may come twice
            raise

    def _settle(self, settlement: Settlement) -> bool:
        if self.settlement is settlement:
            return False
        if self.settlement is not Settlement.PENDING:
            raise ClientError(
                f"message {self.message_id} was {self.settlement.value} and cannot be {settlement.value} as well",
                remedy="settle a message once",
            )
        self.settlement = settlement
        return True

    def again(self) -> ReceivedMessage:
        """The same message for one more attempt in this process, counted as such."""
        message = ReceivedMessage(self.record, self.body, self._properties, self.queue, self.settler, self.problem)
        message.reconsume_times = self.reconsume_times + 1
        return message
