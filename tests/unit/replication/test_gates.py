"""What slaves report decides what is confirmed: 0, 11, 12 and refusals, slaves that come, fall back and join again."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.worlds.little_store import LittleStore

from orbitmq.errors import StoreUnwritableError
from orbitmq.limits.replication import COPY_LEVEL_MS, COPY_TIMEOUT_MS
from orbitmq.replication.acknowledgements import CopyRule, one_slave_rule, quorum_rule
from orbitmq.replication.copies import Copies, Copy, CopyState
from orbitmq.replication.gates import CopiesGate
from orbitmq.store.durability import PutStatus

OK, LATE, NONE = PutStatus.PUT_OK, PutStatus.FLUSH_SLAVE_TIMEOUT, PutStatus.SLAVE_NOT_AVAILABLE
UNKNOWN = PutStatus.UNKNOWN


class Master:
    def __init__(self, root: Path, rule: CopyRule) -> None:
        self.little = LittleStore(root, confirms_tail=False)
        self.store = self.little.store
        clock = self.little.clock
        copies = Copies(rule, self.store.log.written_end, self.store.confirm_offset, clock.monotonic_ns())
        self.gate = CopiesGate(self.store, copies, clock)

    def send(self, body: bytes = b"x") -> int:
        end = self.little.send(body=body).end_offset
        self.gate.turn_ended()
        return end

    def slave(self, name: str = "slave 1", position: int | None = None, **more: bool) -> Copy:
        copy = self.gate.connected(name, self.end if position is None else position, **more)
        assert copy is not None
        return copy

    def advance(self, ms: int) -> None:
        self.little.advance(ms)

    @property
    def end(self) -> int:
        return self.store.log.written_end

    @property
    def statuses(self) -> list[PutStatus]:
        return self.little.statuses


@pytest.fixture
def master(tmp_path: Path) -> Master:
    return Master(tmp_path, one_slave_rule())


def test_a_send_is_answered_and_shown_when_the_slave_has_it(master: Master) -> None:
    copy = master.slave()
    end = master.send()
    assert (master.statuses, master.little.bodies()) == ([], [])
    master.gate.reported(copy, end)
    assert (master.statuses, master.little.bodies()) == ([OK], [b"x"])


def test_a_slave_that_was_in_time_until_now_is_late_in_its_own_time(master: Master) -> None:
    copy = master.slave()
    for _ in range(3):
        master.advance(1_000)
        master.gate.reported(copy, master.send())
    master.send(b"last")
    master.advance(COPY_TIMEOUT_MS - 100)
    assert (master.statuses, copy.state) == ([OK] * 3, CopyState.COUNTED)
    master.advance(300)
    assert (master.statuses[3:], copy.state) == ([LATE], CopyState.BEHIND)


def test_a_slave_that_joins_behind_another_one_is_late_in_its_own_time(tmp_path: Path) -> None:
    master = Master(tmp_path, quorum_rule(total_replicas=3, in_sync_replicas=2))
    behind_ms = COPY_LEVEL_MS - 50
    begin = master.end
    end = master.send(b"one")
    master.advance(behind_ms)
    first = master.slave("slave 1", end)
    master.send(b"two")
    second = master.slave("slave 2", begin)
    assert second.state is not CopyState.BEHIND
    master.advance(COPY_TIMEOUT_MS - 50)
    assert (first.state, second.state) == (CopyState.COUNTED, CopyState.BEHIND)


def test_without_a_slave_sends_are_answered_11_and_delivered(master: Master) -> None:
    master.send()
    assert (master.statuses, master.little.bodies()) == ([NONE], [b"x"])


def test_a_slave_that_is_late_counts_no_longer_until_it_keeps_up(master: Master) -> None:
    copy = master.slave()
    master.send(b"one")
    master.advance(COPY_TIMEOUT_MS - 100)
    assert master.statuses == []
    master.advance(300)
    assert (master.statuses, copy.state) == ([LATE], CopyState.BEHIND)
    assert master.little.bodies() == [b"one"]
    end = master.send(b"two")
    assert master.statuses[1:] == [NONE]
    master.gate.reported(copy, end)
    assert copy.state is CopyState.COUNTED
    end = master.send(b"three")
    assert master.little.bodies() == [b"one", b"two"]
    master.gate.reported(copy, end)
    assert master.statuses[2:] == [OK]


def test_a_slave_that_goes_leaves_the_master_alone(master: Master) -> None:
    copy = master.slave()
    master.send()
    master.gate.gone(copy)
    assert (master.statuses, master.little.bodies()) == ([NONE], [b"x"])


def test_a_slave_that_joins_holds_back_before_it_is_level(master: Master) -> None:
    first = master.send(b"one")
    master.advance(COPY_LEVEL_MS + 50)
    second = master.send(b"two")
    copy = master.slave(position=first)
    assert copy.state is CopyState.JOINING
    master.send(b"three")
    assert master.little.bodies() == [b"one", b"two"]
    master.gate.reported(copy, second)
    assert copy.state is CopyState.COUNTED
    assert master.statuses == [NONE, NONE]
    master.gate.reported(copy, master.end)
    assert master.statuses == [NONE, NONE, OK]


def test_a_slave_that_is_being_seeded_counts_for_nothing(master: Master) -> None:
    copy = master.slave(seeding=True)
    master.send()
    master.gate.reported(copy, master.end)
    master.send()
    assert master.statuses == [NONE, NONE]
    assert copy.state is CopyState.SEEDING
    master.gate.seeded(copy)
    master.gate.reported(copy, master.end)
    assert copy.state is CopyState.COUNTED


def test_two_copies_of_three_brokers(tmp_path: Path) -> None:
    master = Master(tmp_path, quorum_rule(total_replicas=3, in_sync_replicas=3))
    first, second = master.slave("slave 1"), master.slave("slave 2")
    end = master.send()
    master.gate.reported(first, end)
    assert master.statuses == []
    master.gate.reported(second, end)
    assert master.statuses == [OK]
    master.send()
    master.gate.gone(second)
    assert master.statuses == [OK, LATE], "the other one is connected, but one is too few"


def test_a_master_that_refuses_writes_nothing_without_copies_and_shows_nothing(tmp_path: Path) -> None:
    master = Master(tmp_path, one_slave_rule(refuses=True))
    with pytest.raises(StoreUnwritableError, match="too few copies keep up"):
        master.send()
    copy = master.slave()
    end = master.send(b"one")
    master.gate.reported(copy, end)
    assert master.statuses == [OK]
    master.send(b"two")
    master.gate.gone(copy)
    assert (master.statuses, master.little.bodies()) == ([OK, UNKNOWN], [b"one"]), "what is written waits for a copy"
    with pytest.raises(StoreUnwritableError):
        master.send(b"three")
    copy = master.slave(position=master.end)
    assert (master.statuses, master.little.bodies()) == ([OK, UNKNOWN], [b"one", b"two"])


def test_an_asynchronous_master_never_waits(tmp_path: Path) -> None:
    master = Master(tmp_path, CopyRule())
    master.slave(position=0)
    master.send()
    assert (master.statuses, master.little.bodies()) == ([OK], [b"x"])


def test_what_a_master_finds_behind_its_confirmed_offset_is_confirmed_when_it_is_alone(tmp_path: Path) -> None:
    master = Master(tmp_path, one_slave_rule())
    master.slave()
    master.send(b"tail")
    master.little.kill()
    again = Master(tmp_path, one_slave_rule())
    again.gate.turn_ended()
    assert again.little.bodies() == [b"tail"]


def test_a_master_no_more_says_that_it_does_not_know(master: Master) -> None:
    copy = master.slave()
    end = master.send()
    master.gate.close()
    assert master.statuses == [PutStatus.UNKNOWN]
    assert master.little.bodies() == []
    assert master.store.truncate(master.store.confirm_offset) == 1
    assert master.end < end
    master.send(b"for the next master to judge")
    master.gate.gone(copy)
    assert master.little.bodies() == [], "a slave that goes later confirms nothing here"
