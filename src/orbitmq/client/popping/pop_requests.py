"""What a pop consumer asks of a broker, and what the answers say: fields, bodies and receipts.

Source: RocketMQ remoting, POP family; RocketMQ client, POP consumer.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from orbitmq.client.consuming.subscription import Subscription
from orbitmq.client.options import ConsumeFrom
from orbitmq.client.popping.pop_options import PopOptions
from orbitmq.errors import ProtocolError
from orbitmq.limits.client import POP_POLL_MS
from orbitmq.limits.pop import POP_ACK_BITS_BYTES_MAX
from orbitmq.protocol.pop_receipts import (
    PopReceipt,
    PopSource,
    decode_receipt,
    decode_start_offset_info,
    pop_retry_topic,
)
from orbitmq.protocol.properties import Property, find_property
from orbitmq.protocol.records import Record
from orbitmq.protocol.remoting.bodies import BatchAckBody, BatchAckEntry, MessageQueue
from orbitmq.protocol.remoting.codes import ResponseCode
from orbitmq.protocol.remoting.frame import Command

POP_ANSWERS = frozenset(
    {ResponseCode.SUCCESS, ResponseCode.PULL_NOT_FOUND, ResponseCode.POLLING_TIMEOUT, ResponseCode.POLLING_FULL}
)
"""What a broker may answer to a pop without anything being wrong."""

_POP_CK = Property.POP_CK.encode()


def pop_fields(
    group: str, queue: MessageQueue, subscription: Subscription, options: PopOptions, count: int, now_ms: int
) -> dict[str, str]:
    """A pop of `count` messages; `now_ms` is wall time."""
    return {
        "consumerGroup": group,
        "topic": queue.topic,
        "queueId": str(queue.queue_id),
        "maxMsgNums": str(count),
        "invisibleTime": str(options.invisible_ms),
        "pollTime": str(POP_POLL_MS),
        "bornTime": str(now_ms),
        "initMode": str(int(options.consume_from is ConsumeFrom.LAST)),
        "expType": subscription.expression_type,
        "exp": subscription.expression,
        "order": "false",
        "bname": queue.broker_name,
    }


def receipts_of(answer: Command, records: Iterable[Record], group: str, queue: MessageQueue) -> list[PopReceipt]:
    """The receipt of each message of an answer: its own where it carries one, as those of retry topics do. Raises ProtocolError."""
    popped_ms, invisible_ms = answer.integer("popTime"), answer.integer("invisibleTime")
    revive_queue = answer.integer("reviveQid")
    starts = decode_start_offset_info(answer.text("startOffsetInfo"))
    sources = {pop_retry_topic(group, queue.topic, source): source for source in PopSource}
    receipts = []
    for record in records:
        carried = find_property(record.properties, _POP_CK)
        if carried is not None:
            receipts.append(_checked(decode_receipt(carried)))
            continue
        source = sources.get(record.topic)
        start = None if source is None else starts.get((source, record.queue_id))
        if source is None or start is None:
            raise ProtocolError(
                f"a pop of {queue.topic!r} brought message {record.queue_offset} of {record.topic!r}/{record.queue_id}, "
                "of which its header says nothing"
            )
        receipts.append(
            _checked(
                PopReceipt(
                    start,
                    popped_ms,
                    invisible_ms,
                    revive_queue,
                    source,
                    queue.broker_name,
                    record.queue_id,
                    record.queue_offset,
                )
            )
        )
    return receipts


def _checked(receipt: PopReceipt) -> PopReceipt:
    """Raises ProtocolError for a receipt whose message does not lie in its pop."""
    if not 0 <= receipt.queue_offset - receipt.start_offset < 8 * POP_ACK_BITS_BYTES_MAX:
        raise ProtocolError(f"the receipt {receipt.encode()!r} names a message that no pop can have brought")
    return receipt


def change_fields(group: str, topic: str, receipt: PopReceipt, invisible_ms: int, *, suspended: bool) -> dict[str, str]:
    """Hide a message for another time, counted from now. suspended: it comes back without an attempt more; RocketMQ before 5.5 does
    not know that, and counts one."""
    return {
        "consumerGroup": group,
        "topic": pop_retry_topic(group, topic, receipt.source),
        "queueId": str(receipt.queue_id),
        "extraInfo": receipt.encode(),
        "offset": str(receipt.queue_offset),
        "invisibleTime": str(invisible_ms),
        "bname": receipt.broker_name,
        **({"suspend": "true"} if suspended else {}),
    }


def changed_receipt(receipt: PopReceipt, answer: Command) -> PopReceipt:
    """The receipt that holds from now on: of a pop of this message alone. Raises ProtocolError."""
    return msgspec.structs.replace(
        receipt,
        start_offset=receipt.queue_offset,
        popped_ms=answer.integer("popTime"),
        invisible_ms=answer.integer("invisibleTime"),
        revive_queue=answer.integer("reviveQid"),
    )


def acknowledgements(group: str, topic: str, broker_name: str, receipts: Iterable[PopReceipt]) -> BatchAckBody:
    """One body for all of them, those of one pop and queue as one bit set."""
    pops: dict[PopReceipt, int] = {}
    for receipt in receipts:
        pop = msgspec.structs.replace(receipt, queue_offset=0)
        pops[pop] = pops.get(pop, 0) | 1 << (receipt.queue_offset - receipt.start_offset)
    entries = [
        BatchAckEntry(
            consumer_group=group,
            topic=topic,
            retry=pop.source,
            start_offset=pop.start_offset,
            queue_id=pop.queue_id,
            revive_queue_id=pop.revive_queue,
            pop_time=pop.popped_ms,
            invisible_time=pop.invisible_ms,
            bit_set=bits.to_bytes((bits.bit_length() + 7) // 8, "little"),
        )
        for pop, bits in pops.items()
    ]
    return BatchAckBody(broker_name=broker_name, acks=entries)
