"""Files are walked where somebody met damage, places stay until they are mended, and hope ends with the first attempt."""

from __future__ import annotations

from orbitmq.limits.replication import MEND_PAUSE_MS, MEND_PLACES_SHOWN, WALK_AGAIN_MS
from orbitmq.replication.damage import Damage
from orbitmq.units import NS_PER_MS

FILE = 1_000


def test_a_reader_is_to_ask_again_until_the_other_copies_were_asked() -> None:
    damage = Damage(FILE)
    assert damage.next_file(0) is None
    assert damage.suspect(2_300, 0)
    assert damage.suspect(2_400, 0), "of the same file"
    assert damage.next_file(0) == 2_000
    assert damage.start_in(2_000) == 2_000
    assert damage.found(2_300, "a bad CRC")
    assert damage.suspect(2_300, 0)
    damage.not_mended(2_300, 0)
    assert not damage.suspect(2_300, 1), "there is no hope for now"
    assert damage.next_file(1) is None
    assert damage.due_ns == MEND_PAUSE_MS * NS_PER_MS
    assert damage.next_file(damage.due_ns) == 2_000
    assert damage.start_in(2_000) == 2_300
    assert not damage.found(2_300, "a bad CRC"), "it is no news"
    damage.mended(2_300, 100)
    assert (damage.places, damage.mended_count, damage.mended_bytes, damage.text) == ({}, 1, 100, "")
    damage.walked(2_000, 5)
    assert damage.next_file(1 << 60) is None


def test_a_file_that_is_sound_is_not_walked_for_every_reader_that_says_otherwise() -> None:
    damage = Damage(FILE)
    damage.suspect(100, 0)
    damage.walked(0, 0)
    assert not damage.suspect(100, WALK_AGAIN_MS * NS_PER_MS - 1)
    assert damage.suspect(100, WALK_AGAIN_MS * NS_PER_MS)
    assert damage.suspect(1_100, 0), "another file"


def test_places_of_a_file_that_was_walked_to_its_end_or_is_gone_are_forgotten() -> None:
    damage = Damage(FILE)
    damage.found(100, "x")
    damage.found(1_100, "x")
    damage.not_mended(100, 0)
    damage.walked(0, 1)
    assert list(damage.places) == [1_100]
    assert damage.due_ns is None


def test_an_operator_reads_of_some_places_and_how_many_there_are() -> None:
    damage = Damage(FILE)
    for number in range(MEND_PLACES_SHOWN + 3):
        damage.found(number * 10, "x")
    assert damage.text.startswith("the log is damaged at 0 (x), 10 (x)")
    assert damage.text.endswith("and 3 other places")
