"""Transactions on the brokers: which are undecided, what became of one, and having its producers asked again.

Rules of this file
1. Nothing here decides. A transaction is decided by its producers: by the block that sent it, or by the checker of its group.
2. RocketMQ's broker has no list of what is undecided; that is said with its name.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Final, TypeVar

from orbitmq.client._async.administration.admin_calls import AdminCalls, Broker
from orbitmq.client._async.runtime import all_of
from orbitmq.client._async.timers.own_requests import ask, restored
from orbitmq.client.arguments import check_instance, check_text
from orbitmq.client.transactions import HalfMessage, TransactionView, transaction_view
from orbitmq.errors import ClientError, ConfigurationError, NotFoundError
from orbitmq.limits.transactions import TRANSACTION_PAGE_MAX
from orbitmq.protocol.remoting import transaction_bodies as wire
from orbitmq.protocol.remoting.bodies.json_body import JsonBody
from orbitmq.protocol.remoting.codes import RequestCode

if TYPE_CHECKING:
    from orbitmq.client._async.parts import ClientContext

_Body = TypeVar("_Body", bound=JsonBody)

_RESUMABLE: Final = (wire.TransactionState.UNDECIDED, wire.TransactionState.GIVEN_UP)


class StoredTransactions:
    """Transactions that the brokers know of. See `Client.transactions`."""

    def __init__(self, client: ClientContext) -> None:
        self._client = client

    async def list(
        self, *, topic: str | None = None, group: str | None = None, page_count: int = 100
    ) -> AsyncIterator[TransactionView]:
        """What is undecided, broker by broker, in the order in which it was stored or its producers were asked last.

        topic: only messages for it. group: only those of this producer group. page_count: how many a broker is asked for at a time. What
        is decided or checked meanwhile may be missing, or stand there twice.
        """
        if not 1 <= page_count <= TRANSACTION_PAGE_MAX:
            raise ConfigurationError(f"page_count={page_count}: must be 1 to {TRANSACTION_PAGE_MAX}")
        for broker in await AdminCalls(self._client).masters():
            query = wire.TransactionQuery(topic, group, page_count)
            while True:
                page = await self._ask(broker, RequestCode.LIST_TRANSACTIONS, query, wire.TransactionPage)
                for each in page.transactions:
                    yield transaction_view(each, broker.name)
                if page.cursor is None:
                    break
                query.cursor = page.cursor

    async def get(self, transaction: TransactionView | str) -> HalfMessage | None:
        """One transaction with its message; None when no broker knows it.

        transaction: a view, the message id that the sender has, or the offset message id. What has ended is found as long as a broker
        has its records and a key index. `ClientError` when several undecided ones have the id, because a send was repeated that is not
        idempotent.
        """
        return (await self._get(transaction))[1]

    async def resume(self, transaction: TransactionView | str) -> TransactionView:
        """Begin anew to ask the producers of a transaction that is undecided, or was given up; what it was before.

        Its number of checks is 0 again. transaction: as in `get`. `NotFoundError` when no broker knows it, `ClientError` when it is
        decided.
        """
        broker, found = await self._get(transaction)
        if broker is None or found is None:
            raise NotFoundError(f"no broker knows a transaction {_id(transaction)!r}", remedy="list() shows them")
        view = found.transaction
        if view.state not in _RESUMABLE:
            raise ClientError(f"transaction {view.message_id} is {view.state.value.replace('_', ' ')}: nobody is asked")
        await self._client.network.insist(
            broker.address,
            RequestCode.RESUME_CHECK_HALF_MESSAGE,
            {"msgId": view.offset_message_id, "topic": view.topic},
            timeout_ms=self._client.options.admin_timeout_ms,
            doing=f"resuming the checks of transaction {view.message_id}",
        )
        return view

    # --- inside

    async def _get(self, transaction: TransactionView | str) -> tuple[Broker, HalfMessage] | tuple[None, None]:
        if not isinstance(transaction, str):
            check_instance("transaction", transaction, TransactionView, or_none=False)
        masters = await AdminCalls(self._client).masters()
        if not isinstance(transaction, str):
            masters = [broker for broker in masters if broker.name == transaction.broker_name]
        name = wire.TransactionName(_id(transaction))
        answers = await all_of(
            [self._ask(broker, RequestCode.GET_TRANSACTION, name, wire.TransactionAnswer) for broker in masters]
        )
        found = [(broker, answer) for broker, answer in zip(masters, answers, strict=True) if answer.transactions]
        undecided = [
            each for _, answer in found for each in answer.transactions if each.state is wire.TransactionState.UNDECIDED
        ]
        if len(undecided) > 1:
            raise ClientError(
                f"{len(undecided)} undecided transactions have the id {name.id!r}",
                remedy="name one by its offset_message_id: " + ", ".join(each.offset_id for each in undecided[:3]),
            )
        if not found:
            return None, None
        broker, answer = next((one for one in found if one[1].transactions[0] in undecided), found[0])
        view = transaction_view(answer.transactions[0], broker.name)
        return broker, HalfMessage(view, await restored(answer.body, answer.sys_flag), answer.properties)

    async def _ask(self, broker: Broker, code: RequestCode, body: JsonBody, kind: type[_Body]) -> _Body:
        answer = await ask(
            self._client,
            (broker.name, broker.address),
            code,
            body,
            doing="looking at transactions",
            lacks="request for transactions",
            remedy="orbitmq's broker has it; RocketMQ's keeps no list of undecided transactions",
        )
        return kind.decode(answer.body)


def _id(transaction: TransactionView | str) -> str:
    if isinstance(transaction, str):
        check_text("transaction", transaction)
        return transaction
    return transaction.offset_message_id
