"""The table of RPCs: for each its shape, its request message, and which request of remoting needs the same permission.

Rules of this file
1. A method that has no row is unknown; one whose row is not served ends with the same gRPC status, UNIMPLEMENTED, as in RocketMQ.

Source: RocketMQ gRPC, RPC list, authorisation.
"""

from __future__ import annotations

from enum import Enum, StrEnum
from typing import Final, NamedTuple

from orbitmq.limits.grpc import REQUEST_BYTES_MAX, SEND_REQUEST_BYTES_MAX
from orbitmq.protocol.remoting.codes import RequestCode

PACKAGE: Final = "apache.rocketmq.v2"
SERVICE: Final = f"{PACKAGE}.MessagingService"


class Rpc(StrEnum):
    """The values are the names on the wire."""

    QUERY_ROUTE = "QueryRoute"
    HEARTBEAT = "Heartbeat"
    SEND_MESSAGE = "SendMessage"
    QUERY_ASSIGNMENT = "QueryAssignment"
    RECEIVE_MESSAGE = "ReceiveMessage"
    ACK_MESSAGE = "AckMessage"
    FORWARD_MESSAGE_TO_DEAD_LETTER_QUEUE = "ForwardMessageToDeadLetterQueue"
    PULL_MESSAGE = "PullMessage"
    UPDATE_OFFSET = "UpdateOffset"
    GET_OFFSET = "GetOffset"
    QUERY_OFFSET = "QueryOffset"
    END_TRANSACTION = "EndTransaction"
    TELEMETRY = "Telemetry"
    NOTIFY_CLIENT_TERMINATION = "NotifyClientTermination"
    CHANGE_INVISIBLE_DURATION = "ChangeInvisibleDuration"
    RECALL_MESSAGE = "RecallMessage"
    SYNC_LITE_SUBSCRIPTION = "SyncLiteSubscription"


class Shape(Enum):
    """How many messages go each way."""

    UNARY = "one request, one answer"
    SERVER_STREAM = "one request, a stream of answers"
    BIDIRECTIONAL = "streams both ways"


class RpcRow(NamedTuple):
    """`request`: the class of `messages` that the caller sends. `permission`: the request of remoting whose needs this one has.

    `bytes_max`: the largest message that the caller may send.
    """

    rpc: Rpc
    shape: Shape
    request: str
    permission: RequestCode
    is_served: bool = True
    bytes_max: int = REQUEST_BYTES_MAX

    @property
    def full_request(self) -> str:
        """The request message as white lists name it."""
        return f"{PACKAGE}.{self.request}"


def _unary(rpc: Rpc, permission: RequestCode, *, is_served: bool = True) -> RpcRow:
    return RpcRow(rpc, Shape.UNARY, f"{rpc}Request", permission, is_served)


_ROWS: Final = (
    _unary(Rpc.QUERY_ROUTE, RequestCode.GET_ROUTEINFO_BY_TOPIC),
    _unary(Rpc.HEARTBEAT, RequestCode.HEART_BEAT),
    _unary(Rpc.SEND_MESSAGE, RequestCode.SEND_MESSAGE)._replace(bytes_max=SEND_REQUEST_BYTES_MAX),
    _unary(Rpc.QUERY_ASSIGNMENT, RequestCode.QUERY_ASSIGNMENT),
    RpcRow(Rpc.RECEIVE_MESSAGE, Shape.SERVER_STREAM, "ReceiveMessageRequest", RequestCode.POP_MESSAGE),
    _unary(Rpc.ACK_MESSAGE, RequestCode.ACK_MESSAGE),
    _unary(Rpc.FORWARD_MESSAGE_TO_DEAD_LETTER_QUEUE, RequestCode.CONSUMER_SEND_MSG_BACK),
    RpcRow(Rpc.PULL_MESSAGE, Shape.SERVER_STREAM, "PullMessageRequest", RequestCode.PULL_MESSAGE, is_served=False),
    _unary(Rpc.UPDATE_OFFSET, RequestCode.UPDATE_CONSUMER_OFFSET, is_served=False),
    _unary(Rpc.GET_OFFSET, RequestCode.QUERY_CONSUMER_OFFSET, is_served=False),
    _unary(Rpc.QUERY_OFFSET, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, is_served=False),
    _unary(Rpc.END_TRANSACTION, RequestCode.END_TRANSACTION),
    RpcRow(Rpc.TELEMETRY, Shape.BIDIRECTIONAL, "TelemetryCommand", RequestCode.HEART_BEAT),
    _unary(Rpc.NOTIFY_CLIENT_TERMINATION, RequestCode.UNREGISTER_CLIENT),
    _unary(Rpc.CHANGE_INVISIBLE_DURATION, RequestCode.CHANGE_MESSAGE_INVISIBLETIME),
    _unary(Rpc.RECALL_MESSAGE, RequestCode.RECALL_MESSAGE),
    _unary(Rpc.SYNC_LITE_SUBSCRIPTION, RequestCode.HEART_BEAT),
)

RPCS: Final[dict[Rpc, RpcRow]] = {row.rpc: row for row in _ROWS}

BY_PATH: Final[dict[bytes, RpcRow]] = {f"/{SERVICE}/{row.rpc}".encode(): row for row in _ROWS}
"""The row of each `:path`."""
