"""Receipt handles: the receipt of a pop, and where the message lies in the commit log.

Rules of this file
1. Whatever a client hands back that is no handle, or one whose time is over, has the code INVALID_RECEIPT_HANDLE.
2. A handle does not name its group, and a name in it proves nothing: whoever settles a message compares the handle with what is in flight.

Source: RocketMQ gRPC, receipt handle.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from orbitmq.errors import ProtocolError
from orbitmq.protocol.grpc.messages import Code
from orbitmq.protocol.grpc.status import RpcError
from orbitmq.protocol.pop_receipts import PopReceipt, split_receipt


class ReceiptHandle(msgspec.Struct, frozen=True, gc=False):
    """`physical_offset` is -1 where it is not known."""

    receipt: PopReceipt
    physical_offset: int

    def encode(self) -> str:
        return f"{self.receipt.encode()} {self.physical_offset}"

    def renewed(self, popped_ms: int, invisible_ms: int, revive_queue: int) -> ReceiptHandle:
        """The handle of the same message after its invisible time was changed."""
        receipt = msgspec.structs.replace(
            self.receipt, popped_ms=popped_ms, invisible_ms=invisible_ms, revive_queue=revive_queue
        )
        return ReceiptHandle(receipt, self.physical_offset)


def handles_of(first: PopReceipt) -> Callable[[int, int], str]:
    """Makes the handles of messages that one pop took of one queue, by queue offset and place in the log. `first`: the receipt of any."""
    shared, _, _ = first.encode().rpartition(" ")
    return lambda queue_offset, physical_offset: f"{shared} {queue_offset} {physical_offset}"


def read_handle(text: str, now_ms: int) -> ReceiptHandle:
    """What a handle says whose time is not over. Raises RpcError. 2.5 us."""
    handle = decode_handle(text)
    receipt = handle.receipt
    if receipt.popped_ms + receipt.invisible_ms <= now_ms:
        raise RpcError(Code.INVALID_RECEIPT_HANDLE, "the invisible time of this receipt handle is over")
    return handle


def decode_handle(text: str) -> ReceiptHandle:
    """What a handle says, whether or not its time is over. Raises RpcError."""
    try:
        receipt, rest = split_receipt(text)
    except ProtocolError as error:
        raise RpcError(Code.INVALID_RECEIPT_HANDLE, str(error)) from error
    offset = rest[0] if rest else "-1"
    if offset.isdigit() and offset.isascii() and len(offset) <= 18:
        return ReceiptHandle(receipt, int(offset))
    if offset == "-1":
        return ReceiptHandle(receipt, -1)
    raise RpcError(Code.INVALID_RECEIPT_HANDLE, "the receipt handle has no number where its place in the log stands")
