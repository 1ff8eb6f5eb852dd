"""A scripted broker that serves pops: one topic's queues, one group, in the time of the test's loop.

A message that is not acknowledged in its time comes again in its own queue, as a retry topic's message does: with its receipt and one
attempt more.
"""

from __future__ import annotations

import asyncio

import msgspec
from scripted_cluster import Broker, Cluster, Pipe

from orbitmq.protocol.pop_receipts import (
    PoppedQueue,
    PopReceipt,
    PopSource,
    decode_receipt,
    message_offset_info,
    start_offset_info,
)
from orbitmq.protocol.properties import decode_properties, encode_properties
from orbitmq.protocol.records import Record, encode_record
from orbitmq.protocol.remoting.bodies import (
    BatchAckBody,
    MessageQueueAssignment,
    QueryAssignmentResponse,
)
from orbitmq.protocol.remoting.codes import RequestCode, ResponseCode
from orbitmq.protocol.remoting.frame import Command, response

Key = tuple[str, int, int]
"""Topic, queue id and queue offset of a message."""


class PoppingBroker(Broker):
    """`in_flight`: pop time, time of return and record of what is popped. `settled`: what was acknowledged, or has come again.
    `assignment`: what a member is assigned."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        super().__init__(cluster, name, f"{name}:10911")
        self.in_flight: dict[Key, tuple[int, int, Record]] = {}
        self.settled: list[Key] = []
        self.again: list[Record] = []
        self.waiting: list[tuple[Pipe, Command]] = []
        self.assignment: list[MessageQueueAssignment] | None = []

    def now_ms(self) -> int:
        return int(asyncio.get_running_loop().time() * 1000)

    def put(self, number: int, body: bytes, **properties: str) -> None:
        """Store a message in queue `number` of topic T, and wake whoever waits."""
        self.store("T", number, body, **properties)
        self.wake()

    def wake(self) -> None:
        waiting, self.waiting = self.waiting, []
        for pipe, command in waiting:
            answer = self._popped(pipe, command)
            if answer is not None:
                pipe.send(answer)

    def handle(self, pipe: Pipe, command: Command) -> Command | None:
        match command.code:
            case RequestCode.QUERY_ASSIGNMENT:
                body = QueryAssignmentResponse(message_queue_assignments=self.assignment).encode()
                return response(command, ResponseCode.SUCCESS, body=body)
            case RequestCode.POP_MESSAGE:
                return self._popped(pipe, command)
            case RequestCode.BATCH_ACK_MESSAGE:
                for entry in BatchAckBody.decode(command.body).acks:
                    for bit in range(8 * len(entry.bit_set)):
                        if entry.bit_set[bit // 8] >> bit % 8 & 1:
                            key = (entry.topic, entry.queue_id, entry.start_offset + bit)
                            if key in self.in_flight and self.in_flight[key][0] == entry.pop_time:
                                del self.in_flight[key]
                                self.settled.append(key)
                return response(command, ResponseCode.SUCCESS)
            case RequestCode.CHANGE_MESSAGE_INVISIBLETIME:
                return self._change(command)
        return super().handle(pipe, command)

    def _popped(self, pipe: Pipe, command: Command) -> Command | None:
        now_ms, invisible_ms, queue_id = self.now_ms(), command.integer("invisibleTime"), command.integer("queueId")
        wanted = [record for (topic, _), records in self.queues.items() if topic == "T" for record in records]
        fresh = [
            record
            for record in [*self.again, *wanted]
            if queue_id in (-1, record.queue_id)
            and (record in self.again or ((key := _key(record)) not in self.in_flight and key not in self.settled))
        ][: command.integer("maxMsgNums")]  # fmt: skip
        if not fresh:
            self.waiting.append((pipe, command))
            asyncio.get_running_loop().call_later(command.integer("pollTime") / 1000, self._end_wait, pipe, command)
            return None
        popped: dict[int, list[int]] = {}
        for record in fresh:
            popped.setdefault(record.queue_id, []).append(record.queue_offset)
            if record in self.again:
                self.again.remove(record)
                receipt = PopReceipt(
                    record.queue_offset, now_ms, invisible_ms, 0, PopSource.NORMAL, self.name, record.queue_id, record.queue_offset
                )  # fmt: skip
                properties = decode_properties(record.properties) | {"POP_CK": receipt.encode()}
                record.properties = encode_properties(properties)
            self.hide(record, now_ms, now_ms + invisible_ms)
        queues = [PoppedQueue(PopSource.NORMAL, number, min(found), found) for number, found in popped.items()]
        fields = {
            "popTime": str(now_ms),
            "invisibleTime": str(invisible_ms),
            "reviveQid": "0",
            "startOffsetInfo": start_offset_info(queues),
            "msgOffsetInfo": message_offset_info(queues),
        }
        body = b"".join(encode_record(record) for record in fresh)
        return response(command, ResponseCode.SUCCESS, None, fields, body)

    def hide(self, record: Record, popped_ms: int, due_ms: int) -> None:
        """Until just after that time: a pop that ends then gets nothing of it."""
        self.in_flight[_key(record)] = (popped_ms, due_ms, record)
        asyncio.get_running_loop().call_later((due_ms + 1 - self.now_ms()) / 1000, self._come_again, record, due_ms)

    def _come_again(self, record: Record, due_ms: int) -> None:
        if _key(record) in self.in_flight and self.in_flight[_key(record)][1] == due_ms:
            del self.in_flight[_key(record)]
            again = msgspec.structs.replace(record, reconsume_times=record.reconsume_times + 1)
            self.settled.append(_key(record))
            self.again.append(again)
            self.wake()

    def _change(self, command: Command) -> Command:
        receipt = decode_receipt(command.text("extraInfo"))
        key = (command.text("topic"), command.integer("queueId"), command.integer("offset"))
        popped_ms, _, record = self.in_flight.get(key, (None, 0, None))
        if record is None or popped_ms != receipt.popped_ms:
            return response(command, ResponseCode.NO_MESSAGE, "not in flight")
        now_ms = max(self.now_ms(), receipt.popped_ms + 1)
        self.hide(record, now_ms, now_ms + command.integer("invisibleTime"))
        fields = {"popTime": str(now_ms), "invisibleTime": command.text("invisibleTime"), "reviveQid": "0"}
        return response(command, ResponseCode.SUCCESS, None, fields)

    def _end_wait(self, pipe: Pipe, command: Command) -> None:
        if (pipe, command) in self.waiting:
            self.waiting.remove((pipe, command))
            pipe.send(response(command, ResponseCode.POLLING_TIMEOUT, None, {}))


def _key(record: Record) -> Key:
    return record.topic, record.queue_id, record.queue_offset
