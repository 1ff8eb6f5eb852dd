"""Requests that change transactions: END_TRANSACTION (37) and RESUME_CHECK_HALF_MESSAGE (323).

What becomes of a decision is decided in `ending`.

Source: RocketMQ broker, end of a transaction.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from orbitmq.access.gate import LedTo
from orbitmq.broker.admission import Admission
from orbitmq.broker.core import BrokerCore
from orbitmq.broker.put_answers import ANSWERS
from orbitmq.broker.real_topics import topics_at
from orbitmq.broker.room import RequestHandler, Room
from orbitmq.broker.transactions.checks import TransactionChecks
from orbitmq.broker.transactions.counts_file import TRANSACTION_METRICS_FILE, write_counts_of
from orbitmq.broker.transactions.ending import ProducerDecision, TransactionEndings, wrong
from orbitmq.broker.transactions.op_records import OpRecords
from orbitmq.broker.transactions.records import (
    Ending,
    copy_message,
    resumed_message,
)
from orbitmq.broker.transactions.showing import TransactionViews
from orbitmq.broker.transactions.transactions import Transactions
from orbitmq.errors import ProtocolError, RecordError, StoreUnwritableError
from orbitmq.limits.transactions import OP_RECORDS_READ_MAX
from orbitmq.protocol.ids import decode_offset_id
from orbitmq.protocol.names import HALF_TOPIC, OP_HALF_TOPIC, TRANS_CHECK_MAX_TIME_TOPIC, TRANSACTION_GROUP
from orbitmq.protocol.properties import Property, decode_properties
from orbitmq.protocol.remoting.codes import RequestCode, ResponseCode
from orbitmq.protocol.remoting.frame import Command, response
from orbitmq.protocol.remoting.peer import Peer
from orbitmq.store.durability import PutStatus
from orbitmq.store.message import NewMessage

DECISIONS = {8: Ending.COMMITTED, 12: Ending.ROLLED_BACK}
"""`commitOrRollback` of a request; 0 says that the producer does not know yet."""

ANY_TIME_MS = (1 << 63) - 1


class TransactionProcessor(Room):
    def __init__(self, core: BrokerCore, admission: Admission, transactions: Transactions) -> None:
        self._core = core
        self._store = core.store
        self._clock = core.clock
        self._transactions = transactions
        self._undecided = transactions.undecided
        self._told_progress = (0, 0)
        self._resuming: set[int] = set()
        """Log positions of given up messages that are on their way into the log as half messages."""
        self.checks = TransactionChecks(core, transactions)
        self.views = TransactionViews(core, transactions)
        self.endings = TransactionEndings(core, admission, transactions, self.views)
        self.op_records = OpRecords(core, transactions)

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
        asked = command.int32("commitOrRollback", -1)
        if not asked:
            return None
        ending = DECISIONS.get(asked)
        if ending is None:
            raise wrong(f"commitOrRollback is 0, 8 (commit) or 12 (rollback), not {asked}")

        def stored(status: PutStatus) -> None:
            remark = None if status is PutStatus.PUT_OK else f"the decision was not stored safely: {status.name}"
            # SYSTEM_ERROR refuses a decision for good here; who hears 14 keeps it, and is asked where it did not stay.
            code = ResponseCode.SERVICE_NOT_AVAILABLE if status is PutStatus.UNKNOWN else ANSWERS[status]
            peer.send(response(command, code, remark))

        decision = ProducerDecision(
            ending,
            _decided(command),
            command.integer("tranStateTableOffset", -1),
            command.text("producerGroup"),
            {command.text("transactionId"), command.text("msgId")} - {""},
            command.boolean("fromTransactionCheck"),
        )
        is_new = self.endings.end(decision, None if command.is_oneway else stored)
        return None if is_new else response(command, ResponseCode.SUCCESS)

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
            raise wrong(f"the half message cannot be stored again: {error}") from error
        self._resuming.add(position)
        self._store.wait_durable(appended.end_offset, True, stored)
        return None

    def _resumed(self, position: int) -> NewMessage:
        known = self._undecided.at(position)
        record = self.views.record(position if known is None else known.place.physical_offset)
        if known is not None and record is not None and known.ending is None:
            return copy_message(record, 0)
        if record is None or known is not None or record.topic != TRANS_CHECK_MAX_TIME_TOPIC:
            raise wrong(
                f"there is no undecided half message at commit log offset {position}, and none that was given up"
            )
        key = decode_properties(record.properties).get(Property.UNIQ_KEY, "")
        since = self._store.query_by_key(HALF_TOPIC, key, OP_RECORDS_READ_MAX, record.store_timestamp, ANY_TIME_MS)
        if position in self._resuming or any(found > position for found in since):
            raise wrong("checks of this half message were resumed before")
        return resumed_message(record)


def _decided(command: Command) -> int:
    """Log position of the half message that END_TRANSACTION is about."""
    return command.integer("commitLogOffset", -1)


def _resumed(command: Command) -> int:
    """Log position of the message that RESUME_CHECK_HALF_MESSAGE is about. Raises Refusal for an id that is none."""
    try:
        _, position = decode_offset_id(command.text("msgId"))
    except ProtocolError as error:
        raise wrong(str(error)) from error
    return position
