"""Ends of transactions: what becomes of a producer's decision, whichever front end it came through.

Rules of this file
1. A decision is the committed message, if there is one, and its op record, in one write. Whoever repeats it stores nothing; whoever says
   the contrary is refused.
2. The offsets of any copy of a half message decide. Group and offsets have to be those of the half message.
3. A message that cannot be stored as it asks (its topic is gone, its time is too far away) leaves its transaction undecided: it is asked
   about again, and given up in the end.
4. What a decision was is said by its op record, as long as the log has it.

Source: RocketMQ broker, end of a transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Set
from typing import NamedTuple

from orbitmq.broker.admission import Admission
from orbitmq.broker.core import BrokerCore
from orbitmq.broker.message_properties import facts_of
from orbitmq.broker.refusal import Refusal, topic_missing
from orbitmq.broker.transactions.figures import TransactionFigures
from orbitmq.broker.transactions.op_records import decision_record
from orbitmq.broker.transactions.records import Ending, facts_of_half
from orbitmq.broker.transactions.showing import TransactionViews
from orbitmq.broker.transactions.transactions import Transactions
from orbitmq.broker.transactions.undecided import Transaction
from orbitmq.errors import RecordError, StoreUnwritableError
from orbitmq.protocol.names import HALF_TOPIC
from orbitmq.protocol.properties import Property, decode_properties
from orbitmq.protocol.records import Record, decode_record
from orbitmq.protocol.remoting.codes import ResponseCode
from orbitmq.protocol.sysflag import TRANSACTION_MASK, TransactionType
from orbitmq.store.durability import PutStatus
from orbitmq.store.message import NewMessage

COMMIT = int(TransactionType.COMMIT)


class ProducerDecision(NamedTuple):
    """What a producer says about a half message, and by what it knows it."""

    ending: Ending
    """COMMITTED or ROLLED_BACK."""
    physical_offset: int
    """Where the half message, or a copy of it, lies in the log."""
    queue_offset: int
    group: str
    ids: Set[str]
    """Its unique key among others, or nothing where the producer says none."""
    is_answer: bool
    """Whether the broker has asked for it."""


class TransactionEndings:
    def __init__(
        self, core: BrokerCore, admission: Admission, transactions: Transactions, views: TransactionViews
    ) -> None:
        self.figures = TransactionFigures()
        self._core = core
        self._store = core.store
        self._clock = core.clock
        self._admission = admission
        self._transactions = transactions
        self._undecided = transactions.undecided
        self._views = views

    def end(self, decision: ProducerDecision, told: Callable[[PutStatus], None] | None) -> bool:
        """Store a decision. `told` hears once whether it is safe; False: the same was decided before, and nobody hears anything.

        Raises `Refusal`.
        """
        known = self._undecided.at(decision.physical_offset)
        if known is None:
            self._check_repeat(decision)
            return False
        self._check_immunity(decision, known)
        place = next(place for place in known.places if place.physical_offset == decision.physical_offset)
        _check_same(decision, known.group, known.unique_key, place.queue_offset)
        if known.ending not in (None, decision.ending):
            raise _contrary(known.ending, decision.ending)
        self._decide(known, decision.ending, told)
        return True

    def _check_immunity(self, decision: ProducerDecision, known: Transaction) -> None:
        """A message that says when it may be checked is decided by checks alone once that time has passed."""
        if known.immunity_ms is None or decision.is_answer:
            return
        allowed_ms = max(known.immunity_ms, self._transactions.rules.timeout_ms)
        if self._clock.now_ms() - known.first_ms > allowed_ms:
            raise Refusal(
                ResponseCode.ILLEGAL_OPERATION,
                f"the half message asks for checks after {allowed_ms} ms, which have passed: only the answer to a check decides it now",
            )

    def _decide(self, known: Transaction, wanted: Ending, told: Callable[[PutStatus], None] | None) -> None:
        """Append what the decision is made of, unless that is on its way, and answer when it is safe."""
        is_first, end_offset = known.ending is None, self._store.log.end
        if is_first:
            try:
                if wanted is Ending.COMMITTED:
                    end_offset = self._commit(known)
                op_end = decision_record([place.queue_offset for place in known.places], wanted, self._core)
            except StoreUnwritableError as error:
                raise self._core.unwritable() from error
            if op_end is None and wanted is Ending.ROLLED_BACK:
                raise self._core.unwritable()
            end_offset = op_end or end_offset
            known.ending = wanted

        def stored(status: PutStatus) -> None:
            if is_first and status is PutStatus.SERVICE_NOT_AVAILABLE:
                known.ending = None
            elif is_first:
                self.figures.ended(known.topic, wanted, self._clock.now_ms() - known.first_ms)
            if told is not None:
                told(status)

        self._store.wait_durable(end_offset, told is not None, stored)

    def _commit(self, known: Transaction) -> int:
        """Append the message; answers the end of its record. Raises Refusal, StoreUnwritableError."""
        position = known.place.physical_offset
        data = self._store.record_at(position)
        if data is None:
            raise wrong(f"the half message at {position} is damaged: it cannot be committed")
        record = decode_record(data)
        if self._core.topics.get(known.topic) is None:
            raise topic_missing(known.topic)
        try:
            appended = self._store.append(self._committed(record, known), accepted=True)
        except RecordError as error:
            raise Refusal(ResponseCode.MESSAGE_ILLEGAL, f"the message cannot be committed: {error}") from error
        return appended.end_offset

    def _committed(self, record: Record, known: Transaction) -> NewMessage:
        """The message of a half message, placed like one that is sent now: relative times begin to count."""
        values = decode_properties(record.properties)
        queue = values.get(Property.REAL_QID, "")
        if not (queue.isascii() and queue.isdigit() and len(queue) < 10):
            raise wrong(f"the half message names queue {queue[:32]!r} of its topic")
        facts, now_ms = facts_of(values), self._clock.now_ms()
        facts.is_accepted = True
        message = self._admission.place(
            known.topic, int(queue), bytes(record.body), facts, self._admission.timers.due_time(facts, now_ms), now_ms,
            record.flag, record.sys_flag & ~TRANSACTION_MASK | COMMIT, record.born_timestamp, record.born_host,
            record.reconsume_times,
        )  # fmt: skip
        message.store_host = record.store_host
        message.prepared_transaction_offset = known.place.physical_offset
        return message

    def _check_repeat(self, decision: ProducerDecision) -> None:
        """Where nothing undecided is: the decision that was made has to be the same. Raises `Refusal`."""
        record = self._views.record(decision.physical_offset)
        if record is None or record.topic != HALF_TOPIC:
            raise wrong(f"there is no half message at commit log offset {decision.physical_offset}")
        facts = facts_of_half(record, 0)
        _check_same(decision, facts.group, facts.unique_key, facts.queue_offset)
        ended = self._views.ending(facts.queue_offset)
        if ended is not decision.ending:
            raise _contrary(ended, decision.ending)


def _check_same(decision: ProducerDecision, group: str, unique_key: str, queue_offset: int) -> None:
    """Raises `Refusal` when a decision names another group or another half message than the one at its place: after a power failure that
    place may be taken anew. RocketMQ does not look at the ids."""
    if decision.group != group:
        raise wrong(f"the half message is of another producer group than {decision.group!r}")
    if decision.queue_offset != queue_offset:
        raise wrong("tranStateTableOffset is not the queue offset of the half message at commitLogOffset")
    if decision.ids and unique_key not in decision.ids:
        raise wrong("msgId and transactionId are those of another half message than the one at commitLogOffset")


def _contrary(ended: Ending | None, wanted: Ending) -> Refusal:
    if ended is None:
        return wrong("the transaction has ended; how is not known any more")
    hint = "; RESUME_CHECK_HALF_MESSAGE brings it back" if ended is Ending.GIVEN_UP else ""
    return Refusal(
        ResponseCode.ILLEGAL_OPERATION, f"the transaction is {ended.value}, it cannot be {wanted.value} any more{hint}"
    )


def wrong(remark: str) -> Refusal:
    return Refusal(ResponseCode.SYSTEM_ERROR, remark)
