"""Routes that were answered, in the bytes that clients are sent, to be sent again.

A route of a thousand queues takes milliseconds to make, and every client of a topic asks for it when it starts and each 30 s.

Rules of this file
1. A route is found by everything that it is made of. Nothing has to be dropped when a topic or a broker changes: what was made of it
   before is asked for no more, and makes room for others.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Final, NamedTuple

from orbitmq.broker.assignment.routes import TopicBroker
from orbitmq.limits.grpc import ROUTES_KEPT_BYTES_MAX
from orbitmq.protocol.grpc.rpcs import Rpc

_KEY_BYTES: Final = 500
_BROKER_BYTES: Final = 300
"""About what a key takes beside its bytes, and each broker in it."""


class RouteKey(NamedTuple):
    """What an answer is made of. `topic` and `endpoints` are messages as they travel; `kind`: what a topic takes, or how it is assigned."""

    rpc: Rpc
    topic: bytes
    endpoints: bytes
    brokers: tuple[TopicBroker, ...]
    kind: str

    @property
    def memory_bytes(self) -> int:
        return _KEY_BYTES + len(self.topic) + len(self.endpoints) + _BROKER_BYTES * len(self.brokers)


class KeptRoutes:
    def __init__(self) -> None:
        self._answers: OrderedDict[RouteKey, bytes] = OrderedDict()
        """Those asked for last at the end."""
        self.memory_bytes = 0

    def find(self, key: RouteKey, make: Callable[[], bytes]) -> bytes:
        """The answer that `make` makes, made anew if it is not kept. That nobody has the topic is not."""
        if not key.brokers:
            return make()
        answer = self._answers.get(key)
        if answer is None:
            answer = make()
            self._keep(key, answer)
        else:
            self._answers.move_to_end(key)
        return answer

    def _keep(self, key: RouteKey, answer: bytes) -> None:
        size = key.memory_bytes + len(answer)
        if size > ROUTES_KEPT_BYTES_MAX:
            return
        while self.memory_bytes + size > ROUTES_KEPT_BYTES_MAX:
            old_key, old = self._answers.popitem(last=False)
            self.memory_bytes -= old_key.memory_bytes + len(old)
        self._answers[key] = answer
        self.memory_bytes += size
