"""Asking producers about transactions that they did not decide, and giving up those that nobody decides.

A check appends a copy of the half message with a raised counter. When that copy is in the log, one live producer of the group is asked,
with the place of the copy. Whether one is there or not: the check counts.

Rules of this file
1. It sleeps until the next check is due. Nothing polls.
2. Nobody is asked about what is decided, or is being decided, and nobody who may not publish to the topic: the question shows the message.
   Members to whom nothing can be sent now are passed over.
3. What is given up goes to RocketMQ's topic for that. What cannot be read goes to quarantine. Neither goes silently.
4. Work per turn is bounded.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

from orbitmq.broker.clients import GroupMember
from orbitmq.broker.core import BrokerCore
from orbitmq.broker.transactions.records import Ending, copy_message, given_up_message
from orbitmq.broker.transactions.transactions import Transactions
from orbitmq.broker.transactions.undecided import Transaction
from orbitmq.limits.transactions import CHECKS_IN_TURN_MAX
from orbitmq.protocol.ids import encode_offset_id
from orbitmq.protocol.names import HALF_TOPIC, TRANS_CHECK_MAX_TIME_TOPIC
from orbitmq.protocol.properties import Property, decode_properties
from orbitmq.protocol.records import decode_record, encode_stored
from orbitmq.protocol.remoting.codes import RequestCode
from orbitmq.protocol.remoting.frame import request
from orbitmq.store.message import NewMessage
from orbitmq.store.store import MessageStore
from orbitmq.timing.release import RETRY_MS, Release, count_in_turn, left_out, read_cold
from orbitmq.timing.rewriting import Taken
from orbitmq.units import NS_PER_MS

logger = logging.getLogger("orbitmq.broker")

WAKEUP: Final = "transaction-checks"


class TransactionChecks:
    """The checks of one broker. Made when the store is open."""

    def __init__(self, core: BrokerCore, transactions: Transactions) -> None:
        self._store: MessageStore | None = None
        self._attachment = 0
        """How many times it was attached: what is read under an earlier one is not checked."""
        self._clock = core.clock
        self._clients = core.clients
        self._gate = core.facilities.gate
        self._topics = core.topics
        self._broker_name = core.settings.broker_name
        self._deadlines = core.deadlines
        self._transactions = transactions
        self._release = Release("half message", self._next_of)
        self._is_reading = False
        self._asking: dict[int, NewMessage] = {}
        """Log position of a half message -> its copy, while that is on its way into the log."""
        self._turns = 0
        self.asked_count = 0
        """Questions that were sent to a producer."""
        self.given_up_count = 0
        core.deadlines.define(WAKEUP, self.run)
        transactions.copied = self._copied
        transactions.due_changed = self.arm

    def attach(self, store: MessageStore) -> None:
        """Begin to check (`Appender`)."""
        if self._store is None:
            self._store = store
            self._attachment += 1
            self.arm()

    def detach(self) -> None:
        """Check nothing any more, and forget what is in flight."""
        if self._store is not None:
            self._store, self._is_reading = None, False
            self._deadlines.disarm(WAKEUP)
            self._asking.clear()
            self._transactions.put_back()

    def arm(self, *, soonest_ms: int = 0) -> None:
        """Wake when the next check is due, not before `soonest_ms` from now."""
        due_ms = self._transactions.next_due_ms
        if self._store is not None and due_ms is not None and not self._is_reading:
            wait_ms = max(due_ms - self._clock.due_ns() // NS_PER_MS, soonest_ms, 0)
            self._deadlines.arm(WAKEUP, self._clock.monotonic_ns() + wait_ms * NS_PER_MS)

    def run(self) -> None:
        """Check what is due, as much as fits one turn."""
        store = self._store
        if store is None or self._is_reading:
            return
        if not store.writes_accepted:
            self.arm(soonest_ms=RETRY_MS)
            return
        transactions = self._transactions
        taken = transactions.take_due(self._clock.due_ns() // NS_PER_MS, CHECKS_IN_TURN_MAX)
        count = count_in_turn(one.size for one in taken)
        transactions.put_back([one.physical_offset for one in taken[count:]])
        if taken:
            self._read(store, taken[:count])
        else:
            self.arm()

    def _read(self, store: MessageStore, taken: list[Taken]) -> None:
        positions = [one.physical_offset for one in taken]
        self._is_reading = True
        attachment = self._attachment

        def done(found: list[tuple[int, bytes | None]] | BaseException) -> None:
            if self._store is None or attachment != self._attachment:
                return
            self._is_reading = False
            if isinstance(found, BaseException):
                logger.error("half messages could not be read, trying again: %s", found)
                self._untake(positions)
                return
            if not store.writes_accepted:
                self._untake(positions)
                return
            if unread := left_out(positions, found):
                self._untake(unread)
            undecided = [one for one in found if self._is_undecided(one[0])]
            self._transactions.put_back([physical for physical, _ in found if not self._is_undecided(physical)])
            self._release.put(store, undecided, self.arm, self._untake)
            store.commit()
            self.arm()

        read_cold(store, [(one.physical_offset, one.size) for one in taken], done)

    def _is_undecided(self, physical: int) -> bool:
        known = self._transactions.undecided.newest_at(physical)
        return known is not None and known.ending is None

    def _next_of(self, data: memoryview | bytes) -> NewMessage:
        """What takes the place of an undecided half message: its next copy, or the message that is given up."""
        record = decode_record(data)
        known = self._transactions.undecided.newest_at(record.physical_offset)
        assert known is not None, "it was looked at a moment ago"
        if not self._transactions.rules.is_over(known, self._clock.now_ms()):
            copy = self._asking[record.physical_offset] = copy_message(record, known.check_count + 1)
            return copy
        self._topics.ensure_system(TRANS_CHECK_MAX_TIME_TOPIC)
        known.ending = Ending.GIVEN_UP
        self.given_up_count += 1
        logger.warning(
            "the half message at %d for topic %s is given up after %d checks: no producer of group %s decided it. It is in %s",
            record.physical_offset, known.topic, known.check_count, known.group, TRANS_CHECK_MAX_TIME_TOPIC,
        )  # fmt: skip
        return given_up_message(record)

    def _untake(self, positions: Sequence[int]) -> None:
        for physical in positions:
            self._asking.pop(physical, None)
        self._transactions.put_back(positions)
        self.arm(soonest_ms=RETRY_MS)

    # --- asking -----------------------------------------------------------------------------------------------------

    def _copied(self, source: int, known: Transaction) -> None:
        """A copy is in the log."""
        copy = self._asking.pop(source, None)
        if copy is not None and known.ending is None:
            self._ask(copy, known)

    def _ask(self, copy: NewMessage, known: Transaction) -> None:
        members = [
            member
            for member in self._clients.producer(known.group)
            if member.session.writable and self._may_see(member, known.topic)
        ]
        if not members:
            return
        self._turns += 1
        place = known.place
        values = decode_properties(copy.properties)
        key = values.get(Property.UNIQ_KEY, "")
        fields = {
            "topic": HALF_TOPIC,
            "tranStateTableOffset": str(place.queue_offset),
            "commitLogOffset": str(place.physical_offset),
            "msgId": key,
            "transactionId": key,
            "offsetMsgId": encode_offset_id(copy.store_host, place.physical_offset),
            "bname": self._broker_name,
        }
        body = _as_sent(copy, known, values)
        self.asked_count += 1
        session = members[self._turns % len(members)].session
        session.send(request(RequestCode.CHECK_TRANSACTION_STATE, fields, body, oneway=True))

    def _may_see(self, member: GroupMember, topic: str) -> bool:
        return self._gate is None or self._gate.may_publish(member.user, member.session.address[0], topic)


def _as_sent(copy: NewMessage, known: Transaction, values: dict[str, str]) -> bytes:
    """The record of a copy, with the topic and the queue that its sender named."""
    queue = values.get(Property.REAL_QID, "")
    return encode_stored(
        known.topic.encode(), int(queue) if queue.isdigit() and len(queue) < 10 else 0, copy.flag,
        known.place.queue_offset, known.place.physical_offset, copy.sys_flag, copy.born_timestamp, copy.born_host,
        known.since_ms, copy.store_host, copy.reconsume_times, 0, copy.body, copy.properties, copy.body_crc or 0,
    )  # fmt: skip
