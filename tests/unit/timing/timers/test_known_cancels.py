"""A cancel record without a source counts for the message of its topic, key and slot time, wherever the two wait."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable

import pytest
from tests.worlds.little_store import LittleStore

from orbitmq.clock import ManualClock
from orbitmq.protocol.names import TIMER_TOPIC
from orbitmq.protocol.properties import Property, decode_properties
from orbitmq.timing.due_time import slot_time
from orbitmq.timing.index.directory import INDEX_DIRECTORY
from orbitmq.timing.timers.facts import TimerFacts
from orbitmq.timing.timers.known_cancels import KnownCancels
from orbitmq.timing.timers.timers import TimerSettings

Reopen = Callable[..., LittleStore]

HOUR_MS = 3_600_000
FAR_MS = 3 * HOUR_MS + 500


def facts(slot_ms: int, key: str = "Topic+u1", at: int = 400) -> TimerFacts:
    return TimerFacts(0, at, 100, slot_ms, slot_ms + 1, "Topic", "c", None, True, key, None, 0)


def message(slot_ms: int | str, key: str = "u1", topic: str = "Topic") -> dict[str, str]:
    return {Property.TIMER_OUT_MS: str(slot_ms), Property.UNIQ_KEY: key, Property.REAL_TOPIC: topic}


@pytest.fixture
def known(clock: ManualClock) -> KnownCancels:
    return KnownCancels(clock, count_max=3)


# --- the table --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", ["Topic+u1", "u1"])
def test_it_names_topic_key_and_slot_time(known: KnownCancels, clock: ManualClock, key: str) -> None:
    slot_ms = clock.now_ms() // 1_000 * 1_000 + 5_000
    known.add(facts(slot_ms, key))
    assert known.name(message(slot_ms))
    assert not known.name(message(slot_ms + 1_000))
    assert not known.name(message(slot_ms, "u2"))
    assert known.name(message(slot_ms, topic="Other")) == (key == "u1")
    assert [known.may_name(slot_ms + after_ms) for after_ms in (-4_000, 1, 1_000, 6_000)] == [False, True, True, False]


@pytest.mark.parametrize("slot", ["", "x", "²", "9" * 5_000])
def test_a_message_that_says_no_slot_time_is_not_named(known: KnownCancels, slot: str) -> None:
    known.add(facts(5_000))
    assert not known.name(message(slot))


def test_what_is_no_cancel_record_names_nobody(known: KnownCancels) -> None:
    known.add(None)
    known.add(facts(5_000, key=""))
    assert len(known) == 0
    assert not known.may_name(5_001)


def test_it_is_forgotten_when_all_up_to_its_slot_has_left(known: KnownCancels, clock: ManualClock) -> None:
    now_slot = clock.now_ms() // 1_000 * 1_000
    known.add(facts(now_slot + 5_000))
    known.add(facts(now_slot - 50_000, "Topic+u2"))  # whom it names may wait in the slot in progress
    known.forget(now_slot)
    assert len(known) == 2
    known.forget(now_slot + 4_000)
    assert known.state() == [(now_slot + 5_000, "Topic+u1", 400, 100)]
    known.forget(now_slot + 5_000)
    assert len(known) == 1
    known.forget(now_slot + 8_000)
    assert known.state() == []


@pytest.mark.parametrize("seed", range(20))
def test_nobody_is_forgotten_before_its_time(clock: ManualClock, seed: int) -> None:
    """Whatever widths of slots the senders and the store have: while a message waits, what cancels it is remembered."""
    rng = random.Random(seed)
    known, waiting = KnownCancels(clock), set[tuple[int, int, str]]()
    precision_ms = rng.choice((100, 1_000, 1_700))
    for number in range(200):
        due_ms = clock.now_ms() + rng.randrange(1, 20_000)
        slot_ms = slot_time(due_ms, rng.choice((100, 1_000, 1_700)))
        known.add(facts(slot_ms, f"Topic+u{number}"))
        waiting.add((due_ms, slot_ms, f"u{number}"))
        clock.advance(rng.choice((0, 1, 500, 4_000)))
        if rng.random() < 0.8:  # nothing leaves a store that has stopped
            waiting = {one for one in waiting if one[0] > clock.now_ms()}
        first_ms = min([clock.now_ms(), *(one[0] for one in waiting)])
        known.forget(slot_time(first_ms, precision_ms))
        for due_ms, slot_ms, key in waiting:
            assert known.may_name(due_ms)
            assert known.name(message(slot_ms, key))
    clock.advance(60_000)
    known.forget(clock.now_ms())
    assert len(known) == 0


def test_one_that_comes_late_is_kept_longer(known: KnownCancels, clock: ManualClock) -> None:
    slot_ms = clock.now_ms() // 1_000 * 1_000
    known.add(facts(slot_ms))
    clock.advance(10_000)
    known.add(facts(slot_ms, "Topic+u2"))
    known.forget(slot_ms + 5_000)
    assert len(known) == 2
    known.forget(slot_ms + 15_000)
    assert len(known) == 0


def test_beyond_the_bound_others_are_not_heeded_and_it_is_told_once(
    known: KnownCancels, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    slot_ms = clock.now_ms() // 1_000 * 1_000 + 5_000
    for at in range(6):
        known.add(facts(slot_ms, f"Topic+k{at}"))
    assert len(known) == 3
    assert len(caplog.records) == 1
    assert known.is_full
    assert not known.name(message(slot_ms, "k5"))
    known.forget(slot_ms + 5_000)
    known.add(facts(slot_ms, "Topic+k5"))
    assert known.name(message(slot_ms, "k5"))


def test_where_its_record_lies_is_kept_for_who_writes_it_down(known: KnownCancels) -> None:
    known.add(facts(5_000, at=800))
    known.add_named(6_000, "u2")  # nobody knows where that is
    known.add(facts(5_000, at=1_200))  # the same once more
    assert known.waiting() == [(5_000, 800, 100)]
    assert len(known) == 2


def test_the_mark_brings_it_back(known: KnownCancels, clock: ManualClock) -> None:
    known.add(facts(5_000))
    known.add_named(6_000, "u2")
    again = KnownCancels(clock)
    again.restore([list(one) for one in known.state()])
    assert again.state() == known.state()
    assert again.waiting() == [(5_000, 400, 100)]


def test_a_mark_of_an_earlier_version_names_no_places(known: KnownCancels) -> None:
    known.restore([[5_000, "Topic+u1"]])
    assert known.name(message(5_000))
    assert known.waiting() == []


@pytest.mark.parametrize(
    "state",
    [None, {}, "text", [1], [[1]], [["5000", "k"]], [[5_000, 7]], [[5_000, "k", 1]], [[5_000, "k", "1", 1]]],
)
def test_a_mark_that_says_something_else_says_nothing(known: KnownCancels, state: object) -> None:
    known.restore(state)
    assert len(known) == 0


# --- messages ---------------------------------------------------------------------------------------------------------


def send(little: LittleStore, key: str, after_ms: int) -> None:
    little.send(body=key.encode(), after_ms=after_ms, UNIQ_KEY=key)


def cancel(little: LittleStore, key: str, after_ms: int) -> None:
    """As a client of RocketMQ sends it."""
    little.send(body=b"0", after_ms=after_ms, TIMER_DEL_UNIQKEY=f"Topic+{key}", UNIQ_KEY=key, TAGS="_RECALL_TAG_")


def cancelled_later(little: LittleStore) -> None:
    send(little, "u1", FAR_MS)
    little.clock.advance(HOUR_MS)
    cancel(little, "u1", FAR_MS - HOUR_MS)


def cancelled_at_once(little: LittleStore) -> None:
    """Everything else of the slot is sent between the two."""
    send(little, "u1", FAR_MS)
    for at in range(70):
        little.append("Other", after_ms=FAR_MS + at)
    cancel(little, "u1", FAR_MS)


def cancelled_first(little: LittleStore) -> None:
    cancel(little, "u1", FAR_MS)
    little.clock.advance(2 * HOUR_MS)
    send(little, "u1", FAR_MS - 2 * HOUR_MS)


def settle(little: LittleStore) -> None:
    for _ in range(6):
        little.advance(1_000)


CASES = [cancelled_later, cancelled_at_once, cancelled_first]


@pytest.mark.parametrize("waits", CASES)
def test_a_step_of_the_clock_beyond_the_due_time(little: LittleStore, waits: Callable[[LittleStore], None]) -> None:
    send(little, "u2", FAR_MS)
    waits(little)
    little.clock.advance(2 * FAR_MS)
    settle(little)
    assert little.bodies() == [b"u2"]
    assert little.timers.pending_count == 0


@pytest.mark.parametrize("waits", CASES)
@pytest.mark.parametrize("end", [LittleStore.close, LittleStore.kill])
def test_a_stop_beyond_the_due_time(
    little: LittleStore, open_again: Reopen, waits: Callable[[LittleStore], None], end: Callable[[LittleStore], None]
) -> None:
    send(little, "u2", FAR_MS)
    waits(little)
    end(little)
    little.clock.advance(2 * FAR_MS)
    again = open_again()
    settle(again)
    assert again.bodies() == [b"u2"]
    assert again.timers.pending_count == 0
    again.advance(6_000)  # the next save need not keep it
    assert len(again.timers._ledger.cancels) == 0
    again.close()


@pytest.mark.parametrize("waits", CASES)
@pytest.mark.parametrize("precision_ms", [100, 1_700])
def test_another_precision_cancels_the_same(
    little: LittleStore, open_again: Reopen, waits: Callable[[LittleStore], None], precision_ms: int
) -> None:
    """Both records say a slot of the width that they were sent with."""
    send(little, "u2", FAR_MS)
    waits(little)
    due_ms = FAR_MS - (little.clock.now_ms() - 1_700_000_000_000)
    little.close()
    again = open_again(timers=TimerSettings(precision_ms=precision_ms))
    again.clock.advance(due_ms - 2_000)
    for _ in range(50):
        again.advance(100)
    assert again.bodies() == [b"u2"]
    assert again.timers.pending_count == 0
    again.close()


def test_whoever_is_found_again_is_cancelled(little: LittleStore, open_again: Reopen) -> None:
    """The index of a store was lost, and with it what a start knows of when each is due."""
    send(little, "u2", FAR_MS)
    cancelled_later(little)
    little.close()
    shutil.rmtree(little.root / INDEX_DIRECTORY)
    again = open_again()
    again.clock.advance(FAR_MS)
    settle(again)
    assert again.bodies() == [b"u2"]
    assert again.timers.pending_count == 0
    again.close()


def test_the_cancelled_one_is_recalled_in_the_log(little: LittleStore) -> None:
    cancelled_later(little)
    little.clock.advance(2 * FAR_MS)
    settle(little)
    last = little.records(TIMER_TOPIC)[-1]
    assert decode_properties(last.properties)[Property.TIMER_DEL_UNIQKEY] == "Topic+u1"
    assert last.prepared_transaction_offset
