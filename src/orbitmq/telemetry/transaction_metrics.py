"""Metrics of transactions: RocketMQ's four, and what became of checks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from orbitmq.broker.transactions.requests import TransactionProcessor
from orbitmq.broker.transactions.transactions import Transactions
from orbitmq.telemetry import catalogue
from orbitmq.telemetry.metric import Family, Sample, by_label, one


class TransactionMetrics:
    """The collector of one broker's transactions. Cost: a look at each undecided one."""

    def __init__(self, transactions: Transactions, room: TransactionProcessor) -> None:
        self._transactions = transactions
        self._room = room

    def __call__(self) -> Iterator[Family]:
        figures, checks = self._room.endings.figures, self._room.checks
        waiting = Counter(known.topic for known in self._transactions.undecided)
        yield by_label(catalogue.HALF_MESSAGES, waiting.items())
        yield by_label(catalogue.COMMIT_MESSAGES, figures.committed.items())
        yield by_label(catalogue.ROLLBACK_MESSAGES, figures.rolled_back.items())
        latencies = [Sample((topic,), known.buckets()) for topic, known in figures.latency_s.items()]
        yield Family(catalogue.FINISH_MESSAGE_LATENCY, latencies)
        yield one(catalogue.TRANSACTION_CHECKS, checks.asked_count)
        yield one(catalogue.TRANSACTIONS_GIVEN_UP, checks.given_up_count)
