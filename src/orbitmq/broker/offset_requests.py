"""Requests about offsets: of groups (14, 15, 222) and of queues (29 to 32).

Rules of this file
1. Questions about a queue never fail: an unknown topic or queue has offset 0 and time -1.
2. An offset of a queue that does not exist is refused: RocketMQ stores it, and anybody could fill the table.
3. A stored offset may go backwards, or lie beyond the end of its queue: it is stored as it is, as with RocketMQ. One
   beyond the end is counted and logged: its next pull is sent back to the end, and what arrives in between is skipped.
4. A group without an offset on a young queue begins at 0, also while the queue is still empty: the client would else ask
   for the maximum and could skip a message that arrives in between.

Source: RocketMQ broker, offsets; remoting, offsets and offset administration.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import msgspec

from orbitmq.access.audit import About, Members, Subject
from orbitmq.broker.core import BrokerCore
from orbitmq.broker.refusal import Refusal, group_missing, topic_missing
from orbitmq.broker.room import RequestHandler, Room
from orbitmq.broker.table_saving import SavedTable
from orbitmq.limits.broker import NOTED_OFFSETS_MAX
from orbitmq.protocol.remoting.bodies import MessageQueue, ResetOffsetBody
from orbitmq.protocol.remoting.commands import BY_TOOL, RequestCode, ResponseCode
from orbitmq.protocol.remoting.frame import Command, response
from orbitmq.protocol.remoting.peer import Peer

logger = logging.getLogger("orbitmq.broker")

OFFSETS = "consumer offsets"
"""Name of the wake-up that saves them."""

NO_OFFSET = -1
"""What the admin tools send as `offset` when they mean none."""


class OffsetProcessor(Room):
    def __init__(
        self, core: BrokerCore, *, wake_reset: Sequence[Callable[[str, str, int], None]], beside: Sequence[SavedTable]
    ) -> None:
        """A queue is young while its first message lies at most `core.young_bytes` from the end of the log.

        `beside`: tables that are saved when the offsets are.

        Each of `wake_reset` (group, topic, queue id) is called after each reset, for pulls and pops of that group that wait.
        """
        self._settings = core.settings
        self._topics = core.topics
        self._groups = core.groups
        self._offsets = core.offsets
        self._clients = core.clients
        self._survivors = core.survivors
        self._store = core.store
        self._deadlines = core.deadlines
        self._worker = core.facilities.worker
        self._begins_at_zero = core.begins_at_zero
        self._wake_reset = wake_reset
        self._noted: set[str] = set()
        self._tables: tuple[SavedTable, ...] = (core.offsets, *beside)
        self._saving_count = 0
        core.deadlines.define(OFFSETS, self._save)

    # --- as a room of the broker --------------------------------------------------------------------------------------

    def handlers(self) -> Mapping[RequestCode, RequestHandler]:
        code = RequestCode
        return {
            code.QUERY_CONSUMER_OFFSET: self.query,
            code.UPDATE_CONSUMER_OFFSET: self.update,
            code.SEARCH_OFFSET_BY_TIMESTAMP: self.search,
            code.GET_MAX_OFFSET: self.maximum,
            code.GET_MIN_OFFSET: self.minimum,
            code.GET_EARLIEST_MSG_STORETIME: self.earliest,
            code.GET_ALL_CONSUMER_OFFSET: self.all_offsets,
            code.INVOKE_BROKER_TO_RESET_OFFSET: self.reset,
        }

    def subjects(self) -> Mapping[RequestCode, Subject]:
        return {
            RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: lambda command, _: self._about(command, "group"),
            RequestCode.UPDATE_CONSUMER_OFFSET: self._about_commit,
        }

    def _about(self, command: Command, group_field: str) -> About:
        group, topic = command.text(group_field), command.text("topic")
        return About(lambda: {"offsets": Members(json.dumps(dict(self._offsets.queues(group, topic))))})

    def _about_commit(self, command: Command, peer: Peer) -> About | None:
        """A commit is administration when a tool sends it that says so, or when an offset goes back and who does that is no member:
        so do the tools of RocketMQ."""
        if BY_TOOL not in command.fields:
            group, queue_id = command.text("consumerGroup"), command.int32("queueId")
            offset = self._offsets.query(group, command.text("topic"), queue_id)
            if offset is None or command.integer("commitOffset") >= offset:
                return None
            members = self._clients.consumer(group)
            if members is not None and peer in members.members:
                return None
        return self._about(command, "consumerGroup")

    def arm(self, now_ns: int) -> None:
        if not self._saving_count and any(table.dirty for table in self._tables):
            self._deadlines.arm(OFFSETS, now_ns + self._settings.flush_consumer_offset_interval_ms * 1_000_000)

    def facts(self) -> Mapping[str, object]:
        return {
            "orbitmqOffsetsNotKept": self._offsets.refused_count,
            "orbitmqOffsetsBeyondEnd": self._offsets.beyond_end_count,
        }

    def close(self) -> None:
        self._save()

    def _save(self) -> None:
        """Hand snapshots of what has changed to the worker; a table is dirty again when that fails."""
        for table in self._tables:
            if table.dirty:
                self._saving_count += 1
                self._worker.submit(table.snapshot(), partial(self._saved, table))

    def _saved(self, table: SavedTable, result: object) -> None:
        self._saving_count -= 1
        if isinstance(result, BaseException):
            logger.error("consumer offsets could not be saved: %s; they are tried again", result)
            table.dirty = True

    # --- offsets of groups ------------------------------------------------------------------------------------------

    def query(self, command: Command, peer: Peer) -> Command:
        group, topic = command.text("consumerGroup"), command.text("topic")
        queue_id = command.int32("queueId")
        offset = self._offsets.query(group, topic, queue_id)
        self._survivors.asked(group, topic, queue_id, peer)
        if offset is None:
            if not command.boolean("setZeroIfNotFound", True):
                raise Refusal(
                    ResponseCode.QUERY_NOT_FOUND, f"group {group!r} has no offset on queue {queue_id} of {topic!r}", {}
                )
            if not self._begins_at_zero(topic, queue_id):
                raise Refusal(
                    ResponseCode.QUERY_NOT_FOUND,
                    f"group {group!r} has no offset on queue {queue_id} of {topic!r}, "
                    "which is too old to begin with its first message",
                    {},
                )
            offset = 0
        return response(command, ResponseCode.SUCCESS, None, {"offset": str(offset)})

    def update(self, command: Command, peer: Peer) -> Command:
        group, topic = command.text("consumerGroup"), command.text("topic")
        if self._groups.known(group) is None:
            raise group_missing(group)
        config = self._topics.get(topic)
        if config is None:
            raise topic_missing(topic)
        queue_id, offset = command.optional_integer("queueId"), command.optional_integer("commitOffset")
        if queue_id is None or offset is None:
            missing = "queueId" if queue_id is None else "commitOffset"
            raise Refusal(ResponseCode.INVALID_PARAMETER, f"the request has no {missing} (topic {topic!r})", {})
        queues_count = max(config.read_queue_nums, config.write_queue_nums)
        if not 0 <= queue_id < queues_count and self._store.queues.get(topic, queue_id) is None:
            raise Refusal(
                ResponseCode.INVALID_PARAMETER,
                f"queue {queue_id} of topic {topic!r} does not exist: it has {queues_count} queues",
                {},
            )
        if offset > self._store.max_offset(topic, queue_id):
            self._note_beyond_end(group, topic, queue_id, offset)
        offset = self._survivors.committed(group, topic, queue_id, offset, peer)
        if self._offsets.commit(group, topic, queue_id, offset):
            return response(command, ResponseCode.SUCCESS, None, {})
        return response(
            command,
            ResponseCode.SUCCESS,
            "ignored: the offset of this queue has been reset and not yet been pulled",
            {},
        )

    def _note_beyond_end(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Count it; log it once for each group and topic, as far as these are remembered."""
        self._offsets.beyond_end_count += 1
        name = f"{topic}@{group}"
        if name not in self._noted and len(self._noted) < NOTED_OFFSETS_MAX:
            self._noted.add(name)
            logger.warning(
                "group %s committed offset %d on queue %d of %s, which ends at %d; was the topic deleted and made again?",
                group, offset, queue_id, topic, self._store.max_offset(topic, queue_id),
            )  # fmt: skip

    def reset(self, command: Command, peer: Peer) -> Command:
        """Reset by the broker (222): by time, or to a given offset of one queue. The targets are the answer's body."""
        group, topic = command.text("group"), command.text("topic")
        config = self._topics.get(topic)
        if config is None:
            raise topic_missing(topic)
        if self._groups.known(group) is None:
            raise group_missing(group)
        queue_id, offset = command.int32("queueId", -1), command.integer("offset", NO_OFFSET)
        timestamp = command.integer("timestamp")
        if queue_id >= config.read_queue_nums:
            raise Refusal(
                ResponseCode.INVALID_PARAMETER,
                f"queue {queue_id} of topic {topic!r} does not exist: it has {config.read_queue_nums} read queues",
            )
        if queue_id >= 0 and offset != NO_OFFSET:
            low, high = self._store.min_offset(topic, queue_id), self._store.max_offset(topic, queue_id)
            if not low <= offset <= high + 1:
                raise Refusal(
                    ResponseCode.SYSTEM_ERROR,
                    f"offset {offset} lies outside queue {queue_id} of {topic!r}: from {low} to {high}",
                )
            targets = {queue_id: offset}
        else:
            queues = [queue_id] if queue_id >= 0 else range(config.read_queue_nums)
            targets = {queue: self._by_time(topic, queue, timestamp) for queue in queues}
        for queue, target in targets.items():
            self._offsets.reset(group, topic, queue, target)
            for wake in self._wake_reset:
                wake(group, topic, queue)
        name = self._settings.broker_name
        body = ResetOffsetBody(
            offset_table={
                MessageQueue(topic=topic, broker_name=name, queue_id=queue): target for queue, target in targets.items()
            }
        )
        return response(command, ResponseCode.SUCCESS, None, None, body.encode())

    # --- offsets of queues ------------------------------------------------------------------------------------------

    def search(self, command: Command, peer: Peer) -> Command:
        upper = command.text("boundaryType").lower() == "upper"
        topic, queue_id, timestamp = command.text("topic"), command.int32("queueId"), command.integer("timestamp")
        self._survivors.asked_end(topic, queue_id, peer)
        return _offset(command, self._store.offset_by_time(topic, queue_id, timestamp, upper=upper))

    def maximum(self, command: Command, peer: Peer) -> Command:
        topic, queue_id = command.text("topic"), command.int32("queueId")
        self._survivors.asked_end(topic, queue_id, peer)
        return _offset(command, self._store.max_offset(topic, queue_id))

    def minimum(self, command: Command, peer: Peer) -> Command:
        return _offset(command, self._store.min_offset(command.text("topic"), command.int32("queueId")))

    def earliest(self, command: Command, peer: Peer) -> Command:
        topic, queue_id = command.text("topic"), command.int32("queueId")
        time_ms = self._store.store_time_at(topic, queue_id, self._store.min_offset(topic, queue_id))
        return response(command, ResponseCode.SUCCESS, None, {"timestamp": str(time_ms)})

    def all_offsets(self, command: Command, peer: Peer) -> Command:
        """Every stored offset (43), as slaves and tools copy them."""
        return response(command, ResponseCode.SUCCESS, None, None, msgspec.json.encode(self._offsets.document()))

    # --- inside -----------------------------------------------------------------------------------------------------

    def _by_time(self, topic: str, queue_id: int, timestamp: int) -> int:
        if timestamp < 0:
            return self._store.max_offset(topic, queue_id)
        return self._store.offset_by_time(topic, queue_id, timestamp)


def _offset(command: Command, offset: int) -> Command:
    return response(command, ResponseCode.SUCCESS, None, {"offset": str(offset)})
