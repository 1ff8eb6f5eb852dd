"""Looking at transactions: what is undecided, and what became of one. Requests LIST_TRANSACTIONS (20050) and GET_TRANSACTION (20051).

Rules of this file
1. Nothing is changed here.
2. What has ended is found by the key index, as long as the log has it. Work is bounded: a page, or `OP_RECORDS_READ_MAX` records.
3. A body that cannot be read, or asks for what cannot be, is answered INVALID_PARAMETER.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final, TypeVar

from orbitmq.broker.core import BrokerCore
from orbitmq.broker.refusal import Refusal
from orbitmq.broker.transactions.records import Ending, HalfFacts, ending_of, facts_of_half, named_by_keys
from orbitmq.broker.transactions.transactions import Transactions
from orbitmq.broker.transactions.undecided import Transaction
from orbitmq.errors import ProtocolError
from orbitmq.limits.transactions import OP_RECORDS_READ_MAX, TRANSACTION_PAGE_MAX
from orbitmq.protocol.ids import decode_offset_id, encode_offset_id
from orbitmq.protocol.names import HALF_TOPIC, OP_HALF_TOPIC, TRANS_CHECK_MAX_TIME_TOPIC
from orbitmq.protocol.properties import Property, decode_properties
from orbitmq.protocol.records import Record, decode_record
from orbitmq.protocol.remoting.bodies.json_body import JsonBody
from orbitmq.protocol.remoting.codes import ResponseCode
from orbitmq.protocol.remoting.frame import Command, response
from orbitmq.protocol.remoting.peer import Peer
from orbitmq.protocol.remoting.transaction_bodies import (
    TransactionAnswer,
    TransactionName,
    TransactionPage,
    TransactionQuery,
    TransactionState,
    TransactionViewBody,
)

_Body = TypeVar("_Body", bound=JsonBody)

_ANY_TIME_MS: Final = (1 << 63) - 1

_STATES: Final = {
    Ending.COMMITTED: TransactionState.COMMITTED,
    Ending.ROLLED_BACK: TransactionState.ROLLED_BACK,
    Ending.GIVEN_UP: TransactionState.GIVEN_UP,
}


class TransactionViews:
    """What the log of one broker says about transactions."""

    def __init__(self, core: BrokerCore, transactions: Transactions) -> None:
        self._store = core.store
        self._store_host = core.facilities.store_host
        self._undecided = transactions.undecided
        self._rules = transactions.rules

    # --- requests ---------------------------------------------------------------------------------------------------

    def page(self, command: Command, peer: Peer) -> Command:
        """LIST_TRANSACTIONS. Cost: a look at each undecided transaction before and on the page, some ms for all there may be."""
        query = _read(TransactionQuery, command)
        if not 1 <= query.limit <= TRANSACTION_PAGE_MAX:
            raise _wrong(f"a page has 1 to {TRANSACTION_PAGE_MAX} transactions, not {query.limit}")
        found: list[Transaction] = []
        for known in self._undecided:
            if query.cursor is not None and known.place.physical_offset <= query.cursor:
                continue
            if query.topic in (None, known.topic) and query.group in (None, known.group):
                if len(found) == query.limit:
                    return _success(command, TransactionPage(self._views(found), found[-1].place.physical_offset))
                found.append(known)
        return _success(command, TransactionPage(self._views(found)))

    def one(self, command: Command, peer: Peer) -> Command:
        """GET_TRANSACTION."""
        views, record = self._known_of(_read(TransactionName, command).id)
        answer = TransactionAnswer(views)
        if record is not None:
            answer.properties, answer.body = decode_properties(record.properties), bytes(record.body)
            answer.sys_flag = record.sys_flag
        return _success(command, answer)

    def topics_of_page(self, command: Command) -> list[str | None]:
        """The topic that LIST_TRANSACTIONS asks about; None for all. Raises Refusal."""
        return [_read(TransactionQuery, command).topic]

    def topics_of_one(self, command: Command) -> list[str]:
        """The topics of what GET_TRANSACTION shows. Raises Refusal. Cost: as the request itself."""
        views, _ = self._known_of(_read(TransactionName, command).id)
        return [view.topic for view in views]

    # --- looking ----------------------------------------------------------------------------------------------------

    def record(self, position: int) -> Record | None:
        """The record at a log position; None when there is none."""
        data = self._store.record_at(position) if position >= 0 else None
        return None if data is None else decode_record(data)

    def ending(self, queue_offset: int) -> Ending | None:
        """How the transaction of a half message ended; None when no op record of ours says so (any more). One look into the key index."""
        unnamed = self._undecided.unnamed.get(queue_offset)
        if unnamed not in (None, Ending.COPIED):
            return unnamed
        for record in self._keyed(OP_HALF_TOPIC, str(queue_offset)):
            ending = ending_of(record.properties)
            named = named_by_keys(decode_properties(record.properties).get(Property.KEYS))
            if ending not in (None, Ending.COPIED) and queue_offset in named:
                return ending
        return None

    def halves_with_id(self, topic: str, unique_key: str) -> list[Record]:
        """The half messages of a topic with that unique key, copies and those that were given up among them, newest first. They are looked
        for among the last `OP_RECORDS_READ_MAX` with the key, of whichever topics."""
        return sorted(self._halves(unique_key, topic), key=lambda one: one.physical_offset, reverse=True)

    def ending_of(self, half: Record) -> Ending | None:
        """How the transaction of a half message, or of one that was given up, ended; None when nothing says so (any more)."""
        return self.ending(half.queue_offset) if half.topic == HALF_TOPIC else Ending.GIVEN_UP

    def _known_of(self, wanted: str) -> tuple[list[TransactionViewBody], Record | None]:
        """What is known of the transactions with an id, and the half message of the first."""
        named = self._named(wanted)
        key = wanted if named is None else _facts(named).unique_key
        undecided = self._meant(key, named)
        if undecided:
            return self._views(undecided), self.record(undecided[0].place.physical_offset)
        ended = self._ended(key)
        return ([], None) if ended is None else ([ended[0]], ended[1])

    def _named(self, offset_id: str) -> Record | None:
        """The half message, waiting, ended or given up, that an offset id names."""
        try:
            host, position = decode_offset_id(offset_id)
        except ProtocolError:
            return None
        record = self.record(position)
        if record is None or record.topic not in (HALF_TOPIC, TRANS_CHECK_MAX_TIME_TOPIC):
            return None
        return record if host in (record.store_host, self._store_host) else None

    def _meant(self, key: str, named: Record | None) -> Sequence[Transaction]:
        """The undecided transactions with a unique key, at most a page; only the one of the half message `named`, if it is undecided."""
        at_offset = None if named is None else self._undecided.at(named.physical_offset)
        if at_offset is not None:
            return [at_offset]
        return [*islice((known for known in self._undecided if key and known.unique_key == key), TRANSACTION_PAGE_MAX)]

    def _ended(self, message_id: str) -> tuple[TransactionViewBody, Record] | None:
        """The transaction with that id that ended last, and its half message."""
        found = self._halves(message_id)
        if not found:
            return None
        record = max(found, key=lambda one: one.physical_offset)
        facts = _facts(record)
        ending = self.ending_of(record)
        view = TransactionViewBody(
            TransactionState.ENDED if ending is None else _STATES[ending],
            facts.topic,
            facts.group,
            facts.unique_key,
            encode_offset_id(record.store_host, record.physical_offset),
            min(_facts(one).store_timestamp for one in found),
            facts.check_count,
            None,
            record.total_size,
        )
        return view, record

    def _halves(self, unique_key: str, topic: str | None = None) -> list[Record]:
        """The half messages with that key, also those that were given up; of one topic, or of all."""
        return [
            record
            for where in (HALF_TOPIC, TRANS_CHECK_MAX_TIME_TOPIC)
            for record in self._keyed(where, unique_key)
            if (facts := _facts(record)).unique_key == unique_key and topic in (None, facts.topic)
        ]

    def _keyed(self, topic: str, key: str) -> Iterator[Record]:
        for position in self._store.query_by_key(topic, key, OP_RECORDS_READ_MAX, 0, _ANY_TIME_MS):
            record = self.record(position)
            if record is not None and record.topic == topic:
                yield record

    def _views(self, found: Sequence[Transaction]) -> list[TransactionViewBody]:
        return [
            TransactionViewBody(
                TransactionState.UNDECIDED,
                known.topic,
                known.group,
                known.unique_key,
                encode_offset_id(self._store_host, known.place.physical_offset),
                known.first_ms,
                known.check_count,
                known.since_ms + self._rules.wait_ms(known),
                known.size,
            )
            for known in found
        ]


def _facts(record: Record) -> HalfFacts:
    return facts_of_half(record, record.total_size)


def _read(body: type[_Body], command: Command) -> _Body:
    try:
        return body.decode(command.body)
    except ProtocolError as error:
        raise _wrong(str(error)) from error


def _success(command: Command, body: JsonBody) -> Command:
    return response(command, ResponseCode.SUCCESS, body=body.encode())


def _wrong(remark: str) -> Refusal:
    return Refusal(ResponseCode.INVALID_PARAMETER, remark)
