"""The client for programs without asyncio: the names of `orbitmq`, with blocking calls.

    import orbitmq.sync

    with orbitmq.sync.connect("localhost:9876") as mq:
        mq.send("orders", b"42", tag="created", delay_level=3)

One client serves any number of threads. Errors, options and messages to send are those of `orbitmq`.

Written by scripts/generate_sync.py from src/orbitmq/__init__.py: change that file and run `make generate`.
"""

from __future__ import annotations

from orbitmq.client._async.consuming.delivery import Settlement
from orbitmq.client._async.pulling.pull_consumer import Pulled, PulledBytes
from orbitmq.client._sync.administration.admin import Admin
from orbitmq.client._sync.administration.transactions import StoredTransactions
from orbitmq.client._sync.client import Client, connect
from orbitmq.client._sync.consuming.consumer import Consumer
from orbitmq.client._sync.consuming.delivery import ReceivedMessage
from orbitmq.client._sync.popping.pop_consumer import PopConsumer
from orbitmq.client._sync.pulling.lite_pull import LiteConsumer
from orbitmq.client._sync.pulling.pull_consumer import PullConsumer
from orbitmq.client._sync.sending.producer import Producer
from orbitmq.client._sync.sending.receipt import SendReceipt
from orbitmq.client._sync.sending.transactions import MessageTransaction
from orbitmq.client._sync.serving import serve
from orbitmq.client._sync.timers.recurring import Recurring
from orbitmq.client._sync.timers.timers import Timers
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
from orbitmq.errors import (
    ClientError,
    ConfigurationError,
    ConnectionLostError,
    MasterAwayError,
    MessageIllegalError,
    NotFoundError,
    OrbitError,
    RemoteError,
    RequestTimeoutError,
    RouteNotFoundError,
    SendFailedError,
    StaleEpochError,
    TimersMissingError,
)
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
    "ClientError",
    "ClientHooks",
    "ClientOptions",
    "Codec",
    "ConfigurationError",
    "ConnectionLostError",
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
    "MasterAwayError",
    "Message",
    "MessageIllegalError",
    "MessageQueue",
    "MessageTransaction",
    "NotFoundError",
    "Once",
    "OnceWithin",
    "OrbitError",
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
    "RemoteError",
    "Repeat",
    "Reply",
    "RequestTimeoutError",
    "Retry",
    "RoundRobin",
    "RouteNotFoundError",
    "Selector",
    "SendEnded",
    "SendFailedError",
    "SendReceipt",
    "SendStatus",
    "SentTrace",
    "Settlement",
    "Sql",
    "StaleEpochError",
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
    "TimersMissingError",
    "TopicHandler",
    "Trace",
    "TransactionState",
    "TransactionView",
    "connect",
    "handler",
    "serve",
]
