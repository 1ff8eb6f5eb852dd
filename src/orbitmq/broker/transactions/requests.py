"""Requests that change transactions: END_TRANSACTION (37) and RESUME_CHECK_HALF_MESSAGE (323).

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

from collections.abc import Mapping, Sequence

from orbitmq.access.gate import LedTo
from orbitmq.broker.admission import Admission
from orbitmq.broker.core import BrokerCore
from orbitmq.broker.message_properties import facts_of
from orbitmq.broker.real_topics import topics_at
from orbitmq.broker.refusal import Refusal, topic_missing
from orbitmq.broker.room import RequestHandler, Room
from orbitmq.broker.send_requests import ANSWERS
from orbitmq.broker.transactions.checks import TransactionChecks
from orbitmq.broker.transactions.counts_file import TRANSACTION_METRICS_FILE, write_counts_of
from orbitmq.broker.transactions.figures import TransactionFigures
from orbitmq.broker.transactions.op_records import OpRecords, decision_record
from orbitmq.broker.transactions.records import (
    Ending,
    copy_message,
    facts_of_half,
    resumed_message,
)
from orbitmq.broker.transactions.showing import TransactionViews
from orbitmq.broker.transactions.transactions import Transactions
from orbitmq.broker.transactions.undecided import Transaction
from orbitmq.errors import ProtocolError, RecordError, StoreUnwritableError
from orbitmq.limits.transactions import OP_RECORDS_READ_MAX
from orbitmq.protocol.ids import decode_offset_id
from orbitmq.protocol.names import HALF_TOPIC, OP_HALF_TOPIC, TRANS_CHECK_MAX_TIME_TOPIC, TRANSACTION_GROUP
from orbitmq.protocol.properties import Property, decode_properties
from orbitmq.protocol.records import Record, decode_record
from orbitmq.protocol.remoting.codes import RequestCode, ResponseCode
from orbitmq.protocol.remoting.frame import Command, response
from orbitmq.protocol.remoting.peer import Peer
from orbitmq.protocol.sysflag import TRANSACTION_MASK, TransactionType
from orbitmq.store.durability import PutStatus
from orbitmq.store.message import NewMessage

DECISIONS = {8: Ending.COMMITTED, 12: Ending.ROLLED_BACK}
"""`commitOrRollback` of a request; 0 says that the producer does not know yet."""

COMMIT = int(TransactionType.COMMIT)

ANY_TIME_MS = (1 << 63) - 1


class TransactionProcessor(Room):
    def __init__(self, core: BrokerCore, admission: Admission, transactions: Transactions) -> None:
        self._core = core
        self._store = core.store
        self._clock = core.clock
        self._admission = admission
        self._transactions = transactions
        self._undecided = transactions.undecided
        self._told_progress = (0, 0)
        self._resuming: set[int] = set()
        """Log positions of given up messages that are on their way into the log as half messages."""
        self.checks = TransactionChecks(core, transactions)
        self.figures = TransactionFigures()
        self.views = TransactionViews(core, transactions)
        self._op_records = OpRecords(core, transactions)

    def handlers(self) -> Mapping[RequestCode, RequestHandler]:
        return {
            RequestCode.END_TRANSACTION: self.end,
            RequestCode.RESUME_CHECK_HALF_MESSAGE: self.resume,
            RequestCode.LIST_TRANSACTIONS: self.views.page,
            RequestCode.GET_TRANSACTION: self.views.one,
        }

    def led_to(self) -> Mapping[RequestCode, LedTo]:
        return {
            RequestCode.END_TRANSACTION: lambda command: self._topics_at(_decided(command)),
            RequestCode.RESUME_CHECK_HALF_MESSAGE: lambda command: self._topics_at(_resumed(command)),
            RequestCode.LIST_TRANSACTIONS: self.views.topics_of_page,
            RequestCode.GET_TRANSACTION: self.views.topics_of_one,
        }

    def turn_ended(self) -> None:
        self._tell_progress(self._transactions.synced_progress)

    def close(self) -> None:
        self._tell_progress(self._transactions.progress)
        counts = self._core.facilities.tables(TRANSACTION_METRICS_FILE)
        write_counts_of(self._undecided, counts, self._clock.now_ms())

    def _tell_progress(self, progress: tuple[int, int]) -> None:
        """Keep for RocketMQ how far all transactions are decided."""
        if progress != self._told_progress:
            self._told_progress = progress
            for topic, offset in zip((HALF_TOPIC, OP_HALF_TOPIC), progress, strict=True):
                self._core.offsets.commit(TRANSACTION_GROUP, topic, 0, offset)

    def _topics_at(self, position: int) -> Sequence[str | None]:
        """The topic of the half message at a log position."""
        known = self._undecided.at(position)
        return topics_at(self._store, position) if known is None else [known.topic]

    # --- END_TRANSACTION --------------------------------------------------------------------------------------------

    def end(self, command: Command, peer: Peer) -> Command | None:
        """A producer's decision. A state that is not known yet gets no answer, as in RocketMQ."""
        asked, position = command.int32("commitOrRollback", -1), _decided(command)
        if not asked:
            return None
        wanted = DECISIONS.get(asked)
        if wanted is None:
            raise _wrong(f"commitOrRollback is 0, 8 (commit) or 12 (rollback), not {asked}")
        known = self._undecided.at(position)
        if known is None:
            return self._end_again(command, position, wanted)
        self._check_immunity(command, known)
        place = next(place for place in known.places if place.physical_offset == position)
        _check_same(command, known.group, known.unique_key, place.queue_offset)
        if known.ending not in (None, wanted):
            raise _contrary(known.ending, wanted)
        return self._decide(command, peer, known, wanted)

    def _check_immunity(self, command: Command, known: Transaction) -> None:
        """A message that says when it may be checked is decided by checks alone once that time has passed."""
        if known.immunity_ms is None or command.boolean("fromTransactionCheck"):
            return
        allowed_ms = max(known.immunity_ms, self._transactions.rules.timeout_ms)
        if self._clock.now_ms() - known.first_ms > allowed_ms:
            raise Refusal(
                ResponseCode.ILLEGAL_OPERATION,
                f"the half message asks for checks after {allowed_ms} ms, which have passed: only the answer to a check decides it now",
            )

    def _decide(self, command: Command, peer: Peer, known: Transaction, wanted: Ending) -> Command | None:
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
            if not command.is_oneway:
                ok = status is PutStatus.PUT_OK
                peer.send(
                    response(
                        command, ANSWERS[status], None if ok else f"the decision was not stored safely: {status.name}"
                    )
                )

        self._store.wait_durable(end_offset, not command.is_oneway, stored)
        return None

    def _commit(self, known: Transaction) -> int:
        """Append the message; answers the end of its record. Raises Refusal, StoreUnwritableError."""
        position = known.place.physical_offset
        data = self._store.record_at(position)
        if data is None:
            raise _wrong(f"the half message at {position} is damaged: it cannot be committed")
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
            raise _wrong(f"the half message names queue {queue[:32]!r} of its topic")
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

    def _end_again(self, command: Command, position: int, wanted: Ending) -> Command:
        """The answer where nothing undecided is: the decision that was made, if it is the same."""
        record = self.views.record(position)
        if record is None or record.topic != HALF_TOPIC:
            raise _wrong(f"there is no half message at commit log offset {position}")
        facts = facts_of_half(record, 0)
        _check_same(command, facts.group, facts.unique_key, facts.queue_offset)
        ended = self.views.ending(facts.queue_offset)
        if ended is not wanted:
            raise _contrary(ended, wanted)
        return response(command, ResponseCode.SUCCESS)

    # --- RESUME_CHECK_HALF_MESSAGE ----------------------------------------------------------------------------------

    def resume(self, command: Command, peer: Peer) -> Command | None:
        """Begin to ask about a transaction from the start: an undecided one, or one that was given up."""
        position = _resumed(command)
        self._core.check_writable()
        message = self._resumed(position)

        def stored(status: PutStatus) -> None:
            self._resuming.discard(position)
            if not command.is_oneway:
                peer.send(response(command, ANSWERS[status], None if status is PutStatus.PUT_OK else status.name))

        try:
            appended = self._store.append(message)
        except StoreUnwritableError as error:
            raise self._core.unwritable() from error
        except RecordError as error:
            raise _wrong(f"the half message cannot be stored again: {error}") from error
        self._resuming.add(position)
        self._store.wait_durable(appended.end_offset, True, stored)
        return None

    def _resumed(self, position: int) -> NewMessage:
        known = self._undecided.at(position)
        record = self.views.record(position if known is None else known.place.physical_offset)
        if known is not None and record is not None and known.ending is None:
            return copy_message(record, 0)
        if record is None or known is not None or record.topic != TRANS_CHECK_MAX_TIME_TOPIC:
            raise _wrong(
                f"there is no undecided half message at commit log offset {position}, and none that was given up"
            )
        key = decode_properties(record.properties).get(Property.UNIQ_KEY, "")
        since = self._store.query_by_key(HALF_TOPIC, key, OP_RECORDS_READ_MAX, record.store_timestamp, ANY_TIME_MS)
        if position in self._resuming or any(found > position for found in since):
            raise _wrong("checks of this half message were resumed before")
        return resumed_message(record)


def _decided(command: Command) -> int:
    """Log position of the half message that END_TRANSACTION is about."""
    return command.integer("commitLogOffset", -1)


def _resumed(command: Command) -> int:
    """Log position of the message that RESUME_CHECK_HALF_MESSAGE is about. Raises Refusal for an id that is none."""
    try:
        _, position = decode_offset_id(command.text("msgId"))
    except ProtocolError as error:
        raise _wrong(str(error)) from error
    return position


def _check_same(command: Command, group: str, unique_key: str, queue_offset: int) -> None:
    """Raises `Refusal` when a decision names another group or another half message than the one at its place: after a power failure that
    place may be taken anew. RocketMQ does not look at the ids."""
    if command.text("producerGroup") != group:
        raise _wrong(f"the half message is of another producer group than {command.text('producerGroup')!r}")
    if command.integer("tranStateTableOffset", -1) != queue_offset:
        raise _wrong("tranStateTableOffset is not the queue offset of the half message at commitLogOffset")
    ids = {command.text("transactionId"), command.text("msgId")} - {""}
    if ids and unique_key not in ids:
        raise _wrong("msgId and transactionId are those of another half message than the one at commitLogOffset")


def _contrary(ended: Ending | None, wanted: Ending) -> Refusal:
    if ended is None:
        return _wrong("the transaction has ended; how is not known any more")
    hint = "; RESUME_CHECK_HALF_MESSAGE brings it back" if ended is Ending.GIVEN_UP else ""
    return Refusal(
        ResponseCode.ILLEGAL_OPERATION, f"the transaction is {ended.value}, it cannot be {wanted.value} any more{hint}"
    )


def _wrong(remark: str) -> Refusal:
    return Refusal(ResponseCode.SYSTEM_ERROR, remark)
