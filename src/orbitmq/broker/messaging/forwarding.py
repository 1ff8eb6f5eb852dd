"""Forwarding: a popped message becomes a dead letter of its group, and is settled when that is stored.

Rules of this file
1. Only a message that is in flight by the pop that is named is forwarded: a place in the log that somebody names reaches no other record.
2. It is settled after the copy is as safe as an answer to a send is. Until then it comes back when its invisible time is over, so a crash
   in between stores it twice and never loses it.

Source: RocketMQ gRPC, ForwardMessageToDeadLetterQueue; ReceiveMessage, post-filter.
"""

from __future__ import annotations

from collections.abc import Callable

from orbitmq.broker.core import BrokerCore
from orbitmq.broker.pop.pops import Pops
from orbitmq.broker.pop.settling import PoppedMessage
from orbitmq.broker.refusal import Refusal
from orbitmq.broker.send_back import GivenBack, SendBacks
from orbitmq.protocol.grpc.messages import Code
from orbitmq.protocol.grpc.status import RpcError
from orbitmq.store.durability import PutStatus

AT_ONCE = -1
"""The delay level that makes a dead letter, whatever the number of attempts."""


class Forwarding:
    def __init__(self, core: BrokerCore, pops: Pops, send_backs: SendBacks) -> None:
        self._store = core.store
        self._pops = pops
        self._send_backs = send_backs

    def forward(
        self, message: PoppedMessage, physical_offset: int, topic: str, told: Callable[[PutStatus], None]
    ) -> None:
        """`told` hears once what became of the copy. `topic`: what the group consumes, also where the message lies in a retry topic.

        Raises RpcError for a message that is not in flight, Refusal, and RecordsNotInMemory, before anything is changed.
        """
        self._check(message, physical_offset)
        wish = GivenBack(message.queue.group, physical_offset, AT_ONCE, origin_topic=topic)

        def stored(status: PutStatus) -> None:
            if status.satisfies_flush:
                self._settle(message)
            told(status)

        if not self._send_backs.send_back(wish, stored, waits_for_flush=True):  # the group keeps none
            stored(PutStatus.PUT_OK)

    def _check(self, message: PoppedMessage, physical_offset: int) -> None:
        key, offset, pop = message
        queue = self._store.queues.get(key.topic, key.queue_id)
        unit = None if queue is None else queue.unit(offset)
        if unit is None or unit[0] != physical_offset or not self._pops.settling.is_in_flight(key, offset, pop):
            raise RpcError(Code.INVALID_RECEIPT_HANDLE, "no message is in flight with this receipt handle")

    def _settle(self, message: PoppedMessage) -> None:
        try:
            self._pops.settling.acknowledge(*message)
        except Refusal:
            """Its queue was deleted meanwhile."""
