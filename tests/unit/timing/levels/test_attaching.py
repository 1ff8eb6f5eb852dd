"""Delay levels begin and end to release any number of times; what is pending is learnt meanwhile."""

from __future__ import annotations

from tests.worlds.little_store import LittleStore


def test_attached_and_detached_any_number_of_times_each_message_is_delivered_once(little: LittleStore) -> None:
    expected = []
    for number in range(3):
        little.send(body=b"before %d" % number, level=1)
        little.turn()
        little.release.detach()
        little.release.detach()
        little.send(body=b"while nobody releases %d" % number, level=1)
        little.advance(5_000)
        assert little.bodies() == expected
        assert little.release.pending_count == 2
        little.release.attach(little.store)
        little.release.attach(little.store)
        little.advance(1)
        expected += [b"before %d" % number, b"while nobody releases %d" % number]
        assert little.bodies() == expected
    assert not little.release.pending_count


def test_what_was_taken_when_the_levels_were_detached_is_delivered_once(little: LittleStore) -> None:
    little.send(body=b"one", level=1)
    little.turn()
    little.clock.advance(1_500)
    little.release.release_due()
    little.release.detach()
    little.turn()
    assert little.bodies() == [b"one"]
    little.release.attach(little.store)
    little.advance(5_000)
    assert little.bodies() == [b"one"]
    assert not little.release.pending_count
