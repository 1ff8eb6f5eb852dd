"""A message in the hands of the program that consumes it.

Rules of this file
1. A message is settled once: acknowledged, sent back to be retried, or sent to the dead letters. Settling it a second time the same
   way does nothing; settling it in another way is an error of the program.
2. A message that is not settled comes again: delivery is at least once.
3. Settling has no effect on a queue that has moved to another member of the group; that member gets the message again, and the
   settling call answers False.

Written by scripts/generate_sync.py from src/orbitmq/client/_async/consuming/delivery.py: change that file and run `make generate`.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

from orbitmq.client._sync.delivered import Delivered


class ReceivedMessage(Delivered):
    """One delivered message.

    reconsume_times: earlier attempts of this group; 0 at the first delivery.
    settlement: what became of it here.
    problem: why its body cannot be restored; None for every message that reaches a program.
    """

    __slots__ = ()

    @property
    def held(self) -> bool:
        """Whether it is unsettled and its queue still belongs to this consumer. Looks only: any thread may ask at any time."""
        return self._twin.held

    def ack(self) -> bool:
        """Done. False when the queue has moved to another member meanwhile: the message comes again there.

        Cheap, without a request: the group's progress is written every few seconds and when the consumer closes.
        """
        return self._ack()

    def retry(self, delay_level: int = 0, *, after: timedelta | float | None = None) -> bool:
        """Failed; deliver it again later, and to the dead letters after the group's maximum of attempts.

        delay_level: 0 lets the broker choose, longer with each attempt (10 s, 30 s, 1 m ...); n waits the n-th step of the level list.
        after: instead, exactly so long: a timedelta, or seconds. A broker without timer messages waits the nearest step of the level list.
        Returns when a broker has taken it back. When none can be reached it is delivered again here after some seconds.
        """
        return self._loop.run(self._twin.retry(delay_level, after=after))

    def dead_letter(self) -> bool:
        """Give up: move it to the group's dead-letter topic `%DLQ%<group>` without further attempts."""
        return self._loop.run(self._twin.dead_letter())

    def reply(
        self,
        body: bytes,
        *,
        tag: str | None = None,
        properties: Mapping[str, str] | None = None,
        timeout_ms: int = 3000,
    ) -> None:
        """Answer a message that was sent with `request`; returns when the program that asked has the answer.

        Settles nothing: acknowledge the message as ever. `ClientError` when it is no request, or when the one who asked cannot be reached,
        usually because it has given up waiting.
        """
        self._loop.run(self._twin.reply(body, tag=tag, properties=properties, timeout_ms=timeout_ms))
