"""Transactions at a slave that got the log from a later place on: the records of earlier places of their half messages are gone."""

from __future__ import annotations

import msgspec
import pytest
from tests.unit.broker.conftest import SMALL_STORE
from tests.unit.broker.transactions.conftest import COMMIT, GROUP, ROLLBACK, MakeTransactions, TransactionRig
from tests.unit.broker.transactions.test_undecided import facts
from tests.worlds.raw_log import append_raw

from orbitmq.broker.transactions.records import Ending
from orbitmq.broker.transactions.undecided import UNNUMBERED, Undecided
from orbitmq.protocol.remoting.codes import ResponseCode
from orbitmq.timing.rewriting import Rewriting


class Seeded:
    """A master whose half message retention has put again, `times` times, and a slave that begins behind the earlier ones."""

    def __init__(self, make: MakeTransactions, times: int = 1) -> None:
        small = msgspec.structs.replace(SMALL_STORE, mapped_file_size_commit_log=1 << 16)
        self.master, self.slave = make(store=small), make(store=small)
        self.slave.appenders.detach()
        rewriting = Rewriting(self.master.clock, [self.master.transactions])
        self.sent = self.master.half(UNIQ_KEY="U1")
        for _ in range(times):
            self.fill()
            rewriting.attach(self.master.store)
            done: list[bool] = []
            rewriting.rewrite_below(self.start, done.append)
            while not done:
                self.master.advance(100)
            rewriting.detach()
            store = self.master.store
            store.remove_paths(store.drop_first_segments(len(store.log.sequence.segments) - 1))
        self.copy()

    @property
    def start(self) -> int:
        return self.master.store.log.sequence.segments[-1].base

    def fill(self) -> None:
        segments = len(self.master.store.log.sequence.segments)
        while len(self.master.store.log.sequence.segments) == segments:
            self.master.sent_ok("orders", bytes(2_000), {})

    def copy(self) -> None:
        ours, theirs = self.master.store.log, self.slave.store
        begin = max(ours.start, theirs.log.end)
        while begin < ours.end:
            segment = ours.sequence.find(begin)
            assert segment is not None
            data = ours.read(begin, min(ours.end, segment.end) - begin)
            assert data is not None
            append_raw(theirs, begin, bytes(data))
            begin += len(data)
        self.slave.advance(1)

    def lead(self) -> TransactionRig:
        self.slave.appenders.attach()
        self.slave.broker.topics.put(self.master.broker.topics.get("orders"), {})  # type: ignore[arg-type]
        return self.slave


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("state", [COMMIT, ROLLBACK])
def test_a_producer_decides_by_the_place_that_it_was_told(
    make_transactions: MakeTransactions, times: int, state: int
) -> None:
    seeded = Seeded(make_transactions, times)
    assert seeded.slave.undecided == 1
    slave = seeded.lead()
    assert slave.ended(seeded.sent, state)[0] == ResponseCode.SUCCESS
    assert slave.undecided == 0
    assert slave.bodies().count(b"half") == (state == COMMIT)


def test_after_its_own_start_as_well(make_transactions: MakeTransactions) -> None:
    seeded = Seeded(make_transactions)
    seeded.slave.kill()
    assert seeded.slave.undecided == 1
    slave = seeded.lead()
    assert slave.ended(seeded.sent, COMMIT)[0] == ResponseCode.SUCCESS


def test_another_group_and_another_id_decide_nothing(make_transactions: MakeTransactions) -> None:
    seeded = Seeded(make_transactions, times=2)
    slave = seeded.lead()
    assert slave.ended(seeded.sent, COMMIT, producerGroup="strangers")[0] != ResponseCode.SUCCESS
    assert slave.ended(seeded.sent, COMMIT, msgId="U2", transactionId="U2")[0] != ResponseCode.SUCCESS
    assert slave.undecided == 1


def test_its_producer_is_asked_by_the_new_master(make_transactions: MakeTransactions) -> None:
    seeded = Seeded(make_transactions)
    slave = seeded.lead()
    producer = slave.peer()
    slave.heartbeat(producer, "client", producer=GROUP)
    producer.take()
    slave.advance(100_000)
    questions = slave.questions(producer)
    assert questions
    assert slave.ended(questions[-1], COMMIT)[0] == ResponseCode.SUCCESS


def test_a_decision_at_the_master_ends_it_at_the_slave(make_transactions: MakeTransactions) -> None:
    seeded = Seeded(make_transactions)
    seeded.master.end(seeded.sent, COMMIT)
    seeded.master.advance(1_000)
    seeded.copy()
    assert seeded.slave.undecided == 0


def test_a_copy_of_what_had_ended_is_named_by_an_op_record() -> None:
    """The record that ended it, before its copy was made, names a place that a seeded slave does not know."""
    undecided = Undecided()
    undecided.committed(100, None)
    undecided.half(facts(900, 7, 100), log_start=500)
    assert [known.older for known in undecided] == [((100, UNNUMBERED),)]
    undecided.named([7], Ending.COPIED)
    assert len(undecided) == 0


def test_where_the_source_should_be_there_a_copy_opens_nothing() -> None:
    undecided = Undecided()
    undecided.half(facts(900, 7, 600), log_start=500)
    assert len(undecided) == 0
    assert undecided.unnamed == {7: Ending.COPIED}
