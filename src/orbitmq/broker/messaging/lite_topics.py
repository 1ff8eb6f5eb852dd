"""Lite topics of RocketMQ 5.5: this broker has none, so whatever names one is refused.

Rules of this file
1. Nothing of a call that names a lite topic is carried out, as if it had not named it: a message would lie where nobody reads it, and an
   acknowledgement would settle another one.
2. Clients of lite topics learn it from their settings, when they start.

Source: RocketMQ gRPC, lite messages.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Final

from orbitmq.broker.message_types import LiteTopicRefusal
from orbitmq.broker.messaging.served_calls import ServedCall
from orbitmq.protocol.grpc.decoding import read_message
from orbitmq.protocol.grpc.messages import ClientType, SyncLiteSubscriptionRequest
from orbitmq.protocol.grpc.open_call import OpenCall
from orbitmq.protocol.grpc.rpcs import Rpc

LITE_CLIENTS: Final = frozenset({ClientType.LITE_PUSH_CONSUMER, ClientType.LITE_SIMPLE_CONSUMER})


def refuse_lite_topic(name: str) -> None:
    """Raises LiteTopicRefusal where a request names one."""
    if name:
        raise LiteTopicRefusal("lite_topic of the request")


class LiteTopicCalls:
    def calls(self) -> Mapping[Rpc, ServedCall]:
        return {
            Rpc.SYNC_LITE_SUBSCRIPTION: ServedCall(partial(read_message, SyncLiteSubscriptionRequest), self.subscribe)
        }

    def subscribe(self, call: OpenCall, request: SyncLiteSubscriptionRequest) -> None:
        """All four actions are refused: there is nothing to add to, or to take from. Raises LiteTopicRefusal."""
        raise LiteTopicRefusal("SyncLiteSubscription")
