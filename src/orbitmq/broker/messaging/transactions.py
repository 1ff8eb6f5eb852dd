"""EndTransaction: a producer commits or rolls back what it sent as a transaction, by topic and id.

Rules of this file
1. The half messages are found by the transaction id within the topic, as long as they are undecided and for as long as the log has them
   (`broker/transactions`): nothing is kept here.
2. The answer leaves when the decision is safe, and says what became of it. RocketMQ's proxy says OK whatever its broker makes of it.
3. A client that does not know yet (no resolution) changes nothing, and is told OK.

Source: RocketMQ gRPC, transactions.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Final

from orbitmq.broker.messaging.served_calls import ServedCall
from orbitmq.broker.transactions.ending import DecisionById, TransactionEndings, UnknownTransactionRefusal
from orbitmq.broker.transactions.records import Ending
from orbitmq.protocol.grpc.decoding import read_message
from orbitmq.protocol.grpc.messages import (
    Code,
    EndTransactionRequest,
    EndTransactionResponse,
    TransactionResolution,
    TransactionSource,
)
from orbitmq.protocol.grpc.open_call import OpenCall
from orbitmq.protocol.grpc.resource_names import topic_of
from orbitmq.protocol.grpc.rpcs import Rpc
from orbitmq.protocol.grpc.status import RpcError, status_of
from orbitmq.store.durability import PutStatus

ENDINGS: Final[Mapping[int, Ending]] = {
    TransactionResolution.COMMIT: Ending.COMMITTED,
    TransactionResolution.ROLLBACK: Ending.ROLLED_BACK,
}

IS_ANSWER: Final[Mapping[int, bool]] = {
    TransactionSource.SOURCE_CLIENT: False,
    TransactionSource.SOURCE_SERVER_CHECK: True,
}
"""Whether a decision answers a check, by its source. Go never says one."""

CODES: Final = {
    PutStatus.PUT_OK: Code.OK,
    PutStatus.FLUSH_DISK_TIMEOUT: Code.MASTER_PERSISTENCE_TIMEOUT,
    PutStatus.FLUSH_SLAVE_TIMEOUT: Code.SLAVE_PERSISTENCE_TIMEOUT,
    PutStatus.SLAVE_NOT_AVAILABLE: Code.HA_NOT_AVAILABLE,
    PutStatus.UNKNOWN: Code.INTERNAL_SERVER_ERROR,
    PutStatus.SERVICE_NOT_AVAILABLE: Code.INTERNAL_SERVER_ERROR,
}


class TransactionCalls:
    def __init__(self, endings: TransactionEndings) -> None:
        self._endings = endings

    def calls(self) -> Mapping[Rpc, ServedCall]:
        return {Rpc.END_TRANSACTION: ServedCall(partial(read_message, EndTransactionRequest), self.end)}

    def end(self, call: OpenCall, request: EndTransactionRequest) -> None:
        """Raises RpcError for a request that is wrong, and for an id that nobody knows."""
        topic = topic_of(request.topic)
        if not request.transaction_id.strip():
            raise RpcError(Code.INVALID_TRANSACTION_ID, "the request has no transaction_id")
        if request.resolution == TransactionResolution.TRANSACTION_RESOLUTION_UNSPECIFIED:
            _answer(call, PutStatus.PUT_OK)
            return
        ending = ENDINGS.get(request.resolution)
        if ending is None:
            raise RpcError(Code.BAD_REQUEST, f"resolution is 0, 1 (commit) or 2 (rollback), not {request.resolution}")
        decision = DecisionById(ending, topic, request.transaction_id, IS_ANSWER.get(request.source))
        try:
            is_new = self._endings.end_by_id(decision, partial(_answer, call))
        except UnknownTransactionRefusal as refusal:
            raise RpcError(Code.NOT_FOUND, refusal.remark) from refusal
        if not is_new:
            _answer(call, PutStatus.PUT_OK)


def _answer(call: OpenCall, status: PutStatus) -> None:
    """The decision is stored, or was before; or it may be lost."""
    if not call.is_wanted:
        return
    text = "" if status is PutStatus.PUT_OK else f"the decision was not stored safely: {status.name}"
    call.answer(EndTransactionResponse(status=status_of(CODES[status], text)).SerializeToString())
    call.end()
