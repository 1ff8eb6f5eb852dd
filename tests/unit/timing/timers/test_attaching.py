"""Timers begin and end to release any number of times; what is pending is learnt meanwhile."""

from __future__ import annotations

from tests.worlds.little_store import LittleStore


def test_attached_and_detached_any_number_of_times_each_message_is_delivered_once(little: LittleStore) -> None:
    expected = []
    for number in range(3):
        little.send(body=b"before %d" % number, after_ms=1_000)
        little.turn()
        little.timers.detach()
        little.timers.detach()
        little.send(body=b"while nobody releases %d" % number, after_ms=1_000)
        little.advance(5_000)
        assert little.bodies() == expected
        assert little.timers.pending_count == 2
        assert little.timers.delivered_until_ms < little.clock.now_ms() - 1_000, "what waits is not delivered"
        little.timers.attach(little.store)
        little.timers.attach(little.store)
        little.advance(1)
        expected += [b"before %d" % number, b"while nobody releases %d" % number]
        assert little.bodies() == expected
    assert not little.timers.pending_count


def test_what_was_taken_when_the_timers_were_detached_is_delivered_once(little: LittleStore) -> None:
    little.send(body=b"one", after_ms=1_000)
    little.turn()
    little.clock.advance(1_500)
    little.timers.run()
    little.timers.detach()
    little.turn()
    assert little.bodies() == [b"one"]
    little.timers.attach(little.store)
    little.advance(5_000)
    assert little.bodies() == [b"one"]
    assert not little.timers.pending_count
