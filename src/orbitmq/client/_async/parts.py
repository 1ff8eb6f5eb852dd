"""What the parts of a client know of each other.

A client makes its parts and hands itself to them; a consumer does the same with its rebalance and its pullers. They see
it through the two protocols here, so that imports point one way: `client` imports `consumer` and `producer`, these import
what works for them, and all import this module.

Rules of this file
1. A protocol has what somebody behind it uses, nothing else.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any, Protocol

from orbitmq.client._async.connecting.name_servers import NameServers
from orbitmq.client._async.connecting.network import Network
from orbitmq.client._async.connecting.routes import Routes
from orbitmq.client._async.consuming.delivery import ReceivedMessage
from orbitmq.client._async.consuming.offsets import GroupOffsets
from orbitmq.client._async.consuming.owned_queue import Keeper, OwnedQueue
from orbitmq.client._async.consuming.queue_locks import ConsumerLocks
from orbitmq.client._async.hook_calls import HookCalls
from orbitmq.client._async.runtime import Tasks
from orbitmq.client._async.sending.receipt import SendReceipt, TimerCalls
from orbitmq.client._async.sending.waiting_replies import WaitingReplies
from orbitmq.client.consuming.consume_statistics import ConsumeStatistics
from orbitmq.client.consuming.pull_plan import Hold
from orbitmq.client.consuming.subscription import Subscription
from orbitmq.client.message import Message
from orbitmq.client.options import ClientOptions, ConsumerOptions
from orbitmq.client.sending.outgoing import Outgoing
from orbitmq.client.stored import StoredMessage
from orbitmq.clock import Clock
from orbitmq.protocol.ids import UniqueIds
from orbitmq.protocol.remoting.bodies import ConsumerData, ConsumerRunningInfo, MessageQueue
from orbitmq.protocol.remoting.frame import Command

Handler = Callable[[ReceivedMessage], Awaitable[None]]
"""Handles one message. Returning acknowledges it, raising sends it back, unless the handler has settled it itself."""

BatchHandler = Callable[[list[ReceivedMessage]], Awaitable[None]]
"""Handles messages of one queue. Returning acknowledges, raising sends back all that it has not settled itself."""


class CheckedTransactions(Protocol):
    """Knows how transactions of a group ended, or asks the program."""

    async def asked(self, address: str, command: Command, message: StoredMessage) -> None: ...


class Sender(Protocol):
    """Sends what was prepared elsewhere."""

    group: str

    @property
    def transactions(self) -> CheckedTransactions: ...

    async def send_prepared(self, outgoing: Outgoing, timeout_ms: int) -> SendReceipt: ...

    async def close(self) -> None: ...


class Traces(Protocol):
    """Takes note of what the client does, for the trace topic."""

    def sent(self, group: str, messages: Sequence[Message], receipts: Sequence[SendReceipt], cost_ms: int) -> None: ...

    def begun(self, group: str, message: StoredMessage) -> None: ...

    def ended(self, group: str, message: StoredMessage, cost_ms: int, *, succeeded: bool) -> None: ...

    async def close(self, timeout_ms: int) -> None: ...


class Member(Keeper, Protocol):
    """A consumer as its client, its rebalance and its pullers see it."""

    client: ClientContext
    group: str
    options: ConsumerOptions
    subscriptions: dict[str, Subscription]
    offsets: GroupOffsets
    statistics: ConsumeStatistics
    locks: ConsumerLocks | None
    tasks: Tasks
    started_at_ms: int
    shared_waiters_count: int

    @property
    def handler(self) -> Handler | None: ...

    @property
    def owned(self) -> Mapping[MessageQueue, OwnedQueue]: ...

    def heartbeat(self) -> ConsumerData: ...

    def rebalance_soon(self) -> None: ...

    def pulling(self, owned: OwnedQueue) -> Coroutine[Any, Any, None]:
        """What runs for as long as a queue is owned."""
        ...

    def hold(self, owned: OwnedQueue) -> Hold | None:
        """Why a queue must not be pulled now."""
        ...

    def deliver(self, owned: OwnedQueue, fresh: list[ReceivedMessage]) -> None: ...

    def note_progress(self, owned: OwnedQueue) -> None:
        """Bring the offset table up to date with what is settled of a queue."""
        ...

    def given_up(self, owned: OwnedQueue) -> None:
        """A queue is owned no more and was dropped."""
        ...

    def correct_offset(self, owned: OwnedQueue, offset: int) -> None: ...

    def broker_lost_us(self) -> None: ...

    def members_changed(self) -> None:
        """The group has other members than before, or a broker names one of them twice."""
        ...

    async def reset(self, offsets: Mapping[MessageQueue, int]) -> None: ...

    async def close(self) -> None: ...


class OtherMember(Protocol):
    """A lite or a pop consumer as its client sees it: what is read, and how far, is its own or the broker's business."""

    group: str
    subscriptions: dict[str, Subscription]

    def heartbeat(self) -> ConsumerData | None: ...

    def rebalance_soon(self) -> None: ...

    def members_changed(self) -> None: ...

    async def reset(self, offsets: Mapping[MessageQueue, int]) -> None: ...

    def progress(self, topic: str) -> dict[MessageQueue, int]: ...

    def running_info(self, stacks: str | None) -> ConsumerRunningInfo: ...

    async def close(self) -> None: ...


class ClientContext(Protocol):
    """A client as its parts see it."""

    client_id: str
    stable_id: str
    options: ClientOptions
    clock: Clock
    unique_ids: UniqueIds
    network: Network
    name_servers: NameServers
    routes: Routes
    waiting_replies: WaitingReplies
    tracer: Traces | None
    hooks: HookCalls | None
    consumers: dict[str, Member]

    @property
    def producers(self) -> Mapping[str, Sender]: ...

    other_consumers: dict[str, OtherMember]

    @property
    def inner_producer(self) -> Sender: ...

    @property
    def timers(self) -> TimerCalls: ...

    async def check_timed(self, address: str, broker_name: str, outgoing: Outgoing, timeout_ms: int) -> None:
        """`TimersMissingError` when the broker would deliver this timer message at once."""
        ...

    async def consumer_started(self, consumer: Member) -> None: ...

    async def consumer_closed(self, consumer: Member) -> None: ...

    async def producer_closed(self, producer: Sender) -> None: ...

    def member_started(self, consumer: OtherMember) -> None: ...

    async def member_subscribed(self, consumer: OtherMember) -> None: ...

    async def member_closed(self, consumer: OtherMember) -> None: ...

    def heartbeat_soon(self) -> None: ...

    async def introduce_to(self, address: str) -> None:
        """A heartbeat to one broker now."""
        ...
