"""Locks of message queues at their brokers, for consumers in order.

A lock says that no other member of the group consumes the queue. It is advisory: members that consume in order respect it.

Rules of this file
1. A queue is taken only with its lock, and given up together with it.
2. Locks are renewed every 20 s, and every second while a broker does not answer. A broker keeps a lock for 60 s, this client believes
   in it for 30 s (`feed.LOCK_LIFE_MS`): it stops before anybody else can start.
3. A lock that was refused, or was uncertain for a while, is lost: another member may have gone on in the queue. The queue is dropped
   without writing its offset, and taken anew from the group's offset when the lock can be had.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from orbitmq.client._async.connecting.network import Network
from orbitmq.client._async.connecting.routes import Routes
from orbitmq.errors import ClientError, ProtocolError
from orbitmq.limits.client import QUEUE_LOCK_LIFE_MS, QUEUE_LOCK_RENEW_MS, QUEUE_LOCK_TIMEOUT_MS
from orbitmq.protocol.remoting.bodies import LockBatchRequest, LockBatchResponse, MessageQueue
from orbitmq.protocol.remoting.codes import RequestCode

# A renewal in time never finds a lock uncertain.
assert QUEUE_LOCK_RENEW_MS + QUEUE_LOCK_TIMEOUT_MS < QUEUE_LOCK_LIFE_MS


class ConsumerLocks:
    """The locks of one consumer; who holds which is known by the brokers only."""

    def __init__(self, network: Network, routes: Routes, client_id: str, group: str) -> None:
        self._network = network
        self._routes = routes
        self._client_id = client_id
        self._group = group

    async def lock(self, queues: Iterable[MessageQueue]) -> dict[MessageQueue, bool]:
        """Take or renew locks: which are ours now and which another member has. A broker that does not answer is left out."""
        outcome: dict[MessageQueue, bool] = {}
        for broker_name, mine in _by_broker(queues).items():
            try:
                answer = await self._network.request(
                    self._master(broker_name),
                    RequestCode.LOCK_BATCH_MQ,
                    {},
                    self._body(mine),
                    timeout_ms=QUEUE_LOCK_TIMEOUT_MS,
                    doing=f"locking queues of broker {broker_name}",
                )
                granted = set(LockBatchResponse.decode(answer.body).lock_ok_mq_set)
            except (ClientError, ProtocolError) as error:
                self._network.troubles.failed(self._locking(broker_name), error)
                continue
            self._network.troubles.worked(self._locking(broker_name))
            outcome.update((queue, queue in granted) for queue in mine)
        return outcome

    async def unlock(self, queues: Iterable[MessageQueue]) -> None:
        """Free locks, so that others need not wait until they expire."""
        for broker_name, mine in _by_broker(queues).items():
            try:
                await self._network.request(
                    self._master(broker_name),
                    RequestCode.UNLOCK_BATCH_MQ,
                    {},
                    self._body(mine),
                    timeout_ms=QUEUE_LOCK_TIMEOUT_MS,
                    doing=f"unlocking queues of broker {broker_name}",
                )
            except ClientError as error:
                self._network.troubles.failed(f"unlocking queues of group {self._group} at broker {broker_name}", error)

    def _master(self, broker_name: str) -> str:
        address = self._routes.master(broker_name)
        if address is None:
            raise ClientError(f"no master of broker {broker_name} is known", remedy="locks are kept by master brokers")
        return address

    def _locking(self, broker_name: str) -> str:
        return f"locking queues of group {self._group} at broker {broker_name}"

    def _body(self, queues: list[MessageQueue]) -> bytes:
        return LockBatchRequest(client_id=self._client_id, consumer_group=self._group, mq_set=queues).encode()


def _by_broker(queues: Iterable[MessageQueue]) -> dict[str, list[MessageQueue]]:
    found: defaultdict[str, list[MessageQueue]] = defaultdict(list)
    for queue in queues:
        found[queue.broker_name].append(queue)
    return found
