"""The queues of topics, also of brokers that are away: a key leads to the same broker whether it is there or not.

A broker alone knows which keys were sent to it. While it is away, routes do not name it, and a repeat that follows the routes would be
stored at another one.

Rules of this file
1. No I/O, no clock: `now_ms` is monotonic and passed in.
2. A broker that a route has named and the next one does not is away. It is so until a route names it again, for `AWAY_BROKER_MS_MAX`
   at most.
3. What no route has named since the program began is not known. An order configuration at the name servers names it: see the guide.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from hashlib import blake2b
from typing import NamedTuple

from orbitmq.client.route import Route
from orbitmq.limits.client import AWAY_BROKER_MS_MAX, AWAY_BROKERS_MAX
from orbitmq.protocol.remoting.bodies import MessageQueue


class _Away(NamedTuple):
    since_ms: int
    queues: tuple[MessageQueue, ...]


class AwayQueues:
    """Of brokers that are away, by topic."""

    __slots__ = ("_away",)

    def __init__(self) -> None:
        self._away: dict[str, dict[str, _Away]] = {}

    def changed(self, before: Route, route: Route, now_ms: int) -> None:
        """A route was replaced by another one of the same topic."""
        present = {queue.broker_name for queue in route.publish_queues}
        away = self._away.pop(route.topic, {})
        for queue in before.publish_queues:
            name = queue.broker_name
            if name not in present and name not in away and len(away) < AWAY_BROKERS_MAX:
                away[name] = _Away(now_ms, tuple(each for each in before.publish_queues if each.broker_name == name))
        left = {
            name: each
            for name, each in away.items()
            if name not in present and now_ms - each.since_ms < AWAY_BROKER_MS_MAX
        }
        if left:
            self._away[route.topic] = left

    def with_those_away(
        self, topic: str, present: Sequence[MessageQueue], within_ms: int, now_ms: int
    ) -> Sequence[MessageQueue]:
        """The queues of a route and those of brokers that have been away for less than `within_ms`, ordered as in a route."""
        away = self._away.get(topic)
        if not away:
            return present
        more = [queue for each in away.values() if now_ms - each.since_ms < within_ms for queue in each.queues]
        return sorted([*present, *more], key=lambda queue: (queue.broker_name, queue.queue_id)) if more else present


def broker_of_key(names: Collection[str], key: str) -> str:
    """Which of these brokers remembers a key, whoever asks: the one with the highest hash of both names (rendezvous hashing). Of `n`
    brokers another one more takes each nth key and no other changes its broker; neither does the number of queues. Cost: about 1 us
    for each broker."""
    text = f"\0{key}".encode("utf-8", "surrogatepass")
    return max(sorted(names), key=lambda name: blake2b(name.encode() + text, digest_size=8).digest())
