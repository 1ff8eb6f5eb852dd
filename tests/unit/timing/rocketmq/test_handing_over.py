"""What is handed over stands in RocketMQ's files exactly, as a reader finds it that knows nothing of who wrote them."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from tests.worlds.rocketmq_timers import CANCEL, MESSAGE, NOTHING, ROLLS, SeenByRocketMQ, seen_by_rocketmq

from orbitmq.store.files import OsFiles
from orbitmq.timing.due_time import slot_to_link
from orbitmq.timing.rocketmq import handing_over
from orbitmq.timing.rocketmq.exchange import TimerExchange
from orbitmq.timing.timers.exchange import DueUnits, HandOver

FILES = OsFiles()
NOW_MS = 1_795_228_412_345
SLOT_MS = NOW_MS - 345
SLOTS, WINDOW = 4_096, 1_000
LOG_BYTES = 52 * 20 + 20
NEWEST = (900_000, 321)

Unit = tuple[int, int, int, int]


def exchange(root: Path, precision_ms: int = 1_000) -> TimerExchange:
    return TimerExchange(FILES, root, precision_ms, WINDOW, SLOTS, LOG_BYTES)


def units_due(*dues: int) -> list[Unit]:
    """Messages due so many ms from now, stored in any order."""
    rng = random.Random(len(dues))
    places = rng.sample(range(len(dues)), len(dues))
    return sorted(
        (NOW_MS + due, place * 300, 200 + place % 7, rng.randint(-(2**31), 2**31 - 1))
        for due, place in zip(dues, places, strict=True)
    )


def what(units: list[Unit], *cancels: tuple[int, int, int], piece: int = 7, next_offset: int = 12) -> HandOver:
    pieces = [DueUnits.of(units[at : at + piece]) for at in range(0, len(units), piece)]
    return HandOver(pieces, {}, cancels, NEWEST, next_offset, NOW_MS)


def handed_over(root: Path, what: HandOver, precision_ms: int = 1_000) -> SeenByRocketMQ:
    to_rocketmq = exchange(root, precision_ms)
    to_rocketmq.hand_over(what)
    to_rocketmq.lower_fence()
    return seen_by_rocketmq(root, precision_ms, SLOTS, LOG_BYTES)


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("precision_ms", [1_000, 100])
def test_every_message_stands_in_the_chain_of_its_slot_once(tmp_path: Path, seed: int, precision_ms: int) -> None:
    rng = random.Random(seed)
    reach_ms = WINDOW * precision_ms
    count = rng.choice([1, 19, 20, 21, 40, 300])
    units = units_due(*(rng.randint(-reach_ms // 2, 3 * reach_ms) for _ in range(count)))
    seen = handed_over(tmp_path, what(units, piece=rng.choice([1, 6, 1_000])), precision_ms)
    assert sorted(seen.messages) == units
    now_slot = NOW_MS - NOW_MS % precision_ms
    for slot_ms, chain in seen.chains.items():
        assert seen.counts[slot_ms] == sum(-1 if unit.magic & 4 else 1 for unit in chain)
        for unit in chain:
            if unit.magic & 4:
                continue
            own_ms = (unit.due_ms - 1) // precision_ms * precision_ms
            linked_ms, rolls = slot_to_link(own_ms, now_slot, WINDOW, precision_ms)
            assert (slot_ms, unit.magic) == (linked_ms, ROLLS if rolls else MESSAGE)
            assert unit.write_ms == min(slot_ms, now_slot)


def test_chains_of_one_slot_stand_together_and_dues_ascend(tmp_path: Path) -> None:
    seen = handed_over(tmp_path, what(units_due(*(number * 150 for number in range(100)))))
    units = sorted((unit for chain in seen.chains.values() for unit in chain), key=lambda unit: unit.position)
    assert [unit.due_ms for unit in units[:-1]] == sorted(unit.due_ms for unit in units[:-1])


def test_rocketmq_goes_on_linking_behind_the_newest_record(tmp_path: Path) -> None:
    seen = handed_over(tmp_path, what(units_due(5_000, 9_000), next_offset=77))
    assert (seen.last_physical, seen.next_offset) == (NEWEST[0], 77)
    assert [unit.magic for unit in seen.chains[SLOT_MS]] == [NOTHING]
    assert seen.flushed == seen.log_end == 3 * 52


def test_with_nothing_pending_one_unit_says_how_far_records_are_linked(tmp_path: Path) -> None:
    seen = handed_over(tmp_path, what([]))
    assert seen.messages == []
    assert (seen.last_physical, seen.next_offset, seen.read_ms) == (NEWEST[0], 12, SLOT_MS)


@pytest.mark.parametrize("count", [19, 20, 39, 40])
def test_a_full_file_gets_its_filler_with_the_next_unit(tmp_path: Path, count: int) -> None:
    seen = handed_over(tmp_path, what(units_due(*range(1_000, 1_000 + count)), piece=1_000))
    assert len(seen.messages) == count
    files = sorted((tmp_path / "timerlog").iterdir())
    assert len(files) == -(-(count + 1) // 20)
    assert seen.log_end == (count // 20) * LOG_BYTES + (count % 20 + 1) * 52


# --- what is overdue --------------------------------------------------------------------------------------------------


def test_what_is_overdue_is_read_first_and_in_the_order_of_due_times(tmp_path: Path) -> None:
    units = units_due(-90_000, -89_999, -400_000, -30_000, -1, 0, 300, 5_000)
    seen = handed_over(tmp_path, what(units))
    assert seen.read_ms == (NOW_MS - 400_001) // 1_000 * 1_000
    assert seen.messages == units


def test_a_slot_further_back_than_rocketmq_looks_moves_to_the_one_in_progress(tmp_path: Path) -> None:
    """A quarter of a lap; what is due there leaves in its order, before what is due in the slot itself."""
    quarter_ms = SLOTS // 4 * 1_000
    units = units_due(-quarter_ms - 5_000, -quarter_ms - 4_000, -quarter_ms + 2_000, -200, 1)
    seen = handed_over(tmp_path, what(units))
    assert seen.read_ms == (NOW_MS - quarter_ms + 1_999) // 1_000 * 1_000
    assert [unit.due_ms for unit in seen.chains[SLOT_MS][:4]] == [units[0][0], units[1][0], units[3][0], units[4][0]]
    assert all(unit.delay_ms == 0 for unit in seen.chains[SLOT_MS])


def test_where_everything_overdue_has_moved_the_read_clock_is_the_slot_in_progress(tmp_path: Path) -> None:
    units = units_due(-SLOTS * 500_000, 90_000)
    seen = handed_over(tmp_path, what(units))
    assert seen.read_ms == SLOT_MS
    assert sorted(seen.messages) == units


# --- cancellations ----------------------------------------------------------------------------------------------------


def chain_of(seen: SeenByRocketMQ, slot_ms: int) -> list[tuple[int, int]]:
    return [(unit.magic, unit.physical) for unit in seen.chains.get(slot_ms, ())]


def test_a_cancellation_stands_in_the_slot_of_what_it_names(tmp_path: Path) -> None:
    units = [(SLOT_MS + 60_001, 300, 200, 7), (SLOT_MS + 61_001, 600, 200, 7)]
    seen = handed_over(tmp_path, what(units, (SLOT_MS + 61_000, 5_000, 150)))
    assert chain_of(seen, SLOT_MS + 61_000) == [(MESSAGE, 600), (CANCEL, 5_000)]
    assert chain_of(seen, SLOT_MS + 60_000) == [(MESSAGE, 300)]
    assert [unit.due_ms for unit in seen.chains[SLOT_MS + 61_000]] == [SLOT_MS + 61_001, 0]


def test_a_cancellation_rolls_with_what_it_names(tmp_path: Path) -> None:
    far_ms = SLOT_MS + 2 * WINDOW * 1_000
    seen = handed_over(tmp_path, what([(far_ms + 5, 300, 200, 7)], (far_ms, 5_000, 150)))
    assert chain_of(seen, SLOT_MS + WINDOW * 1_000) == [(ROLLS, 300), (CANCEL | 2, 5_000)]


def test_a_cancellation_moves_with_what_it_names(tmp_path: Path) -> None:
    old_ms = SLOT_MS - SLOTS * 500
    seen = handed_over(tmp_path, what([(old_ms + 5, 300, 200, 7)], (old_ms, 5_000, 150)))
    assert chain_of(seen, SLOT_MS) == [(MESSAGE, 300), (CANCEL, 5_000), (NOTHING, NEWEST[0])]


def test_a_cancellation_of_a_slot_that_is_over_and_empty_is_left_out(tmp_path: Path) -> None:
    over_ms = SLOT_MS - 5_000
    seen = handed_over(tmp_path, what(units_due(-9_000, 50), (over_ms, 5_000, 150), (SLOT_MS, 6_000, 150)))
    assert chain_of(seen, over_ms) == []
    assert (CANCEL, 6_000) in chain_of(seen, SLOT_MS)


def test_a_cancellation_of_an_overdue_message_stays_beside_it(tmp_path: Path) -> None:
    seen = handed_over(tmp_path, what([(SLOT_MS - 4_999, 300, 200, 7)], (SLOT_MS - 5_000, 5_000, 150)))
    assert chain_of(seen, SLOT_MS - 5_000) == [(MESSAGE, 300), (CANCEL, 5_000)]
    assert seen.read_ms == SLOT_MS - 5_000


# --- without anything -------------------------------------------------------------------------------------------------


def test_where_no_record_is_kept_there_are_no_files(tmp_path: Path) -> None:
    first = exchange(tmp_path)
    first.hand_over(what(units_due(5_000)))
    first.lower_fence()
    again = exchange(tmp_path)
    again.hand_over(HandOver([], {}, [], None, 40, NOW_MS))
    assert again.is_fenced
    again.lower_fence()
    assert not again.exists
    seen = seen_by_rocketmq(tmp_path, 1_000, SLOTS, LOG_BYTES)
    assert (seen.read_ms, seen.flushed, seen.next_offset) == (SLOT_MS, 0, 40)


def test_messages_without_a_record_are_a_mistake(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no record"):
        exchange(tmp_path).hand_over(HandOver([DueUnits.of(units_due(5))], {}, [], None, 40, NOW_MS))


def test_nothing_of_an_earlier_hand_over_stays(tmp_path: Path) -> None:
    handed_over(tmp_path, what(units_due(*range(0, 90_000, 700))))
    units = units_due(-3_000, 90_000)
    seen = handed_over(tmp_path, what(units))
    assert sorted(seen.messages) == units
    assert len(seen.chains) == 3


def test_a_value_that_fits_no_field_is_refused(tmp_path: Path) -> None:
    to_rocketmq = exchange(tmp_path)
    with pytest.raises(ValueError, match=r"fits no field|cannot be linked"):
        to_rocketmq.hand_over(what([(NOW_MS, 0, 2**31, 0)]))
    assert to_rocketmq.is_fenced


def test_a_hand_over_that_leaves_out_what_is_overdue_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted bug: only what is to come is written."""
    whole = handing_over._write_units

    def planted(writer: handing_over._LogWriter, slots: handing_over.Slots, what: HandOver) -> int:
        to_come = [
            piece._replace(places=[place for place in piece.places if piece.dues[place] > slots.now_ms])
            for piece in what.pending
        ]
        return whole(writer, slots, what._replace(pending=to_come))

    monkeypatch.setattr(handing_over, "_write_units", planted)
    with pytest.raises(AssertionError):
        test_what_is_overdue_is_read_first_and_in_the_order_of_due_times(tmp_path)
