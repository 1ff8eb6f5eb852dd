"""The client: sending, consuming and administration over RocketMQ's remoting protocol.

Names are imported when first used, so that `import orbitmq` costs next to nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from orbitmq.client._async.administration.admin import Admin
    from orbitmq.client._async.administration.transactions import StoredTransactions
    from orbitmq.client._async.client import Client, connect
    from orbitmq.client._async.consuming.consumer import Consumer
    from orbitmq.client._async.consuming.delivery import ReceivedMessage, Settlement
    from orbitmq.client._async.popping.pop_consumer import PopConsumer
    from orbitmq.client._async.pulling.lite_pull import LiteConsumer
    from orbitmq.client._async.pulling.pull_consumer import PullConsumer, Pulled, PulledBytes
    from orbitmq.client._async.sending.producer import Producer
    from orbitmq.client._async.sending.receipt import SendReceipt
    from orbitmq.client._async.sending.transactions import MessageTransaction
    from orbitmq.client._async.serving import serve
    from orbitmq.client._async.timers.recurring import Recurring
    from orbitmq.client._async.timers.timers import Timers
    from orbitmq.client.consuming.allocation import (
        AllocateAverage,
        AllocateCircle,
        AllocateConsistentHash,
        AllocateFixed,
        AllocateMachineRoom,
        AllocateNearby,
    )
    from orbitmq.client.consuming.outcomes import Reject, Retry
    from orbitmq.client.consuming.pull_plan import PullStatus
    from orbitmq.client.consuming.subscription import Sql
    from orbitmq.client.hooks import ClientHooks, Fetched, Handled, SendEnded
    from orbitmq.client.message import Message, Once, OnceWithin, SendStatus
    from orbitmq.client.options import ClientOptions, Codec, ConsumeFrom, ConsumerOptions, ProducerOptions
    from orbitmq.client.popping.pop_options import PopOptions
    from orbitmq.client.pulling.lite_options import LiteConsumerOptions
    from orbitmq.client.recurring import RecurringChange, RecurringMessage, RecurringRun
    from orbitmq.client.sending.queue_choice import MachineRoom, RandomQueue, RoundRobin, Selector
    from orbitmq.client.sending.reply import Reply
    from orbitmq.client.sending.trace import ConsumeBegun, ConsumeEnded, SentTrace, Trace
    from orbitmq.client.stored import StoredMessage
    from orbitmq.client.timers import (
        TimerBucket,
        TimerCounts,
        TimerMatch,
        TimerMessage,
        TimerOutcome,
        TimerVerdict,
        TimerView,
    )
    from orbitmq.client.topic_handler import TopicHandler, handler
    from orbitmq.client.transactions import HalfMessage, TransactionView
    from orbitmq.protocol.remoting.bodies import MessageQueue
    from orbitmq.protocol.remoting.recurring_bodies import CatchUp, Overlap, RecurringOutcome
    from orbitmq.protocol.remoting.send_answer import Repeat
    from orbitmq.protocol.remoting.transaction_bodies import TransactionState
    from orbitmq.protocol.signing import Credentials

__all__ = [
    "Admin",
    "AllocateAverage",
    "AllocateCircle",
    "AllocateConsistentHash",
    "AllocateFixed",
    "AllocateMachineRoom",
    "AllocateNearby",
    "CatchUp",
    "Client",
    "ClientHooks",
    "ClientOptions",
    "Codec",
    "ConsumeBegun",
    "ConsumeEnded",
    "ConsumeFrom",
    "Consumer",
    "ConsumerOptions",
    "Credentials",
    "Fetched",
    "HalfMessage",
    "Handled",
    "LiteConsumer",
    "LiteConsumerOptions",
    "MachineRoom",
    "Message",
    "MessageQueue",
    "MessageTransaction",
    "Once",
    "OnceWithin",
    "Overlap",
    "PopConsumer",
    "PopOptions",
    "Producer",
    "ProducerOptions",
    "PullConsumer",
    "PullStatus",
    "Pulled",
    "PulledBytes",
    "RandomQueue",
    "ReceivedMessage",
    "Recurring",
    "RecurringChange",
    "RecurringMessage",
    "RecurringOutcome",
    "RecurringRun",
    "Reject",
    "Repeat",
    "Reply",
    "Retry",
    "RoundRobin",
    "Selector",
    "SendEnded",
    "SendReceipt",
    "SendStatus",
    "SentTrace",
    "Settlement",
    "Sql",
    "StoredMessage",
    "StoredTransactions",
    "TimerBucket",
    "TimerCounts",
    "TimerMatch",
    "TimerMessage",
    "TimerOutcome",
    "TimerVerdict",
    "TimerView",
    "Timers",
    "TopicHandler",
    "Trace",
    "TransactionState",
    "TransactionView",
    "connect",
    "handler",
    "serve",
]

_NAMES = {
    "orbitmq.client._async.administration.admin": "Admin",
    "orbitmq.client._async.administration.transactions": "StoredTransactions",
    "orbitmq.client._async.client": "Client connect",
    "orbitmq.client._async.consuming.consumer": "Consumer",
    "orbitmq.client._async.consuming.delivery": "ReceivedMessage Settlement",
    "orbitmq.client._async.popping.pop_consumer": "PopConsumer",
    "orbitmq.client._async.pulling.lite_pull": "LiteConsumer",
    "orbitmq.client._async.pulling.pull_consumer": "PullConsumer Pulled PulledBytes",
    "orbitmq.client._async.sending.producer": "Producer",
    "orbitmq.client._async.sending.receipt": "SendReceipt",
    "orbitmq.client._async.sending.transactions": "MessageTransaction",
    "orbitmq.client._async.serving": "serve",
    "orbitmq.client._async.timers.recurring": "Recurring",
    "orbitmq.client._async.timers.timers": "Timers",
    "orbitmq.client.consuming.allocation": "AllocateAverage AllocateCircle AllocateConsistentHash "
    "AllocateFixed AllocateMachineRoom AllocateNearby",
    "orbitmq.client.consuming.outcomes": "Reject Retry",
    "orbitmq.client.consuming.pull_plan": "PullStatus",
    "orbitmq.client.consuming.subscription": "Sql",
    "orbitmq.client.hooks": "ClientHooks Fetched Handled SendEnded",
    "orbitmq.client.message": "Message Once OnceWithin SendStatus",
    "orbitmq.client.options": "ClientOptions Codec ConsumeFrom ConsumerOptions ProducerOptions",
    "orbitmq.client.popping.pop_options": "PopOptions",
    "orbitmq.client.pulling.lite_options": "LiteConsumerOptions",
    "orbitmq.client.recurring": "RecurringChange RecurringMessage RecurringRun",
    "orbitmq.client.sending.queue_choice": "MachineRoom RandomQueue RoundRobin Selector",
    "orbitmq.client.sending.reply": "Reply",
    "orbitmq.client.sending.trace": "ConsumeBegun ConsumeEnded SentTrace Trace",
    "orbitmq.client.stored": "StoredMessage",
    "orbitmq.client.timers": "TimerBucket TimerCounts TimerMatch TimerMessage TimerOutcome TimerVerdict TimerView",
    "orbitmq.client.topic_handler": "TopicHandler handler",
    "orbitmq.client.transactions": "HalfMessage TransactionView",
    "orbitmq.protocol.remoting.bodies": "MessageQueue",
    "orbitmq.protocol.remoting.recurring_bodies": "CatchUp Overlap RecurringOutcome",
    "orbitmq.protocol.remoting.send_answer": "Repeat",
    "orbitmq.protocol.remoting.transaction_bodies": "TransactionState",
    "orbitmq.protocol.signing": "Credentials",
}
"""Module -> what it defines of these."""

_HOMES = {name: module for module, names in _NAMES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
