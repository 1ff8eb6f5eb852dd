"""Ends of transactions: what becomes of a producer's decision, whichever front end it came through.

Rules of this file
1. A decision is the committed message, if there is one, and its op record, in one write. Whoever repeats it stores nothing; whoever says
   the contrary is refused.
2. The offsets of any copy of a half message decide. Group and offsets have to be those of the half message; of a copy whose record was
   never here the log position, or where that is not known either, one of its ids.
3. A message that cannot be stored as it asks (its topic is gone, its time is too far away) leaves its transaction undecided: it is asked
   about again, and given up in the end.
4. What a decision was is said by its op record, as long as the log has it.
5. A producer that knows no offsets names topic and id, and means all undecided half messages with them: its own, sent again. Whoever may
   publish to a topic may decide its transactions; an id in another topic is another one.

Source: RocketMQ broker, end of a transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Set
from typing import Final, NamedTuple

from orbitmq.broker.admission import Admission
from orbitmq.broker.core import BrokerCore
from orbitmq.broker.message_properties import facts_of
from orbitmq.broker.refusal import Refusal, topic_missing
from orbitmq.broker.transactions.figures import TransactionFigures
from orbitmq.broker.transactions.op_records import decision_record
from orbitmq.broker.transactions.records import Ending, facts_of_half
from orbitmq.broker.transactions.showing import TransactionViews
from orbitmq.broker.transactions.transactions import Transactions
from orbitmq.broker.transactions.undecided import UNNUMBERED, Transaction
from orbitmq.errors import RecordError, StoreUnwritableError
from orbitmq.protocol.names import HALF_TOPIC
from orbitmq.protocol.properties import Property, decode_properties
from orbitmq.protocol.records import Record, decode_record
from orbitmq.protocol.remoting.codes import ResponseCode
from orbitmq.protocol.sysflag import TRANSACTION_MASK, TransactionType
from orbitmq.store.dispatch import Dispatched
from orbitmq.store.durability import PutStatus, worst_of
from orbitmq.store.message import NewMessage

COMMIT = int(TransactionType.COMMIT)

ID_CHARS_SHOWN: Final = 64
"""Characters of an id that a refusal repeats."""


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


class DecisionById(NamedTuple):
    """What a producer says about the half messages of a topic that have an id."""

    ending: Ending
    """COMMITTED or ROLLED_BACK."""
    topic: str
    """That of the message, not the half topic."""
    unique_key: str
    is_answer: bool | None
    """Whether the broker has asked for it. None: the producer does not say; it counts as an answer to a question that was asked."""


class UnknownTransactionRefusal(Refusal):
    """No half message with the id is in the log: front ends may have a code of their own for it."""


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
        known = self._undecided.at(decision.physical_offset) or self._of_gone_place(decision)
        if known is None:
            self._check_repeat(decision)
            return False
        self._check_immunity(known, decision.is_answer)
        offsets = (place.queue_offset for place in known.places if place.physical_offset == decision.physical_offset)
        _check_same(decision, known.group, known.unique_key, next(offsets, UNNUMBERED))
        _check_not_contrary(known, decision.ending)
        self._decide(known, decision.ending, told)
        return True

    def end_by_id(self, decision: DecisionById, told: Callable[[PutStatus], None]) -> bool:
        """As `end`, of all undecided half messages with the id. `told` hears the worst of what became of them.

        Raises `Refusal` and what reading the log raises. Some of several may have been decided then; asking again decides the others.
        """
        found = self._undecided.with_id(decision.topic, decision.unique_key)
        if not found:
            self._check_repeat_by_id(decision)
            return False
        for known in found:
            self._check_immunity(known, known.check_count > 0 if decision.is_answer is None else decision.is_answer)
            _check_not_contrary(known, decision.ending)
        decided = _DecidedTogether(len(found), told)
        for known in found:
            self._decide(known, decision.ending, decided.stored)
        return True

    def _of_gone_place(self, decision: ProducerDecision) -> Transaction | None:
        """The one undecided half message with the group and an id of the decision, where that names a place which is gone from the log, and
        not all places of the half message are known."""
        if decision.physical_offset >= self._store.log.start:
            return None
        found = [
            known
            for known in self._undecided
            if known.unique_key in decision.ids
            and known.group == decision.group
            and any(place.queue_offset == UNNUMBERED for place in known.older)
        ]
        return found[0] if len(found) == 1 else None

    def _check_immunity(self, known: Transaction, is_answer: bool) -> None:
        """A message that says when it may be checked is decided by checks alone once that time has passed."""
        if known.immunity_ms is None or is_answer:
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
                appended = [self._commit(known)] if wanted is Ending.COMMITTED else []
            except StoreUnwritableError as error:
                raise self._core.unwritable() from error
            offsets = [place.queue_offset for place in known.places if place.queue_offset != UNNUMBERED]
            op = decision_record(offsets, wanted, self._core)
            appended += [] if op is None else [op]
            if not appended:
                raise self._core.unwritable()
            end_offset = appended[-1].end_offset
            known.ending, known.ended_at = wanted, appended[0].physical_offset

        def stored(status: PutStatus) -> None:
            if is_first and status is PutStatus.SERVICE_NOT_AVAILABLE:
                known.ending = None
            elif is_first:
                self.figures.ended(known.topic, wanted, self._clock.now_ms() - known.first_ms)
            if told is not None:
                told(status)

        self._store.wait_durable(end_offset, told is not None, stored)

    def _commit(self, known: Transaction) -> Dispatched:
        """Append the message; answers where. Raises Refusal, StoreUnwritableError."""
        position = known.place.physical_offset
        data = self._store.record_at(position)
        if data is None:
            raise wrong(f"the half message at {position} is damaged: it cannot be committed")
        record = decode_record(data)
        if self._core.topics.get(known.topic) is None:
            raise topic_missing(known.topic)
        try:
            return self._store.append(self._committed(record, known), accepted=True)
        except RecordError as error:
            raise Refusal(ResponseCode.MESSAGE_ILLEGAL, f"the message cannot be committed: {error}") from error

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

    def _check_repeat_by_id(self, decision: DecisionById) -> None:
        """`_check_repeat` for the newest half message with the id. Raises `Refusal`."""
        halves = self._views.halves_with_id(decision.topic, decision.unique_key)
        if not halves:
            raise UnknownTransactionRefusal(
                ResponseCode.QUERY_NOT_FOUND,
                f"no half message with id {decision.unique_key[:ID_CHARS_SHOWN]!r} was sent to topic {decision.topic!r}, or the log does "
                "not have it any more",
            )
        endings = map(self._views.ending_of, halves)
        ended = next((ended for ended in endings if ended is not None), None)
        if ended is not decision.ending:
            raise _contrary(ended, decision.ending)


class _DecidedTogether:
    """Tells once, when the last of several decisions has been stored, the worst of what became of them."""

    def __init__(self, count: int, told: Callable[[PutStatus], None]) -> None:
        self._open_count = count
        self._worst = PutStatus.PUT_OK
        self._told = told

    def stored(self, status: PutStatus) -> None:
        self._worst = worst_of([self._worst, status])
        self._open_count -= 1
        if not self._open_count:
            self._told(self._worst)


def _check_same(decision: ProducerDecision, group: str, unique_key: str, queue_offset: int) -> None:
    """Raises `Refusal` when a decision names another group or another half message than the one at its place: after a power failure that
    place may be taken anew. RocketMQ does not look at the ids."""
    if decision.group != group:
        raise wrong(f"the half message is of another producer group than {decision.group!r}")
    if queue_offset not in (decision.queue_offset, UNNUMBERED):
        raise wrong("tranStateTableOffset is not the queue offset of the half message at commitLogOffset")
    if decision.ids and unique_key not in decision.ids:
        raise wrong("msgId and transactionId are those of another half message than the one at commitLogOffset")


def _check_not_contrary(known: Transaction, wanted: Ending) -> None:
    """Raises `Refusal` when another decision is on its way into the log."""
    if known.ending not in (None, wanted):
        raise _contrary(known.ending, wanted)


def _contrary(ended: Ending | None, wanted: Ending) -> Refusal:
    if ended is None:
        return Refusal(ResponseCode.ILLEGAL_OPERATION, "the transaction has ended; how is not known any more")
    hint = "; RESUME_CHECK_HALF_MESSAGE brings it back" if ended is Ending.GIVEN_UP else ""
    return Refusal(
        ResponseCode.ILLEGAL_OPERATION, f"the transaction is {ended.value}, it cannot be {wanted.value} any more{hint}"
    )


def wrong(remark: str) -> Refusal:
    return Refusal(ResponseCode.SYSTEM_ERROR, remark)
