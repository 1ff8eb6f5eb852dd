"""Which brokers are slow or failing at present, so that a producer sends to others first.

Every attempt to send reports how long it took and how it ended. A slow or failed one makes its broker *unavailable* for a while,
longer the slower it was; a failed one also makes it *unreachable* until a send succeeds or a probe is answered. Queues of
available brokers are preferred, then those of reachable ones; when there is neither, any queue will do: a producer never
refuses to send because everything is slow.

Rules of this file
1. A state machine without I/O and time: instants are monotonic milliseconds, passed in.
2. An unavailability is only ever extended; a fast answer lets it run out, it does not end it. So one quick answer between slow
   ones does not bring the traffic back.
3. Brokers without trouble have no entry, so the table is empty on a healthy cluster and costs nothing there.

(RocketMQ client, latency fault tolerance, releases from 5.1.4.)
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Sequence
from typing import Final

from orbitmq.client.sending.queue_choice import elsewhere
from orbitmq.limits.client import SEND_FAILURE_LATENCY_MS
from orbitmq.protocol.remoting.bodies import MessageQueue

LATENCIES_MS: Final = (50, 100, 550, 1_800, 3_000, 5_000, 15_000)
UNAVAILABLE_MS: Final = (0, 0, 2_000, 5_000, 6_000, 10_000, 30_000)
"""From a latency of `LATENCIES_MS[n]` on a broker is unavailable for `UNAVAILABLE_MS[n]`."""


def unavailable_ms(latency_ms: int) -> int:
    """How long a broker is left alone after an attempt that took `latency_ms`."""
    step = bisect_right(LATENCIES_MS, latency_ms)
    return UNAVAILABLE_MS[step - 1] if step else 0


class _Trouble:
    __slots__ = ("reachable", "until_ms")

    def __init__(self) -> None:
        self.until_ms = 0
        self.reachable = True


class SlowBrokers:
    """The brokers that one producer has had trouble with, by name."""

    __slots__ = ("_troubles",)

    def __init__(self) -> None:
        self._troubles: dict[str, _Trouble] = {}

    def succeeded(self, broker_name: str, latency_ms: int, now_ms: int) -> None:
        """An attempt was answered, whatever the answer said about the message."""
        pause_ms = unavailable_ms(latency_ms)
        trouble = self._troubles.get(broker_name)
        if trouble is None:
            if not pause_ms:
                return
            trouble = self._troubles[broker_name] = _Trouble()
        trouble.reachable = True
        trouble.until_ms = max(trouble.until_ms, now_ms + pause_ms)
        if trouble.until_ms <= now_ms:
            del self._troubles[broker_name]

    def failed(self, broker_name: str, now_ms: int) -> None:
        """An attempt found no connection or no answer in time, or the broker said that it cannot at present."""
        trouble = self._troubles.setdefault(broker_name, _Trouble())
        trouble.reachable = False
        trouble.until_ms = max(trouble.until_ms, now_ms + unavailable_ms(SEND_FAILURE_LATENCY_MS))

    def is_available(self, broker_name: str, now_ms: int) -> bool:
        trouble = self._troubles.get(broker_name)
        return trouble is None or trouble.until_ms <= now_ms

    def is_reachable(self, broker_name: str) -> bool:
        trouble = self._troubles.get(broker_name)
        return trouble is None or trouble.reachable

    def preferred(self, queues: Sequence[MessageQueue], failed: Collection[str], now_ms: int) -> Sequence[MessageQueue]:
        """The queues to choose from: of available brokers, else of reachable ones, else all.

        Brokers that `failed` for the same message are left out as long as there are others.
        """
        others = elsewhere(queues, failed)
        if not self._troubles:
            return others
        return (
            [queue for queue in others if self.is_available(queue.broker_name, now_ms)]
            or [queue for queue in others if self.is_reachable(queue.broker_name)]
            or others
        )

    # --- probes

    def unreachable(self) -> list[str]:
        """Brokers to probe."""
        return [name for name, trouble in self._troubles.items() if not trouble.reachable]

    def answered_probe(self, broker_name: str) -> None:
        """Reachable again. The time it is unavailable is not shortened."""
        trouble = self._troubles.get(broker_name)
        if trouble is not None:
            trouble.reachable = True

    def forget(self, broker_name: str) -> None:
        """The broker has no address any more."""
        self._troubles.pop(broker_name, None)
