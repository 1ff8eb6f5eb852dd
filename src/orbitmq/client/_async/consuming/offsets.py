"""Offsets of a consumer group at the brokers: read when a queue is taken, written as messages are settled.

Rules of this file
1. Regular writes expect no answer: a lost one is followed by a newer one. The write before a queue is given up waits for its answer,
   because nobody writes after it.
2. Without a stored offset the start is decided by `offset_table.start_lookup`; an error leaves the queue untaken.
"""

from __future__ import annotations

from collections.abc import Iterable

from orbitmq.client._async.connecting.network import Network
from orbitmq.client._async.connecting.routes import Routes
from orbitmq.client._async.runtime import Seldom, log, monotonic_ms
from orbitmq.client.consuming.offset_table import Lookup, OwnedOffsets, start_lookup
from orbitmq.client.options import ConsumerOptions
from orbitmq.errors import ClientError, ConnectionLostError
from orbitmq.limits.client import CONSUMER_OFFSET_TIMEOUT_MS
from orbitmq.protocol.names import RETRY_PREFIX
from orbitmq.protocol.remoting.bodies import MessageQueue
from orbitmq.protocol.remoting.codes import RequestCode, ResponseCode

_FOUND_OR_NOT = (ResponseCode.SUCCESS, ResponseCode.QUERY_NOT_FOUND)


class GroupOffsets:
    """The offsets of one consumer's queues, in memory and at the brokers."""

    def __init__(self, network: Network, routes: Routes, group: str, options: ConsumerOptions) -> None:
        self._network = network
        self._routes = routes
        self._group = group
        self._options = options
        self.table = OwnedOffsets()
        self._seldom = Seldom()

    def open(self) -> None:
        """Before anything is read."""

    def close(self) -> None:
        """After everything was written."""

    async def start(self, queue: MessageQueue) -> int:
        """Where to begin on a queue just taken; the table knows it afterwards. Errors mean: do not take it now."""
        stored = offset = await self._stored(queue)
        if offset is None:
            lookup = start_lookup(self._options.consume_from, retry_topic=queue.topic.startswith(RETRY_PREFIX))
            offset = await self._look_up(queue, lookup)
        self.table.start(queue, offset, is_stored=stored is not None)
        return offset

    async def persist(self) -> None:
        """Write what changed, without waiting for answers."""
        for queue, offset in self.table.changed().items():
            try:
                await self._network.post(
                    self._address(queue),
                    RequestCode.UPDATE_CONSUMER_OFFSET,
                    self._commit_fields(queue, offset),
                    timeout_ms=CONSUMER_OFFSET_TIMEOUT_MS,
                )
                self.table.written(queue, offset)
                self._network.troubles.worked(self._subject(queue))
            except ClientError as error:
                self._network.troubles.failed(self._subject(queue), error)

    async def persist_surely(self, queues: Iterable[MessageQueue], timeout_ms: int) -> None:
        """Write what changed of `queues` and wait for the answers, all within `timeout_ms`. A failure means redelivery; it is logged, but
        of a broker that is away, of which that is said already."""
        deadline_ms = monotonic_ms() + timeout_ms
        for queue, offset in self.table.changed(queues).items():
            try:
                await self._network.request(
                    self._address(queue),
                    RequestCode.UPDATE_CONSUMER_OFFSET,
                    self._commit_fields(queue, offset),
                    timeout_ms=max(deadline_ms - monotonic_ms(), 1),
                    doing=f"committing offset {offset} of {_name(queue)}",
                )
                self.table.written(queue, offset)
            except ConnectionLostError as error:
                log.debug("offset %d of %s was not written: %s", offset, _name(queue), error)
            except ClientError as error:
                unlogged = self._seldom.due()
                if unlogged is not None:
                    log.warning(
                        "offset %d of %s was not written, later messages may be delivered again: %s%s",
                        offset,
                        _name(queue),
                        error,
                        f"; {unlogged} like it before were not logged" if unlogged else "",
                    )

    async def _stored(self, queue: MessageQueue) -> int | None:
        answer = await self._network.request(
            self._address(queue),
            RequestCode.QUERY_CONSUMER_OFFSET,
            {**self._queue_fields(queue), "consumerGroup": self._group},
            timeout_ms=CONSUMER_OFFSET_TIMEOUT_MS,
            doing=f"reading the offset of {_name(queue)}",
            accept=_FOUND_OR_NOT,
        )
        if answer.code == ResponseCode.QUERY_NOT_FOUND:
            return None
        offset = answer.optional_integer("offset")
        if offset is None:  # to begin by the policy instead could skip messages
            raise ClientError(f"the broker has an offset of {_name(queue)} and does not say which")
        return offset if offset >= 0 else None

    async def _look_up(self, queue: MessageQueue, lookup: Lookup) -> int:
        if lookup is Lookup.ZERO:
            return 0
        fields = self._queue_fields(queue)
        code = RequestCode.GET_MAX_OFFSET
        if lookup is Lookup.BY_TIME:
            code = RequestCode.SEARCH_OFFSET_BY_TIMESTAMP
            fields["timestamp"] = str(self._options.from_timestamp_ms)
        answer = await self._network.request(
            self._address(queue),
            code,
            fields,
            timeout_ms=CONSUMER_OFFSET_TIMEOUT_MS,
            doing=f"finding the start offset of {_name(queue)}",
        )
        offset = answer.optional_integer("offset")
        if offset is None or offset < 0:
            raise ClientError(f"the broker named no start offset of {_name(queue)}")
        return offset

    def _address(self, queue: MessageQueue) -> str:
        address = self._routes.reader(queue.broker_name)
        if address is None:
            raise self._routes.no_address(queue.broker_name)
        return address

    def _subject(self, queue: MessageQueue) -> str:
        return f"writing offsets of group {self._group} to broker {queue.broker_name}"

    def _queue_fields(self, queue: MessageQueue) -> dict[str, str]:
        return {"topic": queue.topic, "queueId": str(queue.queue_id), "bname": queue.broker_name}

    def _commit_fields(self, queue: MessageQueue, offset: int) -> dict[str, str]:
        return {**self._queue_fields(queue), "consumerGroup": self._group, "commitOffset": str(offset)}


def _name(queue: MessageQueue) -> str:
    return f"{queue.topic} {queue.broker_name}/{queue.queue_id}"
