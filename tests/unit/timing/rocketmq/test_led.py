"""A master of RocketMQ delivered from this log: what it delivered is found when this broker takes over, or as the master says it."""

from __future__ import annotations

from tests.worlds.little_store import LittleStore

from orbitmq.protocol.properties import Property, decode_properties, encode_properties
from orbitmq.store.dispatch import Dispatched
from orbitmq.store.files import OsFiles
from orbitmq.store.message import NewMessage
from orbitmq.timing.rocketmq.led import LED_FILE, LedByRocketMQ


def wait(little: LittleStore, key: str, *, level: int = 0, after_ms: int | None = None) -> Dispatched:
    return little.send(body=key.encode(), level=level, after_ms=after_ms, **{Property.UNIQ_KEY: key})


def delivered_by_java(little: LittleStore, source: Dispatched) -> None:
    """As RocketMQ does it: the same properties, and no source."""
    properties = encode_properties(decode_properties(source.properties))
    little.store.append(NewMessage("Topic", 0, b"delivered", properties, unique_key=source.unique_key))
    little.store.commit()


def copy(little: LittleStore) -> LedByRocketMQ:
    """Nobody delivers here."""
    little.release.detach()
    little.timers.detach()
    led = LedByRocketMQ(OsFiles(), little.root)
    led.note()
    return led


def test_what_rocketmq_delivered_is_not_delivered_again_and_the_rest_is(little: LittleStore) -> None:
    led = copy(little)
    level = [wait(little, f"level{number}", level=1) for number in range(2)]
    timers = [wait(little, f"timer{number}", after_ms=2_000) for number in range(2)]
    little.clock.advance(5_000)
    delivered_by_java(little, level[0])
    delivered_by_java(little, timers[1])
    assert (little.release.pending_count, little.timers.pending_count) == (2, 2)
    assert led.settle(little.store.log, little.release, little.timers) == 2
    assert (little.release.pending_count, little.timers.pending_count) == (1, 1)
    little.release.attach(little.store)
    little.timers.attach(little.store)
    little.advance(5_000)
    assert sorted(little.bodies()) == [b"delivered", b"delivered", b"level1", b"timer0"]


def test_an_earlier_attempt_at_the_same_message_is_not_taken_for_the_delivery_of_the_next(little: LittleStore) -> None:
    led = copy(little)
    wait(little, "oldest", level=2)
    first = wait(little, "key", level=1)
    little.clock.advance(2_000)
    delivered_by_java(little, first)
    little.release.delivered_elsewhere({1: 1})
    wait(little, "key", level=1)
    little.clock.advance(2_000)
    wait(little, "newest", level=3)
    assert led.settle(little.store.log, little.release, little.timers) == 0
    assert little.release.pending_by_level() == {1: 1, 2: 1, 3: 1}


def test_it_is_remembered_until_it_is_settled(little: LittleStore) -> None:
    led = LedByRocketMQ(OsFiles(), little.root)
    assert not led.is_so
    assert led.settle(little.store.log, little.release, little.timers) == 0
    led.note()
    led.note()
    led = LedByRocketMQ(OsFiles(), little.root)
    assert led.is_so
    assert led.settle(little.store.log, little.release, little.timers) == 0
    assert not led.is_so
    assert not (little.root / LED_FILE).exists()


def test_timers_are_named_by_when_they_were_due(little: LittleStore) -> None:
    copy(little)
    soon, later = wait(little, "soon", after_ms=2_000), wait(little, "later", after_ms=60_000)
    (unit,) = little.timers.due_before(little.clock.now_ms() + 30_000)
    assert unit == (soon.queue_offset, soon.physical_offset, little.clock.now_ms() + 2_000)
    assert little.timers.delivered_elsewhere([unit, unit]) == 1
    assert little.timers.delivered_elsewhere([unit]) == 0
    assert [one[1] for one in little.timers.due_before(1 << 60)] == [later.physical_offset]
