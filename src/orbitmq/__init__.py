"""orbitmq: a message broker with first-class delayed messages that speaks RocketMQ's protocols, and its client.

    async with orbitmq.connect("localhost:9876") as mq:
        await mq.send("orders", b"42", tag="created", delay_level=3)

Names are imported when first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from orbitmq.client import (
        Admin,
        AllocateAverage,
        AllocateCircle,
        AllocateConsistentHash,
        AllocateFixed,
        AllocateMachineRoom,
        AllocateNearby,
        CatchUp,
        Client,
        ClientOptions,
        Codec,
        ConsumeBegun,
        ConsumeEnded,
        ConsumeFrom,
        Consumer,
        ConsumerOptions,
        HalfMessage,
        LiteConsumer,
        LiteConsumerOptions,
        MachineRoom,
        Message,
        MessageQueue,
        MessageTransaction,
        Once,
        Overlap,
        PopConsumer,
        PopOptions,
        Producer,
        ProducerOptions,
        PullConsumer,
        Pulled,
        PulledBytes,
        PullStatus,
        RandomQueue,
        ReceivedMessage,
        Recurring,
        RecurringChange,
        RecurringMessage,
        RecurringOutcome,
        RecurringRun,
        Repeat,
        Reply,
        RoundRobin,
        Selector,
        SendReceipt,
        SendStatus,
        SentTrace,
        Settlement,
        StoredMessage,
        StoredTransactions,
        TimerBucket,
        TimerCounts,
        TimerMatch,
        TimerMessage,
        TimerOutcome,
        Timers,
        TimerVerdict,
        TimerView,
        Trace,
        TransactionState,
        TransactionView,
        connect,
    )
    from orbitmq.errors import (
        ClientError,
        ConfigurationError,
        ConnectionLostError,
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
    "ClientOptions",
    "Codec",
    "ConfigurationError",
    "ConnectionLostError",
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
    "MessageIllegalError",
    "MessageQueue",
    "MessageTransaction",
    "NotFoundError",
    "Once",
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
    "RemoteError",
    "Repeat",
    "Reply",
    "RequestTimeoutError",
    "RoundRobin",
    "RouteNotFoundError",
    "Selector",
    "SendFailedError",
    "SendReceipt",
    "SendStatus",
    "SentTrace",
    "Settlement",
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
    "Trace",
    "TransactionState",
    "TransactionView",
    "connect",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name.endswith("Error"):
        from orbitmq import errors as home
    else:
        from orbitmq import client as home  # type: ignore[no-redef]
    value = getattr(home, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
