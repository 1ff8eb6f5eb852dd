"""What is confirmed is what the disk and the copies let pass; nobody sees more, and who waits is told once."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.worlds.little_store import LittleStore

from orbitmq.store.durability import PutStatus
from orbitmq.store.settings import FlushDiskType

OK, DISK_LATE = PutStatus.PUT_OK, PutStatus.FLUSH_DISK_TIMEOUT
COPY_LATE, NO_COPY = PutStatus.FLUSH_SLAVE_TIMEOUT, PutStatus.SLAVE_NOT_AVAILABLE


@pytest.fixture
def little(tmp_path: Path) -> LittleStore:
    return LittleStore(tmp_path)


@pytest.fixture
def syncing(tmp_path: Path) -> LittleStore:
    return LittleStore(tmp_path, flush_disk_type=FlushDiskType.SYNC_FLUSH)


# --- the gate of the copies ------------------------------------------------------------------------------------------


def test_nothing_is_confirmed_or_answered_before_the_copies_have_it(little: LittleStore) -> None:
    little.store.confirmation.hold_for_copies(0)
    placed = little.send(body=b"one", KEYS="k")
    assert (little.statuses, little.bodies(), little.store.confirm_offset) == ([], [], 0)
    assert little.store.record_at(0) is None, "by id"
    assert little.store.query_by_key("Topic", "k", 9, 0, 1 << 62) == [], "by key"
    assert little.store.max_offset("Topic", 0) == 0
    little.store.confirmation.copies_have(placed.end_offset)
    assert (little.statuses, little.bodies()) == ([OK], [b"one"])
    assert little.store.query_by_key("Topic", "k", 9, 0, 1 << 62) == [0]


def test_a_record_is_confirmed_whole_or_not_at_all(little: LittleStore) -> None:
    little.store.confirmation.hold_for_copies(0)
    first, second = little.send(body=b"one"), little.send(body=b"two")
    little.store.confirmation.copies_have(second.end_offset - 1)
    assert little.bodies() == [b"one"]
    assert little.store.confirm_offset == first.end_offset == second.physical_offset
    assert little.statuses == [OK]


def test_a_copy_that_has_part_of_a_filler_confirms_up_to_the_last_record(little: LittleStore) -> None:
    little.store.confirmation.hold_for_copies(0)
    last = little.send(body=bytes(4_000))
    while (placed := little.send(body=bytes(4_000))).physical_offset == last.end_offset:
        last = placed
    filler_begin, filler_end = last.end_offset, placed.physical_offset
    little.store.confirmation.copies_have(filler_begin + 9)
    assert little.store.confirm_offset == filler_begin
    little.store.confirmation.copies_have(filler_end)
    assert little.store.confirm_offset == filler_end
    little.store.confirmation.copies_have(placed.end_offset)
    assert little.store.confirm_offset == little.store.log.written_end


def test_both_gates_have_to_let_a_record_pass(syncing: LittleStore) -> None:
    syncing.store.confirmation.hold_for_copies(0)
    first = syncing.send(body=b"one")
    syncing.worker.close()
    assert (syncing.statuses, syncing.bodies()) == ([], [])
    second = syncing.send(body=b"two")
    syncing.store.confirmation.copies_have(second.end_offset)
    assert syncing.bodies() == [b"one"]
    assert syncing.store.confirm_offset == first.end_offset
    syncing.worker.close()
    assert (syncing.statuses, syncing.bodies()) == ([OK, OK], [b"one", b"two"])


def test_a_message_that_does_not_wait_is_answered_at_once_and_shown_later(little: LittleStore) -> None:
    little.store.confirmation.hold_for_copies(0)
    placed = little.store.append(little.message())
    little.store.wait_durable(placed.end_offset, False, little.statuses.append)
    little.store.commit()
    assert (little.statuses, little.bodies()) == ([OK], [])
    little.store.confirmation.copies_have(placed.end_offset)
    assert little.bodies() == [b"body"]


# --- copies that are late --------------------------------------------------------------------------------------------


def test_late_copies_are_reported_until_they_have_the_record_or_are_not_waited_for(little: LittleStore) -> None:
    late: list[int] = []
    gate = little.store.confirmation
    gate.hold_for_copies(0, 3_000, lambda: late.append(little.clock.monotonic_ns()))
    placed = little.send()
    little.advance(2_999)
    assert late == []
    little.advance(1)
    assert len(late) == 1
    little.advance(3_000)
    assert len(late) == 2, "it is reported again as long as it lasts"
    gate.copies_have(placed.end_offset)
    little.advance(60_000)
    assert len(late) == 2
    assert little.statuses == [OK]


def test_each_turn_has_its_own_time(little: LittleStore) -> None:
    late: list[int] = []
    gate = little.store.confirmation
    gate.hold_for_copies(0, 3_000, lambda: late.append(1))
    first = little.send()
    little.advance(2_000)
    second = little.send()
    little.advance(500)
    gate.copies_have(first.end_offset)
    little.advance(2_499)
    assert late == []
    little.advance(1)
    assert late == [1]
    gate.copies_have(second.end_offset)
    assert little.statuses == [OK, OK]


def test_without_copies_who_waits_is_told_and_the_messages_are_delivered(little: LittleStore) -> None:
    gate = little.store.confirmation
    gate.hold_for_copies(0, 3_000, lambda: gate.let_pass(COPY_LATE, NO_COPY))
    little.send(body=b"one")
    little.advance(3_000)
    assert (little.statuses, little.bodies()) == ([COPY_LATE], [b"one"])
    little.send(body=b"two")
    assert (little.statuses[1:], little.bodies()) == ([NO_COPY], [b"one", b"two"])
    gate.let_pass()
    little.send()
    assert little.statuses[2:] == [OK]


def test_without_copies_the_disk_still_has_to_have_the_record(syncing: LittleStore) -> None:
    syncing.store.confirmation.let_pass(later=NO_COPY)
    syncing.send(body=b"one")
    assert (syncing.statuses, syncing.bodies()) == ([], [])
    syncing.worker.close()
    assert (syncing.statuses, syncing.bodies()) == ([NO_COPY], [b"one"])


def test_who_had_been_copied_is_not_told_that_copies_failed(syncing: LittleStore) -> None:
    gate = syncing.store.confirmation
    gate.hold_for_copies(0)
    first = syncing.send()
    syncing.send()
    gate.copies_have(first.end_offset)
    gate.let_pass(COPY_LATE, NO_COPY)
    syncing.worker.close()
    assert syncing.statuses == [OK, COPY_LATE]


def test_a_record_that_neither_disk_nor_copies_had_in_time_is_late_at_the_disk(syncing: LittleStore) -> None:
    gate = syncing.store.confirmation
    gate.hold_for_copies(0, 3_000, lambda: gate.let_pass(COPY_LATE, NO_COPY))
    syncing.send()
    for _ in range(5):
        syncing.clock.advance(1_000)
        syncing.store.run_due(syncing.clock.monotonic_ns())
    assert syncing.statuses == [DISK_LATE]
    assert syncing.bodies() == []
    syncing.worker.close()
    assert syncing.bodies() == [b"body"]


def test_a_copy_counts_again_when_it_is_level_with_what_is_confirmed(little: LittleStore) -> None:
    gate = little.store.confirmation
    little.send(body=b"one")
    confirmed = little.store.confirm_offset
    with pytest.raises(ValueError, match="it is confirmed up to"):
        gate.hold_for_copies(confirmed - 1)
    little.send(body=b"two")
    assert little.bodies() == [b"one", b"two"], "the refused copy changed nothing"
    gate.hold_for_copies(little.store.confirm_offset)
    little.send(body=b"three")
    assert little.bodies() == [b"one", b"two"]


def test_a_copy_that_reports_less_than_before_confirms_nothing_and_takes_nothing_back(little: LittleStore) -> None:
    gate = little.store.confirmation
    gate.hold_for_copies(0)
    placed = little.send(body=b"one")
    gate.copies_have(placed.end_offset)
    gate.copies_have(0)
    little.send(body=b"two")
    assert (little.bodies(), little.store.confirm_offset) == ([b"one"], placed.end_offset)


def test_a_failed_sync_ends_the_wait_for_copies_too(syncing: LittleStore) -> None:
    syncing.store.confirmation.hold_for_copies(0)
    syncing.send()
    syncing.worker.jobs.clear()
    syncing.store._sync_failed(OSError(5, "planned"))
    assert syncing.statuses == [PutStatus.SERVICE_NOT_AVAILABLE]
    syncing.store.confirmation.copies_have(1 << 40)
    assert syncing.bodies() == []


def test_a_broker_that_leads_no_more_says_that_it_does_not_know(little: LittleStore) -> None:
    gate = little.store.confirmation
    gate.hold_for_copies(0)
    placed = little.send(body=b"one")
    gate.give_up_waiting()
    assert little.statuses == [PutStatus.UNKNOWN]
    gate.copies_have(placed.end_offset)
    assert (little.statuses, little.bodies()) == ([PutStatus.UNKNOWN], [b"one"])
