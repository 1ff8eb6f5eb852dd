"""Who counts: a slave's copy from its connection to its end."""

from __future__ import annotations

import pytest

from orbitmq.limits.replication import COPIES_MAX
from orbitmq.replication.acknowledgements import CopyOutcome, CopyRule, one_slave_rule, quorum_rule
from orbitmq.replication.copies import Copies, Copy, CopyLag, CopyState

MS = 1_000_000
COUNTED, JOINING, BEHIND, SEEDING = CopyState.COUNTED, CopyState.JOINING, CopyState.BEHIND, CopyState.SEEDING


class Master:
    """Copies with a log, its confirmed end and a clock around them, as their owner drives them: asynchronous flush."""

    def __init__(self, rule: CopyRule | None = None, end: int = 1_000) -> None:
        self.now_ns = 10_000 * MS
        self.end = self.confirmed = end
        self.copies = Copies(rule or one_slave_rule(), end, end, self.now_ns)

    def connect(self, slave: str, position: int, *, seeding: bool = False) -> Copy:
        copy = self.copies.connected(slave, position, self.now_ns, seeding=seeding)
        assert copy is not None
        self.confirm()
        return copy

    def write(self, size: int) -> int:
        self.end += size
        self.copies.log_is(self.end, self.confirmed, self.now_ns)
        self.confirm()
        return self.end

    def report(self, copy: Copy, position: int) -> None:
        self.copies.reported(copy, position, self.now_ns)
        self.confirm()

    def confirm(self) -> None:
        limit = self.copies.confirmable_end
        self.confirmed = max(self.confirmed, self.end if limit is None else min(limit, self.end))
        self.copies.log_is(self.end, self.confirmed, self.now_ns)

    def wait(self, ms: int) -> None:
        self.now_ns += ms * MS
        self.copies.tick(self.now_ns)
        self.confirm()


def test_a_level_copy_counts_at_once() -> None:
    master = Master()
    assert master.connect("1", 1_000).state is COUNTED
    assert master.copies.outcome(1_000) is CopyOutcome.COPIED


def test_a_send_waits_for_the_copy_and_is_confirmed_with_it() -> None:
    master = Master()
    copy = master.connect("1", 1_000)
    end = master.write(10)
    assert master.copies.outcome(end) is None
    assert master.confirmed == 1_000
    master.report(copy, end)
    assert master.copies.outcome(end) is CopyOutcome.COPIED
    assert master.confirmed == end


def test_a_late_copy_counts_no_longer() -> None:
    master = Master()
    copy = master.connect("1", 1_000)
    end = master.write(10)
    due_ns = master.copies.due_ns
    assert due_ns == 13_000 * MS
    master.wait(2_999)
    assert copy.state is COUNTED
    master.wait(1)
    assert copy.state is BEHIND
    assert copy.fell_back == "it did not have within 3000 ms what was written"
    assert master.copies.outcome(end) is CopyOutcome.SLAVE_NOT_AVAILABLE
    assert master.confirmed == end  # as if the master were alone
    assert master.copies.due_ns is None


def test_a_copy_is_late_although_little_is_written_at_a_time() -> None:
    """It is the age of what it lacks that counts, not how long ago it reported something new."""
    master = Master()
    copy = master.connect("1", 1_000)
    for step in range(200):
        master.write(10)
        master.wait(100)
        if step < 20:
            master.report(copy, copy.position + 1)  # a tenth of what is written
        if copy.state is BEHIND:
            break
    assert 29 <= step <= 31


def test_a_copy_that_hangs_does_not_join_again_by_itself() -> None:
    master = Master()
    copy = master.connect("1", 1_000)
    master.write(10)
    master.wait(3_000)
    for _ in range(100):
        master.write(10)
        master.wait(1_000)
        assert copy.state is BEHIND


def test_a_copy_that_comes_back_joins_a_log_that_is_always_written_to() -> None:
    """It is never level with what is confirmed without it: joining holds confirming back for a moment."""
    master = Master()
    copy = master.connect("1", 1_000)
    master.write(10)
    master.wait(3_000)
    states = []
    for _ in range(100):
        end = master.write(10)
        master.wait(1)
        master.report(copy, end - 5)  # it has everything but the last half record, always
        states.append(copy.state)
    assert states[-1] is COUNTED
    assert BEHIND not in states


def test_what_is_confirmed_never_goes_back_and_a_joining_copy_gets_level() -> None:
    master = Master()
    copy = master.connect("1", 1_000)
    end = master.write(100)
    master.wait(3_000)
    assert master.confirmed == end
    master.write(50)
    assert master.confirmed == end + 50  # alone
    master.report(copy, end)
    assert (copy.state, copy.position < master.confirmed) == (JOINING, True)
    end = master.write(7)
    assert (master.confirmed, master.copies.outcome(end)) == (end - 7, None)
    master.report(copy, end - 7)
    assert copy.state is COUNTED


def test_a_copy_whose_log_is_damaged_counts_for_nothing_on_this_connection() -> None:
    master = Master()
    copy = master.copies.connected("1", 1_000, master.now_ns, damaged=True)
    assert copy is not None
    end = master.write(10)
    master.report(copy, end)
    assert copy.state is CopyState.DAMAGED
    assert master.copies.outcome(end) is CopyOutcome.SLAVE_NOT_AVAILABLE
    assert master.copies.confirmable_end is None
    assert "damaged" in master.copies.why_not_counted(copy)
    assert master.connect("1", end).state is COUNTED, "it was mended, and has connected anew"


def test_a_copy_that_is_being_seeded_counts_for_nothing() -> None:
    master = Master()
    copy = master.connect("1", 1_000, seeding=True)
    assert copy.state is SEEDING
    end = master.write(10)
    master.report(copy, end)
    assert master.copies.outcome(end) is CopyOutcome.SLAVE_NOT_AVAILABLE
    assert master.copies.confirmable_end is None
    master.copies.seeded(copy, master.now_ns)
    assert copy.state is COUNTED


def test_a_slave_that_comes_back_lower_is_lower() -> None:
    master = Master()
    first = master.connect("1", 1_000)
    end = master.write(10)
    master.report(first, end)
    second = master.connect("1", 400)
    assert [copy.position for copy in master.copies] == [400]
    assert second.state is BEHIND
    assert master.copies.outcome(end + 1) is CopyOutcome.SLAVE_NOT_AVAILABLE
    assert master.confirmed == end
    master.report(first, end + 100)  # still under way on the connection before
    master.copies.gone(first)
    master.copies.seeded(first, master.now_ns)
    assert list(master.copies) == [second]


def test_a_copy_too_far_behind_does_not_count() -> None:
    master = Master(one_slave_rule(behind_bytes_max=100))
    copy = master.connect("1", 1_000)
    master.write(99)
    assert copy.state is COUNTED
    master.write(1)
    assert (copy.state, copy.fell_back) == (BEHIND, "it is 100 bytes behind")


def test_when_the_only_copy_goes_nobody_waits_for_it() -> None:
    master = Master()
    copy = master.connect("1", 1_000)
    end = master.write(10)
    master.copies.gone(copy)
    assert master.copies.outcome(end) is CopyOutcome.SLAVE_NOT_AVAILABLE


def test_without_copies_nothing_is_written_and_nothing_confirmed_where_that_is_asked_for() -> None:
    master = Master(one_slave_rule(refuses=True))
    assert master.copies.refusal is CopyOutcome.REFUSED
    copy = master.connect("1", 1_000)
    assert master.copies.refusal is None
    end = master.write(10)
    master.wait(3_000)
    assert (copy.state, master.copies.refusal, master.confirmed) == (BEHIND, CopyOutcome.REFUSED, 1_000)
    master.wait(60_000)
    assert copy.state is BEHIND  # though it has all that is confirmed
    master.report(copy, end)
    assert (copy.state, master.confirmed) == (COUNTED, end)


def test_of_two_copies_one_is_enough_and_the_other_may_hang() -> None:
    master = Master()
    quick, slow = master.connect("1", 1_000), master.connect("2", 1_000)
    end = master.write(10)
    master.report(quick, end)
    assert master.copies.outcome(end) is CopyOutcome.COPIED
    master.wait(3_000)
    assert (quick.state, slow.state) == (COUNTED, BEHIND)


def test_three_copies_in_all() -> None:
    master = Master(quorum_rule(total_replicas=3, in_sync_replicas=3))
    first, second = master.connect("1", 1_000), master.connect("2", 1_000)
    end = master.write(10)
    master.report(first, end)
    assert (master.copies.outcome(end), master.confirmed) == (None, 1_000)
    master.report(second, end)
    assert (master.copies.outcome(end), master.confirmed) == (CopyOutcome.COPIED, end)
    master.copies.gone(second)
    assert master.copies.outcome(end + 1) is CopyOutcome.SLAVE_NOT_AVAILABLE


def test_a_slave_without_a_name_is_not_two_because_it_came_back() -> None:
    master = Master(quorum_rule(total_replicas=3, in_sync_replicas=3))
    for port in (40_000, 40_001):  # the first connection is dead, and nobody knows yet
        copy = master.copies.connected(f"10.0.0.7:{port}", 1_000, master.now_ns, counts_as="10.0.0.7")
        assert copy is not None
    assert [one.state for one in master.copies] == [BEHIND, COUNTED]
    assert master.copies.outcome(1_000) is CopyOutcome.SLAVE_NOT_AVAILABLE
    master.connect("10.0.0.8:40000", 1_000)
    end = master.write(10)
    master.report(copy, end)
    assert master.copies.outcome(end) is None


def test_a_slave_without_a_name_that_lost_its_log_counts_no_longer_by_its_earlier_connection() -> None:
    master = Master()
    first = master.copies.connected("10.0.0.7:1", 1_000, master.now_ns, counts_as="10.0.0.7")
    second = master.copies.connected("10.0.0.7:2", 200, master.now_ns, counts_as="10.0.0.7")
    assert first is not None
    assert second is not None
    assert (first.state, first.fell_back) == (BEHIND, "another connection came from its address")
    assert master.copies.outcome(1_000) is CopyOutcome.SLAVE_NOT_AVAILABLE
    master.copies.gone(second)
    master.wait(1)
    assert first.state is COUNTED


def test_lag() -> None:
    master = Master()
    copy = master.connect("1", 1_000)
    assert master.copies.lag(copy.position, master.now_ns) == CopyLag(0, 0)
    master.write(10)
    master.wait(500)
    master.write(20)
    assert master.copies.lag(copy.position, master.now_ns) == CopyLag(30, 500)
    master.report(copy, 1_010)
    master.wait(7)
    assert master.copies.lag(copy.position, master.now_ns) == CopyLag(20, 7)


def test_there_is_room_for_so_many() -> None:
    master = Master()
    for number in range(COPIES_MAX):
        master.connect(str(number), 1_000)
    assert master.copies.connected("another", 1_000, master.now_ns) is None
    master.connect("0", 900)


@pytest.mark.parametrize("rule", [CopyRule(), quorum_rule(total_replicas=1, in_sync_replicas=1)])
def test_an_asynchronous_master_waits_for_nobody(rule: CopyRule) -> None:
    master = Master(rule)
    master.connect("1", 400)
    end = master.write(10)
    assert master.copies.outcome(end) is CopyOutcome.COPIED
    assert master.confirmed == end


def test_what_is_missing_and_why_a_copy_does_not_count() -> None:
    master = Master(quorum_rule(total_replicas=3, in_sync_replicas=3))
    assert master.copies.missing == 2
    copy = master.connect("1", 1_000)
    assert (master.copies.missing, master.copies.why_not_counted(copy)) == (1, "")
    seeding = master.connect("2", 500, seeding=True)
    assert (master.copies.missing, master.copies.why_not_counted(seeding)) == (1, "it is being given what it lacks")
    behind = master.connect("3", 500)
    assert master.copies.why_not_counted(behind) == "it has not kept up since it connected"
    master.write(10)
    master.wait(60_000)
    assert (master.copies.missing, copy.state) == (2, BEHIND)
    assert "did not have within" in master.copies.why_not_counted(copy)


def test_where_fewer_copies_suffice_none_is_missing() -> None:
    assert Master(CopyRule()).copies.missing == 0
    lowers = Master(quorum_rule(total_replicas=3, in_sync_replicas=3, min_in_sync_replicas=2, lowers=True))
    assert lowers.copies.missing == 1
    lowers.connect("1", 1_000)
    assert lowers.copies.missing == 0
