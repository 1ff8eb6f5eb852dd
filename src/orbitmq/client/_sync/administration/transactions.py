"""Transactions on the brokers: which are undecided, what became of one, and having its producers asked again.

Rules of this file
1. Nothing here decides. A transaction is decided by its producers: by the block that sent it, or by the checker of its group.
2. RocketMQ's broker has no list of what is undecided; that is said with its name.

Written by scripts/generate_sync.py from src/orbitmq/client/_async/administration/transactions.py: change that file and run `make generate`.
"""

from __future__ import annotations

from collections.abc import Iterator

from orbitmq.client._async.administration import transactions as source
from orbitmq.client._sync.loop_thread import LoopThread
from orbitmq.client.transactions import HalfMessage, TransactionView


class StoredTransactions:
    """Transactions that the brokers know of. See `Client.transactions`."""

    def __init__(self, twin: source.StoredTransactions, loop_thread: LoopThread) -> None:
        self._loop = loop_thread
        self._twin: source.StoredTransactions = twin

    def list(
        self, *, topic: str | None = None, group: str | None = None, page_count: int = 100
    ) -> Iterator[TransactionView]:
        """What is undecided, broker by broker, in the order in which it was stored or its producers were asked last.

        topic: only messages for it. group: only those of this producer group. page_count: how many a broker is asked for at a time. What
        is decided or checked meanwhile may be missing, or stand there twice.
        """
        return self._loop.iterate(self._twin.list(topic=topic, group=group, page_count=page_count))

    def get(self, transaction: TransactionView | str) -> HalfMessage | None:
        """One transaction with its message; None when no broker knows it.

        transaction: a view, the message id that the sender has, or the offset message id. What has ended is found as long as a broker
        has its records and a key index. `ClientError` when several undecided ones have the id, because a send was repeated that is not
        idempotent.
        """
        return self._loop.run(self._twin.get(transaction))

    def resume(self, transaction: TransactionView | str) -> TransactionView:
        """Begin anew to ask the producers of a transaction that is undecided, or was given up; what it was before.

        Its number of checks is 0 again. transaction: as in `get`. `NotFoundError` when no broker knows it, `ClientError` when it is
        decided.
        """
        return self._loop.run(self._twin.resume(transaction))
