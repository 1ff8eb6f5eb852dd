"""Transactions as programs see them that look at what their producers left undecided."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from orbitmq.client.stored import user_properties
from orbitmq.protocol.properties import Property
from orbitmq.protocol.remoting.transaction_bodies import TransactionState, TransactionViewBody


class TransactionView(msgspec.Struct, frozen=True):
    """One transaction without the body of its message.

    topic: where its message goes when it is committed. group: the producers that are asked. message_id: the sender's, as in its receipt.
    stored_ms: when the half message was stored, ms since 1970 by the broker's clock. check_count: how often producers were asked.
    next_check_ms: when they are asked next; None when it has ended. size: bytes of the stored record. offset_message_id: the place of
    its half message, as RocketMQ's tools take it.
    """

    state: TransactionState
    topic: str
    group: str
    message_id: str
    broker_name: str
    offset_message_id: str
    stored_ms: int
    check_count: int
    next_check_ms: int | None
    size: int


class HalfMessage(msgspec.Struct, frozen=True):
    """The message of a transaction in full. properties: all of them, reserved ones included; user_properties: those of its program."""

    transaction: TransactionView
    body: bytes
    properties: Mapping[str, str]

    @property
    def tag(self) -> str | None:
        return self.properties.get(Property.TAGS)

    @property
    def user_properties(self) -> dict[str, str]:
        return user_properties(self.properties)


def transaction_view(body: TransactionViewBody, broker_name: str) -> TransactionView:
    """What a broker says of a transaction."""
    return TransactionView(
        body.state, body.topic, body.group, body.message_id, broker_name, body.offset_id, body.stored_ms, body.check_count,
        body.next_check_ms, body.size,
    )  # fmt: skip
