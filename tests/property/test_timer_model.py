"""Timer wheel and timer log against dictionaries, through restarts; and walks over damaged files."""

from __future__ import annotations

import random
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from orbitmq.store.files import OsFiles
from orbitmq.timing.timer_files.link import Link, link, recover, settle
from orbitmq.timing.timer_files.log import ChainEnd, TimerLog
from orbitmq.timing.timer_files.unit import DEFAULT, DELETE, ROLL, UNIT_BYTES
from orbitmq.timing.timer_files.wheel import TimerWheel

FILES = OsFiles()
W = 1_795_228_412_000
SLOTS = 64
"""A lap of a minute: slots are overtaken within a few steps."""


class TimerMachine(RuleBasedStateMachine):
    """`model` is what each slot time holds, in order of linking; `clock` the write clock."""

    @initialize(file_units=st.integers(1, 9), spare=st.integers(0, 51))
    def start(self, file_units: int, spare: int) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.root = Path(self.folder.name)
        self.file_bytes = file_units * UNIT_BYTES + 16 + spare
        self.clock = W
        self.model: dict[int, list[int]] = {}
        self.physical = 0
        self.cleaned_below = 0
        self.settled = 0
        self.wheel = TimerWheel.create(FILES, self.root / "timerwheel", 1000, SLOTS)
        self.log = TimerLog(FILES, self.root / "timerlog", self.file_bytes)
        self.log.load()

    @rule(batch=st.lists(st.tuples(st.integers(0, SLOTS // 2), st.sampled_from([1, 3, 5, 7])), max_size=12))
    def link(self, batch: list[tuple[int, int]]) -> None:
        links = []
        for ahead, magic in batch:
            slot_ms = self.clock + ahead * 1000
            links.append(Link(slot_ms, magic, self.physical, 100, 7, slot_ms + 1 if magic == DEFAULT else 0))
            self.model.setdefault(slot_ms, []).append(self.physical)
            self.physical += 100
        link(self.wheel, self.log, self.clock, links)

    @rule(seconds=st.integers(1, SLOTS // 2))
    def time_passes(self, seconds: int) -> None:
        self.clock += seconds * 1000
        self.model = {slot_ms: units for slot_ms, units in self.model.items() if slot_ms >= self.clock}

    @rule()
    def write(self) -> None:
        self.log.write()

    @rule()
    def settle(self) -> None:
        self.settled = settle(self.wheel, self.log)

    @rule(share=st.floats(0, 1))
    def clean(self, share: float) -> None:
        """Retention takes records that no pending message needs."""
        needed = min((units[0] for units in self.model.values()), default=self.physical)
        start = int(needed * share)
        for segment in self.log.expired_segments(start):
            segment.release()
            FILES.remove(segment.path)

    @rule(orderly=st.booleans())
    def restart(self, orderly: bool) -> None:
        """Orderly, or killed: what was not written is gone, in the wheel more than in the log."""
        if orderly:
            self.settled = settle(self.wheel, self.log)
        kept = self.log.written
        lost = {unit.physical_offset for unit in self.units_from(kept)}
        self.wheel.close()
        self.log.close()
        self.wheel = TimerWheel.open(FILES, self.root / "timerwheel", 1000, SLOTS)
        self.log = TimerLog(FILES, self.root / "timerlog", self.file_bytes)
        self.log.load(self.settled)
        self.log.cut()
        result = recover(self.wheel, self.log, self.settled, self.clock, forget=self.forget)
        assert result.made_again == ""
        self.settled = min(self.settled, self.log.end)
        left = {slot_ms: [unit for unit in units if unit not in lost] for slot_ms, units in self.model.items()}
        self.model = {slot_ms: units for slot_ms, units in left.items() if units}

    def units_from(self, position: int) -> list[object]:
        found = []
        while position < self.log.end:
            unit = self.log.unit(position)
            if unit is None:
                position += self.file_bytes - position % self.file_bytes
                continue
            found.append(unit)
            position += UNIT_BYTES
        return found

    @rule()
    def make_the_wheel_again(self) -> None:
        self.log.write()
        self.forget()
        self.wheel.clear()
        recover(self.wheel, self.log, 0, self.clock, forget=self.forget)

    def forget(self) -> None:
        self.settled = 0

    @invariant()
    def every_slot_walks_to_its_units(self) -> None:
        if not hasattr(self, "log"):
            return
        for slot_ms, units in self.model.items():
            slot = self.wheel.get(slot_ms)
            walk = self.log.walk(slot.last, slot_ms, limit=3)
            found = list(walk.units)
            while walk.end is ChainEnd.MORE:
                walk = self.log.walk(walk.next, slot_ms, limit=3)
                found += walk.units
            assert walk.end is ChainEnd.COMPLETE
            assert [unit.physical_offset for unit in reversed(found)] == units
            assert slot.unit_count == sum(-1 if unit.is_delete else 1 for unit in found)
            assert slot.first == found[-1].position
            assert all(unit.due_ms(1000) == (slot_ms + 1 if unit.magic == DEFAULT else None) for unit in found)
        used = {slot.number * 1000 for slot in self.wheel.slots(self.clock)}
        assert used == self.model.keys()

    def teardown(self) -> None:
        if hasattr(self, "folder"):
            self.wheel.close()
            self.log.close()
            self.folder.cleanup()


TestTimerModel = TimerMachine.TestCase
TestTimerModel.settings = settings(max_examples=25, stateful_step_count=25, deadline=None)


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 1 << 32), flips=st.integers(1, 12), file_units=st.integers(2, 9))
def test_damage_never_crashes_a_walk_and_never_yields_another_slot(seed: int, flips: int, file_units: int) -> None:
    rng = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        wheel = TimerWheel.create(FILES, root / "timerwheel", 1000, SLOTS)
        log = TimerLog(FILES, root / "timerlog", file_units * UNIT_BYTES + 16)
        log.load()
        slots = [W + number * 1000 for number in range(5)]
        for number in range(40):
            magic = rng.choice([DEFAULT, DEFAULT | ROLL, DEFAULT | DELETE])
            link(wheel, log, W, [Link(rng.choice(slots), magic, number * 100, 100, 7, 0)])
        settle(wheel, log)
        count = sum(1 for _ in log.scan())
        log.close()
        for path in rng.choices([*(root / "timerlog").iterdir(), root / "timerwheel"], k=flips):
            data = bytearray(path.read_bytes())
            at = rng.randrange(len(data) - 8)
            if rng.random() < 0.5:
                data[at] ^= 1 << rng.randrange(8)
            else:
                data[at : at + 8] = rng.choice([bytes(8), rng.randbytes(8), rng.randrange(3000).to_bytes(8)])
            path.write_bytes(data)
        damaged = TimerLog(FILES, root / "timerlog", file_units * UNIT_BYTES + 16)
        damaged.load()
        other = TimerWheel.open(FILES, root / "timerwheel", 1000, SLOTS)
        walk_all(damaged, other, slots, count)
        for unit in damaged.scan():
            assert unit.magic & DEFAULT
        damaged.cut()
        recover(other, damaged, 0, forget=lambda: None)
        walk_all(damaged, other, slots, count)


def walk_all(log: TimerLog, wheel: TimerWheel, slots: list[int], count: int) -> None:
    for slot_ms in slots:
        for last in (wheel.get(slot_ms).last, *range(-2, log.end + 60, 26)):
            walk = log.walk(last, slot_ms)
            assert len(walk.units) <= count
            assert all(unit.slot_ms == slot_ms for unit in walk.units)
            positions = [unit.position for unit in walk.units]
            assert positions == sorted(set(positions), reverse=True)
            assert bool(walk.problem) == (walk.end is ChainEnd.BROKEN)
