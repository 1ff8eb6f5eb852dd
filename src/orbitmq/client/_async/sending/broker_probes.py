"""Asking unreachable brokers whether they are back.

Rules of this file
1. Runs only while some broker of the producer is unreachable.
2. Any answer counts, whatever it says; a broker without an address is forgotten.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orbitmq.client._async.runtime import Tasks, log, sleep_ms
from orbitmq.client.sending.slow_brokers import SlowBrokers
from orbitmq.errors import ClientError
from orbitmq.limits.client import BROKER_PROBE_INTERVAL_MS, BROKER_PROBE_TIMEOUT_MS
from orbitmq.protocol.remoting.codes import RequestCode

if TYPE_CHECKING:
    from orbitmq.client._async.parts import ClientContext


class BrokerProbes:
    """Probes for one producer's table of slow brokers."""

    def __init__(self, client: ClientContext, slow: SlowBrokers, owner: str) -> None:
        self._client = client
        self._slow = slow
        self._tasks = Tasks(owner)

    def needed(self) -> None:
        """A broker became unreachable."""
        if not len(self._tasks):
            self._tasks.spawn(self._probe_while_needed(), "broker probes")

    async def close(self) -> None:
        await self._tasks.close()

    async def _probe_while_needed(self) -> None:
        while self._slow.unreachable():
            await sleep_ms(BROKER_PROBE_INTERVAL_MS)
            for broker_name in self._slow.unreachable():
                await self._probe(broker_name)

    async def _probe(self, broker_name: str) -> None:
        routes = self._client.routes
        address, topic = routes.master(broker_name), routes.topic_on(broker_name)
        if address is None or topic is None:
            self._slow.forget(broker_name)
            return
        try:
            await self._client.network.invoke(
                address,
                RequestCode.GET_MAX_OFFSET,
                {"topic": topic, "queueId": "0"},
                timeout_ms=BROKER_PROBE_TIMEOUT_MS,
            )
        except ClientError as error:
            log.debug("broker %s is still unreachable: %s", broker_name, error)
        else:
            self._slow.answered_probe(broker_name)
