"""Bodies of orbitmq's own requests about transactions: list what is undecided, and show one.

Rules of this file
1. Instants are wall-clock milliseconds since 1970, lengths of time milliseconds.
2. What is absent is None, and absent on the wire. JSON members have the field's name in camel case.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from orbitmq.protocol.remoting.bodies.json_body import Int64, JsonBody


class TransactionState(StrEnum):
    """What became of one transaction."""

    UNDECIDED = "undecided"
    """Its half message waits for a decision; its producers are asked."""
    COMMITTED = "committed"
    """Its message stands in its topic, or waits there for its due time."""
    ROLLED_BACK = "rolled_back"
    GIVEN_UP = "given_up"
    """Nobody decided it. It is in `TRANS_CHECK_MAX_TIME_TOPIC`, and can be resumed."""
    ENDED = "ended"
    """It is decided; how is not known any more."""


class TransactionViewBody(JsonBody):
    """One transaction, without the body of its message.

    `topic` is where its message goes when it is committed, `group` the producers that are asked, `message_id` the unique key its sender
    knows. `offset_id` names the newest copy of its half message, as RESUME_CHECK_HALF_MESSAGE takes it. `stored_ms` is when the sender
    stored it, as far as that is known; `next_check_ms` when its producers are asked next. `size` counts the bytes of the newest copy.
    """

    state: TransactionState
    topic: str
    group: str
    message_id: str
    offset_id: str
    stored_ms: Int64 = 0
    check_count: int = 0
    next_check_ms: Int64 | None = None
    size: int = 0


class TransactionQuery(JsonBody):
    """Body of LIST_TRANSACTIONS: which undecided transactions, and where the page begins. `cursor` is that of the page before."""

    topic: str | None = None
    group: str | None = None
    limit: int = 50
    cursor: Int64 | None = None


class TransactionPage(JsonBody):
    """Answer to LIST_TRANSACTIONS, in the order in which they were stored or checked last. `cursor` is None on the last page. What is
    checked between two pages may stand on both."""

    transactions: list[TransactionViewBody]
    cursor: Int64 | None = None


class TransactionName(JsonBody):
    """Body of GET_TRANSACTION. `id` is a message id, or the offset id of any copy of the half message."""

    id: str


class TransactionAnswer(JsonBody):
    """Answer to GET_TRANSACTION: the undecided transactions with that id, several when a sender tried again; else the one that has ended
    last; none when nothing is known. `body`, as it is stored and base64 on the wire, and `properties` are those of the first one's half
    message; `sys_flag` says how the body is compressed."""

    transactions: list[TransactionViewBody] = msgspec.field(default_factory=list)
    properties: dict[str, str] = msgspec.field(default_factory=dict)
    body: bytes = b""
    sys_flag: int = 0
