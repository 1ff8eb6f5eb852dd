"""What an error code of a server means for the program that asked.

Rules of this file
1. The code decides; a server's remark is shown to people and never read by the client.
2. The remedy says what the reader can do, not what the protocol says.
"""

from __future__ import annotations

from typing import Final

from orbitmq.errors import RemoteError, StaleEpochError
from orbitmq.protocol.remoting.codes import ResponseCode, response_name

REMEDIES: Final[dict[int, str]] = {
    ResponseCode.SYSTEM_BUSY: "the broker is overloaded; send again later or more slowly",
    ResponseCode.REQUEST_CODE_NOT_SUPPORTED: "this server does not have that feature; check its version",
    ResponseCode.MESSAGE_ILLEGAL: "the broker refuses this message; its remark says why",
    ResponseCode.SERVICE_NOT_AVAILABLE: "the broker cannot write: disk full, failed flush, shutting down, or a slave",
    ResponseCode.NO_PERMISSION: "the remark says what does not permit it: the topic, the group, the broker, or what the user may do",
    ResponseCode.TOPIC_NOT_EXIST: "create the topic first: orbitmq topic create NAME",
    ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST: "create the group first: orbitmq group create NAME",
    ResponseCode.CONSUMER_NOT_ONLINE: "no consumer of the group is connected to this broker",
    ResponseCode.FLOW_CONTROL: "the broker limits this client; ask more slowly",
    ResponseCode.STALE_EPOCH: "another writer of this scope has begun a later epoch; stop, this one was replaced",
    ResponseCode.IDEMPOTENCE_FULL: "the broker remembers as many keys as it may; take shorter windows, begin epochs more often, or raise "
    "its limit",
}
"""Also shown in the reference of errors."""


def remote_error(code: int, remark: str | None, address: str, doing: str) -> RemoteError:
    """The error for an answer with `code` to what `doing` describes, such as "sending to topic 'orders'"."""
    name = response_name(code)
    kind = StaleEpochError if code == ResponseCode.STALE_EPOCH else RemoteError
    return kind(code, f"{name}, {doing}: {remark or 'no remark'}", address=address, remedy=REMEDIES.get(code))
