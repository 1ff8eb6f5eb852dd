"""Lives of a log and its copy, from one seed each: sends, frames that cut records, late syncs, crashes, cuts, take-overs.

What must hold at any moment: what was confirmed once never changes, on neither side; consumers see exactly what is confirmed, numbered
without gaps; who was told OK finds the record confirmed; the copy's log is the beginning of the other one wherever both are confirmed.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import pytest
from tests.worlds.little_store import LittleStore

from orbitmq.clock import ManualClock
from orbitmq.store.confirmation import Confirmation
from orbitmq.store.durability import PutStatus
from orbitmq.store.recovery import LastWriter
from orbitmq.store.settings import FlushDiskType
from orbitmq.store.store import MessageStore

LIVES = 32
STEPS = 60
QUEUES = 2


class Broken(AssertionError):
    """A promise does not hold."""


class Side:
    """One broker's store, and what must stay true of it."""

    def __init__(self, root: Path, clock: ManualClock, flush: FlushDiskType) -> None:
        self.root, self.clock, self.flush = root, clock, flush
        self.confirmed = b""
        """The bytes that were confirmed so far."""
        self.promised: set[int] = set()
        """Ends of records whose senders were told OK."""
        self.open()

    def open(self) -> None:
        self.little = LittleStore(self.root, clock=self.clock, flush_disk_type=self.flush, confirms_tail=False)
        self.store = self.little.store
        self.store.confirmation.hold_for_copies(self.store.confirm_offset)

    def send(self, queue_id: int, body: bytes) -> None:
        placed = self.little.store.append(self.little.message(queue_id=queue_id, body=body))

        def told(status: PutStatus) -> None:
            if status is PutStatus.PUT_OK:
                if self.store.confirm_offset < placed.end_offset:
                    raise Broken(
                        f"the record that ends at {placed.end_offset} was promised, {self.store.confirm_offset} is confirmed"
                    )
                self.promised.add(placed.end_offset)

        self.store.wait_durable(placed.end_offset, True, told)

    def look(self) -> None:
        """Check what must hold now."""
        end, written_end = self.store.confirm_offset, self.store.log.written_end
        if written_end < len(self.confirmed):
            raise Broken(f"{len(self.confirmed)} bytes were confirmed, {written_end} are left")
        now = self.little.log_bytes(0, max(end, len(self.confirmed)))
        if now[: len(self.confirmed)] != self.confirmed:
            raise Broken("confirmed bytes changed")
        self.confirmed = now
        entries = list(self.store.scan(0))
        for queue_id in range(QUEUES):
            own = [entry for entry in entries if entry.queue_id == queue_id]
            if [entry.queue_offset for entry in own] != list(range(len(own))):
                raise Broken(f"queue {queue_id} is numbered {[entry.queue_offset for entry in own]}")
            if len(self.little.bodies(queue_id=queue_id)) != len(own):
                raise Broken(f"queue {queue_id} shows something else than what is confirmed")
        kept = {entry.physical_offset + entry.size for entry in [*entries, *self.store.confirmation.tail]}
        if lost := [end for end in self.promised if end not in kept]:
            raise Broken(f"promised messages are gone, which ended at {lost}")


class Life:
    def __init__(self, root: Path, seed: int) -> None:
        self.chance = random.Random(seed)
        clock = ManualClock()
        flush = self.chance.choice(list(FlushDiskType))
        self.leader, self.copy = Side(root / "a", clock, flush), Side(root / "b", clock, flush)
        self.sent = 0
        self.granted = 0
        """Up to here records were allowed to be confirmed: both had them, or the one that led alone."""

    def live(self) -> None:
        steps: list[tuple[int, Callable[[], None]]] = [
            (6, self.send), (8, self.ship), (5, self.report), (4, self.sync), (1, self.crash_copy), (1, self.restart_leader),
            (1, self.change_leader), (2, self.pass_time),
        ]  # fmt: skip
        weights = [weight for weight, _ in steps]
        self.trace: list[str] = []
        for _ in range(STEPS):
            (step,) = self.chance.choices([step for _, step in steps], weights)
            self.trace.append(step.__name__)
            step()
            if (confirmed := self.leader.store.confirm_offset) > self.granted:
                raise Broken(f"the leader confirmed {confirmed}, the copy has {self.granted}")
            self.leader.look()
            self.copy.look()
            both = min(len(self.leader.confirmed), len(self.copy.confirmed))
            if self.leader.confirmed[:both] != self.copy.confirmed[:both]:
                raise Broken("the two logs differ where both are confirmed")

    def send(self) -> None:
        for _ in range(self.chance.randint(1, 4)):
            self.sent += 1
            body = b"%d." % self.sent + bytes(self.chance.choice([0, 10, 900, 3_500]))
            self.leader.send(self.chance.randrange(QUEUES), body)
        self.leader.store.commit()

    def ship(self) -> None:
        """A frame for the copy, which may end anywhere."""
        begin, end = self.copy.store.raw_end, self.leader.store.log.written_end
        size = min(self.chance.choice([3, 200, 2_000, 20_000]), end - begin)
        if size > 0:
            self.copy.store.append_raw(begin, self.leader.little.log_bytes(begin, begin + size))

    def report(self) -> None:
        """The leader hears what the copy has, and the copy what is confirmed."""
        log = self.copy.store.log
        have = log.synced_end if self.copy.flush is FlushDiskType.SYNC_FLUSH else log.written_end
        self.granted = max(self.granted, have)
        self.leader.store.confirmation.copies_have(have)
        self.copy.store.confirmation.copies_have(min(self.leader.store.confirm_offset, log.written_end))

    def sync(self) -> None:
        for _ in range(self.chance.randint(1, 5)):
            self.leader.little.worker.step()
            self.copy.little.worker.step()

    def pass_time(self) -> None:
        self.leader.clock.advance(self.chance.choice([100, 6_000]))
        for side in (self.leader, self.copy):
            side.little.turn()

    def crash_copy(self) -> None:
        self.copy.little.kill()
        self.copy.open()

    def restart_leader(self) -> None:
        self.leader.little.kill() if self.chance.random() < 0.5 else self.leader.little.close()
        self.leader.open()

    def change_leader(self) -> None:
        """The copy leads from here on, if it has what is confirmed: what it has counts, and the old leader gives up the rest."""
        old, new = self.leader, self.copy
        if new.store.log.written_end < len(old.confirmed):
            return
        new.store.begin_raw()
        new.store.confirmation.let_pass()
        new.little.worker.close()
        self.granted = new.store.log.written_end
        new.store.confirmation.hold_for_copies(new.store.confirm_offset)
        old.store.commit()
        old.store.confirmation.give_up_waiting()
        keep = min(new.store.log.written_end, old.store.log.written_end)
        tail = old.store.confirmation.tail
        boundaries = [entry.physical_offset for entry in tail] + [entry.end_offset for entry in tail]
        old.store.truncate(max((at for at in boundaries if at <= keep), default=old.store.confirm_offset))
        new.promised |= old.promised
        self.leader, self.copy = new, old


def broken(root: Path, seeds: range) -> int | None:
    """The first seed whose life breaks a promise."""
    for seed in seeds:
        try:
            Life(root / str(seed), seed).live()
        except Broken:
            return seed
    return None


@pytest.mark.parametrize("part", range(4))
def test_lives(tmp_path: Path, part: int) -> None:
    for seed in range(part * LIVES // 4, (part + 1) * LIVES // 4):
        Life(tmp_path / str(seed), seed).live()


# --- planted bugs ----------------------------------------------------------------------------------------------------


@contextmanager
def tail_dispatched_at_start() -> Iterator[None]:
    correct = MessageStore.begin

    def begin(self: MessageStore, origin: LastWriter) -> None:
        correct(self, origin)
        self.confirmation.look_again()

    with mock.patch.object(MessageStore, "begin", begin):
        yield


@contextmanager
def answered_before_the_copy_has_it() -> Iterator[None]:
    correct = Confirmation.copies_have

    def generous(self: Confirmation, end: int) -> None:
        correct(self, max(end, self._held[0].end_offset if self._held else end))

    with mock.patch.object(Confirmation, "copies_have", generous):
        yield


@contextmanager
def next_offset_of_a_cut_record_kept() -> Iterator[None]:
    with mock.patch("orbitmq.store.store.renumber"):
        yield


@pytest.mark.parametrize(
    "bug",
    [tail_dispatched_at_start, answered_before_the_copy_has_it, next_offset_of_a_cut_record_kept],
)
def test_planted_bugs_are_caught(tmp_path: Path, bug: Callable[[], Iterator[None]]) -> None:
    with bug():  # type: ignore[attr-defined]
        assert broken(tmp_path, range(200)) is not None
