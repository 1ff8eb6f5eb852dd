"""Files are walked where somebody met damage, places stay until they are mended, and hope ends with the first attempt."""

from __future__ import annotations

from orbitmq.limits.replication import MEND_PAUSE_MS, MEND_PLACES_SHOWN, MEND_SHARE, WALK_AGAIN_MS, WALKS_AGAIN_MAX
from orbitmq.replication.damage import Damage, StretchToWalk, UnmendedPlace
from orbitmq.units import NS_PER_MS

FILE = 1_000
PAUSE_NS = MEND_PAUSE_MS * NS_PER_MS


def test_a_reader_is_to_ask_again_until_the_other_copies_were_asked() -> None:
    damage = Damage(FILE)
    assert damage.next_file(0) is None
    assert damage.suspect(2_300, 0)
    assert damage.suspect(2_400, 0), "of the same file"
    assert damage.next_file(0) == 2_000
    assert damage.stretches(2_000) == [StretchToWalk(2_000, 3_000)]
    assert damage.found(2_300, "a bad CRC")
    assert damage.suspect(2_300, 0)
    damage.not_mended(2_300, 2_350, "a bad CRC")
    damage.walked(2_000, 0)
    assert not damage.suspect(2_300, 1), "there is no hope for now"
    assert not damage.suspect(2_349, 1), "nor for what lies within"
    assert damage.next_file(1) is None
    assert damage.due_ns == PAUSE_NS
    assert damage.next_file(PAUSE_NS) == 2_000
    assert damage.stretches(2_000) == [StretchToWalk(2_300, 2_350)], "the rest is known to be sound"
    assert not damage.found(2_300, "a bad CRC"), "it is no news"
    damage.mended(2_300, 50)
    assert (damage.places, damage.mended_count, damage.mended_bytes, damage.text) == ({}, 1, 50, "")
    damage.walked(2_000, PAUSE_NS)
    assert damage.next_file(1 << 60) is None


def test_a_place_behind_one_that_nobody_has_is_hoped_for() -> None:
    damage = Damage(FILE)
    damage.found(100, "x")
    damage.not_mended(100, 150, "x")
    damage.walked(0, 0)
    assert damage.suspect(150, 0)
    assert damage.stretches(0) == [StretchToWalk(0, FILE)]


def test_a_file_that_is_sound_is_not_walked_for_every_reader_that_says_otherwise() -> None:
    damage = Damage(FILE)
    damage.suspect(100, 0)
    damage.walked(0, 0)
    assert not damage.suspect(100, WALK_AGAIN_MS * NS_PER_MS - 1)
    assert [damage.suspect(100 + number, 5) for number in range(1, WALKS_AGAIN_MAX)] == [True] * (WALKS_AGAIN_MAX - 1)
    damage.walked(0, 5)
    assert not damage.suspect(300, 6), "that many at a time"
    assert damage.suspect(100, WALK_AGAIN_MS * NS_PER_MS + 5)
    assert damage.suspect(1_100, 0), "another file"


def test_what_was_mended_may_be_damaged_again() -> None:
    damage = Damage(FILE)
    for _ in range(2 * WALKS_AGAIN_MAX):
        assert damage.suspect(100, 0)
        damage.found(100, "x")
        damage.mended(100, 50)
        damage.walked(0, 0)


def test_places_where_a_walk_found_nothing_bad_are_forgotten() -> None:
    damage = Damage(FILE)
    for place in (100, 400, 1_100):
        damage.found(place, "x")
        damage.not_mended(place, place + 50, "x")
    damage.sound(0, 400)
    assert damage.places == {400: UnmendedPlace(450, "x", True), 1_100: UnmendedPlace(1_150, "x", True)}
    damage.sound(400, FILE)
    damage.walked(0, 1)
    assert damage.due_ns is None


def test_asking_for_what_nobody_gives_takes_a_small_part_of_the_time() -> None:
    damage = Damage(FILE)
    damage.found(100, "x")
    damage.not_mended(100, 150, "x")
    damage.walked(0, 0, PAUSE_NS)
    assert damage.due_ns == MEND_SHARE * PAUSE_NS


def test_a_file_that_could_not_be_walked_is_walked_as_a_whole_later() -> None:
    damage = Damage(FILE)
    damage.suspect(100, 0)
    damage.not_walked(0, 0)
    assert damage.next_file(1) is None
    assert damage.next_file(PAUSE_NS) == 0
    assert damage.stretches(0) == [StretchToWalk(0, FILE)]


def test_an_operator_reads_of_some_places_and_how_many_there_are() -> None:
    damage = Damage(FILE)
    for number in range(MEND_PLACES_SHOWN + 3):
        damage.found(number * 10, "x")
    assert damage.text.startswith("the log is damaged at 0 (x), 10 (x)")
    assert damage.text.endswith("and 3 other places")
