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
    from orbitmq.client.consuming.pull_plan import PullStatus
    from orbitmq.client.consuming.subscription import Sql
    from orbitmq.client.message import Message, Once, SendStatus
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
    from orbitmq.client.transactions import HalfMessage, TransactionView
    from orbitmq.protocol.remoting.bodies import MessageQueue
    from orbitmq.protocol.remoting.recurring_bodies import CatchUp, Overlap, RecurringOutcome
    from orbitmq.protocol.remoting.send_answer import Repeat
    from orbitmq.protocol.remoting.transaction_bodies import TransactionState

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
    "ClientOptions",
    "Codec",
    "ConsumeBegun",
    "ConsumeEnded",
    "ConsumeFrom",
    "Consumer",
    "ConsumerOptions",
    "HalfMessage",
    "LiteConsumer",
    "LiteConsumerOptions",
    "MachineRoom",
    "Message",
    "MessageQueue",
    "MessageTransaction",
    "Once",
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
    "Repeat",
    "Reply",
    "RoundRobin",
    "Selector",
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
    "Trace",
    "TransactionState",
    "TransactionView",
    "connect",
]

_HOMES = {
    "Admin": "orbitmq.client._async.administration.admin",
    "AllocateAverage": "orbitmq.client.consuming.allocation",
    "AllocateCircle": "orbitmq.client.consuming.allocation",
    "AllocateConsistentHash": "orbitmq.client.consuming.allocation",
    "AllocateFixed": "orbitmq.client.consuming.allocation",
    "AllocateMachineRoom": "orbitmq.client.consuming.allocation",
    "AllocateNearby": "orbitmq.client.consuming.allocation",
    "CatchUp": "orbitmq.protocol.remoting.recurring_bodies",
    "Client": "orbitmq.client._async.client",
    "ClientOptions": "orbitmq.client.options",
    "Codec": "orbitmq.client.options",
    "ConsumeBegun": "orbitmq.client.sending.trace",
    "ConsumeEnded": "orbitmq.client.sending.trace",
    "ConsumeFrom": "orbitmq.client.options",
    "Consumer": "orbitmq.client._async.consuming.consumer",
    "ConsumerOptions": "orbitmq.client.options",
    "HalfMessage": "orbitmq.client.transactions",
    "LiteConsumer": "orbitmq.client._async.pulling.lite_pull",
    "LiteConsumerOptions": "orbitmq.client.pulling.lite_options",
    "MachineRoom": "orbitmq.client.sending.queue_choice",
    "Message": "orbitmq.client.message",
    "MessageQueue": "orbitmq.protocol.remoting.bodies",
    "MessageTransaction": "orbitmq.client._async.sending.transactions",
    "Once": "orbitmq.client.message",
    "Overlap": "orbitmq.protocol.remoting.recurring_bodies",
    "PopConsumer": "orbitmq.client._async.popping.pop_consumer",
    "PopOptions": "orbitmq.client.popping.pop_options",
    "Producer": "orbitmq.client._async.sending.producer",
    "ProducerOptions": "orbitmq.client.options",
    "PullConsumer": "orbitmq.client._async.pulling.pull_consumer",
    "PullStatus": "orbitmq.client.consuming.pull_plan",
    "Pulled": "orbitmq.client._async.pulling.pull_consumer",
    "PulledBytes": "orbitmq.client._async.pulling.pull_consumer",
    "RandomQueue": "orbitmq.client.sending.queue_choice",
    "ReceivedMessage": "orbitmq.client._async.consuming.delivery",
    "Recurring": "orbitmq.client._async.timers.recurring",
    "RecurringChange": "orbitmq.client.recurring",
    "RecurringMessage": "orbitmq.client.recurring",
    "RecurringOutcome": "orbitmq.protocol.remoting.recurring_bodies",
    "RecurringRun": "orbitmq.client.recurring",
    "Repeat": "orbitmq.protocol.remoting.send_answer",
    "Reply": "orbitmq.client.sending.reply",
    "RoundRobin": "orbitmq.client.sending.queue_choice",
    "Selector": "orbitmq.client.sending.queue_choice",
    "SendReceipt": "orbitmq.client._async.sending.receipt",
    "SendStatus": "orbitmq.client.message",
    "SentTrace": "orbitmq.client.sending.trace",
    "Settlement": "orbitmq.client._async.consuming.delivery",
    "Sql": "orbitmq.client.consuming.subscription",
    "StoredMessage": "orbitmq.client.stored",
    "StoredTransactions": "orbitmq.client._async.administration.transactions",
    "TimerBucket": "orbitmq.client.timers",
    "TimerCounts": "orbitmq.client.timers",
    "TimerMatch": "orbitmq.client.timers",
    "TimerMessage": "orbitmq.client.timers",
    "TimerOutcome": "orbitmq.client.timers",
    "TimerVerdict": "orbitmq.client.timers",
    "TimerView": "orbitmq.client.timers",
    "Timers": "orbitmq.client._async.timers.timers",
    "Trace": "orbitmq.client.sending.trace",
    "TransactionState": "orbitmq.protocol.remoting.transaction_bodies",
    "TransactionView": "orbitmq.client.transactions",
    "connect": "orbitmq.client._async.client",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
