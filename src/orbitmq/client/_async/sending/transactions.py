"""Messages that are sent together with what a program does: the half message before, the decision after.

    async with producer.transaction("orders", b"created") as tx:
        await database.insert(order)

Rules of this file
1. Leaving the block commits, leaving it by an exception rolls back. Before the block begins the half message is stored.
2. A decision that did not reach its broker, or that the broker cannot store at the moment, is kept and given when the broker asks; so is
   a decision of this process that was lost on its way. While the block runs a question gets no answer, and the broker asks again.
3. What this process does not know is the matter of the group's checker, which looks into the program's own data. Without one the broker
   gives the message up in the end.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from orbitmq.client._async.runtime import Seldom, log
from orbitmq.client._async.sending.receipt import SendReceipt
from orbitmq.client.stored import StoredMessage
from orbitmq.errors import ClientError, RemoteError
from orbitmq.limits.client import CLIENT_UNCONFIRMED_DECISIONS_MAX
from orbitmq.protocol.ids import decode_offset_id
from orbitmq.protocol.properties import Property
from orbitmq.protocol.remoting.codes import RequestCode, ResponseCode
from orbitmq.protocol.remoting.frame import Command

if TYPE_CHECKING:
    from orbitmq.client._async.parts import ClientContext

Checker = Callable[[StoredMessage], Awaitable[bool | None]]
"""Whether the transaction of a half message is to be committed (True) or rolled back (False); None while that is not known."""

COMMIT: Final = 8
ROLL_BACK: Final = 12

STILL_UNDECIDED: Final = frozenset(
    {
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.SYSTEM_BUSY,
        ResponseCode.SLAVE_NOT_AVAILABLE,
        ResponseCode.FLUSH_DISK_TIMEOUT,
        ResponseCode.FLUSH_SLAVE_TIMEOUT,
        ResponseCode.GO_AWAY,
    }
)
"""Answers of a broker that has not decided the transaction, or may have lost the decision when it begins anew: it will ask."""


class GroupTransactions:
    """The transactions of one producer group in this process."""

    def __init__(self, client: ClientContext, group: str) -> None:
        self._client = client
        self._group = group
        self._known: dict[str, bool | None] = {}
        """Unique id -> decision, None while its block runs. Confirmed ones are not here."""
        self.checker: Checker | None = None
        self._failures = Seldom()

    def made(self, send: Callable[[], Awaitable[SendReceipt]], timeout_ms: int) -> MessageTransaction:
        return MessageTransaction(self, send, timeout_ms)

    def begun(self, receipt: SendReceipt) -> None:
        while len(self._known) >= CLIENT_UNCONFIRMED_DECISIONS_MAX:
            del self._known[next(iter(self._known))]
        self._known[receipt.message_id] = None

    async def end(self, receipt: SendReceipt, commits: bool, timeout_ms: int) -> None:
        """Tell the broker. `RemoteError` when it refuses; when it cannot be reached, or can store nothing now, it will ask."""
        key = receipt.message_id
        self._known[key] = commits
        queue = receipt.queue
        fields = self._fields(key, receipt.queue_offset, decode_offset_id(receipt.offset_message_id)[1], commits)
        fields |= {"topic": queue.topic, "bname": queue.broker_name, "fromTransactionCheck": "false"}
        try:
            address = self._client.routes.master(queue.broker_name, queue.topic)
            if address is None:
                raise ClientError(f"broker {queue.broker_name} has no master address")
            await self._client.network.request(
                address, RequestCode.END_TRANSACTION, fields, timeout_ms=timeout_ms, doing="ending a transaction"
            )
        except ClientError as error:
            if isinstance(error, RemoteError) and error.code not in STILL_UNDECIDED:
                self._known.pop(key, None)
                raise
            log.warning(
                "broker %s does not know how transaction %s ended, it will ask: %s", queue.broker_name, key, error
            )
        else:
            self._known.pop(key, None)

    async def asked(self, address: str, command: Command, message: StoredMessage) -> None:
        """A broker asks about a half message."""
        key = message.properties.get(Property.UNIQ_KEY, "")
        commits = self._known[key] if key in self._known else await self._checked(message)
        if commits is None:
            return
        offset, position = command.integer("tranStateTableOffset"), command.integer("commitLogOffset")
        fields = self._fields(key, offset, position, commits)
        fields |= {"topic": message.topic, "bname": command.text("bname"), "fromTransactionCheck": "true"}
        timeout_ms = self._client.options.request_timeout_ms
        await self._client.network.post(address, RequestCode.END_TRANSACTION, fields, timeout_ms=timeout_ms)

    async def _checked(self, message: StoredMessage) -> bool | None:
        """What the program says of a half message that this process knows nothing of."""
        try:
            return None if self.checker is None else await self.checker(message)
        except Exception:
            unlogged = self._failures.due()
            if unlogged is not None:
                log.exception(
                    "the checker of group %s failed about message %s, and the broker will ask again%s",
                    self._group,
                    message.message_id,
                    f"; {unlogged} failures before it were not logged" if unlogged else "",
                )
            return None

    def _fields(self, key: str, queue_offset: int, position: int, commits: bool) -> dict[str, str]:
        return {
            "producerGroup": self._group,
            "tranStateTableOffset": str(queue_offset),
            "commitLogOffset": str(position),
            "commitOrRollback": str(COMMIT if commits else ROLL_BACK),
            "msgId": key,
            "transactionId": key,
        }


class MessageTransaction:
    """One message that counts when its block has ended well. Made by `Producer.transaction`, used with `async with`."""

    def __init__(
        self, transactions: GroupTransactions, send: Callable[[], Awaitable[SendReceipt]], timeout_ms: int
    ) -> None:
        self._transactions = transactions
        self._send = send
        self._timeout_ms = timeout_ms
        self._receipt: SendReceipt | None = None
        self._commits = True

    @property
    def message_id(self) -> str:
        """The unique id of the message, by which the program's own data may name it. There once the block has begun."""
        if self._receipt is None:
            raise ClientError("the transaction has not begun", remedy="use it with `async with`")
        return self._receipt.message_id

    def roll_back(self) -> None:
        """Leave the block without sending the message, and without an exception."""
        self._commits = False

    async def __aenter__(self) -> Self:
        if self._receipt is not None:
            raise ClientError("a transaction is used once", remedy="make a new one with producer.transaction()")
        self._receipt = await self._send()
        self._transactions.begun(self._receipt)
        return self

    async def __aexit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._receipt is None:
            return
        try:
            await self._transactions.end(self._receipt, self._commits and error is None, self._timeout_ms)
        except RemoteError as refusal:
            if error is None:
                raise
            log.warning("transaction %s was not rolled back: %s", self._receipt.message_id, refusal)
