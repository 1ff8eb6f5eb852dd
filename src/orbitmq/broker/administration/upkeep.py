"""Cleaning up at once instead of at the next round: 306, 316, 329.

Rules of this file
1. What cleans up by itself, retention, does it by the same rules here: only the hour of the day is not waited for.
2. The newest file of a consume queue stays even when nothing in it points into the log any more. RocketMQ removes it and
   numbers later messages from 0 again, below the offsets that groups have stored.

Source: RocketMQ remoting, admin requests served by the broker; broker, disk and retention.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from orbitmq.broker.offsets import OffsetTable
from orbitmq.broker.refusal import Refusal
from orbitmq.broker.topics import TopicTable
from orbitmq.protocol.remoting.commands import ResponseCode
from orbitmq.protocol.remoting.frame import Command, response
from orbitmq.protocol.remoting.peer import Peer
from orbitmq.store.store import MessageStore

logger = logging.getLogger("orbitmq.broker")


class UpkeepProcessor:
    def __init__(self, topics: TopicTable, offsets: OffsetTable, store: MessageStore) -> None:
        self.request_retention: Callable[[], None] | None = None
        """Has expired commit log files removed now; None where nothing is ever removed."""
        self._topics = topics
        self._offsets = offsets
        self._store = store

    def expired_log(self, command: Command, peer: Peer) -> Command:
        """Remove the commit log files that are older than `fileReservedTime` (329); answered before it is done."""
        if self.request_retention is None:
            raise Refusal(ResponseCode.SYSTEM_ERROR, "this broker removes no commit log files")
        self.request_retention()
        return response(command, ResponseCode.SUCCESS)

    def expired_queues(self, command: Command, peer: Peer) -> Command:
        """Remove the files of consume queues and key index that only speak of removed messages (306)."""
        paths = self._store.drop_first_segments(0)
        self._store.remove_paths(paths)
        logger.info("removing %d files of consume queues and key index, as asked", len(paths))
        return response(command, ResponseCode.SUCCESS)

    def unused_topics(self, command: Command, peer: Peer) -> Command:
        """Forget the queues of topics that are not in the topic table (316), with the offsets on them."""
        for topic in self._topics.unlisted(queue.topic for queue in self._store.queues):
            logger.info("removing the queues of %r, which is in no topic table, as asked", topic)
            self._store.delete_topic(topic)
            self._offsets.drop_topic(topic)
        return response(command, ResponseCode.SUCCESS)
